"""A training that writes to an experiment tracker."""

import pytest

from helpers.runs import Run


@pytest.mark.slow
@pytest.mark.needs("tensorboard")
def test_tensorboard_gets_every_step_in_the_folder_that_was_named(cli, machine):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    few = ("max_steps=2", "holdout_size=8", "report_to=tensorboard")
    options = [word for each in few for word in ("-p", each)]
    code, out, _ = cli("run", "--run", "told", "--preset", "pocket", "--only", "00", *options)
    (events,) = (Run("told").folder / "checkpoints" / "runs").glob("*/events*")
    assert code == 0 and "tracker: tensorboard writes to" in out and "checkpoints/runs" in out
    written = EventAccumulator(str(events)).Reload()
    assert [each.step for each in written.Scalars("train/reward")] == [1, 2]
