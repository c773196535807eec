"""`python -m helpers report`: one HTML page about a run, to send to a colleague: verdict, curves,
findings, evaluation, rewards, settings, versions.

It holds everything it shows: no network, no script, figures as inline SVG. It is read off the run
folder alone; a part whose file is not there is left out, with a sentence saying which notebook
makes it. `results/card.py` tells the same facts in Markdown.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import jinja2
import matplotlib as mpl
import pandas as pd
from markupsafe import Markup

from helpers.metrics import plots
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import first_and_last, read_metrics, reward_names
from helpers.metrics.signals import Finding
from helpers.runs import LESSONS, Run, atomic_write

PARTS = (  # what the page is made of
    "data_report.json",
    "reward_report.json",
    "metrics.csv",
    "evaluation.json",
    "comparison.json",
)
MODELS = {
    "baseline": "before training",
    "trained": "the policy with its adapter",
    "unmerged": "the adapter on the base in full precision",
    "merged": "the merged model, read from disk",
    "adapter": "the adapter on the base in full precision",
}
_CURVES = {  # and what to see in each
    plots.reward: "The sum that is trained on. It should rise, then flatten.",
    plots.each_reward: "Usually the format is learned first, and the answer follows.",
    plots.spread: "A dead group, whose completions all score the same, teaches nothing.",
    plots.kl: "With a beta above 0, it should rise and then level off.",
    plots.completion_length: "What is cut off at the limit never reaches its answer.",
    plots.tools: "An episode is unfinished where its last call was not answered: the limit on its "
    "length or on its turns came first.",
    plots.loss: "Advantages sum to zero in every group: it is the gradient that teaches.",
}
_TOLD = (  # and each reward: their first and last values stand below the curves
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "kl",
    "completions/mean_length",
    "completions/clipped_ratio",
    "tools/call_frequency",
    "tools/failure_frequency",
    "loss",
)


@dataclass(frozen=True)
class Facts:
    """What a run folder says, without a machine's paths; `absent` maps each file that is not used
    to the reason why.
    """

    name: str
    manifest: dict
    absent: dict[str, str]
    data: dict
    rewards: dict
    history: pd.DataFrame | None
    findings: list[Finding]
    evaluation: dict
    comparison: dict
    merge_is_outdated: bool = False


def write(run: Run) -> Path:
    """Write report.html into the run folder and return its path.

    FileNotFoundError if the run has nothing to report; ValueError where one of its files is
    damaged, or where the data were prepared anew after the training (see `Run.section`).
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        # questions, completions, names of rewards and of folders are anybody's text
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {f.__name__: f for f in (percent, interval, plain, clipped)}
    facts = read(run)
    tried, training = facts.rewards.get("rewards", {}), facts.manifest.get("training", {})
    trained = dict(zip(training.get("rewards", []), training.get("weights", []), strict=False))
    curves, ends = [], pd.DataFrame()
    if facts.history is not None:
        curves = [
            _figure(draw, facts.history) | {"note": note}
            for draw, note in _CURVES.items()
            if draw is not plots.tools or plots.has_tools(facts.history)
        ]
        rewards = [f"rewards/{name}/mean" for name in reward_names(facts.history)]
        ends = first_and_last(facts.history, [*_TOLD, *rewards]).dropna()
    sections = {
        name: facts.manifest[name]
        for name in ("data", "rewards", "training", "merge")
        if name in facts.manifest
    }
    latest = sections.get("training") or next(reversed(sections.values()), {})
    page = environment.get_template("report.html.j2").render(
        facts=facts,
        verdict=verdict(facts),
        critical=sum(finding.severity == "critical" for finding in facts.findings),
        curves=curves,
        ends=ends,
        bars=facts.evaluation and _figure(plots.accuracy, facts.evaluation),
        models=MODELS,
        ks={k: f"pass@{k}" for one in facts.evaluation.values() for k in one.get("pass_at_k", {})},
        weights=trained or {name: lab["weight"] for name, lab in tried.items()},
        tried=tried,
        beating=[
            name for name, attack in facts.rewards.get("attacks", {}).items() if attack["wins"] > 0
        ],
        settings=settings_of(latest),
        sections=sections,
        versions=latest.get("versions", {}),
    )
    with atomic_write(run.path("report.html")) as temporary:
        # a completion may hold half a surrogate pair
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return run.folder / "report.html"


# --- Reading --------------------------------------------------------------------------------------


def read(run: Run) -> Facts:
    """Everything that report and card tell.

    What is older than what it was made from is left out: see `Run.outdated`.
    """
    if not any((run.folder / part).exists() for part in PARTS):
        run.require("data_report.json")
    manifest = run.manifest
    if "training" in manifest:
        run.section("training")  # refuses a training on other data
    known, absent = {}, {}
    for part in PARTS:
        if not (run.folder / part).exists():
            notebook = run.notebook_of(part)
            absent[part] = f"This run has no {part}: notebook {notebook} wrote none."
            if notebook[:2] not in LESSONS:  # of these, not all write it
                absent[part] = (
                    f"This run has no {part}, which notebook {notebook} makes: "
                    f"python -m helpers run --run {run.name} --only {notebook[:2]}"
                )
        elif why := run.outdated(part):
            absent[part] = why
        elif part == "metrics.csv":
            known[part] = read_metrics(run.folder / part)
        else:
            known[part] = portable(run.read_object(part))
    history = known.get("metrics.csv")
    return Facts(
        name=run.name,
        manifest=portable(manifest),
        absent=absent,
        data=known.get("data_report.json", {}),
        rewards=known.get("reward_report.json", {}),
        history=history,
        findings=[] if history is None else diagnose(history),
        evaluation=known.get("evaluation.json", {}),
        comparison=known.get("comparison.json", {}),
        merge_is_outdated=run.outdated("merged") is not None,
    )


def portable(value, key: str = ""):
    """The same value with every absolute path in it cut to its file name: whose machine it was is
    nobody's business.

    >>> portable({"source": "/data/sums.csv", "model": "unsloth/Qwen3-4B"})
    {'source': 'sums.csv', 'model': 'unsloth/Qwen3-4B'}
    """
    if isinstance(value, dict):
        return {name: portable(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [portable(entry, key) for entry in value]
    # a system prompt and a question may begin with a slash and are no path
    if isinstance(value, str) and key not in ("system_prompt", "question"):
        absolute = value.startswith("/") or PureWindowsPath(value).is_absolute()
        # a Windows path may be written with either slash
        return PureWindowsPath(value).name if absolute else value
    return value


# --- The verdict ----------------------------------------------------------------------------------


def verdict(facts: Facts) -> list[tuple[str, str]]:
    """What there is to say first, as (severity, sentence): the result, the worst finding, what is
    wrong with the merge.

    Severities are those of a finding, and "good".
    """
    # Did training help, by McNemar's test?
    before, after = (facts.evaluation.get(name) for name in ("baseline", "trained"))
    compared = facts.comparison.get("sampled")
    if before and after and compared:
        p = compared["p_value"]
        named = "p < 1e-15" if p < 1e-15 else f"p = {p:.2g}"
        what = f"sampled accuracy on {after['n']:,} held-out questions"
        change = (
            f"from {accuracy(before)} to {accuracy(after)}: {compared['won']:,} "
            f"question{'s' * (compared['won'] != 1)} won, {compared['lost']} lost (exact McNemar "
            f"{named})."
        )
        if p >= 0.05:
            unclear = f"Whether training changed {what} cannot be told from chance. It went"
            said = [("warning", f"{unclear} {change}")]
        elif after["accuracy"] > before["accuracy"]:
            said = [("good", f"Training raised {what} {change}")]
        else:
            said = [("critical", f"Training lowered {what} {change}")]
    else:
        unknown = (
            "Whether training helped is not known: the model before and after it was not compared "
            "on held-out questions."
        )
        said = [("warning", unknown)]
    if facts.findings and facts.findings[0].severity != "info":
        said.append((facts.findings[0].severity, str(facts.findings[0])))
    merged = facts.evaluation.get("merged")
    if facts.merge_is_outdated:
        again = "The merged model is of an earlier training: run notebook 05 before using it."
        said.append(("warning", again))
    elif after and merged and merged["ci95"][1] < after["ci95"][0]:
        less = (
            f"The merged model is less accurate: {accuracy(merged)}, against "
            f"{accuracy(after)} for the policy it was made from."
        )
        said.append(("warning", less))
    return said


# --- What the template shows ----------------------------------------------------------------------


def percent(value: float | None) -> str:
    """A share as text; a dash if there is none.

    >>> percent(0.957), percent(None)
    ('95.7 %', '–')
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def interval(bounds: list[float]) -> str:
    """The two bounds of a share, in per cent.

    >>> interval([0.9358, 0.9714])
    '93.6 to 97.1'
    """
    return " to ".join(f"{100 * bound:.1f}" for bound in bounds)


def accuracy(entry: dict | None) -> str:
    """A measured accuracy with its interval; a dash if there is none."""
    return f"{percent(entry['accuracy'])} ({interval(entry['ci95'])})" if entry else "–"


def plain(value: object) -> str:
    """A setting as a person would write it.

    >>> [plain(value) for value in (1000, 0.0015, True, None, "dapo")]
    ['1000', '0.0015', 'yes', '–', 'dapo']
    """
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def clipped(text: object) -> str:
    """A long text without its middle: how it begins, and how it ends, which is where the
    answer is.
    """
    text = str(text)
    left_out = len(text) - 500 - 250
    return text if left_out <= 0 else f"{text[:500]} […{left_out:,} characters…] {text[-250:]}"


def _figure(draw: Callable, values) -> dict:
    """A figure as SVG that stands in the page itself, and its title apart."""
    with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure = draw(values)
        title = figure.axes[0].get_title(loc="left")
        figure.axes[0].set_title("", loc="left")
        figure.set_size_inches(4.7, 2.9)  # small: text stays readable at the width of a phone
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True)
    # black takes the colour of the page's text, which is white in the dark
    svg = drawn.getvalue().replace("#000000", "currentColor")
    return {"title": title, "svg": Markup(svg[svg.index("<svg") :])}


def settings_of(section: dict) -> dict:
    """The settings recorded in a section of the manifest, to be shown: with the seed, and where the
    training ended.
    """
    settings = {
        "preset" if key == "name" else key: value
        for key, value in section.get("settings", {}).items()
        if key != "needs_gb"
    }
    return settings | {
        key: section[key] for key in ("seed", "steps", "stopped_early") if key in section
    }
