"""`train`: notebook 03's own cells as a process, alone and as two ranks, ended in every way that a
rank can end.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from executions import SMALL, ended, ranks_of, start, together

from helpers import presets
from helpers.commands import pipeline, train
from helpers.runs import Run
from helpers.training import ranks

OF_03 = [
    f"-p{parameter}" for parameter in SMALL if parameter.startswith(("max_steps", "save_steps"))
]
TIMES = ["step_time"]


# --- The cells of a notebook, in a process --------------------------------------------------------


def test_cells_share_names_take_parameters_and_leave_exercises_out(
    notebook, tmp_path, runs, capsys
):
    path = notebook(
        "03",
        "double = 2 * number",
        ("double = None", "exercise"),
        "display(double)\nimport os\nprint(os.getcwd())",
    )
    before = os.getcwd()
    assert train.execute(path, Run("a"), {"run": "a", "number": 21})
    assert capsys.readouterr().out.split() == ["42", str(tmp_path)] and os.getcwd() == before


def test_a_wide_table_is_printed_whole(notebook, runs, capsys):
    path = notebook(
        "03", "import pandas\ndisplay(pandas.DataFrame({f'column {n}': [n] for n in range(30)}))"
    )
    assert train.execute(path, Run("a"), {"run": "a"})
    header, row = capsys.readouterr().out.splitlines()
    assert header.count("column") == 30 and row.split() == ["0", *map(str, range(30))]


def test_what_a_cell_raises_is_told_with_notebook_cell_and_line(notebook, runs, capsys):
    path = notebook("03", "def fails(x):\n    return 1 / x", "fails(0)", "print('never')")
    assert not train.execute(path, Run("a"), {"run": "a"})
    out, err = capsys.readouterr()
    assert (
        'File "03_tiny.ipynb, cell 3", line 1' in err
        and 'File "03_tiny.ipynb, cell 2", line 2' in err
    )
    assert "return 1 / x" in err and not out  # the line itself, as a kernel shows it
    assert (
        err.rstrip().splitlines()[-1]
        == "03_tiny.ipynb, cell 3: ZeroDivisionError: division by zero"
    )


@pytest.mark.slow
def test_one_process_trains_to_the_numbers_of_the_notebook(executed, runs, python, cli):
    """Every column but the times, to the last digit."""
    run = Run("a")
    prepared(executed, runs)
    train_alone = [python, "-m", "helpers", "train", "--run", run.name, *OF_03]
    done = subprocess.run(train_alone, capture_output=True, text=True, cwd=pipeline.PROJECT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 process\n")
    mine, notebooks = (
        pd.read_csv(one.require("metrics.csv")).drop(columns=TIMES) for one in (run, executed)
    )
    pd.testing.assert_frame_equal(mine, notebooks, check_exact=True)
    assert run.section("training")["settings"]["processes"] == 1


@pytest.mark.parametrize(
    ("preset", "processes", "each"),
    [
        ("pocket", 2, (32, 1, None)),
        ("pocket", 64, (1, 1, None)),
        ("l4", 4, (4, 1, None)),
        ("h200", 8, (8, 1, None)),
        ("memory_optimized", 2, (1, 2, 4)),
        ("high_performance", 4, (2, 1, 2)),
    ],
)
def test_processes_share_the_completions_of_a_step(preset, processes, each):
    one = presets.PRESETS[preset]
    several = ranks.shared(one, processes)
    found = (
        several.per_device_train_batch_size,
        several.gradient_accumulation_steps,
        several.steps_per_generation,
    )
    assert (found, several.processes) == (each, processes)
    assert several.completions_per_step == one.completions_per_step
    assert several.completions_per_round == one.completions_per_round
    assert several.batch.startswith(
        f"{processes} processes × {each[0]} × {each[1]} = {one.completions_per_step} "
    )
    assert ranks.comparable(asdict(several)) == ranks.comparable(asdict(one))


@pytest.mark.parametrize("processes", [3, 128])
def test_more_processes_than_divide_a_step_are_refused(processes):
    said = f"^{processes} processes cannot share the 64 completions of a step"
    with pytest.raises(ValueError, match=said):
        ranks.shared(presets.PRESETS["pocket"], processes)


@pytest.mark.parametrize("launched", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_launchers_that_deal_the_weights_out_are_refused(monkeypatch, launched):
    monkeypatch.setenv(launched, "true")
    with pytest.raises(ValueError, match=f"^{launched} is set: .* with ddp.yaml"):
        ranks.from_manifest(asdict(presets.PRESETS["pocket"]))


# --- Accelerate's configurations ------------------------------------------------------------------


def test_the_shipped_configuration_is_what_accelerate_launches():
    """Read as `accelerate launch` reads it."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = str(pipeline.PROJECT / "helpers/training/accelerate/ddp.yaml")
    given = ["--config_file", path, "--num_processes", "4"]
    given += ["-m", "helpers", "train", "a", "-p", "max_steps=2"]
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(given))
    assert arguments.num_processes == 4 and arguments.multi_gpu
    assert arguments.training_script_args == ["train", "a", "-p", "max_steps=2"]


# --- Two ranks ------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from helpers.__main__ import main
from helpers.commands import pipeline
pipeline.NOTEBOOKS = Path(sys.argv[1])
sys.exit(main(["train", "a"]))
"""


@pytest.mark.slow
def test_a_rank_that_raises_ends_the_others_and_is_told_once(notebook, tmp_path, runs):
    """Rank 0 waits for rank 1 just then, as in every step of a training: it is ended, or finds the
    connection broken.
    """
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = asdict(presets.PRESETS["pocket"])
    Run("a").record("data", fingerprint="f00d", settings=settings)
    both = "from helpers.training import ranks\nprint('said by rank 0')\nranks.gathered(0)"
    notebook("03", both, "if ranks.rank() == 1:\n    raise KeyError('mine')\nranks.gathered(1)")
    # half of what a rank waits for another
    code, out, err = together(str(program), str(tmp_path), seconds=300)
    assert code == 1
    assert out.splitlines()[0] == "2 processes" and out.count("said by rank 0") == 1
    of_ranks, _, of_torchrun = err.partition("ChildFailedError")
    said = "03_tiny.ipynb, cell 3: KeyError: rank 1: 'mine'"
    assert of_ranks.count(said) == 1 and "rank 0:" not in of_ranks
    # torchrun repeats the traceback below its own list
    assert '"03_tiny.ipynb, cell 3", line 2' in of_torchrun and "KeyError: 'mine'" in of_torchrun
    assert "training" not in Run("a").manifest


def prepared(executed: Run, folder: Path) -> None:
    """Put a run `a` that 01 and 02 have prepared into a runs folder."""
    (folder / "a").mkdir(parents=True)
    shutil.copytree(executed.folder / "data", folder / "a/data")
    for name in ("manifest.json", "reward_report.json"):
        shutil.copy(executed.folder / name, folder / "a")


def files(folder: Path) -> dict[str, float]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_two_ranks_of_transformers_agree_and_only_the_first_writes(executed, tmp_path, monkeypatch):
    """Each rank has a runs folder of its own, so that whatever rank 1 wrote would be in its own."""
    for rank in "01":
        prepared(executed, tmp_path / rank)
    before = files(tmp_path / "1")
    call = f'GRPO_RUNS_DIR={tmp_path}/$RANK exec "{sys.executable}" -m helpers train a '
    # So small a learning rate leaves the holdout as it is, and two steps without improvement end
    # the training.
    given = (
        "max_steps=6 save_steps=6 max_completion_length=24 early_stopping=2 "
        "learning_rate=1e-9 backend=transformers"
    )
    call += " ".join(f"-p {one}" for one in given.split())
    code, out, err = together("--no-python", "bash", "-c", call)
    assert code == 0, err
    assert (
        "2 processes × 32 × 1 = 64 completions a step" in out and out.count("stopping early:") == 1
    )
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "0"))
    run = Run("a")
    history = pd.read_csv(run.folder / "metrics.csv")
    assert list(history["step"]) == [1, 2, 3] and history["completions/mean_length"].gt(0).all()
    training = run.section("training")
    assert training["settings"]["processes"] == 2 and training["stopped_early"].startswith(
        "the holdout has not improved"
    )
    assert len(pd.read_parquet(run.folder / "completions.parquet")) == 3 * 64  # of both ranks
    assert set(files(tmp_path / "1").items()) - set(before.items()) == {
        (name, written)
        for name, written in files(tmp_path / "1").items()
        if name.endswith("checkpoint-3/rng_state_1.pth")
    }
    assert (tmp_path / "1/a/checkpoints/checkpoint-3/rng_state_1.pth").is_file()


@pytest.mark.slow
def test_two_ranks_of_unsloth_end_with_one_of_them_and_go_on_where_they_were(executed, runs):
    prepared(executed, runs)
    given = "max_steps=8 save_steps=2 max_completion_length=24"
    call = ["-m", "helpers", "train", "a", *(f"-p{one}" for one in given.split())]
    process = start(*call)
    while not (runs / "a/checkpoints/checkpoint-2/trainer_state.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    assert len(ranks_of(process)) == 2
    ranks_of(process)[1].kill()
    code, _, err = ended(process)
    # torchrun's own words: it may end rank 0 before that can say more
    assert code != 0 and "Signal 9 (SIGKILL)" in err, err
    assert not (runs / "a/metrics.csv").exists()  # what is not finished is not shown as if it were

    code, out, err = together(*call)
    assert code == 0, err
    assert "continuing the interrupted training from step " in out
    run = Run("a")
    assert list(pd.read_csv(run.folder / "metrics.csv")["step"]) == list(range(1, 9))
    assert (run.folder / "adapter/adapter_model.safetensors").is_file()
