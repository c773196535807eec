"""Write the model card of a run: README.md beside its merged model.

`write` reads the run folder (`read_facts`), decides what to say first (`verdict`), and fills in the
template `card.md.j2` (`markdown`). Among the facts are the commands that repeat the run
(`commands_of`). The command `report` uses the same functions.
"""

import ast
import json
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath

import jinja2
from huggingface_hub import ModelCardData

from helpers import PROJECT
from helpers.data.files import FILE_TYPES
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import read_metrics
from helpers.metrics.signals import Finding
from helpers.presets import PRESETS, settle
from helpers.rewards.own import copies_of
from helpers.runs import Run, atomic_write
from helpers.settings import EMBEDDED, SETTINGS, Preset
from helpers.tags import THINK_ANSWER, TagFormat, escaped
from helpers.templates import template_options
from helpers.training.base import base_in_words, training_in_words


def write(run: Run) -> Path:
    """Write README.md beside the merged model, with its figures in `figures/`; return its path.

    FileNotFoundError if there is no merged model. Also raises the errors of `read_facts`.
    """
    folder = run.require("merged")
    facts = read_facts(run)
    figures = figures_of(run)
    for name in figures:
        shutil.copyfile(run.folder / f"figures/{name}.png", run.path(f"merged/figures/{name}.png"))
    with atomic_write(folder / "README.md") as temporary:
        text = f"---\n{metadata(facts)}\n---\n\n{markdown(facts, figures)}"
        temporary.write_text(text, encoding="utf-8", newline="")
    return folder / "README.md"


def figures_of(run: Run) -> dict[str, str]:
    """Return the figures a run has, by name, with their captions."""
    return {
        name: caption
        for name, caption in FIGURES.items()
        if (run.folder / f"figures/{name}.png").exists()
    }


# The figures a card shows, with their captions.
FIGURES = {
    "reward": "The weighted sum of the rewards.",
    "each_reward": "Each reward by itself, unweighted.",
    "spread": "The share of dead groups, whose completions all score the same.",
    "kl": "The divergence from the model that training began with.",
    "completion_length": "The length of the completions, and the share cut off.",
    "loss": "The loss, which is not a measure of progress.",
    "accuracy": "Accuracy on held-out questions, with 95 % intervals.",
}


# --- The facts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """The contents of a run folder, without absolute paths.

    data, rewards, evaluation, comparison: the contents of data_report.json, reward_report.json,
        evaluation.json and comparison.json; empty if the file is missing or outdated.
    findings: the diagnosis of metrics.csv; empty if that file is missing or outdated.
    outdated: the reason why a file is outdated, from `Run.outdated`, by the file's name.
    """

    name: str
    manifest: dict
    data: dict
    rewards: dict
    evaluation: dict
    comparison: dict
    findings: list[Finding]
    outdated: dict[str, str]


def read_facts(run: Run) -> Facts:
    """Return the facts of a run.

    FileNotFoundError if the run has no data or no training. ValueError if a file is damaged, or if
    the data were prepared again after training (see `Run.section`).
    """
    run.section("data")
    run.section("training")
    # Leave out files that are older than their sources, and keep the reasons.
    outdated = {}
    contents = {}
    reports = ("data_report.json", "reward_report.json", "evaluation.json", "comparison.json")
    for name in (*reports, "metrics.csv", "merged"):
        reason = run.outdated(name)
        if reason:
            outdated[name] = reason
        elif name in reports:
            contents[name] = portable(run.read_object(name))
    findings = []
    metrics = run.folder / "metrics.csv"
    if metrics.exists() and "metrics.csv" not in outdated:
        findings = diagnose(read_metrics(metrics))
    return Facts(
        name=run.name,
        manifest=portable(run.manifest),
        data=contents.get("data_report.json", {}),
        rewards=contents.get("reward_report.json", {}),
        evaluation=contents.get("evaluation.json", {}),
        comparison=contents.get("comparison.json", {}),
        findings=findings,
        outdated=outdated,
    )


def portable(value, key: str = ""):
    """Return a value from a run's files with each absolute path in it made relative to the project,
    or reduced to the file name outside it, so that nothing about the author's machine is published.

    key: the name under which the value is stored. Texts such as a system prompt are kept.

    >>> portable({"source": "/data/sums.csv", "rewards": "correctness,/data/mine.py:brevity"})
    {'source': 'sums.csv', 'rewards': 'correctness,mine.py:brevity'}
    """
    if isinstance(value, dict):
        return {name: portable(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [portable(entry, key) for entry in value]
    if not isinstance(value, str) or key in _TEXTS:
        return value
    told = []
    # A list of rewards may name several files.
    for path in value.split(",") if ".py:" in value else [value]:
        path = path.removeprefix(f"{PROJECT}/")
        # PureWindowsPath splits at both kinds of slash, and both begin its absolute paths.
        is_absolute = PureWindowsPath(path).root != ""
        told.append(PureWindowsPath(path).name if is_absolute else path)
    return ",".join(told)


# What may begin with a slash without being a path.
_TEXTS = ("system_prompt", "question", "completion", "content")


# --- What to say first ----------------------------------------------------------------------------


def verdict(facts: Facts) -> list[str]:
    """Return the sentences that come first: whether the run is a control, the result of training,
    the worst finding of the diagnosis, and any problem with the merged model.
    """
    # 1. Is it a control, or did it begin with a warm start?
    sentences = training_in_words(facts.manifest.get("training", {}))

    # 2. Did training help? McNemar's test decides.
    before = facts.evaluation.get("baseline")
    after = facts.evaluation.get("trained")
    how = "sampled" if "sampled" in facts.comparison else "greedy"
    compared = facts.comparison.get(how)
    if before and after and compared:
        p = compared["p_value"]
        p_text = "p < 1e-15" if p < 1e-15 else f"p = {p:.2g}"
        measure = f"{how} accuracy on {after['n']:,} held-out questions"
        if p >= 0.05:
            change = f"The change in {measure} cannot be distinguished from chance. It went"
        elif after["accuracy"] > before["accuracy"]:
            change = f"Training raised {measure}"
        else:
            change = f"Training lowered {measure}"
        questions = "question" if compared["won"] == 1 else "questions"
        sentences.append(
            f"{change} from {accuracy(before)} to {accuracy(after)}: {compared['won']:,} "
            f"{questions} won, {compared['lost']} lost (exact McNemar {p_text})."
        )
    else:
        sentences.append(
            "Whether training helped is not known: the model before and after it was not compared "
            "on held-out questions."
        )

    # 3. What is the worst finding? They are sorted by severity.
    if facts.findings and facts.findings[0].severity != "info":
        sentences.append(str(facts.findings[0]))

    # 4. Is the merged model current, and as accurate as the policy?
    merged = facts.evaluation.get("merged")
    if "merged" in facts.outdated:
        sentences.append(
            "The merged model is from an earlier training: run notebook 05 before using it."
        )
    elif after and merged and merged["ci95"][1] < after["ci95"][0]:
        sentences.append(
            f"The merged model is less accurate: {accuracy(merged)}, against {accuracy(after)} for "
            "the policy it was made from."
        )
    return sentences


# --- Metadata for the hub -------------------------------------------------------------------------


def metadata(facts: Facts) -> ModelCardData:
    """Return the card's metadata, in the form the Hugging Face hub reads.

    The licence is given for the embedded models only, because no other is known. The names of local
    models and files are left out, because the hub would look them up.
    """
    settings = facts.manifest["training"]["settings"]
    tags = ["grpo", "trl", "lora"]
    if settings.get("backend") != "transformers":
        tags.append("unsloth")

    # Which of the model and the data set has a page on the hub?
    model = settings["model"]
    model_on_hub = _HUB_ID.fullmatch(model) and not Path(model).exists()
    source = facts.manifest["data"]["source"]
    data_set = source.partition(":")[0]  # without its configuration
    is_generated = source.startswith(("arithmetic/", "reasoning-gym/"))
    data_on_hub = _HUB_ID.fullmatch(data_set) and not is_generated and not _is_file(source)

    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=tags,
        base_model=model if model_on_hub else None,
        datasets=[data_set] if data_on_hub else None,
        license="apache-2.0" if model in EMBEDDED else None,
    )


# The name of a model or data set on the hub, such as `openai/gsm8k`.
_HUB_ID = re.compile(r"[\w-]+/[\w.-]+")


def _is_file(source: str) -> bool:
    return source.lower().endswith(FILE_TYPES) or Path(source).exists()


# --- The text -------------------------------------------------------------------------------------


def markdown(facts: Facts, figures: dict[str, str] | None) -> str:
    """Return the card's text: the template `card.md.j2` filled in with the facts.

    figures: the captions of the figures to show, by name; None: they are shown elsewhere.
    """
    data = facts.manifest["data"]
    training = facts.manifest["training"]
    settings = training["settings"]

    # An outdated data_report.json is not read; the tags then tell which system prompt it was.
    system_prompt = facts.data.get("system_prompt") or TagFormat.parse(data["tags"]).system_prompt

    # Show the preset's name first, then the settings, then the seed and the end of the training
    # run.
    recorded = {"preset": settings.get("name")} | settings
    for name in ("seed", "steps", "stopped_early"):
        if name in training:
            recorded[name] = training[name]
    shown = [[name, plain(recorded[name])] for name in recorded if name not in ("name", "needs_gb")]
    weights = [plain(weight) for weight in training["weights"]]

    given = given_of(facts)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent))
    return environment.get_template("card.md.j2").render(
        facts=facts,
        verdict=verdict(facts),
        pocket=settings["model"] in EMBEDDED,
        system_prompt=system_prompt,
        rewards=list(zip(training["rewards"], weights, strict=True)),
        recorded=shown,
        figures=figures,
        models=MODELS,
        commands=commands_of(facts, given),
        typed=training.get("notebook", "03") in given,
        is_file=_is_file(data["source"]),
        own_rewards=training.get("own_rewards"),
        options=template_options(settings.get("thinking")),
        text=_literal_markdown,
        plain=plain,
        percent=percent,
        accuracy=accuracy,
        quoted=repr,
        base_in_words=base_in_words,
    )


_PIPELINE = ["01", "02", "03", "04", "05"]


def given_of(facts: Facts) -> dict[str, dict]:
    """Return what the commands gave the notebooks of this run, by number. Data and training have
    it in their own sections, because a later call of a notebook may have failed.
    """
    given = facts.manifest.get("call", {}).get("given", {})
    for section in (facts.manifest["data"], facts.manifest["training"]):
        if "given" in section:
            given = given | {section["notebook"]: section["given"]}
    return {number: values for number, values in given.items() if values is not None}


def commands_of(facts: Facts, given: dict[str, dict]) -> list[str]:
    """Return the command that prepares and trains a run like this one, for a shell; one command per
    notebook if two of them had different values of a parameter.

    Settings and seeds are those that notebooks 01 and 03 recorded, whatever started them. The other
    parameters are those of the command that did; without it, those that the run records.

    given: from `given_of`.
    """
    data = facts.manifest["data"]
    training = facts.manifest["training"]

    # 1. A lesson prepares and trains by itself. Some of the recorded settings may be its own, and
    # none of its parameters, so only the preset, the seed and the given parameters are repeated.
    lesson = training.get("notebook", "03")
    if lesson != "03":
        recorded = {"preset": training["settings"]["name"], "seed": training["seed"]}
        return [_command(facts.name, [lesson], recorded | given.get(lesson, {}))]

    # 2. Choose the notebooks: 01, 03 and those that a command started; if no command started the
    # run, the whole pipeline. Begin with the given parameters of each, without the settings, which
    # steps 3 and 4 add.
    started = given.keys() | {"01", "03"} if given else set(_PIPELINE)
    of_notebook: dict[str, dict] = {}
    for number in _PIPELINE:
        if number in started:
            typed = given.get(number, {})
            of_notebook[number] = {name: typed[name] for name in typed if name not in SETTINGS}
    of_01 = of_notebook["01"]
    of_03 = of_notebook["03"]

    # 3. Add the settings that 03 changed. It starts from those of 01.
    prepared = settle(data["settings"])
    trained = settle(training["settings"])
    of_03.update(_differing(trained, prepared, "03"))

    # 4. Add the settings that 01 changed. It starts from the preset, and another source alone drops
    # some of the preset's values, such as its number of rows. So compare with the preset as it is
    # with the run's source, except for the source itself.
    preset = PRESETS.get(prepared.name, PRESETS["pocket"])
    unchanged = replace(settle(preset, source=prepared.source), source=preset.source)
    of_01.update(_differing(prepared, unchanged, "01"))
    # If 03 changed a setting that 01 has, too, 01 keeps its own value.
    for name in _settings_of("01"):
        if name in of_03:
            of_01[name] = getattr(prepared, name)

    # 5. Add what the run records besides: the preset and the seeds, and the columns, the tags and
    # the rewards if they are not the usual ones.
    of_01.update(preset=preset.name, seed=data["seed"])
    of_03["seed"] = training["seed"]
    if facts.data.get("columns") is not None:
        of_01["columns"] = facts.data["columns"]
    if data["tags"] not in (None, THINK_ANSWER.spec):
        of_01["tags"] = data["tags"]
    if "own_rewards" in training and not given:
        of_03["rewards"] = copies_of(training["own_rewards"], f"runs/{facts.name}/rewards")

    # 6. One command is enough unless two notebooks have different values of a parameter, one of
    # which is then missing among all parameters together.
    together = {}
    for parameters in of_notebook.values():
        together |= parameters
    if all(parameters.items() <= together.items() for parameters in of_notebook.values()):
        return [_command(facts.name, list(of_notebook), together)]
    return [
        _command(facts.name, [number], parameters) for number, parameters in of_notebook.items()
    ]


def _differing(settings: Preset, start: Preset, number: str) -> dict:
    """Return the parameters of a notebook that change the settings from those at the start.

    A setting of None is left out, because a parameter of None changes nothing.
    """
    changed = {}
    for name in _settings_of(number):
        # The settings come from `Facts`, where paths are portable, but the start may be a preset.
        before = portable(getattr(start, name), name)
        now = getattr(settings, name)
        if now is not None and now != before:
            changed[name] = now
    return changed


def _settings_of(number: str) -> list[str]:
    """Return the names of the settings that a notebook has as parameters."""
    return [name for name, setting in SETTINGS.items() if number in setting.metadata["of"]]


def _command(run: str, numbers: list[str], parameters: dict) -> str:
    """Return the line that executes these notebooks with these parameters.

    >>> print(_command("demo", ["01"], {"source": "my sums.csv", "columns": {"answer": "a"}}))
    python -m helpers run --run demo --only 01 -p 'source=my sums.csv' -p 'columns={"answer": "a"}'
    """
    words = ["python", "-m", "helpers", "run", "--run", run]
    if numbers != _PIPELINE:
        words += ["--only", ",".join(numbers)]
    for name, value in parameters.items():
        text = value if _is_plain_text(value) else json.dumps(value, ensure_ascii=False)
        if name == "preset":
            words += ["--preset", text]
        else:
            words += ["-p", f"{name}={text}"]
    return shlex.join(words)


def _is_plain_text(value: object) -> bool:
    """Return whether `-p` reads a value as this text if it is printed without quotes. A text that
    begins like a word or a path needs none, and a path must have none: `-p` looks for a file only
    if the value is no JSON. But `-p` reads `true`, `None` and `.5` as JSON or as Python.

    >>> [_is_plain_text(value) for value in ("my sums.csv", "true", ".5", 0.5)]
    [True, False, False, False]
    """
    if not isinstance(value, str) or not re.fullmatch(r"[^\W\d_/.~].*\S|[/.~].*", value):
        return False
    for read in (json.loads, ast.literal_eval):
        try:
            read(value)
        except (ValueError, SyntaxError, TypeError):
            continue
        return False
    return True


# What the names in evaluation.json stand for.
MODELS = {
    "baseline": "before training",
    "trained": "the policy with its adapter",
    "unmerged": "the adapter on the base in full precision",
    "merged": "the merged model, read from disk",
    "adapter": "the adapter on the base in full precision",
}


def percent(value: float | None) -> str:
    """Return a share in per cent; a dash for None.

    >>> percent(0.957), percent(None)
    ('95.7 %', '–')
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def accuracy(entry: dict | None) -> str:
    """Return an accuracy with its interval, in per cent; a dash if it was not measured.

    >>> accuracy({"accuracy": 0.957, "ci95": [0.9358, 0.9714]})
    '95.7 % (93.6 to 97.1)'
    """
    if not entry:
        return "–"
    low, high = entry["ci95"]
    return f"{percent(entry['accuracy'])} ({100 * low:.1f} to {100 * high:.1f})"


def plain(value: object) -> str:
    """Return the value of a setting as readable text.

    >>> [plain(value) for value in (1000, 0.0015, True, None, "dapo")]
    ['1000', '0.0015', 'yes', '–', 'dapo']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _literal_markdown(text: object) -> str:
    """Return a text as one line of Markdown that is displayed literally.

    Names with an underscore, such as `learning_rate`, become code. Other special characters are
    escaped, and control and invisible ones become visible escapes.
    """
    text = escaped(" ".join(str(text).split()))
    if re.fullmatch(r"[\w./:-]*_[\w./:-]*", text):
        return f"`{text}`"
    special = {character: f"\\{character}" for character in "`*_[]<>|#~"}
    # Entities for what begins a formula in nbconvert and on the hub, even behind a backslash.
    special |= {"\\": "&#92;", "$": "&#36;", "&": "&amp;"}
    text = text.translate(str.maketrans(special))
    # Keep bare addresses from becoming links: a completion may contain any address.
    return re.sub(r"(?i)(?=://)|(?<=www)(?=\.)|(?=@)", "<!-- -->", text)
