"""A process that is started once and forks a confined interpreter for each program.

Three processes stand in a row. Ours holds the expected values, so nothing is forked from it. The
launcher is a new Python that runs sandlock. The starter (`driver.main`) waits in sandlock with the
usual modules imported; for each program it is sent two new pipes, forks, and closes its own ends:
a child has its own pipes and no way to those of another. A starter has one child at a time, which
it kills when we say so, whether the child has ended or not, and collects before the next.
"""

import ast
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO

START_SECONDS = 30.0  # for the interpreter to come up, and for a child to end when it is killed
_idle: dict[tuple, list["Starter"]] = {}


class Starter:
    """A launcher and its starter, for one program at a time. Every method: OSError where they are
    gone or hang.
    """

    def __init__(self, confinement: dict, command: list[str]):
        self.control, theirs = socket.socketpair()
        self.control.settimeout(START_SECONDS)
        with theirs:
            self.launcher = subprocess.Popen(
                [sys.executable, "-I", __file__, repr((confinement, command, sys.path))],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,  # an interrupt at our terminal is not for them
            )

    def begin(self, memory: int, job: bytes) -> BinaryIO:
        """Fork a child and write its job: the pipe that its outcomes come out of."""
        theirs_in, writing = os.pipe()
        reading, theirs_out = os.pipe()
        said = open(reading, "rb", buffering=0)  # noqa: SIM115 (whoever asked closes it)
        with open(writing, "wb") as told:
            try:
                socket.send_fds(self.control, [b"%d" % memory], [theirs_in, theirs_out])
            finally:
                os.close(theirs_in)
                os.close(theirs_out)
            told.write(job)
        return said

    def end(self) -> int:
        """Kill the child, if it has not ended: its exit code, or its signal as a negative one."""
        self.control.send(b"end")
        status = self.control.recv(16)
        if not status:
            raise ConnectionResetError("the starter is gone")
        return os.waitstatus_to_exitcode(int(status))

    def close(self) -> None:
        """End the launcher, with it the starter, and with that its child."""
        self.launcher.kill()
        self.launcher.wait()
        self.control.close()


@contextlib.contextmanager
def starter(confinement: dict, command: list[str]) -> Iterator[Starter]:
    """An idle starter, or a new one; it is idle again unless something failed.

    confinement: the keywords of sandlock's Sandbox. command: what runs `driver.main` there.
    """
    # A fork of our process has its own, because a starter hears one process alone.
    idle = _idle.setdefault((os.getpid(), repr((confinement, command))), [])
    try:
        one = idle.pop()
    except IndexError:
        one = Starter(confinement, command)
    try:
        yield one
    except BaseException:
        one.close()
        raise
    idle.append(one)


if __name__ == "__main__":  # the launcher
    confinement, command, sys.path = ast.literal_eval(sys.argv[1])
    from sandlock import Sandbox, StdioMode

    inherited = dict.fromkeys(("stdin", "stdout", "stderr"), StdioMode.INHERIT)
    Sandbox(**confinement).popen(command, **inherited).wait()
