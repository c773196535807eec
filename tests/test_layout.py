"""The drawings of docs/layout.md are true: what a row and a completion pass through is what they
show.
"""

import re
import sys
from collections.abc import Callable

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

from helpers import PROJECT
from helpers.data.tasks import load_task, prompt_token_counter
from helpers.presets import PRESETS
from helpers.rewards.correctness import correctness_reward
from helpers.runs import Run
from helpers.training.reward_guard import GuardedRewards

HELPERS = PROJECT / "helpers"
PAGE = (PROJECT / "docs" / "layout.md").read_text(encoding="utf-8")
ROW, COMPLETION = (
    re.findall(r"^[ \d]+([\w/]+\.py)", drawing, re.MULTILINE)
    for drawing in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)


def entered(call: Callable, *given, **named) -> list[str]:
    """The modules of `helpers` whose functions a call runs, in order."""
    found = {}

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{HELPERS}/"):
            found[path.removeprefix(f"{HELPERS}/")] = None

    sys.setprofile(note)
    try:
        call(*given, **named)
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.mark.parametrize(("gold", "given"), [("4177", "4178"), ("4179", "4,179.0"), ("-4180", "4")])
def test_a_number_takes_the_six_modules_that_are_drawn(gold, given):
    (reward,) = GuardedRewards(Run("a"), [correctness_reward]).functions
    text = f"<think>so</think><answer>{given}</answer>"
    completion = [{"role": "assistant", "content": text}]
    taken = entered(reward, [completion], answer=[gold], question=["How many?"])
    assert taken == COMPLETION and len(taken) <= 6


def test_a_row_takes_the_modules_that_are_drawn(tmp_path):
    lines = [f"What is {n} + 1?,{n + 1}" for n in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["question,answer", *lines]), encoding="utf-8")
    count = prompt_token_counter(PRESETS["pocket"].model_path)
    limits = {"max_prompt_tokens": 64, "max_completion_tokens": 72}
    source = str(tmp_path / "mine.csv")
    taken = entered(load_task, source, holdout_size=4, count_tokens=count, **limits)
    in_01 = ROW[: ROW.index("rewards/lab/attacks.py")]
    assert sorted(taken) == sorted(in_01)
    assert [name for name in ROW if not (HELPERS / name).is_file()] == []
