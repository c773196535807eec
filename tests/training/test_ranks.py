"""Several processes that agree: for real, over gloo, in two processes that share nothing else."""

import json
from types import SimpleNamespace

import pytest
from executions import together

from helpers.training import ranks

RIGHT = "<think>2</think><answer>2</answer>"
# What each of two ranks does and finds, as one line of JSON from rank 0.
PROGRAM = """
import json
from types import SimpleNamespace
import torch
from helpers.runs import Run
from helpers.training import ranks
from helpers.training.reward_guard import GuardedRewards
from helpers.rewards.structure import format_reward

ranks.join()
rank = ranks.rank()
found = {"first": ranks.from_first(lambda: f"of rank {rank}")}

def said(check, *given, **named):
    try:
        check(*given, **named)
    except (RuntimeError, ValueError) as error:
        return str(error)

model = torch.nn.Linear(2, 2, bias=False)
torch.nn.init.constant_(model.weight, 1.0)
found["same weights"] = said(ranks.check_equal_weights, model)
torch.nn.init.constant_(model.weight, 1.0 + rank / 1000)
found["weights"] = said(ranks.check_equal_weights, model)

def broken_reward(completions, **columns):
    return ["no number" if text == "break" else 0.0 for text in completions]

rewards = GuardedRewards(Run("a"), [format_reward, broken_reward])
args = SimpleNamespace(reward_weights=None, num_generations=4)
control = SimpleNamespace(should_save=False, should_training_stop=False)
stopped, dead = [], []
for step in range(4):
    # Rank 0 is always right, rank 1 never: a process alone would go one way or the other. A group
    # of four is of both.
    texts = (["RIGHT"] if rank == 0 else ["wrong"]) * 14
    if rank == 1 and step == 3:
        texts[:4] = ["break"] * 4
    for function in rewards.functions:
        function(completions=texts)
    state = SimpleNamespace(global_step=step + 1)
    rewards.on_step_end(args, state, control)
    stopped.append(control.should_training_stop)
    dead += rewards.dead
    rewards.dead = []
found["error"] = said(rewards.on_train_end, args, state, control)
found |= {"stopped": stopped, "dead": dead}
found |= {"seen": rewards.seen, "failed": rewards.failed}
every = ranks.gathered(found)
if rank == 0:
    print(json.dumps(every))
ranks.leave()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("RIGHT", RIGHT))
    code, out, err = together(str(program), GRPO_RUNS_DIR=str(folder / "runs"))
    assert code == 0, err
    faults = (folder / "runs/a/checkpoints/reward_faults.jsonl").read_text().splitlines()
    return SimpleNamespace(
        ranks=json.loads(out.splitlines()[-1]), faults=[json.loads(line) for line in faults]
    )


@pytest.mark.slow
def test_weights_that_differ_are_named_on_every_rank(found):
    for one in found.ranks:
        assert one["first"] == "of rank 0" and one["same weights"] is None
        assert one["weights"].startswith("the ranks' weights have parted: rank 0: ")
        assert ", rank 1: " in one["weights"]


@pytest.mark.slow
def test_all_ranks_stop_at_one_step_for_the_faults_of_one(found):
    for one in found.ranks:
        assert one["stopped"] == [False, False, False, True]
        # 4 x 2 x 14
        assert (one["seen"]["broken_reward"], one["failed"]["broken_reward"]) == (112, 4)
        assert one["error"].startswith("broken_reward failed on 4 of 112 completions, more than 1%")
    faults = [(fault["rank"], fault["step"], fault["position"]) for fault in found.faults]
    assert faults == [(1, 4, n) for n in range(4)]


@pytest.mark.slow
def test_groups_of_both_ranks_are_counted_whole(found):
    # 28 completions in groups of 4: the fourth group is half of each rank, and the only one that
    # does not agree.
    assert [one["dead"] for one in found.ranks] == [[6 / 7] * 4] * 2


def test_a_process_that_has_not_joined_is_alone_whatever_its_environment_says(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (ranks.rank(), ranks.world(), ranks.is_first()) == (0, 1, True)
    assert (
        ranks.gathered("mine") == ["mine"]
        and ranks.from_first(lambda: 4) == 4
        and ranks.fails_first()
    )
