"""From the laboratory's numbers to a decision in words: go or no go, why, and what to change."""

import html
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.rewards.faults import Fault
from helpers.rewards.shaping import reward_name, source_hash
from helpers.runs import Run

STEPS = ("cases", "attacks", "signal", "speed")  # of `Lab`
RIGHT, WRONG = "honest and right", "honest and wrong"  # what attacks are compared with
_TOLERANCE = 1e-3  # of an expected score
_FEW_DRIVE = 0.10  # of the advantage variance; below it the answer hardly counts
_MANY_FLAT = 0.50  # dead groups
_NEVER = 0.02  # mean pass rate
_ALWAYS = 0.95
_TWINS = 0.95  # rank correlation
_SLOW = 1000  # ms per 1,000 completions


@dataclass
class Verdict:
    """`go`; `stops`: the reasons against, each with its way out; `notes`: what to keep an
    eye on.
    """

    stops: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def go(self) -> bool:
        """Whether no reason against training was found."""
        return not self.stops

    def __str__(self) -> str:
        lines = [f"  - {stop}" for stop in self.stops] + [f"  note: {note}" for note in self.notes]
        return "\n".join(
            ["GO: no reason against training was found." if self.go else "NO GO:", *lines]
        )


def against_report(run: Run, functions: list, weights: list[float]) -> str:
    """Say in one sentence or two whether these rewards and weights are those of the run's
    `reward_report.json`.

    Names, weights and `source_hash` are compared. Reports of earlier versions have no hash; then
    names and weights decide. TRL checks that there are as many weights as functions. Raise
    ValueError if the report is damaged.
    """
    report = run.read_object("reward_report.json")
    if not report:
        return (
            f"NOT TESTED: {run.show('reward_report.json')} is not there; notebook 2 writes it, "
            "and attacks the rewards first."
        )
    now = dict(zip(map(reward_name, functions), weights, strict=False))
    tested = {name: entry["weight"] for name, entry in report["rewards"].items()}
    if now != tested:
        listed = ", ".join(f"{name} x {weight:g}" for name, weight in tested.items())
        return (
            f"NOT WHAT NOTEBOOK 2 TESTED, which was {listed}. Its verdict says nothing about this "
            "training."
        )
    changed = []
    for function in functions:
        name = reward_name(function)
        source = source_hash(function)
        if report["rewards"][name].get("source", source) != source:
            changed.append(name)
    if changed:
        return (
            f"NOT WHAT NOTEBOOK 2 TESTED: the source of {', '.join(changed)} has changed since. "
            "This training uses it as it is now, and the verdict says nothing about that."
        )
    if not report["verdict"]["go"]:
        return (
            "NOT APPROVED: notebook 2 tested these rewards, and its verdict was NO GO: "
            + " ".join(report["verdict"]["stops"])
        )
    return "These are the rewards and weights that notebook 2 tested and approved."


def differences(cases: pd.DataFrame) -> pd.DataFrame:
    """Where a score is not the expected one: a row each with case, reward, expected, score."""
    found = []
    for column in cases.filter(regex="^expected "):
        reward = column.removeprefix("expected ")
        for name, wanted, got in zip(cases.index, cases[column], cases[reward], strict=True):
            # no score, which is nan, where one was expected differs, too
            if pd.notna(wanted) and not abs(got - wanted) <= _TOLERANCE:
                found.append((name, reward, wanted, got))
    return pd.DataFrame(found, columns=["case", "reward", "expected", "score"])


def marked(cases: pd.DataFrame):
    """The cases to look at, as a pandas Styler: every score that is not the expected one in red,
    with what was expected.
    """
    rewards = [column for column in cases.columns if f"expected {column}" in cases]
    # pandas writes names as they stand, and they are of somebody's file
    cases = cases.rename(index=html.escape)
    shown = cases[[*rewards, "total"]].map(
        lambda score: f"{score:.3f}" if pd.notna(score) else "None"
    )
    styles = pd.DataFrame("", index=shown.index, columns=shown.columns)
    for name, reward, expected, _ in differences(cases).itertuples(index=False):
        shown.loc[name, reward] += f" (not {expected:g})"
        styles.loc[name, reward] = "color: white; background-color: #C0392B"
    return shown.style.set_uuid("cases").apply(lambda _: styles, axis=None)


def verdict_on(results: dict, faults: list[Fault]) -> Verdict:
    """The verdict on what `Lab` has done so far: its results, by step, and what its rewards did not
    score.
    """
    verdict = Verdict()
    if faults:
        verdict.stops.append(
            f"{faults[0]} (faults in all: {len(faults)}). A reward gives one finite number, or "
            "None, a completion, whatever the text."
        )
    wrong = differences(results["cases"]) if "cases" in results else ()
    if len(wrong):
        first = wrong.iloc[0]
        verdict.stops.append(
            f"{len(wrong)} of the cases' scores are not the expected ones: {first['reward']} "
            f"gives {first['score']:g} for '{first['case']}', expected {first['expected']:g}. "
            "Mend the reward, or the expectation."
        )
    if "attacks" in results:
        _judge_attacks(results["attacks"], results["ceilings"], verdict)
    if "signal" in results:
        _judge_signal(results["signal"], verdict)
    for name, milliseconds in results.get("speed", {}).items():
        if milliseconds > _SLOW:
            verdict.notes.append(
                f"{name} takes {milliseconds / 1000:.1f} s for 1,000 completions, in every step "
                "of that size."
            )
    if not results:
        verdict.stops.append("nothing was tried yet: run cases, attacks and signal first.")
    else:
        left_out = [step for step in STEPS if step not in results]
        verdict.notes += [f"The laboratory's part {step!r} was not run." for step in left_out]
    return verdict


def _judge_attacks(table: pd.DataFrame, ceilings: dict[str, str], verdict: Verdict) -> None:
    """A stop for each attack that wins, and for rewards that do not tell right from wrong."""
    right, wrong = table.loc[RIGHT], table.loc[WRONG]
    if wrong["wins"] > 0:
        verdict.stops.append(
            f"an honest wrong answer earns as much as a right one ({wrong['total']:.2f} against "
            f"{right['total']:.2f} on average): no reward tells them apart. Add one for the "
            "answer, such as correctness_reward."
        )
    winners = table[(table["wins"] > 0) & (table.index != WRONG)]
    for name, row in winners.head(3).iterrows():
        ceiling = ceilings[name].replace(" and ", " ")
        verdict.stops.append(
            f"'{name}' earns {row['gain']:.2f} more than an {ceiling} answer would, on "
            f"{row['wins']:.0%} of the rows; {row['paid_by']} pays for it. Lower its weight, or "
            "make it ask for more."
        )
    if len(winners) > 3:
        verdict.stops.append(f"{', '.join(map(repr, winners.index[3:]))} win too.")


def _judge_signal(signal: dict, verdict: Verdict) -> None:
    """Stops where groups would teach nothing, or something else than to be right; and notes."""
    flat, judges, rewards = signal["total"]["zero_spread"], signal["judges"], signal["rewards"]
    judged = [rate for rate in signal["pass_rate"] if rate is not None]
    passing = float(np.mean(judged)) if judged else 0.0
    verdict.notes += [told["constant"] for told in rewards.values() if told["constant"]]
    if flat > _MANY_FLAT:
        better = "has not mastered" if passing > 0.5 else "sometimes gets right"
        verdict.stops.append(
            f"{flat:.0%} of the groups score the same throughout and teach nothing. Raise the "
            f"temperature or the group size, take questions it {better}, or add a reward with a "
            "slope."
        )
    if not judges:
        verdict.stops.append(
            "no reward tells a right answer from a wrong one: the model cannot learn to be right."
        )
        return
    named = " and ".join(f"`{name}`" for name in judges)
    if not judged:
        verdict.stops.append(
            f"{named} judged none of the completions: it gave None for all. Do the rows have an "
            "`answer`?"
        )
        return
    if passing <= _NEVER:
        verdict.stops.append(
            f"the policy earns {named} on {passing:.1%} of its completions: there is nothing to "
            "reinforce. Take easier questions, a warm start on worked examples, or a larger model."
        )
    elif passing >= _ALWAYS:
        verdict.stops.append(
            f"the policy already earns {named} on {passing:.0%} of its completions. Take harder "
            "questions."
        )
    shares = {name: statistics["advantage_share"] for name, statistics in rewards.items()}
    driven = sum(shares[name] for name in judges)
    if driven < _FEW_DRIVE and flat < 1:
        largest = max(shares, key=shares.get)
        verdict.stops.append(
            f"{named} drives {driven:.0%} of the advantage; the model will learn what `{largest}` "
            f"wants ({shares[largest]:.0%}) instead. Raise the weight of the one or lower the "
            "other's."
        )
    for name, statistics in rewards.items():
        if statistics["zero_spread"] == 1 and len(rewards) > 1 and not statistics["constant"]:
            verdict.notes.append(
                f"{name} never differs inside a group, so it teaches nothing here."
            )
        for other, correlation in statistics["rank_correlation"].items():
            if name < other and correlation is not None and correlation > _TWINS:
                verdict.notes.append(
                    f"{name} and {other} rank completions alike ({correlation:.2f}): together "
                    "they weigh as one."
                )
