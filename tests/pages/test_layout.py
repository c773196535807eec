"""The drawings of helpers/README.md are true: a row and a completion pass through the functions that
they show, in this order, and those of a setting are there.
"""

import json
import re
import subprocess
import sys

from helpers import PROJECT

HELPERS = PROJECT / "helpers"
PAGE = (PROJECT / "helpers" / "README.md").read_text(encoding="utf-8")
# By drawing: the module and the function of each line.
ROW, COMPLETION, SETTING = (
    re.findall(r"^[ \d]*([\w/]+\.py) +([\w.]+)", drawing, re.MULTILINE)
    for drawing in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)
# A process of its own: CPython 3.11 can loop without end where a profile function meets code that
# has run often.
ENTERED = """
import json, sys

import unsloth  # before trl

from helpers import PROJECT
from helpers.data.tasks import load_task, prompt_token_counter
from helpers.presets import PRESETS
from helpers.rewards.correctness import correctness_reward
from helpers.runs import Run
from helpers.training.reward_guard import GuardedRewards

HELPERS = f"{PROJECT}/helpers/"

def entered(call, *arguments, **keywords):
    functions = {}

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(HELPERS):
            functions[path.removeprefix(HELPERS), frame.f_code.co_qualname] = None

    sys.setprofile(note)
    try:
        call(*arguments, **keywords)
    finally:
        sys.setprofile(None)
    return list(functions)

"""
NUMBER = """
(reward,) = GuardedRewards(Run("a"), [correctness_reward]).functions
for gold, answer in (("4177", "4178"), ("4179", "4,179.0"), ("-4180", "4")):
    text = f"<think>so</think><answer>{answer}</answer>"
    completion = [{"role": "assistant", "content": text}]
    print(json.dumps(entered(reward, [completion], answer=[gold], question=["How many?"])))
"""
CSV = """
count = prompt_token_counter(PRESETS["pocket"].model_path)
limits = {"max_prompt_tokens": 64, "max_completion_tokens": 72}
print(json.dumps(entered(load_task, sys.argv[1], holdout_size=4, count_tokens=count, **limits)))
"""


def functions_entered(script: str, *arguments: str) -> list[list[tuple[str, str]]]:
    """Return the functions of `helpers`, with their modules, that each call of a script runs, in
    the order of their first calls.
    """
    done = subprocess.run(
        [sys.executable, "-c", ENTERED + script, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [[tuple(function) for function in call] for call in calls]


def modules_of(functions: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(module for module, _ in functions))


def test_a_number_takes_the_six_modules_that_are_drawn():
    calls = functions_entered(NUMBER)
    assert len(calls) == 3 and len(modules_of(COMPLETION)) <= 6
    for functions in calls:
        assert modules_of(functions) == modules_of(COMPLETION)
        assert [function for function in functions if function in COMPLETION] == COMPLETION


def test_a_row_takes_the_modules_that_are_drawn(tmp_path):
    lines = [f"What is {n} + 1?,{n + 1}" for n in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["question,answer", *lines]), encoding="utf-8")
    (functions,) = functions_entered(CSV, str(tmp_path / "mine.csv"))
    in_01 = ROW[: ROW.index(("laboratory/measures.py", "Lab.attacks"))]
    assert [function for function in functions if function in in_01] == in_01
    assert sorted(modules_of(functions)) == sorted(modules_of(in_01))


def test_each_function_that_is_drawn_is_there():
    assert len(SETTING) == 14
    for module, function in dict.fromkeys(ROW + SETTING):
        text = (HELPERS / module).read_text(encoding="utf-8")
        for name in function.split("."):
            assert re.search(rf"^ *(?:def|class) {name}\b", text, re.MULTILINE), (module, name)
