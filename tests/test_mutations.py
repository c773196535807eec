"""The changes that benchmarks/mutations.py makes in helpers/, and which tests it asks."""

import ast

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
    source = "def add_arguments(parser):\n    return parser + 1\n"
    assert sites(source, "helpers/commands/run.py") == [] and len(sites(source)) == 3


@pytest.mark.parametrize(
    ("source", "before"),
    [("return", []), ("return None", []), ("return 'a' + b", ["'a' + b"]), ("x += f'{a}'", [])],
)
def test_no_change_where_it_would_always_raise_or_hardly_ever_matter(source, before):
    assert [site.before for site in sites(f"def f(a, b, x):\n    {source}\n")] == before


def test_a_change_alters_its_bytes_alone_and_leaves_python():
    source = SOURCE.encode()
    for site in sites():
        text = mutations.changed(source, site)
        after = site.after.encode()
        assert text == source[: site.start] + after + source[site.end :] != source
        assert source[site.start : site.end].decode() == site.before
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))


def test_the_draw_is_its_seed_s_and_a_larger_one_goes_on():
    found = sites()
    assert (
        mutations.drawn(found, 1, 4)
        == mutations.drawn(found, 1, 9)[:4]
        != mutations.drawn(found, 2, 4)
    )


def test_tests_are_asked_of_a_line_of_a_fixture_and_of_a_module(monkeypatch):
    """A default is its function's; a constant is the whole module's."""
    lines = {2: [""], 12: ["t.py::a"], 14: ["t.py::a", "@::wide"]}
    monkeypatch.setattr(mutations, "_by_line", lambda *_: lines)
    net = {"uses": {"t.py::a": [], "t.py::b": ["@::wide"], "v.py::d": []}, "lines": ""}
    constant, default, branch, *_ = found = sites()
    assert (
        mutations.covering(constant, net)
        == mutations.covering(default, net)
        == {"t.py::a", "t.py::b"}
    )
    assert (
        mutations.covering(branch, net) == {"t.py::a"}
        and mutations.covering(found[-1], net) == set()
    )


def test_fast_files_come_first_and_a_fixture_is_paid_once():
    tests = {"a::slow": 9.0, "a::fast": 1.0, "b::wide": 1.0, "b::next": 2.0}
    uses = {test: ["@::dear"] if test[0] == "b" else [] for test in tests}
    net = {"tests": tests, "uses": uses, "fixtures": {"@::dear": 5.0}}
    assert mutations.planned({*tests}, net, 100) == (
        ["b::wide", "b::next", "a::fast", "a::slow"],
        False,
    )
    assert mutations.planned({*tests}, net, 17) == (["b::wide", "b::next"], True)
    assert mutations.planned({"a::slow"}, net, 1) == (["a::slow"], False), "one file at least"


def test_the_table_counts_by_folder_and_names_what_was_not_noticed():
    site = Site("helpers/__init__.py", 1, 2, 1, "1", "2", 1, 1, False)
    verdicts = enumerate(["noticed", "timed out", "cut off"])
    done = {
        site._replace(start=at): {"verdict": verdict, "text": "a = 1"} for at, verdict in verdicts
    }
    text = mutations.table(done)
    assert "| helpers | 3 | 2 | 1 | 1 | 1 | 0 | 67% (21% to 94%) |" in text
    assert text.endswith(
        "## Not noticed\n\n- `helpers/__init__.py:1`, cut off: `1` → `2` in `a = 1`\n"
    )
