"""What is the net of tests worth? Makes small changes in helpers/, one at a time, and counts those
that a test notices.

`python -m tools.mutations` draws 120 changes by a seed. Coverage, collected once and kept in
build/, says which tests run a line; those run on each change, in a private copy of the project.
Each verdict goes to build/mutations.jsonl at once, so that a stopped call goes on. The table is
benchmarks/results/mutations.md. It needs coverage
(`python -m helpers install --optional coverage`). A try on few tests and files:
`python -m tools.mutations --count 4 --only helpers/metrics -- tests/metrics`.

What only refuses or explains is not changed: raise, assert, the body of `except`, an `if` that only
raises, f-strings, print, warn, annotations, decorators, the declarations of the command line, and
blocks for TYPE_CHECKING and `__main__`. Texts stay, and so does what would always raise or hardly
ever matter: a `+` beside a text, and `return False` as `return None`.
"""

import argparse
import ast
import contextlib
import functools
import json
import os
import platform
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

PROJECT = Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "benchmarks" / "results" / "mutations.md"
BUILD = PROJECT / "build"
VERDICTS = BUILD / "mutations.jsonl"
NOTICED, TIMED_OUT = "noticed", "timed out"
MISSED, CUT_OFF, NOT_COVERED = "not noticed", "cut off", "not covered"
# what stands in the source for a node of Python's grammar, and what is written in its place
OPERATORS = {
    "Lt": ("<", "<="),
    "LtE": ("<=", "<"),
    "Gt": (">", ">="),
    "GtE": (">=", ">"),
    "Eq": ("==", "!="),
    "NotEq": ("!=", "=="),
    "In": ("in", "not in"),
    "NotIn": ("not in", "in"),
    "Is": ("is", "is not"),
    "IsNot": ("is not", "is"),
    "And": ("and", "or"),
    "Or": ("or", "and"),
    "Add": ("+", "-"),
    "Sub": ("-", "+"),
    "Mult": ("*", "/"),
    "Div": ("/", "*"),
    "FloorDiv": ("//", "*"),
    "Mod": ("%", "*"),
    "Pow": ("**", "*"),
}
# Python 3.11 with a tracer goes round in circles while an exception waits for a sleeping thread.
ASLEEP = "not sleeping"
SETTINGS = """[run]
source = {source}
parallel = true
data_file = {data}
context = ${{MUTATIONS_TEST-}}
patch = _exit
"""
HEAD = """# Which code changes the tests notice

`python -m tools.mutations{given}` on {machine}, at commit
{commit}. Each change in `helpers/` is small: to an operator, a constant, a branch or a return.
{count} were drawn from {places} places.

A change is *noticed* if a test fails that passes without it, or if the tests take longer than
{timeout:g} s (*timed out*). It is *cut off* if all its tests would have taken more than {most:g} s,
and the fast ones and those nearest to the file noticed nothing. It is *not covered* if no test is
known to run the line. The share has a 95% Wilson interval. Changes that no test could notice count
as not noticed, so the tests are somewhat better than the share.

| folder | changes | noticed | timed out | not noticed | cut off | not covered | share noticed |
|---|---|---|---|---|---|---|---|
"""


class Site(NamedTuple):
    """The bytes from start to end become `after`; tests of the lines first to last are asked."""

    file: str
    start: int
    end: int
    line: int
    before: str
    after: str
    first: int
    last: int
    at_import: bool  # outside all functions: no test runs it, and all of the module rests on it


# --- The changes --------------------------------------------------------------------------------


def sites(file: str, source: bytes) -> list[Site]:
    """Return all changes that may be drawn in a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = []

    def walk(node: ast.AST, where: tuple[int, int, bool]) -> None:
        if _explains(node, file):
            return
        if isinstance(node, ast.stmt) and not where[2]:
            body = getattr(node, "body", None)  # of a compound statement only the head counts
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            where = (node.lineno, last, False)
        for start, end, after in _changes(node, source, starts):
            line = source.count(b"\n", 0, start) + 1
            places.append(Site(file, start, end, line, source[start:end].decode(), after, *where))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # its defaults are its body's
            where = (node.body[0].lineno, node.end_lineno, False)
        for name, value in ast.iter_fields(node):
            declares = name in ("annotation", "returns", "decorator_list")
            if not declares and (name == "orelse" or not _only_raises(node)):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        walk(child, where)

    walk(ast.parse(source), (1, len(starts), True))
    return sorted(places)


def _explains(node: ast.AST, file: str) -> bool:
    """Return whether a node only refuses, explains or declares. Then nothing in it is changed."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("print", "warn")
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    if isinstance(node, ast.FunctionDef):
        return "/commands/" in file and node.name == "add_arguments"
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.ExceptHandler)


def _only_raises(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and [type(one) for one in node.body] == [ast.Raise]


def _changes(node: ast.AST, source: bytes, starts: list[int]) -> Iterator[tuple[int, int, str]]:
    """Yield the changes of a node itself: (start, end, what stands there instead)."""

    def span(part: ast.AST) -> tuple[int, int]:
        first = starts[part.lineno - 1] + part.col_offset
        return first, starts[part.end_lineno - 1] + part.end_col_offset

    tests = []
    pairs = []  # (left, operator, right)
    match node:
        case ast.Compare():
            pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        case ast.BoolOp():
            following = zip(node.values, node.values[1:], strict=False)
            pairs = [(left, node.op, right) for left, right in following]
        case ast.BinOp() if not _is_text(node):
            pairs = [(node.left, node.op, node.right)]
        case ast.AugAssign() if not _is_text(node.value):
            pairs = [(node.target, node.op, node.value)]
        case ast.UnaryOp(op=ast.Not()):
            yield span(node)[0], span(node)[0] + len("not"), ""
        case ast.Constant(value=bool()):
            yield *span(node), str(not node.value)
        case ast.Constant(value=int() | float()) if node.value + 1 != node.value:
            yield *span(node), repr(node.value + 1)
        case ast.Return(value=None | ast.Constant(value=None | False)):
            pass
        case ast.Return():
            yield *span(node.value), "None"
        case ast.comprehension():
            tests = node.ifs
        case ast.IfExp() | ast.If() if not _only_raises(node):
            tests = [node.test]
    for left, kind, right in pairs:
        if type(kind).__name__ in OPERATORS:
            before, after = OPERATORS[type(kind).__name__]
            start = span(left)[1]
            end = span(right)[0]  # brackets and comments stand between them, too
            between = re.sub(rb"#.*", lambda comment: b" " * len(comment[0]), source[start:end])
            at = re.search(rb"\s+".join(map(re.escape, before.encode().split())), between)
            yield start + at.start(), start + at.end(), after
    for test in tests:
        text = source[slice(*span(test))].decode()
        if not isinstance(test, ast.UnaryOp | ast.Compare):  # their operator is changed already
            yield *span(test), f"not ({text})"
        if isinstance(node, ast.If) and not node.orelse:
            yield *span(test), f"False and ({text})"


def _is_text(node: ast.AST) -> bool:
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    text = isinstance(getattr(node, "value", None), str) or isinstance(node, ast.JoinedStr)
    return text or any(map(_is_text, parts))


def apply_change(source: bytes, site: Site) -> bytes:
    """Return the file with the change. Raise SyntaxError if that is no Python: a fault of this
    program.
    """
    text = source[: site.start] + site.after.encode() + source[site.end :]
    ast.parse(text)
    return text


def draw(all_sites: list[Site], seed: int, count: int) -> list[Site]:
    """Return the changes to make. A larger count goes on where a smaller one ended."""
    return random.Random(seed).sample(all_sites, len(all_sites))[:count]


# --- In pytest: `-p tools.mutations` -----------------------------------------------------------

_notes: dict = {"tests": defaultdict(float), "uses": {}, "fixtures": {}, "failed": []}


@contextlib.contextmanager
def _lines_are_of(name: str) -> Iterator[str]:
    """What runs meanwhile, here or in a process started here, is run by this test or fixture."""
    import coverage

    def switch(now: str) -> None:
        os.environ["MUTATIONS_TEST"] = now  # coverage in a subprocess reads it with its settings
        coverage.Coverage.current().switch_context(now)

    before = os.environ.get("MUTATIONS_TEST", "")
    switch(name)
    try:
        yield before
    finally:
        switch(before)


def _name(fixture: pytest.FixtureDef) -> str:
    return f"@{fixture.baseid}::{fixture.argname}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if "MUTATIONS_NOTES" not in os.environ:
        return (yield)
    known = [one for each in item._fixtureinfo.name2fixturedefs.values() for one in each]
    _notes["uses"][item.nodeid] = [_name(one) for one in known if one.scope != "function"]
    with _lines_are_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """One test sets a wide fixture up, and all that use it rest on what that ran."""
    if "MUTATIONS_NOTES" not in os.environ or fixturedef.scope == "function":
        return (yield)
    began = time.monotonic()
    with _lines_are_of(_name(fixturedef)) as test:
        try:
            return (yield)
        finally:
            _notes["fixtures"][_name(fixturedef)] = seconds = time.monotonic() - began
            _notes["tests"][test] -= seconds


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    if plan := os.environ.get("MUTATIONS_PLAN"):
        order = {name: at for at, name in enumerate(json.loads(Path(plan).read_text("utf-8")))}
        items[:] = [item for item in items if item.nodeid in order]
        items.sort(key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report):
    _notes["tests"][report.nodeid] += report.duration
    _notes["failed"] += [report.nodeid] if report.failed else []


def pytest_sessionfinish():
    if plan := os.environ.get("MUTATIONS_PLAN"):
        Path(plan).with_name("failed.json").write_text(json.dumps(_notes["failed"]), "utf-8")
    elif _notes["uses"]:  # not in the process that only hands the tests out
        path = Path(os.environ["MUTATIONS_NOTES"]) / f"{os.getpid()}.json"
        path.write_text(json.dumps(_notes), "utf-8")


# --- A private copy -----------------------------------------------------------------------------


def _git(folder: Path, *arguments: str) -> str:
    own = ("user.name=mutations", "user.email=mutations@example.org", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *(word for one in own for word in ("-c", one)), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _listed(*arguments: str) -> list[str]:
    names = _git(PROJECT, "ls-files", "-z", "--exclude-standard", *arguments).split("\0")
    return sorted(name for name in set(names) if name and (PROJECT / name).is_file())


def private_copy(folder: Path) -> Path:
    """Copy the project as it is, committed or not, into folder/project, a repository of its own;
    return that.
    """
    copy = folder / "project"
    for name in _listed("--cached", "--others"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, copy / name)
    for command in ("init", "add -Af", "commit -m unchanged", "tag unchanged"):
        _git(copy, *command.split())
    program = [sys.executable, "-c", "import helpers; print(helpers.__file__)"]
    for place in (copy, folder):  # the installed project is the checkout, and must come second
        done = subprocess.run(program, cwd=place, env=_environment(copy), capture_output=True)
        output = (done.stdout + done.stderr).decode().strip()
        if output != str(copy / "helpers" / "__init__.py"):
            raise SystemExit(f"a process of the copy imports another project: {output}")
    return copy


def _environment(copy: Path, **more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"} | more


def _pytest(copy: Path, *arguments: str) -> list[str]:
    plugins = ("-p", "no:cacheprovider", "-p", "tools.mutations")
    place = f"--basetemp={copy.parent / 'tmp'}"
    return [sys.executable, "-m", "pytest", "-q", *plugins, place, *arguments]


def run_tests(copy: Path, tests: list[str], seconds: float | None = None, *more: str) -> tuple:
    """Run tests in this order; return pytest's exit code, None when the time was over, and what
    failed.
    """
    plan = copy.parent / "plan.json"
    failed = copy.parent / "failed.json"
    plan.write_text(json.dumps(tests), "utf-8")
    failed.write_text("[]", "utf-8")
    command = _pytest(copy, *more, *dict.fromkeys(test.split("::")[0] for test in tests))
    own = {"cwd": copy, "env": _environment(copy, MUTATIONS_PLAN=str(plan))}
    with (copy.parent / "output.txt").open("wb") as out:
        own |= {"stdout": out, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(command, **own)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()  # kernels have sessions of their own
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what else it left behind
            process.wait()
    return code, json.loads(failed.read_text("utf-8"))


# --- Which tests run a line ---------------------------------------------------------------------


def name_of_measurement(paths: list[str]) -> str:
    """Return the name of what is measured: the commit, and the tests where they were chosen."""
    if _git(PROJECT, "status", "--porcelain", "--", "helpers", "tests"):
        raise SystemExit("helpers/ or tests/ is not as committed: commit it first.")
    return "-".join([_git(PROJECT, "rev-parse", "--short=10", "HEAD").strip(), *paths]).replace(
        "/", "."
    )


def collect(name: str, paths: list[str]) -> dict:
    """Return the seconds of the tests, their wide fixtures, and the file of lines; they are
    measured once for a state.
    """
    import coverage

    kept = BUILD / f"mutations-{name}.json"
    lines = BUILD / f"mutations-{name}.coverage"
    if kept.exists():
        return json.loads(kept.read_text("utf-8"))
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve()
        copy = private_copy(folder)
        notes = folder / "notes"
        data = folder / "data"
        notes.mkdir()
        data.mkdir()
        settings = SETTINGS.format(source=copy / "helpers", data=data / ".coverage")
        (folder / "settings").write_text(settings, "utf-8")
        own = {"COVERAGE_PROCESS_START": str(folder / "settings"), "MUTATIONS_NOTES": str(notes)}
        command = _pytest(
            copy, "-k", ASLEEP, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *paths
        )
        code = subprocess.run(command, cwd=copy, env=_environment(copy, **own)).returncode
        if code not in (0, 1):
            raise SystemExit(f"the tests could not be run: pytest ended with {code}.")
        net = {"tests": {}, "uses": {}, "fixtures": {}}
        failed = set()
        for path in notes.iterdir():  # one for each process
            note = json.loads(path.read_text("utf-8"))
            failed |= {*note["failed"]}
            for part, values in net.items():
                values |= note[part]
        every = coverage.Coverage(data_file=lines, config_file=False)
        every.combine([str(path) for path in data.iterdir()])
        every.save()
    print(
        f"{len(net['uses'])} tests are measured; left out, as they fail unchanged: {sorted(failed)}"
    )
    net["uses"] = {test: uses for test, uses in net["uses"].items() if test not in failed}
    net["lines"] = str(lines)
    kept.write_text(json.dumps(net), "utf-8")
    return net


@functools.cache
def _by_line(lines: str, file: str) -> dict[int, list[str]]:
    from coverage import CoverageData

    data = CoverageData(lines)
    data.read()
    names = [name for name in data.measured_files() if name.endswith(f"/{file}")]
    return data.contexts_by_lineno(names[0]) if names else {}


def covering(site: Site, net: dict) -> set[str]:
    """Return the tests that run the line; of a line that only imports run, all that run the
    module.
    """
    by_line = _by_line(net["lines"], site.file)
    names = set().union(*(by_line.get(line, ()) for line in range(site.first, site.last + 1)))
    if site.at_import or "" in names:
        names = names.union(*by_line.values())
    return {test for test, uses in net["uses"].items() if not names.isdisjoint([test, *uses])}


def plan_tests(tests: set[str], net: dict, most: float, file: str = "") -> tuple[list[str], bool]:
    """(the tests in their order, whether some are left out because they take more than `most`
    seconds): file by file, those of the changed file first, then those of its folder, then the
    fast ones.
    """

    def seconds(some: list[str]) -> float:
        wide = {fixture for test in some for fixture in net["uses"][test]}
        return sum(net["tests"][test] for test in some) + sum(
            net["fixtures"].get(one, 0) for one in wide
        )

    def distance(path: Path) -> tuple[bool, bool]:
        changed = Path(file)
        return path.stem != f"test_{changed.stem}", path.parent.name != changed.parent.name

    files = defaultdict(list)
    for test in sorted(tests, key=lambda test: (net["tests"][test], test)):
        files[Path(test.split("::")[0])].append(test)
    order = []
    cut = False
    for path in sorted(files, key=lambda path: (distance(path), seconds(files[path]))):
        if order and seconds(order + files[path]) > most:
            cut = True
        else:
            order += files[path]
    return order, cut


# --- The measurement ----------------------------------------------------------------------------


def stored_verdicts(name: str) -> dict[Site, dict]:
    """Return the verdicts so far."""
    lines = VERDICTS.read_text("utf-8").splitlines() if VERDICTS.exists() else []
    records = [json.loads(line) for line in lines]
    return {Site(*record["site"]): record for record in records if record["of"] == name}


def judge(site: Site, number: int, copy: Path, order: list[str], timeout: float) -> tuple[str, str]:
    """Return the verdict on a change, and the test that noticed it."""
    if not order:
        return MISSED, ""
    path = copy / site.file
    path.write_bytes(apply_change(path.read_bytes(), site))
    os.utime(path, (number, number))  # or bytecode of the same size and second would stand for it
    _git(copy, "commit", "-qam", "changed")  # for the tests that clone the project
    try:
        code, failed = run_tests(copy, order, timeout, "-x")
    finally:
        _git(copy, "reset", "-q", "--hard", "unchanged")
    if code is None:
        return TIMED_OUT, ""
    by = failed[0] if failed else f"exit code {code}"
    return (MISSED, "") if code in (0, 5) else (NOTICED, by)


def measure(chosen: list[Site], net: dict, name: str, arguments: argparse.Namespace) -> None:
    """Give each change that has none its verdict."""
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    folder, copies = Path(temporary.name).resolve(), queue.SimpleQueue()
    for at in range(arguments.jobs):
        copies.put(private_copy(folder / str(at)))
    first = folder / "0" / "project"
    sample = random.Random(arguments.seed).sample(sorted(net["uses"]), min(200, len(net["uses"])))
    code, failed = run_tests(first, plan_tests(set(sample), net, 20)[0])  # 20 seconds of them
    if code != 0:
        raise SystemExit(f"the control failed, tests of a copy without a change: {code}, {failed}")

    def give_verdict(site: Site) -> None:
        tests = covering(site, net)
        order, cut = plan_tests(tests, net, arguments.most_seconds, site.file)
        copy, began = copies.get(), time.monotonic()
        text = (copy / site.file).read_text("utf-8").split("\n")[site.line - 1].strip()
        try:
            verdict, by = judge(site, 10**9 + chosen.index(site), copy, order, arguments.timeout)
        finally:
            copies.put(copy)
        if verdict == MISSED:
            verdict = NOT_COVERED if not tests else CUT_OFF if cut else MISSED
        seconds = round(time.monotonic() - began, 1)
        record = {
            "of": name,
            "site": site,
            "verdict": verdict,
            "by": by,
            "seconds": seconds,
            "text": text,
        }
        with VERDICTS.open("a", encoding="utf-8") as file:
            print(json.dumps(record), file=file)
        what = f"{site.file}:{site.line} {site.before[:40]!r} → {site.after[:40]!r}"
        print(f"{chosen.index(site) + 1:4} {verdict} ({seconds} s) {what} {by}", flush=True)

    done = stored_verdicts(name)
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        list(pool.map(give_verdict, [site for site in chosen if site not in done]))
    finally:
        pool.shutdown(cancel_futures=True)


def table(done: dict[Site, dict]) -> str:
    """Return the rows by folder, their sum, and the changes that were not noticed."""
    from helpers.results.intervals import wilson_interval

    folders = defaultdict(Counter)
    for site, record in done.items():
        for folder in (Path(site.file).parent.as_posix(), "**together**"):
            folders[folder][record["verdict"]] += 1
    rows = []
    for folder, of in sorted(folders.items(), key=lambda row: (row[0].startswith("*"), row)):
        noticed, count = of[NOTICED] + of[TIMED_OUT], of.total()
        low, high = wilson_interval(noticed, count)
        share = f"{noticed / count:.0%} ({low:.0%} to {high:.0%})"
        missed = (count - noticed, of[CUT_OFF], of[NOT_COVERED])
        cells = (count, noticed, of[TIMED_OUT], *missed, share)
        rows.append(f"| {folder} | {' | '.join(map(str, cells))} |")
    rows += ["", "## Not noticed", ""]
    for site, record in sorted(done.items()):
        if record["verdict"] not in (NOTICED, TIMED_OUT):
            texts = [" ".join(text.split()) for text in (site.before, site.after)]
            what = " → ".join(f"`{text}`" if text else "nothing" for text in texts)
            where = f"`{site.file}:{site.line}`, {record['verdict']}"
            rows.append(f"- {where}: {what} in `{record['text']}`")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=3407, help="of the draw (default: 3407)")
    parser.add_argument("--count", type=int, default=120, help="changes (default: 120)")
    parser.add_argument("--jobs", type=int, default=2, help="changes at a time (default: 2)")
    parser.add_argument("--timeout", type=float, default=200, help="seconds (default: 200)")
    most = "seconds of tests a change, as recorded (default: 20)"
    parser.add_argument("--most-seconds", type=float, default=20, help=most)
    parser.add_argument("--only", default="helpers/", metavar="PREFIX", help="change these files")
    parser.add_argument("--collect", action="store_true", help="only collect who runs a line")
    parser.add_argument("tests", nargs="*", help="paths after --, for a try, instead of all tests")
    arguments = parser.parse_args()
    name = name_of_measurement(arguments.tests)
    net = collect(name, arguments.tests)
    if arguments.collect:
        return 0
    files = _listed("--cached", "--others", "--", f"{arguments.only}*.py")
    places = [site for file in files for site in sites(file, (PROJECT / file).read_bytes())]
    chosen = draw(places, arguments.seed, arguments.count)
    measure(chosen, net, name, arguments)
    verdicts = stored_verdicts(name)
    asked = f" --seed {arguments.seed} --count {arguments.count}"
    if arguments.tests:
        asked += f" --only {arguments.only} -- {' '.join(arguments.tests)}"
    head = HEAD.format(
        given=asked,
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
        commit=name,
        count=len(chosen),
        places=len(places),
        timeout=arguments.timeout,
        most=arguments.most_seconds,
    )
    text = head + table({site: verdicts[site] for site in chosen})
    (BUILD / RESULTS.name if arguments.tests else RESULTS).write_text(text, "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
