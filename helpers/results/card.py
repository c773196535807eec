"""The model card: README.md beside a merged model, with the hub's metadata, written from what the
run folder records.

Its text is `card.md.j2`.
"""

import re
import shutil
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from helpers.data.files import FILE_TYPES
from helpers.presets import EMBEDDED
from helpers.results.report import (
    MODELS,
    Facts,
    accuracy,
    percent,
    plain,
    read,
    settings_of,
    verdict,
)
from helpers.runs import Run, atomic_write
from helpers.tags import TagFormat
from helpers.training.base import told

_FIGURES = {  # in the run's figures/; those that are there are copied beside the card
    "reward": "The weighted sum of the rewards.",
    "each_reward": "Each reward by itself, unweighted.",
    "spread": "The share of dead groups, whose completions all score the same.",
    "kl": "The divergence from the model that training began with.",
    "completion_length": "The length of the completions, and the share cut off.",
    "loss": "The loss, which is no measure of progress.",
    "accuracy": "Accuracy on held-out questions, with 95 % intervals.",
}
_HUB_ID = re.compile(r"[\w-]+/[\w.-]+")


def write(run: Run) -> Path:
    """Write README.md beside the merged model, with the figures it shows in `figures/`, and return
    its path.

    FileNotFoundError if there is no merged model, or the run lacks what a card is written from;
    ValueError as `report.write`.
    """
    place = run.require("merged")
    for section in ("data", "training"):
        run.section(section)
    facts = read(run)
    data, training = facts.manifest["data"], facts.manifest["training"]
    there = [name for name in _FIGURES if (run.folder / f"figures/{name}.png").exists()]
    for name in there:
        shutil.copyfile(run.folder / f"figures/{name}.png", run.path(f"merged/figures/{name}.png"))
    card = ModelCard.from_template(
        metadata(facts),
        template_str=Path(__file__).with_name("card.md.j2").read_text(encoding="utf-8"),
        facts=facts,
        said=[sentence for _, sentence in verdict(facts)],
        pocket=training["settings"]["model"] in EMBEDDED,
        system_prompt=facts.data.get("system_prompt")
        or TagFormat.parse(data["tags"]).system_prompt,
        rewards=list(zip(training["rewards"], map(plain, training["weights"]), strict=True)),
        recorded=[[key, plain(value)] for key, value in settings_of(training).items()],
        figures={name: _FIGURES[name] for name in there},
        models=MODELS,
        is_file=_is_file(data["source"]),
        **{"text": _escaped, "plain": plain, "percent": percent, "accuracy": accuracy},
        **{"quoted": repr, "told": told},
    )
    with atomic_write(place / "README.md") as temporary:
        card.save(temporary)
    return place / "README.md"


def metadata(facts: Facts) -> ModelCardData:
    """The card's header for the hub, with the accuracies of the merged model.

    What is not known is left out: the licence of any base but the pocket model, and the names of a
    local model or file, which the hub would take for its own.
    """
    settings, source = facts.manifest["training"]["settings"], facts.manifest["data"]["source"]
    data_set, _, configuration = source.partition(":")
    unsloth = settings.get("backend", "unsloth") == "unsloth"
    generated = source.startswith(("arithmetic/", "reasoning-gym/"))
    on_hub = _is_hub_id(data_set) and not generated and not _is_file(source)
    # the hub takes `owner/name` or `name` for a data set's type
    slug = re.sub(r"[^\w.-]+", "-", data_set).strip("-") or "data"
    entry = facts.evaluation.get("merged", {})
    results = [
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
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["grpo", "trl", *(["unsloth"] if unsloth else []), "lora"],
        base_model=settings["model"] if _is_hub_id(settings["model"]) else None,
        datasets=[data_set] if on_hub else None,
        license="apache-2.0" if settings["model"] in EMBEDDED else None,
        metrics=["accuracy"] if results else None,
        model_name=facts.name,
        eval_results=results or None,
    )


def _is_hub_id(name: str) -> bool:
    return bool(_HUB_ID.fullmatch(name)) and not Path(name).exists()


def _is_file(source: str) -> bool:
    return source.lower().endswith(FILE_TYPES) or Path(source).exists()


# --- The text -------------------------------------------------------------------------------------


def _escaped(text: object) -> str:
    """Any text as one line of Markdown that shows it as it is; a name that needs nothing
    else as code.
    """
    text = " ".join(str(text).split())
    if re.fullmatch(r"[\w./:-]*_[\w./:-]*", text):
        return f"`{text}`"
    return re.sub(r"([\\`*_\[\]<>|&#~$])", r"\\\1", text)
