"""Write the model card of a run: README.md beside its merged model.

`write` reads the run folder (`read_facts`), decides what to say first (`verdict`), and fills in the
template `card.md.j2` (`markdown`) with the facts and the commands that repeat the run
(`reproducing.py`). The command `report` uses the same functions.
"""

import re
import shutil
from pathlib import Path

import jinja2
from huggingface_hub import ModelCardData

from helpers.data.files import FILE_TYPES
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import read_metrics
from helpers.printing import escaped
from helpers.results.facts import Facts, portable
from helpers.results.reproducing import commands_of, given_of
from helpers.runs import Run, atomic_write
from helpers.settings import EMBEDDED, GENERATED
from helpers.tags import TagFormat
from helpers.templates import template_options
from helpers.training.base import base_in_words, training_in_words

# The figures a card shows, with their captions.
FIGURES = {
    "reward": "The weighted sum of the rewards.",
    "each_reward": "Each reward by itself, unweighted.",
    "spread": "The share of dead groups, whose completions all score the same.",
    "kl": "The divergence from the model that training began with.",
    "completion_length": "The length of the completions, and the share cut off.",
    "loss": "The loss, which is not a measure of progress.",
    "accuracy": "Accuracy on held-out questions, with 95% intervals.",
}
# The files that `read_facts` reads besides the manifest.
_REPORTS = ("data_report.json", "reward_report.json", "evaluation.json", "comparison.json")
# What the names in evaluation.json stand for.
MODELS = {
    "baseline": "before training",
    "trained": "the policy with its adapter",
    "unmerged": "the adapter on the base in full precision",
    "merged": "the merged model, read from disk",
    "adapter": "the adapter on the base in full precision",
}


def write(run: Run) -> Path:
    """Write README.md beside the merged model, with its figures in `figures/`; return its path.

    Raise FileNotFoundError if there is no merged model. Also raises the errors of `read_facts`.
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


# --- The facts ------------------------------------------------------------------------------------


def read_facts(run: Run) -> Facts:
    """Return the facts of a run. Files that are older than what they were made from are left out.

    Raise FileNotFoundError if the run has no data or no training. Raise ValueError if a file is
    damaged, or if the data were prepared again after training (see `Run.section`).
    """
    # 1. Refuse a run that has not been trained.
    run.section("data")
    run.section("training")

    # 2. Leave out files that are older than their sources, and keep the reasons.
    outdated = {}
    for name in (*_REPORTS, "metrics.csv", "merged"):
        if reason := run.outdated(name):
            outdated[name] = reason
    current = [name for name in _REPORTS if name not in outdated]
    contents = {name: portable(run.read_object(name)) for name in current}

    # 3. Diagnose the training.
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


# The name of a model or dataset on the hub, such as `openai/gsm8k`.
_HUB_ID = re.compile(r"[\w-]+/[\w.-]+")


def metadata(facts: Facts) -> ModelCardData:
    """Return the card's metadata, in the form the Hugging Face hub reads.

    The licence is given for the pocket models only, because no other is known. The names of local
    models and files are left out, because the hub would look them up.
    """
    settings = facts.manifest["training"]["settings"]
    tags = ["grpo", "trl", "lora"]
    if settings.get("backend") != "transformers":
        tags.append("unsloth")

    # Which of the model and the dataset has a page on the hub?
    model = settings["model"]
    model_on_hub = _HUB_ID.fullmatch(model) and not Path(model).exists()
    source = facts.manifest["data"]["source"]
    data_set = source.partition(":")[0]  # without its configuration
    is_elsewhere = source.startswith(GENERATED) or _is_file(source)
    data_on_hub = _HUB_ID.fullmatch(data_set) and not is_elsewhere

    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=tags,
        base_model=model if model_on_hub else None,
        datasets=[data_set] if data_on_hub else None,
        license="apache-2.0" if model in EMBEDDED else None,
    )


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

    # Show the preset's name first, then the settings, then the seed and the end of the training.
    recorded = {"preset": settings.get("name")} | settings
    for name in ("seed", "steps", "stopped_early"):
        if name in training:
            recorded[name] = training[name]
    shown = [[name, plain(recorded[name])] for name in recorded if name not in ("name", "needs_gb")]
    weights = [plain(weight) for weight in training["weights"]]

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
        commands=commands_of(facts),
        typed=training.get("notebook", "03") in given_of(facts),
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


def percent(value: float | None) -> str:
    """Return a share in per cent; a dash for None.

    >>> percent(0.957), percent(None)
    ('95.7%', '–')
    """
    return "–" if value is None else f"{100 * value:.1f}%"


def accuracy(entry: dict | None) -> str:
    """Return an accuracy with its interval, in per cent; a dash if it was not measured.

    >>> accuracy({"accuracy": 0.957, "ci95": [0.9358, 0.9714]})
    '95.7% (93.6 to 97.1)'
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

    >>> print(_literal_markdown("learning_rate"), _literal_markdown("5 > 4, see www.example.com"))
    `learning_rate` 5 \\> 4, see www<!-- -->.example.com
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
