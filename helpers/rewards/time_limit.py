"""Call rewards that may hang: a time limit for a block of code, and one event loop for all async
rewards of the process.
"""

import asyncio
import functools
import signal
import threading
import time
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
    handles signals, and on Windows.

    The block may use SIGALRM and its timer: Math-Verify sets and clears them for its own time
    limit. This limit is kept by SIGPROF, which has two senders. A thread also reaches a block that
    sleeps or waits. A timer of the processor time also reaches C code that keeps Python's lock,
    such as a pattern of `re`.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or not hasattr(signal, "SIGPROF"):
        yield
        return

    due = time.monotonic() + seconds
    rung = False
    left = threading.Event()

    def ring(*_):
        nonlocal due, rung
        if time.monotonic() < due or left.is_set():
            return
        due = time.monotonic() + _AGAIN
        rung = True
        raise OutOfTime

    def watch():
        while not left.wait(max(_AGAIN, due - time.monotonic())):
            signal.pthread_kill(main.ident, signal.SIGPROF)

    before = signal.signal(signal.SIGPROF, ring)
    timer_before = signal.setitimer(signal.ITIMER_PROF, _AGAIN, _AGAIN)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            left.set()
    finally:
        left.set()  # again, in case OutOfTime was raised between the block and the line above
        # without its handler, SIGPROF would end the process: nothing may send it any more
        watcher.join()
        signal.setitimer(signal.ITIMER_PROF, *timer_before)
        signal.signal(signal.SIGPROF, before)
    if rung:
        raise OutOfTime


_AGAIN = 0.1  # seconds between two looks at the clock, and until OutOfTime is raised again


def wait_for(returned: Awaitable) -> object:
    """Run an async reward on the shared event loop, and return its result."""
    return asyncio.run_coroutine_threadsafe(_result_of(returned), _lasting_loop()).result()


async def _result_of(returned: Awaitable) -> object:
    try:
        return await returned
    except SystemExit as error:  # would end the shared event loop
        raise RuntimeError(f"it tried to end the process: exit({error})") from None


@functools.cache
def _lasting_loop() -> asyncio.AbstractEventLoop:
    """Start the shared event loop in a thread, and return it.

    The main thread of a notebook already runs a loop of its own. All async rewards share one loop,
    because a client or a semaphore works only on the loop that first used it.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
