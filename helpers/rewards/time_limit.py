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

_PERIOD = 0.1  # seconds between two looks at the clock, and until OutOfTime is raised again


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
    limit. This limit is kept by SIGPROF.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or not hasattr(signal, "SIGPROF"):
        yield
        return

    # 1. Each SIGPROF looks at the clock, and raises OutOfTime in the block if the time is up.
    due = time.monotonic() + seconds
    was_raised = False
    block_has_ended = threading.Event()

    def look_at_the_clock(*_):
        nonlocal due, was_raised
        if time.monotonic() < due or block_has_ended.is_set():
            return
        due = time.monotonic() + _PERIOD
        was_raised = True
        raise OutOfTime

    handler_before = signal.signal(signal.SIGPROF, look_at_the_clock)

    # 2. The first sender of SIGPROF is a timer of processor time. It also reaches C code that keeps
    # Python's lock, such as a pattern of `re`.
    timer_before = signal.setitimer(signal.ITIMER_PROF, _PERIOD, _PERIOD)

    # 3. The second sender is a thread. It also reaches a block that sleeps or waits.
    def send_when_due():
        while not block_has_ended.wait(max(_PERIOD, due - time.monotonic())):
            signal.pthread_kill(main.ident, signal.SIGPROF)

    sender = threading.Thread(target=send_when_due, daemon=True)
    sender.start()

    # 4. Run the block. Then stop both senders before the handler goes: without a handler, SIGPROF
    # would end the process.
    try:
        try:
            yield
        finally:
            block_has_ended.set()
    finally:
        # again, in case OutOfTime was raised between the block and the line above
        block_has_ended.set()
        sender.join()
        signal.setitimer(signal.ITIMER_PROF, *timer_before)
        signal.signal(signal.SIGPROF, handler_before)

    # 5. The block may have caught OutOfTime.
    if was_raised:
        raise OutOfTime


def wait_for(returned: Awaitable) -> object:
    """Run what an async reward returned on the shared event loop, and return its result."""
    return asyncio.run_coroutine_threadsafe(_result_of(returned), _shared_loop()).result()


async def _result_of(returned: Awaitable) -> object:
    """Return the result. Raise RuntimeError instead of SystemExit, which would end the loop."""
    try:
        return await returned
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the process: exit({error})") from None


@functools.cache
def _shared_loop() -> asyncio.AbstractEventLoop:
    """Start the shared event loop in a thread, and return it.

    The main thread of a notebook already runs a loop of its own. All async rewards share one loop,
    because a client or a semaphore works only on the loop that first used it.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
