"""Bad calls, each with a part of the sentence it gets.

A row a call; a new one is a line in a table below.
"""

import json
import os
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.commands import pipeline
from helpers.commands.grid import read_grid
from helpers.data.files import regular_file
from helpers.data.tasks import load_task, save
from helpers.environment import this_machine
from helpers.presets import PRESETS, with_overrides
from helpers.results.merging import check_wishes
from helpers.rewards import forbidden_patterns_reward, json_format_reward
from helpers.runs import Run
from helpers.training import memory

pytestmark = pytest.mark.usefixtures("machine")

# --- The command line: arguments, with {here} for the test's folder, and a part of the message ----

RUN_01 = ["run", "--run", "a", "--preset", "pocket", "--only", "01"]
RUN = ["run", "--run", "a", "--preset", "pocket"]
COMMANDS = [
    (["run", "--only", ""], "--only '' is not a list of notebooks"),
    (["run", "--only", "03,"], "--only '03,' is not a list"),
    (["run", "--only", "3-4"], "--only '3-4' is not a list"),
    (["run", "--only", "99"], "there is no notebook 99"),
    (["run", "--run", "../x"], "is not a run name"),
    (["run", "--run", "sweeps"], "holds the sweeps"),
    (["run", "--run", "x" * 10_000], "is not a run name"),
    (["run", "--preset", "t5"], "preset 't5' is not known"),
    (["run", "--resume", "--fresh"], "--resume takes up what was asked for last time"),
    (["run", "--run", "never", "--resume"], "there is nothing to resume"),
    ([*RUN, "-p", "max_steps"], "write it as KEY=VALUE"),
    ([*RUN, "-p", "max_step=3"], "Did you mean 'max_steps'?"),
    ([*RUN, "-p", "run=x"], "name the run with --run NAME"),
    ([*RUN, "-p", "max_steps=0"], "max_steps=0 must be at least 1"),
    ([*RUN, "-p", "learning_rate=nan"], "learning_rate='nan' is not of type float"),
    ([*RUN, "-p", "lora_rank=100000"], "lora_rank=100,000 is more than the width of pocket"),
    ([*RUN, "-p", 'report_to=["none"]'], "report_to=['none']"),
    ([*RUN, "-p", "early_stopping=0"], "early_stopping=0 is not a number of steps"),
    ([*RUN, "-p", "merge=typo"], "merge='typo' is not known"),
    ([*RUN, "-p", "gguf=q4_k_m"], "gguf='q4_k_m' cannot be written here"),
    ([*RUN, "-p", "push_to_hub=mine"], "push_to_hub='mine'"),
    ([*RUN, "-p", 'compare=["a"]'], "compare"),
    ([*RUN, "-p", "cases={here}/none.jsonl"], "none.jsonl"),
    ([*RUN, "-p", "judge=mine"], "judge='mine': write it as file.py:function"),
    ([*RUN, "-p", "seed=-1"], "seed=-1 is not a seed"),
    ([*RUN, "-p", "samples=0"], "samples=0 is not a number"),
    ([*RUN, "-p", "tags=think"], "tags"),
    ([*RUN, "-p", "question=3"], "question=3 is not a text"),
    ([*RUN, "-p", "kind=words"], "kind='words' is no kind of answer"),
    ([*RUN, "-p", "columns=5"], "columns=5 is not a mapping of names"),
    ([*RUN_01, "-p", "source=https://example.com/x.csv"], "is an address. Download the file"),
    ([*RUN_01, "-p", "source={here}/none.csv"], "none.csv"),
    ([*RUN_01, "-p", "source={here}/pipe.csv"], "is a pipe or a device"),
    (
        [
            *RUN_01,
            "-p",
            "source={here}/q.jsonl",
            "-p",
            'columns={"question": "question", "answer": "question"}',
        ],
        "both from 'question'",
    ),
    (["run", "--only", "03", "--preset", "pocket"], "--preset is notebook 01's to set"),
    (["doctor", "--preset", "x"], "preset 'x' is not known"),
    (["doctor", "-p", "max_completion_length=-1"], "max_completion_length=-1 must be at least 1"),
    (["doctor", "-p", "compare=[]"], "no preset has a setting 'compare'"),
    (["doctor", "-p", "nonsense=1"], "nonsense"),
    (["reproduce", "--run", "never"], "never"),
    (["compare", "a"], "name two or more different runs"),
    (["compare", "a", "a"], "name two or more different runs"),
    (["compare", "never", "neither"], "never/metrics.csv is not there"),
    (["report", "--run", "never"], "never"),
    (
        ["generate", "--run", "never", "--input", "{here}/q.jsonl", "--output", "{here}/a.jsonl"],
        "never/merged is not there",
    ),
    (["sweep", "--grid", "{here}"], "is a folder; name a file"),
    (["sweep", "--grid", "x" * 10_000], "there can be no such file"),
    (["sweep", "--grid", "{here}/q.jsonl/grid.yaml"], "there can be no such file"),
    (["sweep", "--grid", "{here}/pipe.csv"], "is a pipe or a device"),
]


@pytest.fixture
def here(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "What is 1 + 1?"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "q.jsonl")
    (tmp_path / "dir.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "nothing.csv").symlink_to(tmp_path / "gone.csv")
    (tmp_path / "circle.csv").symlink_to(tmp_path / "circle.csv")
    (tmp_path / "ends.py").write_text("raise SystemExit(0)\n")
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), COMMANDS)
def test_the_command_line_says_what_is_wrong(cli, here, arguments, said):
    code, _, err = cli(*(argument.replace("{here}", str(here)) for argument in arguments))
    assert code == 2 and said in err and err.count("\n") == 1 and len(err) < 1_000


# --- Grids ----------------------------------------------------------------------------------------

HEAD, KNOBS = "name: tiny\npreset: pocket\nseeds: [1]\n", "one_at_a_time: {beta: [0, 0.1]}\n"
THOUSANDTHS = ", ".join(str(n / 1000) for n in range(101))
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
GRIDS = {
    "a billion laughs": (LAUGHS, "line 2: the alias *a0 is not taken here"),
    "an alias of itself": (HEAD + "fixed: &a {x: *a}\n" + KNOBS, "line 4: the alias *a"),
    "deep lists": (HEAD + "fixed: " + "[" * 100_000, "more than 8 levels"),
    "deep blocks": (HEAD + "fixed:\n  x:\n    " + "- " * 100_000 + "1\n", "more than 8 levels"),
    "deep mappings": (HEAD + "fixed: " + "{a: " * 100_000, "more than 8 levels"),
    "many points": (
        HEAD + f"product: {{beta: [{THOUSANDTHS}], weight_decay: [{THOUSANDTHS}]}}",
        "make 10,201 runs",
    ),
    "many seeds": (
        f"name: t\nseeds: {list(range(6000))}\n{KNOBS}",
        "make 18,000 runs, more than 10,000",
    ),
    "an object": (
        "!!python/object/apply:os.system ['true']",
        "the tag tag:yaml.org,2002:python/object/apply:os.system",
    ),
    "a tag of one's own": (HEAD + "fixed: {question: !mine x}\n" + KNOBS, "the tag !mine"),
    "a set": (HEAD + "fixed: {question: !!set {a}}\n" + KNOBS, "the tag tag:yaml.org,2002:set"),
    "a moment": (
        HEAD + "fixed: {question: !!timestamp foo}\n" + KNOBS,
        "the tag tag:yaml.org,2002:timestamp",
    ),
    "no date": (
        HEAD + "fixed: {question: 2024-13-45}\n" + KNOBS,
        "line 4: '2024-13-45' cannot be read",
    ),
    "5,000 digits": (HEAD + f"fixed: {{max_steps: {'9' * 5000}}}\n" + KNOBS, "line 4: '9999999999"),
    "a large file": ("#" * 2**21, "the file has 2,097,152 bytes"),
    "a NUL": ("a: \0", "this is not YAML: unacceptable character"),
    "a list for a key": ("{[1]: 2}", "found unhashable key"),
    "a merge": (HEAD + "fixed: {<<: 5}\n" + KNOBS, "for merging"),
    "two documents": (HEAD + KNOBS + "---\na: 1\n", "found another document"),
    "a number for a name": (
        HEAD + "fixed: {1.5: 2}\n" + KNOBS,
        "1.5 is not the name of a parameter",
    ),
    "infinity": (
        HEAD + "fixed: {learning_rate: .inf}\n" + KNOBS,
        "learning_rate=inf must be between",
    ),
    "nan": (HEAD + "one_at_a_time: {learning_rate: [.nan]}\n", "learning_rate=nan must be between"),
    "tags": (HEAD + "fixed: {tags: nonsense}\n" + KNOBS, "tags='nonsense' is not a format"),
    "a source that is not there": (
        HEAD + "fixed: {source: missing.csv}\n" + KNOBS,
        "missing.csv: no such file",
    ),
    "a family": (HEAD + "fixed: {source: arithmetic/sum}\n" + KNOBS, "Did you mean sums"),
    "a tracker": (HEAD + "fixed: {report_to: [none]}\n" + KNOBS, "report_to=['none'] is not known"),
    "stopping at once": (
        HEAD + "fixed: {early_stopping: 0}\n" + KNOBS,
        "early_stopping=0 is not a number of steps",
    ),
    "a rank": (
        HEAD + "fixed: {lora_rank: 100000}\n" + KNOBS,
        "lora_rank=100,000 is more than the width of pocket",
    ),
    "a prompt that is no text": (
        HEAD + "fixed: {system_prompt: 3}\n" + KNOBS,
        "system_prompt=3 is not a text",
    ),
}


@pytest.mark.parametrize(("text", "said"), GRIDS.values(), ids=GRIDS)
def test_a_grid_is_refused_with_a_sentence(tmp_path, text, said):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(ValueError) as error:
        read_grid(tmp_path / "grid.yaml")
    assert (
        str(error.value).startswith("grid.yaml: ")
        and said in str(error.value)
        and len(str(error.value)) < 500
    )


def test_as_many_runs_as_are_meant(tmp_path):
    (tmp_path / "grid.yaml").write_text(
        f"name: t\npreset: pocket\nseeds: {list(range(6000))}\n{KNOBS}"
    )
    assert len(read_grid(tmp_path / "grid.yaml", many=True).seeds) == 6000


# --- Parameters of the notebooks, before the first of them runs -----------------------------------

PARAMETERS = [
    ({"report_to": ["none"]}, "report_to=['none'] is not known"),
    ({"report_to": {"a": 1}}, "report_to={'a': 1} is not known"),
    ({"report_to": True}, "report_to=True is not known"),
    ({"seed": -1}, "seed=-1 is not a seed"),
    ({"seed": "1"}, "seed='1' is not a seed"),
    ({"groups": 0}, "groups=0 is not a number"),
    ({"samples": True}, "samples=True is not a number"),
    ({"batch_size": 1.5}, "batch_size=1.5 is not a number"),
    ({"system_prompt": ["x"]}, "system_prompt=['x'] is not a text"),
    ({"question": 7}, "question=7 is not a text"),
    ({"tags": "a"}, "tags='a' is not a format"),
    ({"tags": "a/a"}, "must have different names"),
    ({"tags": ["a", "b"]}, "is not a format"),
    ({"source": 5}, "source=5 is not a data source"),
    ({"source": ""}, "is not a data source"),
    ({"source": "x" * 10_000}, "(10,000 characters)' is not known"),
    ({"source": "a/" + "x" * 10_000}, "is not known"),
    ({"source": "x" * 10_000 + ".csv"}, "there can be no such file"),
    ({"source": "a\0b.csv"}, "is no path of a file"),
    ({"source": "a\0b"}, "is not known"),
    ({"source": "{here}/dir.jsonl"}, "is a folder; name a file"),
    ({"source": "{here}/pipe.csv"}, "is a pipe or a device"),
    ({"source": "{here}/nothing.csv"}, "It is a link, and what it points to is gone"),
    ({"source": "{here}/circle.csv"}, "there can be no such file"),
    ({"source": "{here}/q.jsnl.jsonl"}, "Did you mean"),
    ({"source": "{here}/q.jsonl"}, "no column 'answer'"),
    (
        {"source": "arithmetic/sums", "columns": {5: "a"}},
        "columns={5: 'a'} is not a mapping of names",
    ),
    ({"source": "arithmetic/sums", "columns": {"question": 5}}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": "question"}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": []}, "is not a mapping of names"),
    ({"source": "arithmetic/sums", "columns": {"prompt": "a"}}, "columns maps prompt"),
    ({"early_stopping": 0}, "early_stopping=0 is not a number of steps"),
    ({"early_stopping": True}, "early_stopping=True"),
    ({"early_stopping": "5"}, "early_stopping='5'"),
    ({"merge": "typo"}, "merge='typo' is not known"),
    ({"merge": ["original"]}, "is not known"),
    ({"serve": "maybe"}, "serve='maybe' is not known"),
    ({"gguf": 4}, "gguf=4 is no way of quantising"),
    ({"gguf": "q4_k_m; rm"}, "is no way of quantising"),
    ({"gguf": "q4_k_m"}, "gguf='q4_k_m' cannot be written here"),
    ({"push_to_hub": "model"}, "name it owner/model"),
    ({"push_to_hub": 3}, "name it owner/model"),
    ({"push_to_hub": "a/b/c"}, "name it owner/model"),
    ({"push_to_hub": ""}, "name it owner/model"),
    ({"compare": "one"}, "compare='one' is not a list of runs"),
    ({"compare": [3]}, "is not a list of runs"),
    ({"compare": ["../up"]}, "is not a run name"),
    ({"compare": ["nowhere"]}, "runs/nowhere/metrics.csv is not there"),
    ({"compare": ["mine"]}, "is there twice, or is the run itself"),
    ({"cases": "nowhere.jsonl"}, "nowhere.jsonl: no such file"),
    ({"cases": 5}, "cases=5 is not the path of a file"),
    ({"cases": "{here}/dir.jsonl"}, "is a folder"),
    ({"cases": "{here}/q.jsonl"}, "needs the texts `name` and `completion`"),
    ({"completions": 5}, "completions=5 is not the path of a file"),
    ({"completions": "{here}/q.jsonl"}, "stored completions need the columns"),
    ({"completions": "{here}/pipe.csv"}, "is a pipe or a device"),
    ({"judge": "nothing"}, "write it as file.py:function"),
    ({"judge": "{here}/none.py:f"}, "cannot be read"),
    ({"judge": "{here}/ends.py:f"}, "cannot be read (SystemExit"),
    ({"judge": 5}, "write it as file.py:function"),
]


@pytest.mark.parametrize(("given", "said"), PARAMETERS)
def test_a_parameter_is_refused_before_the_first_notebook(here, monkeypatch, given, said):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    given = {
        name: value.replace("{here}", str(here)) if isinstance(value, str) else value
        for name, value in given.items()
    }
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        pipeline.check_parameters(given, run="mine")
    assert said in str(error.value) and len(str(error.value)) < 800


def test_good_parameters_pass(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "x")
    good = {
        "merge": "4bit",
        "push_to_hub": "me/model",
        "early_stopping": 10,
        "tags": "a/b",
        "compare": [],
        "cases": None,
    }
    pipeline.check_parameters(
        good | {"source": "arithmetic/sums", "judge": "helpers.rewards:format_reward"}, run="mine"
    )
    check_wishes("unsloth", this_machine(), merge="adapter")


def test_a_rank_above_the_width_is_refused_before_anything_is_loaded():
    with pytest.raises(ValueError, match=r"lora_rank=257 is more than the width of pocket"):
        memory.check(with_overrides(PRESETS["pocket"], lora_rank=257), this_machine())
    memory.check(with_overrides(PRESETS["pocket"], lora_rank=64), this_machine())


# --- Extra columns: none stops a run, and what cannot be stored is named --------------------------

ROWS = {"question": [f"q{n}" for n in range(9)], "answer": [str(n) for n in range(9)]}
BYTES = pa.array([b"\xff"] * 9, pa.binary()).buffers()
JSONL = {
    "mixed types": ('"x": %s', ["1", '"a"', "[1]", "{}"] * 3, "Parquet cannot store it"),
    "beyond 64 bits": ('"x": %s', [str(2**70)] * 9, "Parquet cannot store it"),
    "a lone surrogate": ('"x": "%s"', ["\\ud800"] * 9, "Parquet cannot store it"),
    "an empty object": ('"x": %s', ["{}"] * 9, "Parquet cannot store it"),
    "an empty object inside": ('"x": %s', ['[{"y": {}}]'] * 9, "Parquet cannot store it"),
    "too deep": ('"x": %s', ["[" * 500 + "]" * 500] * 9, "Parquet cannot store it"),
}
PARQUET = {
    "a map": (
        pa.array([[("a", 1)]] * 9, pa.map_(pa.string(), pa.int64())),
        "Parquet cannot store it",
    ),
    "a date of the year 10000": (
        pa.array([3_000_000] * 9, pa.int32()).cast(pa.date32()),
        "cannot be read: OverflowError",
    ),
    "a moment far off": (pa.array([2**62] * 9, pa.timestamp("us")), "a value cannot be read"),
    "no UTF-8": (
        pa.StringArray.from_buffers(9, BYTES[1], BYTES[2]),
        "cannot be read: UnicodeDecodeError",
    ),
}


def stored(source, capsys) -> dict:
    """What a source's report says of the columns left out, once its task is in a run folder."""
    task = load_task(str(source), train_size=5, holdout_size=2)
    save(Run("a"), task, PRESETS["pocket"])
    dropped = json.loads((Run("a").folder / "data_report.json").read_text())["columns_dropped"]
    assert "columns left out: " in capsys.readouterr().out
    assert list(Run("a").table("data/train.parquet").columns)[:3] == [
        "prompt",
        "question",
        "answer",
    ]
    return dropped


@pytest.mark.parametrize(("template", "values", "said"), JSONL.values(), ids=JSONL)
def test_a_column_that_cannot_be_stored_is_dropped_by_name(
    tmp_path, capsys, template, values, said
):
    row = '{"question": "q%d", "answer": "1", "kept": 1, '
    rows = [row % n + template % value + "}" for n, value in enumerate(values)]
    (tmp_path / "s.jsonl").write_text("\n".join(rows))
    dropped = stored(tmp_path / "s.jsonl", capsys)
    assert list(dropped) == ["x"] and said in dropped["x"]
    assert "kept" in Run("a").table("data/train.parquet")


@pytest.mark.parametrize(("column", "said"), PARQUET.values(), ids=PARQUET)
def test_a_column_of_parquet_that_cannot_be_read_is_dropped_by_name(tmp_path, capsys, column, said):
    pq.write_table(pa.table(ROWS | {"x": column}), tmp_path / "s.parquet")
    dropped = stored(tmp_path / "s.parquet", capsys)
    assert list(dropped) == ["x"] and said in dropped["x"]


def test_a_name_that_is_no_text_and_thousands_of_columns(tmp_path, capsys):
    rows = [{"question": f"q{n}", "answer": "1", "a\ud800": "b"} for n in range(9)]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert stored(tmp_path / "s.jsonl", capsys) == {
        "a\\ud800": "its name has a lone surrogate, which is no text"
    }
    names, ones = ",".join(f"c{n}" for n in range(20_000)), ",".join("1" * 20_000)
    (tmp_path / "s.csv").write_text(
        f"question,answer,{names}\n" + "".join(f"q{n},{n},{ones}\n" for n in range(9))
    )
    dropped = stored(tmp_path / "s.csv", capsys)
    assert (
        dropped["c498"] == "beyond the first 500 columns" and list(dropped)[-1] == "and 19,402 more"
    )


def test_a_column_of_a_reserved_name_hides_no_other(tmp_path):
    row = '{"question": "q%d", "answer": "1", "prompt": "p", "source_prompt": "s"}'
    (tmp_path / "s.jsonl").write_text("\n".join(row % n for n in range(9)))
    first = load_task(str(tmp_path / "s.jsonl"), train_size=5, holdout_size=2).train.iloc[0]
    assert first["source_prompt"] == "s" and first["source_source_prompt"] == "p"


def test_a_question_that_is_no_utf8_is_one_bad_row(tmp_path):
    bad = pa.array([b"\xff", *[f"q{n}".encode() for n in range(8)]], pa.binary()).buffers()
    pq.write_table(
        pa.table(ROWS | {"question": pa.StringArray.from_buffers(9, bad[1], bad[2])}),
        tmp_path / "s.parquet",
    )
    report = load_task(str(tmp_path / "s.parquet"), train_size=5, holdout_size=2).report
    assert report["dropped"] == {"question cannot be read": 1}


def test_a_file_is_a_regular_file(here):
    assert regular_file(here / "link.jsonl") == here / "link.jsonl"


# --- Patterns and schemas -------------------------------------------------------------------------

NESTED = '{"a":' * 25 + "1" + "}" * 25
TWICE = [{"$ref": "#"}, {"$ref": "#"}]
KEY, LONG = r"^(a|aa)+\1$", json.dumps({"a" * 5000 + "!": 1})
SCHEMAS = {
    "oneOf": ({"properties": {"a": {"oneOf": TWICE}}}, NESTED),
    "allOf": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"a": {"allOf": TWICE}},
        },
        NESTED,
    ),
    "unevaluated": (
        {
            "anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 2,
            "unevaluatedProperties": {"$ref": "#"},
        },
        NESTED,
    ),
    "uniqueItems": ({"uniqueItems": True}, json.dumps([1, "a", *({"": n} for n in range(1000))])),
    "pattern": ({"properties": {"a": {"pattern": KEY}}}, json.dumps({"a": "a" * 5000 + "!"})),
    "names": ({"patternProperties": {KEY: {}}, "unevaluatedProperties": False}, LONG),
    "additional": ({"patternProperties": {KEY: {}}, "additionalProperties": False}, LONG),
}


@pytest.mark.parametrize(("schema", "text"), SCHEMAS.values(), ids=SCHEMAS)
def test_what_fits_no_schema_in_time_earns_nothing_and_the_next_is_judged(schema, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = json_format_reward([text] * 8 + ["{}"], schema=schema, tags=None)
    assert scores[:8] == [0.0] * 8 and scores[8] == 1.0


@pytest.mark.parametrize("pattern", ["(a+)+$", r"^(a+)+\1b", "a.*b.*c.*d"])
def test_no_pattern_holds_up_a_batch(pattern):
    texts = ["a" * 30_000 + "!" + str(n) for n in range(64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = forbidden_patterns_reward([*texts, "Bonn."], patterns=[pattern])
    assert set(scores[:64]) <= {0.0, 1.0} and scores[64] == 1.0


def test_a_batch_that_ran_out_of_time_says_so():
    with pytest.warns(
        UserWarning, match="1 of 2 completions could not be judged in time; they score 0.0"
    ):
        assert forbidden_patterns_reward(["a" * 10**6, "Bonn."], patterns=["a.*b"]) == [0.0, 1.0]
