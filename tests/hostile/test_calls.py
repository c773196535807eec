"""Wrong calls, each with a part of its error message, in two tables. A new case is a new row."""

import pytest

from helpers.commands.checks import check_parameters

pytestmark = pytest.mark.usefixtures("machine")

# --- Arguments of the command line, with {here} for the test's folder, and a part of the message --

RUN_01 = ["run", "--run", "a", "--preset", "pocket", "--only", "01"]
RUN = ["run", "--run", "a", "--preset", "pocket"]
COMMANDS = [
    *(
        (["run", "--only", only], f"there is no notebook {shown}. There are: 00, 01, 02, 03")
        for only, shown in (("3-4", "3-4"), ("98,03,99", "98"))
    ),
    *((["run", "--only", only], f"--only {only!r}: name notebooks by") for only in ("", "03,")),
    (["run", "--run", "../x"], "is not a run name"),
    (["run", "--run", "sweeps"], "the folder of the sweeps"),
    (["run", "--preset", "t5"], "preset 't5' is not known"),
    (["run", "--preset", "h200"], "needs an NVIDIA GPU"),
    *(
        (["run", "--resume", *more], "--resume repeats the run's last command")
        for more in (["--once"], ["-p", "seed=1"], ["--preset", "pocket"], ["--only", "03"])
    ),
    (["run", "--run", "never", "--resume"], "there is nothing to resume"),
    *(
        ([*RUN, "-p", "seed=1", "-p", bad], "write it as KEY=VALUE, for example")
        for bad in ("max_steps", "=5", " =5", "max-steps=5", "5=5", "a b=1", "")
    ),
    ([*RUN, "-p", "max_step=3"], "Did you mean 'max_steps'?"),
    ([*RUN, "-p", " run = x"], "name the run with --run NAME"),
    ([*RUN, "-p", "max_steps=0"], "max_steps=0 must be at least 1"),
    ([*RUN, "-p", "learning_rate=nan"], "learning_rate='nan' is not of type float"),
    ([*RUN, "-p", "lora_rank=257"], "lora_rank=257 is more than the width of pocket"),
    ([*RUN, "-p", "merge=typo"], "merge='typo' is not known"),
    ([*RUN, "-p", "grader=mine"], "grader='mine' is not a reward of the library: "),
    (
        [*RUN, "-p", "grader=format,correctness"],
        "grader='format,correctness' is not a reward of the",
    ),
    ([*RUN, "-p", "seed=-1"], "seed=-1 is not a seed"),
    ([*RUN, "-p", "num_generations=7"], "not whole groups of num_generations=7"),
    ([*RUN, "-p", "kind=words"], "kind='words' is not a kind of answer"),
    ([*RUN_01, "-p", "source=https://example.com/x.csv"], "is an address. Download the file"),
    ([*RUN_01, "-p", "source={here}/none.csv"], "none.csv"),
    ([*RUN_01, "-p", "source={here}/dir.jsonl"], "Is a directory"),
    ([*RUN_01, "-p", "model="], "these settings cannot run: model='' is empty"),
    (
        ["run", "--only", "03", "--preset", "pocket"],
        "--preset is for notebooks 00, 01, 07, 09, 10, 11. The others continue with the run's settings",
    ),
    (["run", "--only", "01", "-p", "learning_rat=1"], "Did you mean 'learning_rate'?"),
    (["run", "--only", "01", "-p", "learning_rate=1"], "It is a parameter of 00, 03, 07"),
    (["run", "--only", "00", "-p", "max_steps=0"], "max_steps=0 must be at least 1"),
    # the preset is not known here: no notebook has prepared the run, or 07 chooses it by the source
    (["run", "--only", "03", "-p", "max_steps=four"], "max_steps='four' is not of type int"),
    (["run", "--only", "03", "-p", "beta=-1"], "beta=-1 must be between 0 and 100"),
    # two faults of different kinds
    (
        ["run", "--only", "03", "-p", "max_steps=four", "-p", "beta=-1"],
        "max_steps='four' is not of type int. beta=-1 must be between 0 and 100.",
    ),
    (
        [*RUN, "-p", "max_steps=0", "-p", "num_generations=7"],
        "max_steps=0 must be at least 1. per_device_train_batch_size x gradient_accumulation_steps",
    ),
    (["doctor", "-p", "lora_rnk=5", "-p", "beta=-1"], "100. 'lora_rnk' is not a setting. Did you"),
    (["run", "--only", "07", "-p", "max_steps=0"], "max_steps=0 must be at least 1"),
    (["run", "--only", "00", "--preset", "l4"], "preset 'l4' needs an NVIDIA GPU"),
    (["doctor", "--preset", "x"], "preset 'x' is not known"),
    (["doctor", "-p", "max_completion_length=-1"], "max_completion_length=-1 must be at least 1"),
    (["doctor", "-p", "samples=4"], "'samples' is not a setting"),
    (["doctor", "-p", "lora_rnk=5"], "Did you mean 'lora_rank'?"),
    (["doctor", "-p", "num_generations=7"], "not whole groups of num_generations=7"),
    (["doctor", "-p", "preset=poket"], "preset 'poket' is not known"),
    (["train", "a", "-p", "max_step=3"], "Did you mean 'max_steps'?"),
    (["train", "nowhere"], "Run notebook 01_data_preparation first"),
    (["compare", "a"], "name two or more different runs"),
    (["compare", "a", "a"], "name two or more different runs"),
    (["compare", "never", "neither"], "never/metrics.csv is not there"),
    (["report", "--run", "never"], "never"),
    (
        ["generate", "--run", "never", "--input", "{here}/q.jsonl", "--output", "{here}/a.jsonl"],
        "never/merged is not there",
    ),
    (["sweep", "--grid", "{here}"], "Is a directory"),
    (["sweep", "--grid", "{here}/no.yaml"], "No such file or directory: "),
]


@pytest.fixture
def here(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "What is 1 + 1?"}\n')
    (tmp_path / "dir.jsonl").mkdir()
    (tmp_path / "grid.yaml").write_text("name: tiny\nseeds: [1]\nproduct: {beta: [0, 0.1]}\n")
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), COMMANDS)
def test_a_wrong_command_is_refused_in_one_line_and_writes_nothing(cli, here, arguments, said):
    code, _, err = cli(*(argument.replace("{here}", str(here)) for argument in arguments))
    assert code == 2 and said in err and err.count("\n") == 1 and len(err) < 1_100
    assert not (here / "runs").exists()


# --- Parameters of the notebooks, before the first of them runs -----------------------------------

PARAMETERS = [
    ({"seed": -1}, "seed=-1 is not a seed"),
    ({"seed": "1"}, "seed='1' is not a seed"),
    ({"sampling_seconds": 0}, "sampling_seconds=0 is not valid"),
    ({"sampling_seconds": "soon"}, "sampling_seconds='soon' is not valid"),
    ({"groups": 0}, "groups=0 is not a number"),
    ({"samples": True}, "samples=True is not a number"),
    ({"batch_size": 1.5}, "batch_size=1.5 is not a number"),
    ({"tags": "a"}, "tags='a' is not a format"),
    ({"tags": "a/a"}, "must have different names"),
    ({"tags": ["a", "b"]}, "is not a format"),
    ({"source": 5}, "source='5' is not known"),
    ({"source": ""}, "source='' is not known"),
    ({"source": "{here}/dir.jsonl"}, "Is a directory"),
    ({"source": "{here}/q.jsnl.jsonl"}, "No such file"),
    ({"source": "{here}/q.jsonl"}, "no column 'answer'"),
    ({"source": "arithmetic/sum"}, "not a family of arithmetic. Known: sums, pairs, differences."),
    (
        {"source": "arithmetic/sums", "columns": {5: "a"}},
        "columns={5: 'a'} is not a mapping of names",
    ),
    ({"source": "arithmetic/sums", "columns": {"question": 5}}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": "question"}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": []}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": {"prompt": "a"}}, "is not a mapping of names to"),
    *(
        ({"early_stopping": patience}, f"early_stopping={patience!r} is not a number of steps")
        for patience in (0, 1, -3, 2.5, "5", True)
    ),
    ({"merge": "typo"}, "merge='typo' is not known"),
    ({"merge": ["original"]}, "is not known"),
    ({"gguf": 4}, "gguf=4 cannot be written here"),
    ({"gguf": "q4_k_m; rm"}, "cannot be written here"),
    ({"gguf": "q4_k_m"}, "gguf='q4_k_m' cannot be written here"),
    ({"push_to_hub": "model"}, "name it owner/model"),
    ({"push_to_hub": 3}, "name it owner/model"),
    ({"push_to_hub": "a/b/c"}, "name it owner/model"),
    ({"push_to_hub": ""}, "name it owner/model"),
    ({"grader": "nothing"}, "file.py:function, such as my_rewards.py"),
    ({"grader": "{here}/none.py:f"}, "cannot be read"),
    ({"grader": 5}, "file.py:function, such as my_rewards.py"),
]


@pytest.mark.parametrize(("given", "said"), PARAMETERS)
def test_a_parameter_is_refused_before_the_first_notebook(here, monkeypatch, given, said):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    given = {
        name: value.replace("{here}", str(here)) if isinstance(value, str) else value
        for name, value in given.items()
    }
    with pytest.raises((ValueError, OSError)) as error:
        check_parameters(given)
    assert said in str(error.value) and len(str(error.value)) < 800


def test_good_parameters_pass(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "x")
    good = {
        "merge": "adapter",
        "push_to_hub": "me/model",
        "early_stopping": 10,
        "tags": "a/b",
        "cases": None,
        "source": "arithmetic/sums",
        "grader": "helpers.rewards.structure:format_reward",
    }
    check_parameters(good)
    check_parameters({"merge": "dequantised", "source": "openai/gsm8k"})
