"""The laboratory's verdict: go or no go, with its reasons and what to change, from the numbers of
`measures.Lab`.
"""

import html
import inspect
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.laboratory.under_test import HONEST_RIGHT, HONEST_WRONG, RewardsUnderTest
from helpers.rewards.common import (
    code_of,
    defining_function,
    is_own,
    reward_name,
    source_hash,
)
from helpers.rewards.faults import FROM_TRL, MESSAGES
from helpers.rewards.own import TextReward
from helpers.runs import Run
from helpers.tags import on_one_line, shorten

STEPS = ("cases", "attacks", "signal", "speed")  # methods of `Lab`
_TELLS = {
    "cases": "whether completions with a known score earn it",
    "attacks": "whether cheating pays",
    "signal": "what GRPO would learn from a policy's completions",
    "speed": "how long the rewards take on them",
}
_LIKELIEST = "the question handed back"
_IN_REASONING = "right in the reasoning only"
# attacks without an answer
SILENT = (
    "nothing at all",
    "white space",
    "the four tags, empty",
    "reasoning, an empty answer",
)

_TOLERANCE = 1e-3  # a score this close to the expected one is equal to it
_FEW_DRIVE = 0.10  # if the judges drive a smaller share of the advantage, being right hardly counts
_MANY_FLAT = 0.50  # largest share of groups that score the same throughout
_NEVER = 0.02  # mean pass rates up to this leave nothing to reinforce,
_ALWAYS = 0.95  # and from this on nothing to learn
_EVEN = 0.5  # if silence pays unless the policy is right this often, an error costs too much
_RUN_ON = 0.2  # more completions than these write on behind their answer, or are wrong by it
_CUT_OFF = 0.1  # if more completions end at the limit, it is named before anything about the policy
_TWINS = 0.95  # rewards with a higher rank correlation count as one
_SLOW = 1000  # ms per 1,000 completions
_MOST_CAUSES = 3  # causes of a reward's faults that a verdict names
_JUDGE_ANSWERS = ["correctness_reward", "task_reward"]  # the library's rewards for a right answer


@dataclass
class Verdict:
    """Go or no go.

    stops: reasons against training, each with a way out. No stop is a go.
    notes: what to keep an eye on.
    """

    stops: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def go(self) -> bool:
        """Return whether no reason against training was found."""
        return not self.stops

    def __str__(self) -> str:
        decision = "GO: no reason against training was found." if self.go else "NO GO:"
        stops = [f"  - {stop}" for stop in self.stops]
        notes = [f"  note: {note}" for note in self.notes]
        return "\n".join([decision, *stops, *notes])


def verdict_on(lab: RewardsUnderTest) -> Verdict:
    """Return the verdict on the steps that a `Lab` has run so far."""
    verdict = Verdict()
    results = lab.results
    left_out = [step for step in STEPS if getattr(results, step) is None]
    if len(left_out) == len(STEPS):
        verdict.stops.append("nothing was tried yet: run cases, attacks and signal first.")
        return verdict
    for name in lab.names:
        _judge_faults(lab, name, verdict)
    for name, (first, second, by_call) in results.unsteady.items():
        cause = (
            "GRPO would learn from luck. Draw what is random from the completion itself, read no "
            "clock, and let a judge answer at temperature 0."
        )
        if by_call:
            cause = (
                "All its copies changed alike, so it counts its calls, or keeps something else "
                "from earlier ones. For a schedule, read trainer_state.global_step, which also "
                "holds after a resume; the attacks are then tried at several steps."
            )
        verdict.stops.append(
            f"the same completion gets different scores: {name} gave one {first:g}, and "
            f"{second:g} in another call. {cause} Nothing else that was tried here can be judged "
            "before this is corrected."
        )
    if results.unsteady:
        return verdict
    if results.cases is not None:
        wrong = differences(results.cases)
        if len(wrong):
            first = wrong.iloc[0]
            verdict.stops.append(
                f"{len(wrong)} of the cases' scores are not the expected ones: {first['reward']} "
                f"gives {first['score']:g} for '{first['case']}', expected {first['expected']:g}. "
                "Mend the reward, or the expectation."
            )
    if results.attacks is not None:
        _judge_attacks(lab, verdict)
    if results.signal is not None:
        _judge_signal(lab, verdict)
    if results.speed is not None:
        for name, milliseconds in results.speed.items():
            if milliseconds > _SLOW:
                verdict.notes.append(
                    f"{name} takes {milliseconds / 1000:.1f} s for 1,000 completions, in every "
                    "step of that size."
                )
    for name, function in zip(lab.names, lab.functions, strict=True):
        if isinstance(function, TextReward):
            verdict.notes.append(
                f"{name} reads completions as texts, as TRL passes them where prompts are texts, "
                "and was tried so. Where prompts are chats, as in this suite, TRL passes messages: "
                "`completion_text` of helpers.tags reads both."
            )
    if left_out:
        unknown = "; ".join(f"{_TELLS[step]} ({step})" for step in left_out)
        verdict.notes.append(f"Not known, because it was not run: {unknown}.")
    return verdict


def _is_own(lab, name: str) -> bool:
    return is_own(lab.functions[lab.names.index(name)])


def _scores_of(lab, name: str) -> set[float]:
    """Return the different scores of a reward in all steps so far; for attacks and signal, the
    means.
    """
    results = lab.results
    tables = [table for table in (results.cases, results.attacks) if table is not None]
    scores = {score for table in tables for score in table[name].dropna()}
    if results.signal is not None:
        scores.add(results.signal["rewards"][name]["mean"])
    return scores - {None}


def _judge_faults(lab, name: str, verdict: Verdict) -> None:
    """Add a stop for each of the three most frequent causes of a reward's faults on the user's
    rows, or one stop if the reward scored nothing at all.
    """
    faults = [fault for fault in lab.faults if fault.reward == name]
    scores = _scores_of(lab, name)
    if not faults:
        if scores:
            _judge_missing_scores(lab, name, verdict)
        elif lab.results.attacks is not None or lab.results.signal is not None:
            verdict.stops.append(
                f"{name} never speaks: it gave no completion a score.{_last_warning(lab, name)} "
                "Does it judge a task, or read a column, that these rows do not have?"
            )
        return

    # faults with the same advice, or with the same error in the same line, have one cause
    causes = [fault.advice or fault.cause for fault in faults]
    for cause, count in Counter(causes).most_common(_MOST_CAUSES):
        first = faults[causes.index(cause)]
        verdict.stops.append(f"{first} ({count} of {len(faults)} faults). {first.advice}".strip())
    if scores and _is_own(lab, name) and not all(fault.advice for fault in faults):
        verdict.stops[-1] += (
            " A reward scores whatever text comes: give 0.0 to what it cannot read."
        )


def _judge_missing_scores(lab, name: str, verdict: Verdict) -> None:
    """Name a reward that scores none or few of the answers, though it scores silence, or other
    completions of the same row. It is a stop if no honest answer got a score, or if there is no
    other reward.
    """
    table = lab.results.attacks
    signal = lab.results.signal
    no_honest_answer = (
        table is not None and table.loc[[HONEST_RIGHT, HONEST_WRONG], name].isna().all()
    )
    statistics = signal["rewards"][name] if signal else {"scored": 1.0, "unscored": None}
    scored = statistics["scored"]
    if no_honest_answer or scored == 0 or (statistics["unscored"] or 0.0) > _MANY_FLAT:
        subject = (
            f"{1 - scored:.0%} of the policy's completions" if scored < 1 else "honest answers"
        )
        reasons = verdict.stops if no_honest_answer or len(lab.names) == 1 else verdict.notes
        reasons.append(
            f"{name} gave {subject} no score.{_last_warning(lab, name)} Can it read what its judge "
            "replies?"
        )


def _last_warning(lab, name: str) -> str:
    """Return what a reward warned of last, as a sentence to append; "" if of nothing."""
    warned = [text for (reward, _), text in lab.warned.items() if reward == name]
    return f" It warned: {on_one_line(warned[-1][:300])}" if warned else ""


def _judge_attacks(lab, verdict: Verdict) -> None:
    """Add a stop if right answers earn no more than wrong ones, and stops for attacks that win. Add
    a note on another answer that a reward accepts.
    """
    table = lab.results.attacks
    right = table.loc[HONEST_RIGHT]
    wrong = table.loc[HONEST_WRONG]

    # 1. wrong answers that earn as much as right ones
    for name in lab.names:
        _judge_praise(lab, name, verdict)
    nothing = [name for name in lab.names if _is_own(lab, name) and right[name] == wrong[name] == 0]
    if wrong["wins"] > 0 and nothing:
        verdict.stops.append(
            f"a right answer earns nothing: {nothing[0]} gives 0 to "
            f"{lab.results.lost[0][0]!r:.80}. {_why_nothing(lab, nothing[0])}"
        )
    elif wrong["wins"] > 0:
        gold, other = lab.results.lost[0]
        advice = "no reward tells them apart. Add one for the answer, such as correctness_reward."
        if any(_is_own(lab, name) for name in lab.names):
            advice += (
                " If one of yours judges by a rule of its own, the laboratory knows no other right "
                "answer than the column `answer`, and may know no wrong one: give some with "
                "`cases=`."
            )
        for name in _JUDGE_ANSWERS:
            if name in lab.names:
                advice = (
                    f"{name} gives {right[name]:.2f} to the right one and {wrong[name]:.2f} to the "
                    "wrong one. Look at its weight, and at the column `answer`."
                )
        verdict.stops.append(
            f"an honest wrong answer earns as much as a right one ({wrong['total']:.2f} against "
            f"{right['total']:.2f} on average), such as {other!r:.80} beside {gold!r:.80}: "
            f"{advice}"
        )

    # 2. the other attacks
    # a policy finds the question handed back first, whatever it earns
    winners = table[(table["wins"] > 0) & (table.index != HONEST_WRONG)]
    winners = winners.sort_index(key=lambda names: names != _LIKELIEST, kind="stable")
    for name, row in winners.head(3).iterrows():
        ceiling = lab.results.ceilings[name].replace(" and ", " ")
        advice = "At any weight it pays for this: make it ask for more, or leave it out."
        missing = _missing_columns(lab, row["paid_by"])
        if missing:
            advice = missing
        elif lab.weights[lab.names.index(row["paid_by"])] < 0:
            advice = "Its weight is below 0: what it measures costs, and this has less of it."
        elif row["paid_by"] in lab.judges() and name in SILENT:
            advice = "Silence pays more than an error: give it no more than an error gets."
        elif name == _IN_REASONING and _is_own(lab, row["paid_by"]):
            advice = "It reads the reasoning, too: read the answer with `answer_of`."
        elif row["paid_by"] in lab.judges():
            advice = "It takes this for right: make it ask for one answer, and for all of it."
        verdict.stops.append(
            f"'{name}' earns {row['gain']:.2f} more than an {ceiling} answer would, on "
            f"{row['wins']:.0%} of the rows; {row['paid_by']} pays for it. {advice} "
            f"Such as {_sample(row)}."
        )
    if len(winners) > 3:
        others = [f"'{name}' ({_sample(row)})" for name, row in winners[3:].iterrows()]
        verdict.stops.append(f"{', '.join(others)} win too.")

    # 3. silence that earns more than an error
    _judge_silence(lab, verdict)

    # 4. rewards that no honest answer earns, and that charge nothing
    for name in lab.names:
        earns_nothing = right[name] == wrong[name] == table[name].min() == 0
        if earns_nothing and not wrong["wins"] and lab.results.signal is None:
            verdict.notes.append(
                f"{name} gives 0 to every honest answer in the tags {lab.tags.spec}. If it asks "
                "for another form, such as other tags (`tags`), a policy that keeps this one earns "
                "nothing from it. A penalty may stay."
            )

    # 5. other answers that a reward accepts
    for gold, near in lab.results.tolerated[:1]:
        verdict.notes.append(
            f"{near!r} earns as much as the right answer {gold!r}. Are both meant to be right?"
        )


def _sample(row: pd.Series) -> str:
    """Return the beginning of an attack's text, in quotes and on one line."""
    return repr(on_one_line(shorten(row["example"], 80)))


def _judge_silence(lab, verdict: Verdict) -> None:
    """Say what an error costs if it earns less than silence: a stop if a policy that is right half
    of the time, or more often, would earn more by giving no answer; otherwise a note.
    """
    table = lab.results.attacks
    earned = table["total"] - table.loc[HONEST_WRONG, "total"]
    if lab.results.escapes:
        judges = lab.judges()
        worth = table[judges].fillna(0.0) @ pd.Series(lab.weights, lab.names)[judges]
        worth -= worth[HONEST_WRONG]
        name = worth[lab.results.escapes].round(6).idxmax()
        rate = worth[name] / worth[HONEST_RIGHT]
        cost = (
            f"{'silence' if name in SILENT else repr(name)} pays more than an error: the attack "
            f"{name!r} earns {earned[name]:.2f} more than an honest wrong answer, whose score is "
            f"below 0. A policy that is right less than {rate:.0%} of the time earns most by "
            "giving no answer, and GRPO teaches that, question by question."
        )
        if rate >= _EVEN - 1e-6:
            verdict.stops.append(f"{cost} Let an error cost less, or give silence what it gets.")
        else:
            verdict.notes.append(cost)
    if not lab.faults and earned[earned.index.isin(SILENT)].isna().any():
        costs = table.loc[HONEST_WRONG, "total"] < 0
        (verdict.stops if costs else verdict.notes).append(
            "silence gets no score (None), so TRL leaves it out of its group, and it pays "
            "more than an error: give what cannot be read a number, such as an error's."
        )


def _judge_praise(lab, name: str, verdict: Verdict) -> None:
    """Name a reward that tells silence from an answer, and gives all answers full marks. It is a
    stop if the reward reads the column `answer`; without it, it may judge the style.
    """
    scores = lab.results.attacks[name]
    answered = [bool(lab.tags.extract_answer(text)) for text in lab.results.attacks["example"]]
    full = scores >= scores.max() - _TOLERANCE
    if scores.max() > 0 and not full[scores.notna()].all() and full[answered].mean() > 0.95:
        reward = lab.functions[lab.names.index(name)]
        reads_answer = "answer" in getattr(reward, "shows", ()) or "answer" in _body(lab, name)
        (verdict.stops if reads_answer else verdict.notes).append(
            f"{name} gives full marks ({scores.max():g}) to right answers, to wrong ones and to "
            "nonsense. Is a larger scale, such as 0 to 100, cut to 1 by min(1, …)? Divide by its "
            "maximum. Is a word searched for that its opposite contains, as INCORRECT contains "
            "CORRECT? Compare the whole reply."
        )


def _body(lab, name: str) -> str:
    """Return the source of a user's own reward, without the rest of its file; otherwise ""."""
    with suppress(OSError, TypeError):
        if _is_own(lab, name):
            return inspect.getsource(defining_function(lab.functions[lab.names.index(name)]))
    return ""


def _missing_columns(lab, name: str) -> str:
    """Return a sentence on columns that a user's own reward asks for and that the rows do not have;
    "" if there is none.
    """
    body = _body(lab, name)
    # columns["name"], columns.get("name"), and parameters with the default None
    keywords = "|".join(re.findall(r"\*\*(\w+)", body)[:1])
    pattern = (
        rf"""\b(?:{keywords})(?:\[|\.\w+\()\s*["'](\w+)|(\w+)(?:\s*:[^,=]*)?\s*=\s*None\s*[,)]"""
    )
    asked = {a or b for a, b in re.findall(pattern, body)}
    missing = ", ".join(sorted(asked - {*lab.results.columns, *FROM_TRL}))
    if missing:
        return f"It asks for {missing}; the columns are {', '.join(lab.results.columns)}."
    return ""


def _why_nothing(lab, name: str) -> str:
    """Return the likely cause why a user's own reward gives 0 to right answers."""
    missing = _missing_columns(lab, name)
    if missing:
        return missing
    code = code_of(lab.functions[lab.names.index(name)])
    if "math_verify" in code and re.search("async def|thread", code, re.I):
        return (
            "math-verify's time-out needs the main thread, and fails in another or in an async "
            "reward: pass parsing_timeout=None to `parse` and timeout_seconds=None to `verify`."
        )
    if not re.search(rf"answer_of|extract_answer|answer_blocks|{lab.tags.answer}>", code):
        return (
            f"Its source names no tag, and here an answer is {lab.tags.render('…', '42')}: read it "
            "there, as `answer_of` does, or give the laboratory your tags."
        )
    return "Columns hold text, and in Python '84' == 84 is false. Show with `cases=` what earns it."


def _judge_signal(lab, verdict: Verdict) -> None:
    """Add stops if the groups would teach nothing, or something other than right answers. Add
    notes on rewards that teach nothing by themselves.
    """
    signal = lab.results.signal
    judges = signal["judges"]
    rewards = signal["rewards"]
    flat = signal["total"]["zero_spread"]
    rates = [rate for rate in signal["pass_rate"] if rate is not None]
    passing = float(np.mean(rates)) if rates else 0.0

    # 1. completions that were cut off: what else the groups show may be a consequence
    limits = signal["cut_off"] > _CUT_OFF
    if limits:
        few_learn = flat > _MANY_FLAT or passing <= _NEVER
        (verdict.stops if few_learn else verdict.notes).insert(
            0,
            f"{signal['cut_off']:.0%} of the completions were cut off at max_completion_length, "
            "most of them before their answer. Raise it before you change anything else.",
        )

    # 2. rewards and groups whose scores never differ
    for name, statistics in rewards.items():
        if statistics["constant"] is not None:
            verdict.notes.append(_constant(lab, name, statistics["constant"]))
    if flat > _MANY_FLAT:
        advice = (
            " Take questions it sometimes gets right, a larger group, or a reward with a slope."
        )
        if limits or (rates and not _NEVER < passing < _ALWAYS):
            advice = ""  # there is more specific advice
        elif signal["one_text"] > 0.5:
            advice = " In most of them all completions are one text: raise the temperature."
        elif passing > 0.5:
            advice = " Take questions it has not mastered."
        verdict.stops.append(
            f"{flat:.0%} of the groups score the same throughout and teach nothing.{advice}"
        )

    # 3. a policy that is never right, or always right
    if not judges:
        # a reward that failed may be the one that tells them apart
        if not lab.faults:
            verdict.stops.append(
                "no reward tells a right answer from a wrong one: the model cannot learn to be "
                "right."
            )
        return
    listed = " and ".join(f"`{name}`" for name in judges)
    if not rates:
        verdict.stops.append(f"{listed} gave none of these completions a score.")
        return
    first_answer = signal["first_answer"] or 0.0
    if first_answer - passing > _RUN_ON:
        # a policy that ends most of its correct answers learns from the reward to end the others
        reasons = verdict.stops if passing < first_answer / 2 else verdict.notes
        reasons.append(
            f"{first_answer:.0%} of the completions would be right if they ended behind their "
            f"first answer, and {passing:.0%} are: they go on behind it. What stops a completion "
            "is the chat template's token for the end of a turn, or a stop text of yours: "
            f"stop={lab.tags.tags[-1]!r} ends them there, in 01 or 03. Worked examples in the "
            "prompt (examples) or a warm start on such examples teach the model to end."
        )
    elif signal["run_on"] > _RUN_ON:
        verdict.notes.append(
            f"{signal['run_on']:.0%} of the completions write on behind their first answer: "
            f"stop={lab.tags.tags[-1]!r} ends them there, in 01 or 03."
        )
    if passing <= _NEVER and first_answer - passing <= _RUN_ON:
        if limits:
            advice = ""
        elif signal["answered"] <= _NEVER and set(judges) <= set(_JUDGE_ANSWERS):
            advice = (
                f"{1 - signal['answered']:.0%} have no complete answer block. Does the prompt ask "
                "for the tags, and is max_completion_length long enough? Worked examples in the "
                "prompt show the format: examples=examples.jsonl (docs/data.md)."
            )
        else:
            advice = (
                "There is nothing to reinforce. Compare the data's answers with what the policy "
                "gives: they may be more than a result, which notebook 01 notes. Otherwise take "
                "easier questions, worked examples in the prompt (examples), a warm start on such "
                "examples, or a larger model."
            )
        verdict.stops.append(
            f"the policy earns {listed} on {passing:.1%} of its completions. {advice}".strip()
        )
    elif passing >= _ALWAYS:
        verdict.stops.append(
            f"the policy already earns {listed} on {passing:.0%} of its completions. Take harder "
            "questions."
        )

    # 4. what the advantage is made of
    shares = {name: statistics["advantage_share"] for name, statistics in rewards.items()}
    driven = sum(shares[name] for name in judges)
    largest = max(shares, key=shares.get)
    if driven < _FEW_DRIVE and flat < 1 and _NEVER < passing < _ALWAYS:
        verdict.stops.append(
            f"{listed} drives {driven:.0%} of the advantage; the model will learn what `{largest}` "
            f"wants ({shares[largest]:.0%}) instead. Raise the weight of the one or lower the "
            "other's."
        )
    for name, statistics in rewards.items():
        varies = statistics["scored"] and statistics["constant"] is None
        if statistics["zero_spread"] == 1 and len(rewards) > 1 and varies:
            verdict.notes.append(
                f"{name} never differs inside a group, so it teaches nothing here."
            )
        for other, correlation in statistics["rank_correlation"].items():
            if name < other and correlation is not None and correlation > _TWINS:
                verdict.notes.append(
                    f"{name} and {other} rank completions alike ({correlation:.2f}): together "
                    "they weigh as one."
                )


def _constant(lab, name: str, score: float) -> str:
    """Return a note about a reward that gave every completion the same score."""
    note = f"{name} gave {score:g} to each of the completions that it judged"
    attacked_in_vain = lab.results.attacks is not None and len(_scores_of(lab, name)) == 1
    if attacked_in_vain and _is_own(lab, name):
        note += ", and to all attacks."
        if score == 0:
            note += f" Nothing that was tried earned it. {_why_nothing(lab, name)}"
        if score or "completion_text" not in code_of(lab.functions[lab.names.index(name)]):
            note += f" Does it look at the text? {MESSAGES}"
        return note
    if name in lab.results.signal["want_opening"]:
        advice = "Prepare the data again with notebook 01, which looks for that, or leave"
        if lab.tags.opened:
            advice = "Take format_reward, which knows that, or leave"
        return (
            f"{note}. It wants {lab.tags.tags[0]} in the completion, and none has it: the chat "
            f"template opens it in the prompt. {advice} this reward out."
        )
    return f"{note}, so it teaches nothing here."


# --- The cases as a table -------------------------------------------------------------------------


def differences(cases: pd.DataFrame) -> pd.DataFrame:
    """Return the scores that are not the expected ones: rows of case, reward, expected, score."""
    rows = []
    for column in cases.filter(regex="^expected "):
        reward = column.removeprefix("expected ")
        for name, expected, score in zip(cases.index, cases[column], cases[reward], strict=True):
            # written so that a missing score (nan) differs, too
            if pd.notna(expected) and not abs(score - expected) <= _TOLERANCE:
                rows.append((name, reward, expected, score))
    return pd.DataFrame(rows, columns=["case", "reward", "expected", "score"])


def style_cases(cases: pd.DataFrame):
    """Return the cases as a pandas Styler. A score that is not the expected one is red, and the
    expected one is beside it.
    """
    rewards = [column for column in cases.columns if f"expected {column}" in cases]
    # pandas does not escape the names, which come from a user's file
    cases = cases.rename(index=html.escape)
    texts = cases[[*rewards, "total"]].map(
        lambda score: f"{score:.3f}" if pd.notna(score) else "None"
    )
    styles = pd.DataFrame("", index=texts.index, columns=texts.columns)
    for name, reward, expected, _ in differences(cases).itertuples(index=False):
        texts.loc[name, reward] += f" (not {expected:g})"
        styles.loc[name, reward] = "color: white; background-color: #C0392B"
    return texts.style.set_uuid("cases").apply(lambda _: styles, axis=None)


# --- What notebook 03 trains with, compared with what 02 tested -----------------------------------


def against_report(run: Run, functions: list, weights: list[float]) -> str:
    """Return a sentence or two: are these the rewards and weights of the run's
    `reward_report.json`, and was its verdict a go?

    Names, weights and `source_hash` are compared. Reports of earlier versions have no hash, so
    names and weights decide. ValueError if the report is damaged.
    """
    report = run.read_object("reward_report.json")
    if not report:
        return (
            f"NOT TESTED: {run.show('reward_report.json')} is not there; notebook 2 writes it, "
            "and attacks the rewards first."
        )
    # TRL checks that there are as many weights as functions
    trained = dict(zip(map(reward_name, functions), weights, strict=False))
    tested = {name: entry["weight"] for name, entry in report["rewards"].items()}
    if trained != tested:
        listed = ", ".join(f"{name} x {weight:g}" for name, weight in tested.items())
        return (
            f"NOT WHAT NOTEBOOK 2 TESTED, which was {listed}. Its verdict says nothing about this "
            "training."
        )
    sources = {reward_name(function): source_hash(function) for function in functions}
    changed = [
        name
        for name, entry in report["rewards"].items()
        if entry.get("source", sources[name]) != sources[name]
    ]
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
