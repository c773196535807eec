"""Several processes that train together: their shares of a step, and two real processes on gloo."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from executions import together

from helpers import processes
from helpers.presets import PRESETS
from helpers.settling import settle

RIGHT = "<think>2</think><answer>2</answer>"
# Run by two processes. The first prints the findings of both as one line of JSON.
PROGRAM = """
import json
from dataclasses import asdict
from types import SimpleNamespace
from helpers.runs import Run
from helpers import processes
from helpers.training.reward_guard import GuardedRewards, RewardError
from helpers.rewards.structure import format_reward

processes.join()
first = processes.is_first()
found = {"first": processes.from_first(lambda: f"of the first: {first}")}
try:
    processes.from_first(lambda: {}["a key"])
except (KeyError, RuntimeError) as error:
    found["raised"] = repr(error)

def broken_reward(completions, **columns):
    return ["no number" if text == "break" else 0.0 for text in completions]

rewards = GuardedRewards(Run("a"), [format_reward, broken_reward])
args = SimpleNamespace(reward_weights=None, num_generations=4)
control = SimpleNamespace(should_save=False, should_training_stop=False)
stopped, dead = [], []
for step in range(4):
    # One process is always right, the other never. One group of four spans both processes.
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
def test_faults_of_one_process_stop_both_at_the_same_step(found):
    assert len(found.both) == 2
    for one in found.both:
        assert one["first"] == "of the first: True"
        assert one["stopped"] == [False, False, False, True]
        # 4 steps x 2 processes x 14 completions
        assert (one["seen"]["broken_reward"], one["failed"]["broken_reward"]) == (112, 4)
        assert one["error"].startswith("broken_reward failed on 4 of 112 ")
    faults = [(fault["rank"], fault["step"], fault["position"]) for fault in found.faults]
    assert faults == [(1, 4, n) for n in range(4)]


@pytest.mark.slow
def test_an_error_of_the_first_process_is_raised_in_both(found):
    told = "RuntimeError(\"the first process failed: KeyError: 'a key'\")"
    assert [one["raised"] for one in found.both] == ["KeyError('a key')", told]


@pytest.mark.slow
def test_groups_that_span_processes_are_counted_once(found):
    # 28 completions in groups of 4: only the fourth group spans both processes and disagrees
    assert [one["dead"] for one in found.both] == [[6 / 7] * 4] * 2


def test_a_process_that_has_not_joined_is_alone(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (processes.count(), processes.is_first()) == (1, True)
    assert processes.gather("mine") == ["mine"] and processes.from_first(lambda: 4) == 4
    with pytest.raises(KeyError):
        processes.from_first(lambda: {}["a key"])


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
def test_processes_share_the_completions_of_a_step(preset, number, each, monkeypatch):
    alone = PRESETS[preset]
    monkeypatch.setattr(processes, "count", lambda: number)
    several = settle(alone)
    batch, passes, rounds = each
    assert several.per_device_train_batch_size == batch
    assert several.gradient_accumulation_steps == passes
    assert several.steps_per_generation == rounds
    assert several.completions_per_step == alone.completions_per_step
    assert several.completions_per_round == alone.completions_per_round
    assert several.batch.startswith(f"{number} processes × {batch} × {passes} = ")
    # what several processes recorded, one of them goes on with alone
    monkeypatch.setattr(processes, "count", lambda: 1)
    again = settle(asdict(several))
    assert again.completions_per_step == alone.completions_per_step
    assert again.completions_per_round == alone.completions_per_round


@pytest.mark.parametrize("number", [3, 128])
def test_a_number_of_processes_that_does_not_divide_a_step_is_refused(number, monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: number)
    message = f"^{number} processes cannot share the 64 completions of a step"
    with pytest.raises(ValueError, match=message):
        settle("pocket")
