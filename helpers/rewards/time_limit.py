"""Running a reward that may never come back: a limit of time for a call, and one lasting event loop
for all async rewards.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager


class OutOfTime(BaseException):
    """A call takes too long. No Exception, which a reward's own `except` would swallow."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after so many seconds, and ten times a second from then on; once
    more at its end, if a bare `except:` in it has swallowed that.

    Does nothing outside the main thread, which alone gets signals, and on Windows.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "SIGALRM"):
        yield
        return

    rung = False

    def ring(*_):
        nonlocal rung
        rung = True
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if rung:
        raise OutOfTime


def wait_for(returned: Awaitable) -> object:
    """Return what an async reward gives, run on the loop that all of them share."""
    return asyncio.run_coroutine_threadsafe(_result_of(returned), _lasting_loop()).result()


async def _result_of(returned: Awaitable) -> object:
    try:
        return await returned
    except SystemExit as error:  # it would end the loop of all async rewards
        raise RuntimeError(f"the process was to end: exit({error})") from None


@functools.cache
def _lasting_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all async rewards, in a thread of its own: a notebook's has one already,
    and a client or a semaphore belongs to the loop that first used it.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
