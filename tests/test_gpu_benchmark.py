"""`make gpu-check` without a GPU: the objective compared; the check rehearsed, resumed,
failing, late.
"""

import json
import os
import shutil
import sys
from dataclasses import replace

import pytest

from benchmarks import gpu_check, gpu_objective, gpu_parts
from helpers import environment
from helpers.environment import vllm_obstacle
from helpers.presets import PRESETS, as_settings, with_overrides
from helpers.runs import Run, write_json

POCKET = PRESETS["pocket"]


def test_an_estimate_out_of_tolerance_is_a_problem(tmp_path):
    (tmp_path / "logs").mkdir()
    results = tmp_path / "gpu.json"
    rows = {
        "a": {"case": "Unsloth", "estimate": 12e9, "peak": 10e9},
        "b": {"case": "TRL", "estimate": 9e9, "peak": 10e9},
    }
    write_json(results, {name: {"data": {"row": row}} for name, row in rows.items()})
    check = gpu_parts.Check("estimates", results, tmp_path, rehearse=False)
    gpu_parts.estimates(check)
    said = "the estimate for Unsloth is 1.20 of what was measured, not within 15%."
    assert check.problems == [said] and len(check.lines) == 2


# --- The objective --------------------------------------------------------------------------------


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Compare a run of the pocket preset, changed by `recorded`, with live arguments and what the
    trainer keeps.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))

    def rows(
        args: dict,
        trainer: dict | None = None,
        defaults: dict | None = None,
        gpu: str | None = None,
        **recorded,
    ):
        run = Run("live")
        run.path("adapter").mkdir(exist_ok=True)
        settings = as_settings(with_overrides(POCKET, engine="vllm", **recorded))
        run.record("training", settings=settings, seed=1, weights=[1.0, 0.1])
        write_json(
            run.path("live_objective.json"),
            {"gpu": gpu, "args": args, "trainer": trainer or {}, "defaults": defaults or {}},
        )
        return gpu_objective.compare(run)

    return rows


def test_a_setting_that_the_live_trainer_has_otherwise_is_named(compared):
    args = {"beta": 0.02, "loss_type": "dapo", "sync_ref_model": False, "delta": 4.0}
    trainer = {"beta": 0.02, "loss_type": "grpo", "sync_ref_model": False}
    defaults = {"sync_ref_model": False, "delta": None}
    rows = compared(args, trainer, defaults, beta=0.01, loss_type="dapo")
    assert [row.problem for row in rows if row.problem] == [
        "beta: the manifest records 0.01, and the live arguments have 0.02.",
        "loss_type: the manifest records 'dapo', and the live trainer has 'grpo'.",
        "delta: nothing is recorded, and TRL's default is None, and the live arguments have 4.0.",
    ]


@pytest.mark.parametrize(
    ("name", "recorded", "live", "said"),
    [
        ("top_k", 0, -1, "no limit"),
        ("top_k", 20, -1, "**differs**"),
        ("optim", "adamw_torch", "adamw_torch_fused", "same update"),
        ("optim", "adamw_8bit", "adamw_torch", "**differs**"),
        ("optim", "adamw_torch", "adamw_torch", "same"),
    ],
)
def test_values_that_come_to_the_same_are_no_problem_and_told(compared, name, recorded, live, said):
    (row,) = rows = compared({name: live}, **{name: recorded})
    assert gpu_objective.table(rows)[-1].endswith(f"| {said} |") and bool(row.problem) == (
        said == "**differs**"
    )


# --- The command ----------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The rehearsal's own folder."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs" / "gpu-rehearsal"


@pytest.mark.slow
def test_the_rehearsal_goes_through_every_part_and_then_has_nothing_to_do(executed, work, capsys):
    # executed before; what is left is gone on with
    for run in (gpu_parts.REAL, gpu_parts.POCKET, gpu_parts.OBJECTIVE):
        shutil.copytree(executed.folder, work / run)
    assert gpu_check.main(["--rehearse"]) == 0, [
        path.read_text() for path in work.glob("logs/*.log")
    ]
    done = json.loads((work / "gpu.json").read_text(encoding="utf-8"))
    assert list(done) == [part.name for part in gpu_parts.PARTS]
    needs = {name for name, part in done.items() if part["outcome"] == "needs a GPU"}
    without_vllm = {"speed-unsloth-vllm"} if vllm_obstacle(gpu_check.this_machine()) else set()
    assert needs == {"speed-trl-vllm", "estimates"} | without_vllm
    row = done["speed-unsloth"]["data"]["row"]
    assert row["peak"] is None and row["estimate"] > 0
    text = (work / "gpu.md").read_text(encoding="utf-8")
    assert "# What a GPU shows: a rehearsal without one" in text and "Not done yet" not in text
    assert "| beta | 0.01 | 0.01 | 0.01 | same |" in text and "into original" in text
    capsys.readouterr()
    assert gpu_check.main(["--rehearse"]) == 0
    assert capsys.readouterr().out.count("is written already") == len(gpu_parts.PARTS)


def test_no_version_is_insisted_on_and_nothing_is_downloaded(work, monkeypatch):
    card = replace(
        gpu_check.this_machine(), gpu="a card", gpu_memory_gb=80.0, compute_capability=9.0
    )
    monkeypatch.setattr(environment, "installed_version", {"vllm": "0.25.1"}.get)
    assert "the suite is pinned to" in vllm_obstacle(card)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name, value in gpu_check._environment(work, rehearse=False).items():
        monkeypatch.setenv(name, value)
    assert vllm_obstacle(card) is None and os.environ["HF_HUB_OFFLINE"] == "1"


WRITTEN = {
    "seconds": 1.0,
    "found": "x",
    "lines": [],
    "problems": [],
    "needs_gpu": [],
    "data": {},
}


@pytest.mark.parametrize(
    ("outcome", "code"), [("passed", 0), ("needs a GPU", 0), ("failed", 1), ("over", 1)]
)
def test_the_exit_code_and_how_to_do_a_part_again(work, monkeypatch, capsys, outcome, code):
    monkeypatch.setattr(gpu_check, "PARTS", (part("only", "pass"),))
    work.mkdir(parents=True)
    write_json(work / "gpu.json", {"only": WRITTEN | {"outcome": outcome}})
    assert gpu_check.main(["--rehearse"]) == code
    again = f"""only                 is written already: {outcome}. Again: make gpu-check ARGS="--rehearse --fresh only"\n"""
    assert (again in capsys.readouterr().out) == bool(code)


def part(name: str, program: str, seconds: int = 60, reads: tuple = ()) -> gpu_check.Part:
    """A part that is no part of the check's, but a program."""
    return gpu_check.Part(name, 1, f"The part {name}", seconds, program, reads)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Parts whose process is the program in their `does`; the rest of the command is its own."""
    monkeypatch.setattr(
        gpu_check, "_command", lambda part, *where: [sys.executable, "-c", part.does]
    )
    results, work = tmp_path / "out.md", tmp_path / "work"
    return lambda *parts, minutes=25.0: gpu_check.check(parts, results, work, minutes), results


def test_a_failure_is_explained_and_the_next_part_runs_and_a_second_call_does_what_is_missing(
    programs, tmp_path
):
    check, results = programs
    counted = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')"
    parts = (
        part("good", counted),
        part("bad", "import json; json.loads('no')"),
        part("last", counted),
    )
    done = check(*parts[:2])
    outcomes = {name: one["outcome"] for name, one in check(*parts).items()}
    assert outcomes == {"good": "passed", "bad": "failed", "last": "passed"}
    assert (tmp_path / "ran").read_text() == "xx", "good was not done again"
    text = results.read_text(encoding="utf-8")
    assert "- json.decoder.JSONDecodeError: Expecting value" in text
    assert f"- The log: `{done['bad']['log']}`" in text and "bad.log" in done["bad"]["log"]
    assert text.count("--fresh") == 1 and """- Again: `make gpu-check ARGS="--fresh bad"`""" in text


def test_a_part_that_is_cut_by_the_calls_end_is_taken_up_by_the_next(programs):
    check, results = programs
    done = check(part("long", "import time; time.sleep(600)", seconds=2), minutes=1.5 / 60)
    assert done["long"]["outcome"] == "cut short"
    assert "the next call takes it up." in results.read_text(encoding="utf-8")
    assert check(part("long", "pass"))["long"]["outcome"] == "passed"


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (
            "03_x.ipynb, cell 42: ValueError: no\nThe whole traceback is in x",
            "03_x.ipynb, cell 42: ValueError: no",
        ),
        ("error: preset 't5' is not known.\n", "error: preset 't5' is not known."),
        (
            "Traceback:\n  File x\n\x1b[31mOutOfMemoryError\x1b[0m: CUDA is full\nnote",
            "OutOfMemoryError: CUDA is full",
        ),
        ("Killed\n", "Killed"),
        ("", "it ended with code 9 and said nothing"),
    ],
)
def test_a_log_is_put_in_a_sentence(log, sentence):
    assert gpu_check.why(log, 9) == sentence
