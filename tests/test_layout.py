"""The drawings of docs/layout.md are true: what a row and a completion pass through is what they
show.
"""

import json
import re
import subprocess
import sys

from helpers import PROJECT

HELPERS = PROJECT / "helpers"
PAGE = (PROJECT / "docs" / "layout.md").read_text(encoding="utf-8")
ROW, COMPLETION = (
    re.findall(r"^[ \d]+([\w/]+\.py)", drawing, re.MULTILINE)
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
    modules = {}

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(HELPERS):
            modules[path.removeprefix(HELPERS)] = None

    sys.setprofile(note)
    try:
        call(*arguments, **keywords)
    finally:
        sys.setprofile(None)
    return list(modules)

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


def modules_entered(script: str, *arguments: str) -> list[list[str]]:
    """Return the modules of `helpers` whose functions each call of a script runs, in order."""
    done = subprocess.run(
        [sys.executable, "-c", ENTERED + script, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_a_number_takes_the_six_modules_that_are_drawn():
    calls = modules_entered(NUMBER)
    assert calls == [COMPLETION] * 3 and len(COMPLETION) <= 6


def test_a_row_takes_the_modules_that_are_drawn(tmp_path):
    lines = [f"What is {n} + 1?,{n + 1}" for n in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["question,answer", *lines]), encoding="utf-8")
    (modules,) = modules_entered(CSV, str(tmp_path / "mine.csv"))
    in_01 = ROW[: ROW.index("rewards/lab/attacks.py")]
    assert sorted(modules) == sorted(in_01)
    assert [name for name in ROW if not (HELPERS / name).is_file()] == []
