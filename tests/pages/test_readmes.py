"""The lines of Python in the READMEs of judging/ and laboratory/ run with nothing of the project but
what these pages name, and without torch; the scripts of docs/scripts.md run as they are.
"""

import os
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from helpers import PROJECT
from helpers.laboratory import Lab

TRIED = """
right = "<think>Half.</think><answer>1/2</answer>"
texts = [right, "<answer>\\n**0.5**\\n</answer>", "<answer>0.4</answer>", "1/2", "<answer>1/2"]
texts += [right + "<answer>4</answer>", "<answer>4</answer>" + right]
said = [[{"role": "assistant", "content": text}] for text in texts]
assert correctness(said, answer=[0.5] * 7) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
assert passed == [True, True]
[[outcome]] = run_code([Job("print(sum(map(int, input().split())))", stdin=["3 4"])])
[test] = read_tests([{"stdin": "3 4", "stdout": "7"}])
assert outcome.output == "7\\n" and test.passes(outcome)
"""
BEST = """
assert "please" in best
"""
TORCH = ["torch", "trl", "unsloth"]


# Of a page: which of its blocks are one script, the packages that it does without, and what follows.
@pytest.mark.parametrize(
    ("folder", "blocks", "without", "then"),
    [
        ("judging", slice(None), [*TORCH, "transformers"], TRIED),
        ("laboratory", slice(0, 1), [*TORCH, "transformers", "pydantic_monty", "httpx"], BEST),
        ("laboratory", slice(0, 2), [*TORCH, "transformers", "httpx"], ""),
        ("laboratory", slice(2, None), [*TORCH, "pydantic_monty"], ""),
    ],
)
def test_the_lines_run_with_what_the_page_names(folder, blocks, without, then, tmp_path):
    page = (PROJECT / "helpers" / folder / "README.md").read_text(encoding="utf-8")
    alone = tmp_path / "helpers"
    before_first_heading = page.partition("\n## ")[0]
    for line in re.findall(r"^    ((?:mkdir|cp) .*)$", before_first_heading, re.MULTILINE):
        line = line.replace("~/my_project", str(tmp_path))
        subprocess.run(line, shell=True, cwd=PROJECT / "helpers", check=True)
    named = [folder, *re.findall(r"`([\w/]+(?:/|\.py))`", before_first_heading)]
    for name in named:
        source = PROJECT / "helpers" / name.removeprefix("helpers/")
        target = alone / name.removeprefix("helpers/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)

    missing = f"import sys\nsys.modules |= dict.fromkeys({without})\n"
    written = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[blocks]
    lines = "\n".join(written)
    (tmp_path / "script.py").write_text(missing + lines + then, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "script.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"\)  # (.*?), …$", lines, re.MULTILINE)
    assert len(promised) == lines.count("print(")
    assert all(said in done.stdout for said in promised)


def test_the_laboratory_passes_the_reward_of_the_judging_page():
    page = (PROJECT / "helpers" / "judging" / "README.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1], names)
    rows = pd.DataFrame({"question": ["What is 6 * 7?", "What is 9 + 8?"], "answer": ["42", "17"]})
    assert Lab([names["correctness"]], [1.0]).examine(rows).stops == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "said"), [(0, "NO GO"), (1, "too_few_steps")])
def test_a_script_of_the_page_runs_outside_the_project(number, said, tmp_path):
    page = (PROJECT / "docs" / "scripts.md").read_text(encoding="utf-8")
    scripts = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(scripts[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and said in done.stdout, done.stderr
