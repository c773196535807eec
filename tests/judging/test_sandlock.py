"""sandlock: a program can read Python's files and nothing else, cannot touch other files or processes,
leaves nothing behind, and only plain data comes out.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from sandboxes import NEEDS_SANDLOCK, SHORT, call, script

from helpers.judging.programs import driver
from helpers.judging.programs.sandbox import Job, Limits, decode, run_code

# Actions that must fail, with PID for our process and FILE for one of our files.
REFUSED = {
    "read a file": "open(FILE)",
    "list a folder": "os.listdir(os.path.dirname(FILE))",
    "read another process's environment": "open(f'/proc/{PID}/environ')",
    "change a file's mode": "os.chmod(FILE, 0o777)",
    "change its mode at once": "os.fchmod(os.open(os.__file__, 0), 0o777)",
    "change its owner": "os.chown(FILE, 0, 0)",
    "change its times": "os.utime(FILE, (1, 1))",
    "change its attributes": "os.setxattr(FILE, 'user.x', b'1')",
    "change its flags": "fcntl.ioctl(os.open(os.__file__, 0), 0x40086602, b'0' * 8)",
    "write a file": "open('x', 'w')",
    "write a file without a name": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "write a file of memory": "os.memfd_create('x')",
    "watch files": "libc(294, 0)",
    "open a socket": "socket.socket(socket.AF_UNIX)",
    "open a socket of the kernel": "socket.socket(socket.AF_NETLINK)",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "read the kernel's log": "libc(103, 10, 0, 0)",
    "change its root": "os.chroot('/')",
    "start a process": "os.fork()",
    "start a process beside its own": "libc(56, 0x8011, 0, 0, 0, 0)",
    "signal the process that forked it": "os.kill(os.getppid(), 0)",
    "signal another process": "os.kill(PID, 0)",
    "slow another process": "os.setpriority(0, PID, 19)",
    "bind another process": "os.sched_setaffinity(PID, {0})",
    "limit another process": "resource.prlimit(PID, resource.RLIMIT_NOFILE, (77, 77))",
    "hold another process": "os.pidfd_open(PID)",
    "see what another process has open": "os.readlink(f'/proc/{PID}/exe')",
    "leave a lock": "fcntl.flock(2, fcntl.LOCK_EX)",
    "leave a note among the locks": "fcntl.fcntl(2, 37, struct.pack('hhqqi4x', 1, 0, 5, 1, 0))",
    "leave a flag of a file": "fcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)",
    "outlive the process that forked it": "libc(157, 1, 0, 0, 0, 0)",
    "hold memory that no limit counts": "libc(278, 1, 0, 0, 0)",
}


@NEEDS_SANDLOCK
def test_sandlock_refuses_what_the_docs_say(tmp_path):
    file = tmp_path / "bait"
    file.write_text("x")
    before_it = (file.stat().st_mode, file.stat().st_uid, file.stat().st_mtime_ns)
    tries = ",\n".join(f"({name!r}, lambda: {code})" for name, code in REFUSED.items())
    source = f"""
import ctypes, fcntl, os, resource, socket, struct, time
FILE, PID = {str(file)!r}, {os.getpid()}
def libc(*arguments):
    if ctypes.CDLL(None).syscall(*arguments) < 0:
        raise OSError
def f():
    done = []
    for name, attempt in [{tries}]:
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    return done + [os.getuid() == 0 or os.getgid() == 0]
"""
    [outcome] = call(source, (), sandbox="sandlock", limits=Limits(seconds=20.0))
    assert outcome.value == [False], outcome
    assert before_it == (file.stat().st_mode, file.stat().st_uid, file.stat().st_mtime_ns)


AFTER = [  # a program, and its outcome
    ("os.kill(-1, 9)", "value"),
    ("os.killpg(os.getpgid(os.getppid()), 9)", "error"),
    ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    ("os.setpgid(0, os.getpgid(os.getppid()))", "error"),
    ("os.setsid()\nwhile True: pass", "error"),
    ("os.closerange(0, 32)\nwhile True: pass", "error"),
    ("os.execv(sys.executable, ['', '-c', 'while True: pass'])", "error"),
    ("os._exit = lambda code: None", "value"),
    ("os._exit(0)", "error"),
    ("while True: os.write(3, b'x' * 65_536)", "output"),
    ("os.write(3, b'\\n' * 9)", "error"),
    ("os.write(3, b'[' * 50_000 + b'\\n')", "error"),
    ("x = bytearray(110_000_000)\nrandom.seed(1)", "value"),
    ("x = bytearray(160_000_000)", "memory"),
]


def ours() -> set[int]:
    """Return the child processes of this one."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


@NEEDS_SANDLOCK
def test_no_program_affects_the_next_one():
    at_first = ours()
    probe = Job("import os, random, sys\nprint(sys.argv, random.random(), os.environ)")
    [[first]] = run_code([probe], SHORT, "sandlock", workers=1)
    for source, kind in AFTER:
        job = Job("import os, random, signal, sys\n" + source)
        [outcome], [following] = run_code([job, probe], SHORT, "sandlock", workers=1)
        assert (outcome.kind, following) == (kind, first), (source, outcome)
    assert ours() == at_first, "no process is left"
    [[large]] = run_code([Job("x = bytearray(160_000_000)")], Limits(), "sandlock", workers=1)
    assert large.kind == "value", "each program has its own memory limit"


@NEEDS_SANDLOCK
def test_a_program_has_no_open_files_but_its_own_pipes():
    source = """
import os, stat
held = []
for file in range(64):
    try:
        mode = os.fstat(file).st_mode
        held.append("pipe" if stat.S_ISFIFO(mode) else os.fstat(file).st_rdev)
    except OSError:
        pass
print(held == ["pipe", os.makedev(1, 3), os.makedev(1, 3), "pipe"], held)
"""
    with open(os.__file__):  # a file open in our process
        assert script(source, sandbox="sandlock").output.startswith("True")


@NEEDS_SANDLOCK
def test_the_processes_of_programs_end_with_our_process():
    program = """
import os, psutil, threading
from helpers.judging.programs.sandbox import Job, Limits, run_code
run_code([Job("1")], Limits(), "sandlock")
looping = Job("import ctypes\\nctypes.CDLL(None).prctl(1, 0)\\nwhile True: pass")
run = lambda: run_code([looping], Limits(seconds=99), "sandlock", workers=1)
threading.Thread(target=run, daemon=True).start()
spent = 0
while spent < 1:  # it has begun
    below = psutil.Process().children(recursive=True)
    spent = sum(sum(process.cpu_times()[:2]) for process in below)
print(*(process.pid for process in below), flush=True)
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    below = [int(number) for number in done.stdout.split()]
    ends = time.monotonic() + 30
    while any(map(psutil.pid_exists, below)) and time.monotonic() < ends:
        time.sleep(0.1)
    assert len(below) == 1 and not any(map(psutil.pid_exists, below)), done.stderr


# --- Only plain data comes out --------------------------------------------------------------------


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys, Counter])
def test_a_large_set_is_refused_before_it_is_built(kind):
    with pytest.raises(ValueError, match="1000"):
        decode(driver.encode([kind(range(1001))]))
    with pytest.raises(ValueError, match="1000"):
        decode(driver.encode(kind((n, n + 1) for n in range(400))))
    assert len(decode(driver.encode(kind(range(500))))) == 500


FORGED = [
    *({}, {"list": [1]}, [], [[]], [["list"], 1], ["range", 3], ["list", ["int", 1]], ["list", {}]),
    *(["bytes", 256], ["bytes", 10**12], ["set", ["list"]], ["dict", 1], ["complex", 1, 2, 3]),
    *(["complex", 10**400, 1], b"x", 1j, (1,), range(3)),
]
DEEP = "[" * 102 + "]" * 102


@pytest.mark.parametrize(
    "written",
    [*FORGED, json.loads(DEEP), json.loads(DEEP.replace("[", '["list",').replace(",]", "]"))],
)
def test_anything_that_encode_does_not_write_is_refused(written):
    with pytest.raises(ValueError):
        decode(written)
