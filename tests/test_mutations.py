"""The changes that benchmarks/mutations.py makes in helpers/, and which tests it asks."""

import ast
from pathlib import Path

import pytest

from benchmarks import mutations
from benchmarks.mutations import Site

SOURCE = '''"""Text: 1 < 2."""
LIMIT: "1" = 5


@cache(size=1)
def é(number: int, most=9) -> "1 + 1":
    """1 + 1"""
    if number > (  # < 3
        LIMIT
    ):
        raise ValueError(number + 1)
    if number and not most:
        print(number * 2, f"{number - 1}")
    try:
        first = [é for é in (number, -2) if é.real]
    except ValueError:
        return 1
    assert number == 3
    return "text" + "more" if (first) not  in [True] else first


if __name__ == "__main__":
    é(1)
'''
FOUND = [
    (2, "5", "6"),
    (6, "9", "10"),
    (12, "number and not most", "False and (number and not most)"),
    (12, "number and not most", "not (number and not most)"),
    (12, "and", "or"),
    (12, "not", ""),
    (15, "2", "3"),
    (15, "é.real", "not (é.real)"),
    (19, '"text" + "more" if (first) not  in [True] else first', "None"),
    (19, "not  in", "in"),
    (19, "True", "False"),
]


def sites(source=SOURCE, file="helpers/some.py"):
    return mutations.sites(file, source.encode())


def test_what_is_changed_and_what_only_refuses_or_explains():
    assert [(site.line, site.before, site.after) for site in sites()] == FOUND


def test_the_command_line_s_declarations_stay():
    source = "def _add_run(commands):\n    return commands + 1\n"
    assert sites(source, "helpers/__main__.py") == [] and len(sites(source)) == 3


@pytest.mark.parametrize("source", ["return", "return None", "return False", "return 'a' + b", "x += f'{a}'"])
def test_no_change_where_it_would_always_raise_or_hardly_ever_matter(source):
    found = sites(f"def f(a, b, x):\n    {source}\n")
    assert [site.before for site in found if site.before != "False"] == ["'a' + b"] * ("'a'" in source)


def test_a_change_alters_its_bytes_alone_and_leaves_python():
    source = SOURCE.encode()
    for site in sites():
        text = mutations.changed(source, site)
        after = site.after.encode()
        assert text == source[: site.start] + after + source[site.end :] != source
        assert source[site.start : site.end].decode() == site.before
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))


def test_every_place_of_the_project_can_be_changed():
    files = [*(mutations.PROJECT / "helpers" / "metrics").glob("*.py")]
    for path in files:
        for site in mutations.drawn(mutations.sites(path.name, path.read_bytes()), 1, 5):
            mutations.changed(path.read_bytes(), site)
    assert files


def test_the_draw_is_its_seed_s_and_a_larger_one_goes_on():
    found = sites()
    assert mutations.drawn(found, 1, 4) == mutations.drawn(found, 1, 9)[:4] != mutations.drawn(found, 2, 4)


def test_tests_are_asked_of_a_line_of_a_fixture_and_of_a_module(monkeypatch):
    """A default is its function's; a constant is the whole module's, beginning with the tests that are meant for it."""
    lines = {2: [""], 12: ["t.py::a"], 14: ["t.py::a", "@::wide"]}
    monkeypatch.setattr(mutations, "_by_line", lambda *_: lines)
    monkeypatch.setattr(mutations, "meant_for", lambda _: {"u.py"})
    net = {"uses": {"t.py::a": [], "t.py::b": ["@::wide"], "u.py::c": [], "v.py::d": []}, "lines": ""}
    constant, default, branch, *_ = found = sites()
    assert mutations.covering(constant, net) == (True, [{"u.py::c"}, {"t.py::a", "t.py::b"}])
    assert mutations.covering(default, net) == (True, [{"t.py::a", "t.py::b"}, set()])
    assert mutations.covering(branch, net) == (True, [{"t.py::a"}, set()])
    assert mutations.covering(found[-1], net) == (False, [set(), {"t.py::a", "t.py::b", "u.py::c"}])


def test_fast_tests_come_first_and_a_fixture_is_paid_once():
    tests = {"a::slow": 9.0, "a::fast": 1.0, "b::wide": 1.0, "b::next": 2.0, "a::late": 0.1}
    uses = {test: ["@::dear"] if test[0] == "b" else [] for test in tests}
    net = {"tests": tests, "uses": uses, "fixtures": {"@::dear": 5.0}}
    ranked = [{*tests} - {"a::late"}, {"a::late"}]
    assert mutations.planned(ranked, net, 100)[:2] == (["a::fast", "a::slow", "b::wide", "b::next", "a::late"], 0)
    assert mutations.planned(ranked, net, 11) == (["a::fast", "a::slow", "a::late"], 2, 10.1)
    assert mutations.planned([{"a::slow"}], net, 1) == (["a::slow"], 0, 9.0), "one at least"


def test_verdicts_are_kept_and_one_by_a_test_that_fails_anyway_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(mutations, "VERDICTS", tmp_path / "kept.jsonl")
    first, second = [Site("helpers/some.py", at, at + 1, 1, "1", "2", 1, 1, False) for at in (1, 2)]
    for site, by in [(first, "t.py::a"), (second, "t.py::b")]:
        mutations._store({"of": "x", "site": site, "verdict": "noticed", "by": by})
    mutations._store({"of": "x", "by": "t.py::b", "sound": False})
    with (tmp_path / "kept.jsonl").open("a") as file:
        file.write('\n{"of": "x", "si')  # stopped here
    mutations._store({"of": "x", "by": "t.py::a", "sound": True})
    done, sound = mutations.stored("x")
    assert [*done] == [first] and sound == {"t.py::a": True, "t.py::b": False}
    assert mutations.stored("another commit") == ({}, {})


def test_the_table_counts_by_folder_and_names_what_was_not_noticed():
    site = Site("helpers/__init__.py", 1, 2, 1, "1", "2", 1, 1, False)
    verdicts = enumerate(["noticed", "timed out", "cut off"])
    done = {site._replace(start=at): {"verdict": verdict, "text": "a = 1"} for at, verdict in verdicts}
    text = mutations.table(done)
    assert "| helpers | 3 | 2 | 1 | 1 | 1 | 0 | 67% (21% to 94%) |" in text
    assert text.endswith("## Not noticed\n\n- `helpers/__init__.py:1`, cut off: `1` → `2` in `a = 1`\n")


def test_the_tests_meant_for_a_module():
    meant = mutations.meant_for("helpers/results/merging.py")
    assert {"tests/results/test_merging.py", "tests/results/test_merging_plan.py"} <= meant
    assert "tests/test_main.py" in mutations.meant_for("helpers/__main__.py")
    assert "tests/metrics/test_plots.py" not in meant and all(Path(mutations.PROJECT, name).exists() for name in meant)
