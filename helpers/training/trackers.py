"""Experiment trackers: one parameter, `report_to`, and everything they keep on this machine in the
run folder.

Asked before anything is loaded, also by the command line: so nothing here imports Transformers.
"""

import importlib.util
import os

from helpers.runs import Run

# By the environment variable that says where each keeps what it keeps on this machine.
TRACKERS = {
    "none": "",
    "tensorboard": "TENSORBOARD_LOGGING_DIR",
    "wandb": "WANDB_DIR",
    "trackio": "TRACKIO_DIR",
}


def check(report_to: str) -> None:
    """ValueError for a tracker that is not known or not installed."""
    if report_to not in list(TRACKERS):  # a list or a dictionary has no hash
        raise ValueError(f"report_to={report_to!r} is not known. Known: {', '.join(TRACKERS)}.")
    if report_to != "none" and importlib.util.find_spec(report_to) is None:
        raise ValueError(
            f"report_to={report_to!r} needs the package {report_to}: pip install {report_to}"
        )


def options(run: Run, report_to: str) -> dict:
    """What GRPOConfig needs to report to a tracker: its name, the run's, and the project's.

    ValueError as `check` gives. wandb without a key keeps the run in `tracking/wandb/`, from where
    `wandb sync` uploads it. Keys stay in the environment or in netrc, where the tracker itself
    looks for them; nothing here records one.
    """
    check(report_to)
    if report_to == "none":
        return {"report_to": "none"}
    os.environ[TRACKERS[report_to]] = str(run.path(f"tracking/{report_to}/x").parent)
    if report_to == "wandb":
        from requests.utils import get_netrc_auth

        os.environ.setdefault("WANDB_SILENT", "true")  # its greeting holds paths of this machine
        given = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE")
        if not given and not get_netrc_auth("https://api.wandb.ai"):
            os.environ["WANDB_MODE"] = "offline"
            print(
                f"no wandb key was found, so the run is kept in {run.show('tracking/wandb')}; "
                "`wandb sync` uploads it"
            )
    return {"report_to": report_to, "run_name": run.name, "project": "grpo-notebooks"}
