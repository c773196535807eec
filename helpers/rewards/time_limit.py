"""Call rewards that may hang: a time limit for a block of code, and one event loop for all async
rewards of the process.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager


class OutOfTime(BaseException):
    """The time limit is exceeded. A BaseException, so that a reward's `except Exception` does not
    catch it.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after so many seconds.

    A bare `except:` in the block may catch it. So it is raised again every tenth of a second, and
    once more after the block. Without effect outside the main thread, because only the main thread
    receives signals, and on Windows.
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
    """Run an async reward on the shared event loop, and return its result."""
    return asyncio.run_coroutine_threadsafe(_result_of(returned), _lasting_loop()).result()


async def _result_of(returned: Awaitable) -> object:
    try:
        return await returned
    except SystemExit as error:  # would end the shared event loop
        raise RuntimeError(f"the process was to end: exit({error})") from None


@functools.cache
def _lasting_loop() -> asyncio.AbstractEventLoop:
    """Start the shared event loop in a thread, and return it.

    The main thread of a notebook already runs a loop of its own. All async rewards share one loop,
    because a client or a semaphore works only on the loop that first used it.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
