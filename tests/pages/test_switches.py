"""docs/switches.md against the installed Unsloth: each switch that reaches GRPO, and the lines where it
is read.
"""

import re

import pytest

from helpers import PROJECT
from helpers.environment import _SWITCH, pins, unsloth_switches

PAGE = (PROJECT / "docs/switches.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(UNSLOTH_\w+)` \|.*\| `([\w/.]+)` (\d+)–(\d+) \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def sources() -> dict[str, list[str]]:
    """The lines of each source file of Unsloth, by its path in the package."""
    from importlib import metadata

    files = [
        file
        for name in ("unsloth", "unsloth_zoo")
        for file in metadata.files(name)
        if file.suffix == ".py"
    ]
    return {
        file.as_posix(): file.locate().read_text(encoding="utf-8").splitlines() for file in files
    }


def test_the_page_has_a_row_for_each_switch_that_unsloth_reads_and_for_no_other(sources):
    quoted = re.compile(r"[\"'](UNSLOTH_\w+)[\"']")
    read = {
        name
        for lines in sources.values()
        for name in quoted.findall("\n".join(lines))
        if _SWITCH.fullmatch(name)
    }
    rows = [name for name, *_ in ROWS]
    assert set(rows) == read
    assert len(rows) == len(set(rows)) == PAGE.count("\n| `")


@pytest.mark.parametrize(("name", "file", "first", "last"), ROWS, ids=[name for name, *_ in ROWS])
def test_a_switch_is_read_where_the_page_says(sources, name, file, first, last):
    assert re.search(rf"\b{name}\b", "\n".join(sources[file][int(first) - 1 : int(last)]))


def test_the_page_names_the_pinned_versions():
    assert all(f"`{name}=={pins()[name]}`" in PAGE for name in ("unsloth", "unsloth_zoo"))


def test_switches_that_are_set_are_found_and_nothing_beside_them(monkeypatch):
    before = unsloth_switches()
    ours = {
        "UNSLOTH_GRPO_LOSS_AGGREGATION": "prompt",
        "UNSLOTH_FUSED_LINEAR": "0",
        "UNSLOTH_FORCE_FLOAT32": "1",
    }
    others = {"UNSLOTH_COMPILE_LOCATION": "/home/somebody", "VLLM_API_KEY": "secret"}
    for name, value in (ours | others).items():
        monkeypatch.setenv(name, value)
    assert unsloth_switches() == before | ours


def test_the_page_of_licences_counts_the_files_that_name_the_agpl(sources):
    page = (PROJECT / "docs/licences.md").read_text(encoding="utf-8")
    for package in ("unsloth", "unsloth_zoo"):
        texts = [
            "\n".join(text) for path, text in sources.items() if path.startswith(f"{package}/")
        ]
        affected = sum(bool(re.search("agpl|affero", text, re.IGNORECASE)) for text in texts)
        assert re.search(rf"\| `{package}==.*\| {len(texts)} \| {affected} \|", page)
