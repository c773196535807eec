"""`make gpu-check` without a GPU: the objective compared; the check rehearsed, resumed,
failing, late.
"""

import json
import shutil
import sys
from dataclasses import asdict, replace

import pytest

from benchmarks import gpu_check, gpu_objective, gpu_parts
from helpers import environment
from helpers.environment import vllm_obstacle
from helpers.presets import PRESETS, with_overrides
from helpers.runs import Run, write_json


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The rehearsal's own folder."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs" / "gpu-rehearsal"


@pytest.mark.parametrize(
    ("name", "recorded", "args", "trainer", "said"),
    [
        ("top_k", 0, -1, None, "| no limit |"),
        ("top_k", 20, -1, None, "the manifest records 20, and the live arguments have -1."),
        ("optim", "adamw_torch", "adamw_torch_fused", None, "| same update |"),
        ("optim", "adamw_torch", "adamw_torch", None, "| same |"),
        ("beta", 0.01, 0.01, 0.02, "records 0.01, and the live trainer has 0.02."),
        ("loss_type", "dapo", "dapo", "dapo", "| same |"),
        ("delta", None, 4.0, None, "TRL's default is None, and the live arguments have 4.0."),
    ],
)
def test_a_setting_that_the_live_trainer_has_otherwise_is_named(
    work, name, recorded, args, trainer, said
):
    run = Run("live")
    given = {} if name == "delta" else {name: recorded}  # no setting of ours
    settings = asdict(with_overrides(PRESETS["pocket"], engine="vllm", **given))
    run.record("training", settings=settings, seed=1, weights=[1.0, 0.1])
    live = {"args": {name: args}, "trainer": {} if trainer is None else {name: trainer}}
    write_json(run.path("live_objective.json"), live | {"gpu": None, "defaults": {"delta": None}})
    (row,) = rows = gpu_objective.compare(run)
    last = gpu_objective.table(rows)[-1]
    assert row.problem.endswith(said) if "live" in said else last.endswith(said)
    assert bool(row.problem) == ("**differs**" in last)


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
    text = (work / "gpu.md").read_text(encoding="utf-8")
    assert "# What a GPU shows: a rehearsal without one" in text and "Not done yet" not in text
    assert "| beta | 0.01 | 0.01 | 0.01 | same |" in text and "into original" in text
    capsys.readouterr()
    assert gpu_check.main(["--rehearse"]) == 0
    assert capsys.readouterr().out.count("is written already") == len(gpu_parts.PARTS)


def test_no_version_is_insisted_on(work, monkeypatch):
    card = replace(gpu_check.this_machine(), gpu="a card", compute_capability=9.0)
    monkeypatch.setattr(environment, "installed_version", {"vllm": "0.25.1"}.get)
    assert "the suite is pinned to" in vllm_obstacle(card)
    name = "GRPO_ANY_VERSIONS"
    monkeypatch.setenv(name, gpu_check._environment(work, rehearse=False)[name])
    assert vllm_obstacle(card) is None


@pytest.fixture
def called(work, monkeypatch):
    """Call the command with parts that are only programs; returns the exit code and the page."""

    def called(*arguments, **programs):
        parts = [(name, 1, f"The part {name}", 60, does, ()) for name, does in programs.items()]
        monkeypatch.setattr(gpu_check, "PARTS", tuple(gpu_check.Part(*part) for part in parts))
        code = gpu_check.main(["--rehearse", *arguments])
        return code, (work / "gpu.md").read_text(encoding="utf-8")

    monkeypatch.setattr(
        gpu_check, "_command", lambda part, *where: [sys.executable, "-c", part.does]
    )
    return called


def test_what_failed_is_explained_and_done_again_on_demand(called, tmp_path, capsys):
    good = f"open({str(ran := tmp_path / 'ran')!r}, 'a').write('x')"
    code, text = called(good=good, bad="import json; json.loads('no')")
    assert code == 1 and "- json.decoder.JSONDecodeError: Expecting value" in text
    again = 'make gpu-check ARGS="--rehearse --fresh bad"'
    assert text.count("--fresh") == 1 and f"- Again: `{again}`" in text and "bad.log" in text
    assert f"Again: {again}" in capsys.readouterr().out
    code, text = called("--fresh", "bad", good=good, bad="pass")
    assert (code, "--fresh" in text, ran.read_text()) == (0, False, "x"), "good is done once"


def test_a_part_that_is_cut_by_the_calls_end_is_taken_up_by_the_next(called, work):
    work.mkdir(parents=True)
    slow = gpu_check.Part("slow", 1, "The part slow", 2, "import time; time.sleep(600)", ())
    gpu_check.check((slow,), work / "gpu.md", work, minutes=1.5 / 60)
    assert "the next call takes it up." in (work / "gpu.md").read_text(encoding="utf-8")
    assert called(slow="pass")[0] == 0
