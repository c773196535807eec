"""The house: a stage imports only from the stages before it and from the common files; the maps of
it are true.
"""

import ast
import subprocess
import sys

import pytest

import helpers
from helpers import PROJECT

HELPERS = PROJECT / "helpers"
# Imports run one way.
STAGES = [
    *("judging", "data", "rewards", "training", "metrics", "results"),
    *("agents", "laboratory", "commands"),
]
# Folders that other projects use without the rest: what each may import.
ALONE = {
    "judging": set(),
    "laboratory": {"judging", "data", "rewards", "agents", "tags", "printing", "runs", "figures"},
}
COMMON = [
    *("environment", "own_code", "tags", "printing", "figures", "runs", "parameters"),
    *("templates", "smollm2", "processes", "families", "settings", "presets", "settling"),
    "session",
]
MODULES = sorted(path.relative_to(PROJECT) for path in HELPERS.rglob("*.py"))


def imported(source: str) -> set[str]:
    """The parts of `helpers` that a module imports, wherever in it: `training` for `from
    helpers.training import policy`.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    parts = {name.split(".")[1] for name in found if name.startswith("helpers.")}
    return parts - {"PROJECT", "door"}


def allowed(part: str) -> set[str]:
    """What a part of `helpers` may import: itself, the common files, and the stages before it; a
    common file only the common files before it.
    """
    if part in ALONE:
        return {part, *ALONE[part]}
    if part in COMMON:
        return {*COMMON[: COMMON.index(part) + 1]}
    others = {"__main__": STAGES}
    before = STAGES[: STAGES.index(part)] if part in STAGES else others.get(part, [])
    return {part, *before, *COMMON}


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_part_imports_only_from_those_before_it(module):
    part = module.parts[1].removesuffix(".py")
    found = imported((PROJECT / module).read_text(encoding="utf-8"))
    assert found <= allowed(part), f"{module} imports {sorted(found - allowed(part))}"


@pytest.mark.parametrize("folder", STAGES)
def test_each_folder_says_what_it_is_in_ten_lines_and_has_its_tests(folder):
    said = ast.get_docstring(
        ast.parse((HELPERS / folder / "__init__.py").read_text(encoding="utf-8"))
    )
    assert said and len(said.splitlines()) <= 10 and "In:" in said and "Out:" in said
    assert list((PROJECT / "tests" / folder).glob("test_*.py")), f"tests/{folder} is empty"
    for text in (helpers.__doc__, (PROJECT / "helpers" / "README.md").read_text(encoding="utf-8")):
        assert f"`helpers/{folder}/`" in text and f"`tests/{folder}/`" in text


def test_sampling_and_the_laboratory_leave_transformers_to_unsloth():
    """Unsloth patches Transformers as it is imported, so no notebook may import it earlier."""
    modules = "training.sampling", "results.answering", "laboratory.measures", "laboratory.verdicts"
    script = "".join(f"import helpers.{module}\n" for module in modules)
    script += "import sys; print({'transformers', 'trl', 'peft'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
