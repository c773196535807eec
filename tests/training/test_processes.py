"""Several processes that agree: their shares of a step, and for real, over gloo, two processes that
share nothing else.
"""

import json
from types import SimpleNamespace

import pytest
from executions import together

from helpers import presets
from helpers.training import processes, run_settings

RIGHT = "<think>2</think><answer>2</answer>"
# What each of two processes does and finds, as one line of JSON from the first.
PROGRAM = """
import json
from types import SimpleNamespace
from helpers.runs import Run
from helpers.training import processes
from helpers.training.reward_guard import GuardedRewards, RewardError
from helpers.rewards.structure import format_reward

processes.join()
first = processes.is_first()
found = {"first": processes.from_first(lambda: f"of the first: {first}")}

def broken_reward(completions, **columns):
    return ["no number" if text == "break" else 0.0 for text in completions]

rewards = GuardedRewards(Run("a"), [format_reward, broken_reward])
args = SimpleNamespace(reward_weights=None, num_generations=4)
control = SimpleNamespace(should_save=False, should_training_stop=False)
stopped, dead = [], []
for step in range(4):
    # One is always right, the other never: a process alone would go one way or the other. A group
    # of four is of both.
    texts = (["RIGHT"] if first else ["wrong"]) * 14
    if not first and step == 3:
        texts[:4] = ["break"] * 4
    for function in rewards.functions:
        function(completions=texts)
    state = SimpleNamespace(global_step=step + 1)
    rewards.on_step_end(args, state, control)
    stopped.append(control.should_training_stop)
    dead += rewards.dead_groups
    rewards.dead_groups = []
try:
    rewards.on_train_end(args, state, control)
except RewardError as error:
    found["error"] = str(error)
found |= {"stopped": stopped, "dead": dead}
found |= {"seen": rewards.seen, "failed": rewards.failed}
every = processes.gather(found)
if first:
    print(json.dumps(every))
processes.leave()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("RIGHT", RIGHT))
    code, out, err = together(str(program), GRPO_RUNS_DIR=str(folder / "runs"))
    assert code == 0, err
    faults = (folder / "runs/a/checkpoints/reward_faults.jsonl").read_text().splitlines()
    return SimpleNamespace(
        both=json.loads(out.splitlines()[-1]), faults=[json.loads(line) for line in faults]
    )


@pytest.mark.slow
def test_both_stop_at_one_step_for_the_faults_of_one(found):
    assert len(found.both) == 2
    for one in found.both:
        assert one["first"] == "of the first: True"
        assert one["stopped"] == [False, False, False, True]
        # 4 x 2 x 14
        assert (one["seen"]["broken_reward"], one["failed"]["broken_reward"]) == (112, 4)
        assert one["error"].startswith("broken_reward failed on 4 of 112 completions, more than 1%")
    faults = [(fault["rank"], fault["step"], fault["position"]) for fault in found.faults]
    assert faults == [(1, 4, n) for n in range(4)]


@pytest.mark.slow
def test_groups_of_both_are_counted_whole(found):
    # 28 completions in groups of 4: the fourth group is half of each process, and the only one that
    # does not agree.
    assert [one["dead"] for one in found.both] == [[6 / 7] * 4] * 2


def test_a_process_that_has_not_joined_is_alone_whatever_its_environment_says(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (processes.count(), processes.is_first()) == (1, True)
    assert processes.gather("mine") == ["mine"] and processes.from_first(lambda: 4) == 4


@pytest.mark.parametrize(
    ("preset", "number", "each"),
    [
        ("pocket", 2, (32, 1, None)),
        ("pocket", 64, (1, 1, None)),
        ("l4", 4, (4, 1, None)),
        ("h200", 8, (4, 1, None)),
        ("memory_optimized", 2, (1, 2, 4)),
        ("high_performance", 4, (2, 1, 2)),
    ],
)
def test_processes_share_the_completions_of_a_step(preset, number, each):
    alone = presets.PRESETS[preset]
    several = run_settings.share(alone, number)
    batch, passes, rounds = each
    assert several.per_device_train_batch_size == batch
    assert several.gradient_accumulation_steps == passes
    assert several.steps_per_generation == rounds
    assert several.completions_per_step == alone.completions_per_step
    assert several.completions_per_round == alone.completions_per_round
    assert several.batch.startswith(f"{number} processes × {batch} × {passes} = ")


@pytest.mark.parametrize("number", [3, 128])
def test_more_processes_than_divide_a_step_are_refused(number):
    message = f"^{number} processes cannot share the 64 completions of a step"
    with pytest.raises(ValueError, match=message):
        run_settings.share(presets.PRESETS["pocket"], number)
