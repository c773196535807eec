"""The laboratory's verdict: go or no go, with its reasons and what to change, from the numbers of
`measures.Lab`.

`verdict_on` comes first: it goes through the steps that were run, and each `_add_…` below it adds
the reasons that follow from one of them. A reason against training is a stop; what is only worth
knowing is a note. Functions that return a text, such as `_advice_on_attack`, write the last part of
a reason: what to change.
"""

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.laboratory.cases import TOLERANCE, differences
from helpers.laboratory.program_attacks import CODE_NAMES, FORMS
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG, RewardsUnderTest
from helpers.printing import on_one_line, shorten
from helpers.rewards.common import code_of, defining_function, is_own
from helpers.rewards.faults import FROM_TRL, MESSAGES
from helpers.rewards.own import TextReward, VerlReward

# The steps, which are methods of `Lab`, and what each tells.
STEPS = {
    "cases": "whether completions with a known score earn it",
    "attacks": "whether cheating pays",
    "signal": "what GRPO would learn from a policy's completions",
    "speed": "how long the rewards take on them",
}
# Attacks by name.
_LIKELIEST = "the question handed back"  # a policy finds this one first, whatever it earns
_IN_REASONING = "correct in the reasoning only"
SILENT = (  # those without an answer
    "nothing at all",
    "white space",
    "the four tags, empty",
    "reasoning, an empty answer",
)
_JUDGE_ANSWERS = ["correctness_reward", "task_reward"]  # the library's rewards for a correct answer

# Thresholds, as shares unless they say otherwise.
_HARDLY_DRIVEN = 0.10  # of the advantage: if judges drive less, being correct hardly counts
_MOSTLY_FLAT = 0.50  # of the groups: a stop if more have one score throughout
_NEVER_RIGHT = 0.02  # of the completions: if no more are correct, there is nothing to reinforce
_ALWAYS_RIGHT = 0.95  # of the completions: if as many are correct, there is nothing to learn
_EVEN_ODDS = 0.5  # of the answers correct: a stop if silence still pays for such a policy
_RUN_ON = 0.2  # of the completions: a note if more continue after their answer
_CUT_OFF = 0.1  # of the completions: the first reason if more end at the limit of length
_FULL_MARKS = 0.95  # of the attacks with an answer: if more earn the maximum, all answers do
_TWINS = 0.95  # rewards with a higher rank correlation count as one
_SLOW = 1000  # ms per 1,000 completions
_MOST_CAUSES = 3  # causes of a reward's faults that a verdict names


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

    def add(self, text: str, *, stops: bool) -> None:
        """Add a reason against training, or else a note."""
        (self.stops if stops else self.notes).append(text)

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
        verdict.stops.append("nothing has been tried yet: run cases, attacks and signal first.")
        return verdict

    # 1. Rewards that fail, or score nothing, or little.
    for name in lab.names:
        if any(fault.reward == name for fault in lab.faults):
            _add_faults(lab, name, verdict)
        elif not _scores_of(lab, name):
            _add_never_scored(lab, name, verdict)
        else:
            _add_rarely_scored(lab, name, verdict)
        if name in lab.in_process:
            verdict.stops.append(
                f"{name} runs programs in its own process, where a program can end the training or "
                "change every score. Run them apart, with `run_code` of helpers.judging."
            )

    # 2. Rewards that give the same completion different scores: all other numbers may be luck.
    if results.unsteady:
        _add_unsteady(lab, verdict)
        return verdict

    # 3. The steps that were run.
    if results.cases is not None:
        wrong = differences(results.cases)
        if len(wrong):
            first = wrong.iloc[0]
            verdict.stops.append(
                f"{len(wrong)} of the cases' scores are not the expected ones: {first['reward']} "
                f"gives {first['score']:g} for '{first['case']}', expected {first['expected']:g}. "
                "Correct the reward, or the expected score."
            )
    if results.attacks is not None:
        _add_attacks(lab, verdict)
    if results.signal is not None:
        _add_signal(lab, verdict)
    if results.speed is not None:
        for name, milliseconds in results.speed.items():
            if milliseconds > _SLOW:
                verdict.notes.append(
                    f"{name} takes {milliseconds / 1000:.1f} s for 1,000 completions, in every "
                    "step of that size."
                )

    # 4. What the steps do not show.
    for name, function in zip(lab.names, lab.functions, strict=True):
        if isinstance(function, TextReward):
            verdict.notes.append(
                f"{name} reads completions as text, which is what TRL passes if prompts are text, "
                "and it was tested that way. If prompts are chats, as in this suite, TRL passes "
                "messages: `completion_text` of helpers.tags reads both."
            )
    if left_out:
        unknown = "; ".join(f"{STEPS[step]} ({step})" for step in left_out)
        verdict.notes.append(f"Not known, because it was not run: {unknown}.")
    return verdict


def _scores_of(lab: RewardsUnderTest, name: str) -> set[float]:
    """Return the different scores of a reward in all steps so far; for attacks and signal, the
    means.
    """
    scores = set()
    for table in (lab.results.cases, lab.results.attacks):
        if table is not None:
            scores |= set(table[name].dropna())
    if lab.results.signal is not None:
        scores.add(lab.results.signal["rewards"][name]["mean"])
    return scores - {None}


def _add_faults(lab: RewardsUnderTest, name: str, verdict: Verdict) -> None:
    """Add a stop for each of the three most frequent causes of a reward's faults."""
    # 1. Count the causes. Faults with the same advice, or the same error in the same line, have one
    # cause.
    faults = [fault for fault in lab.faults if fault.reward == name]
    causes = [fault.advice or fault.cause for fault in faults]
    for cause, count in Counter(causes).most_common(_MOST_CAUSES):
        first = faults[causes.index(cause)]
        reason = f"{first} ({count} of {len(faults)} faults). {first.advice}"
        verdict.stops.append(reason.strip())

    # 2. Remind the author of a reward that can score, but not every text.
    all_have_advice = all(fault.advice for fault in faults)
    if _scores_of(lab, name) and is_own(lab.reward(name)) and not all_have_advice:
        verdict.stops[-1] += (
            " A reward must score any text: return 0.0 if it cannot read the completion."
        )


def _add_never_scored(lab: RewardsUnderTest, name: str, verdict: Verdict) -> None:
    """Add a stop for a reward that scored no attack and no completion of a policy. If only the
    cases were run, add nothing, because they may be of another task.
    """
    if lab.results.attacks is not None or lab.results.signal is not None:
        verdict.stops.append(
            f"{name} never gave a completion a score.{_last_warning(lab, name)} Does it judge "
            "a task, or read a column, that these rows do not have?"
        )


def _add_rarely_scored(lab: RewardsUnderTest, name: str, verdict: Verdict) -> None:
    """Add a stop or a note for a reward that has given scores, but none to an honest answer, or
    none to a completion of the policy, or that left most of these without one although it scored
    others of the same rows.
    """
    # 1. Did an attack with an honest answer get a score?
    honest_unscored = False
    if lab.results.attacks is not None:
        honest_scores = lab.results.attacks.loc[[HONEST_CORRECT, HONEST_WRONG], name]
        honest_unscored = honest_scores.isna().all()

    # 2. How many of the policy's completions got one?
    scored = 1.0  # the share with a score
    unscored_beside_scored = 0.0  # the share without a score, if another one of the row has one
    if lab.results.signal:
        statistics = lab.results.signal["rewards"][name]
        scored = statistics["scored"]
        unscored_beside_scored = statistics["unscored"] or 0.0

    # 3. Missing scores are a stop if no honest answer got one, or if there is no other reward.
    if honest_unscored or scored == 0 or unscored_beside_scored > _MOSTLY_FLAT:
        subject = "honest answers"
        if scored < 1:
            subject = f"{1 - scored:.0%} of the policy's completions"
        verdict.add(
            f"{name} gave {subject} no score.{_last_warning(lab, name)} Can it read what its judge "
            "replies?",
            stops=honest_unscored or len(lab.names) == 1,
        )


def _last_warning(lab: RewardsUnderTest, name: str) -> str:
    """Return what a reward warned of last, as a sentence to append; "" if of nothing."""
    warnings = [text for (reward, _line), text in lab.warned.items() if reward == name]
    if not warnings:
        return ""
    return f" Its last warning: {on_one_line(warnings[-1][:300])}"


def _add_unsteady(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add a stop for each reward that gives the same completion different scores."""
    for name, (first, second, only_calls_differ) in lab.results.unsteady.items():
        cause = (
            "GRPO would learn from chance. Derive random numbers from the completion, do not read "
            "the clock, and let a judge answer at temperature 0."
        )
        if only_calls_differ:
            cause = (
                "All copies changed in the same way, so the reward counts its calls or keeps state "
                "between them. For a schedule, read trainer_state.global_step, which also holds "
                "after a resume; the attacks are then tried at several steps."
            )
        verdict.stops.append(
            f"the same completion gets different scores: {name} gave it {first:g}, and "
            f"{second:g} in another call. {cause} Correct this first: until then, nothing else "
            "that was tried here can be judged."
        )


def _add_attacks(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add stops and notes on attacks that pay, and on answers that are correct, wrong or missing
    and are not paid as they should be.
    """
    # 1. Rewards that give every answer full marks, and those that run programs and were attacked
    # without any.
    for name in lab.names:
        _add_full_marks(lab, name, verdict)
        code = code_of(lab.reward(name))
        if {*lab.results.attacks.index} >= CODE_NAMES:
            # The attacks leave a mark in this process unless the reward keeps them from importing.
            if re.search(r"\bexec\(", code) and name not in lab.in_process:
                verdict.notes.append(
                    f"{name} calls exec, which runs a program in the training's process, where it "
                    "can end the training or change its score: use `run_code` of helpers.judging."
                )
        elif re.search(r"\b(subprocess|exec\(|run_code|program_of)", code):
            verdict.notes.append(
                f"{name} seems to run programs, but no attack with a program was tried. For that, "
                "every row needs tests that `read_tests` of helpers.judging can read, and as its "
                "`answer` a program that defines the functions that they call."
            )

    # 2. Wrong answers that earn as much as correct ones.
    wrong_wins = lab.results.attacks.loc[HONEST_WRONG, "wins"]  # nan: no row could be compared
    if wrong_wins > 0:
        _add_wrong_answers(lab, verdict)

    # 3. Other attacks that win.
    _add_winners(lab, verdict)

    # 4. Giving no answer, if that is worth more than a wrong one.
    _add_silence(lab, verdict)

    # 5. Rewards that no honest answer earns. If wrong answers win, step 2 has said why, and if
    # completions of a policy were scored, `_add_signal` says more.
    if wrong_wins == 0 and lab.results.signal is None:
        for name in lab.names:
            _add_never_earned(lab, name, verdict)

    # 6. Other answers that a reward accepts.
    for gold, near in lab.results.tolerated[:1]:
        verdict.notes.append(
            f"{near!r} earns as much as the correct answer {gold!r}. Are both meant to be correct?"
        )


def _add_full_marks(lab: RewardsUnderTest, name: str, verdict: Verdict) -> None:
    """Add a stop or a note for a reward that gives full marks to nearly every attack with an
    answer, and less to some text without one.
    """
    table = lab.results.attacks
    scores = table[name]
    has_answer = [bool(lab.tags.extract_answer(text)) for text in table["example"]]
    has_full_marks = scores >= scores.max() - TOLERANCE
    nearly_all_answers = has_full_marks[has_answer].mean() > _FULL_MARKS
    every_text = has_full_marks[scores.notna()].all()
    if scores.max() <= 0 or not nearly_all_answers or every_text:
        return

    # A reward that reads the column `answer` should tell answers apart: this is a stop. Another one
    # may judge the style: this is a note.
    columns_shown = getattr(lab.reward(name), "shows", ())  # the columns that a judge reads
    verdict.add(
        f"{name} gives full marks ({scores.max():g}) to correct answers, wrong answers and "
        "nonsense. If it cuts a larger scale, such as 0 to 100, to 1 with min(1, …), divide by the "
        "maximum instead. If it searches for a word that its opposite contains, as INCORRECT "
        "contains CORRECT, compare the whole reply instead.",
        stops="answer" in columns_shown or "answer" in _columns_read(lab.reward(name)),
    )


def _add_winners(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add a stop for each of the first three attacks that win, the likeliest one first, and one
    with the names of the others.
    """
    table = lab.results.attacks
    winners = table[(table["wins"] > 0) & (table.index != HONEST_WRONG)]
    winners = winners.sort_index(key=lambda names: names != _LIKELIEST, kind="stable")
    for attack, row in winners.head(3).iterrows():
        ceiling = lab.results.ceilings[attack].replace(" and ", " ")
        verdict.stops.append(
            f"'{attack}' earns {row['gain']:.2f} more than an {ceiling} answer would, on "
            f"{row['wins']:.0%} of the rows; {row['paid_by']} gives the points. "
            f"{_advice_on_attack(lab, attack, row['paid_by'])} Example: {_sample(row)}."
        )
    if len(winners) > 3:
        others = [f"'{attack}' ({_sample(row)})" for attack, row in winners[3:].iterrows()]
        verdict.stops.append(f"{', '.join(others)} win too.")


def _add_never_earned(lab: RewardsUnderTest, name: str, verdict: Verdict) -> None:
    """Add a note on a reward that no honest answer earns, and that charges nothing."""
    scores = lab.results.attacks[name]
    if scores[HONEST_CORRECT] == 0 and scores[HONEST_WRONG] == 0 and scores.min() == 0:
        verdict.notes.append(
            f"{name} gives 0 to every honest answer in the tags {lab.tags.spec}. If it "
            "requires another form, such as other tags (`tags`), a policy that uses this one "
            "earns nothing from it. If it is a penalty, keep it."
        )


def _add_silence(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add a stop or a note if giving no answer is worth more than a wrong answer: because an error
    costs points, or because silence gets no score.
    """
    table = lab.results.attacks
    of_wrong = table.loc[HONEST_WRONG, "total"]
    earned = table["total"] - of_wrong

    # 1. An error costs points. Let `worth` be what the judges give, counted from a wrong answer: a
    # policy that is correct with probability p earns p * worth[right] by answering. So an attack
    # pays as long as p < worth[attack] / worth[right], the even rate. An attack that pays for a
    # policy that is correct half of the time is a stop; one that pays only for a worse policy is a
    # note.
    if lab.results.escapes:
        judges = lab.judges()
        weights = pd.Series(lab.weights, lab.names)[judges]
        worth = table[judges].fillna(0.0) @ weights
        worth -= worth[HONEST_WRONG]
        attack = worth[lab.results.escapes].round(6).idxmax()
        even_rate = worth[attack] / worth[HONEST_CORRECT]
        subject = "silence" if attack in SILENT else repr(attack)
        reason = (
            f"{subject} scores more than a wrong answer: the attack {attack!r} earns "
            f"{earned[attack]:.2f} more than an honest wrong answer, whose score is negative. A "
            f"policy that is correct less than {even_rate:.0%} of the time earns most by giving no "
            "answer, and GRPO teaches that, question by question."
        )
        if even_rate >= _EVEN_ODDS - 1e-6:
            verdict.stops.append(
                f"{reason} Make the penalty for a wrong answer smaller, or give silence the same "
                "penalty."
            )
        else:
            verdict.notes.append(reason)

    # 2. Silence gets no score, and no reward has failed, which would be the reason. If a wrong
    # answer gets none either, they cannot be compared.
    totals_of_silence = table["total"][table.index.isin(SILENT)]
    if totals_of_silence.isna().any() and not lab.faults:
        reason = "silence gets no score (None), so TRL leaves it out of its group"
        if pd.notna(of_wrong):
            reason += ", and it is worth more than a wrong answer"
        verdict.add(
            f"{reason}: give unreadable completions a number, such as the score of a wrong answer.",
            stops=of_wrong < 0,
        )


def _add_wrong_answers(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add a stop, because honest wrong answers earn as much as correct ones on some rows."""
    right = lab.results.attacks.loc[HONEST_CORRECT]
    wrong = lab.results.attacks.loc[HONEST_WRONG]
    gold, other = lab.results.lost[0]

    # 1. One of the user's own rewards gives nothing to either: it does not find the answer.
    own = [name for name in lab.names if is_own(lab.reward(name))]
    for name in own:
        if right[name] == 0 and wrong[name] == 0:
            verdict.stops.append(
                f"a correct answer earns nothing: {name} gives 0 to {gold!r:.80}. "
                f"{_why_nothing(lab, name)}"
            )
            return

    # 2. Otherwise, the advice depends on which reward should tell them apart.
    advice = "no reward tells them apart. Add one for the answer, such as correctness_reward."
    if own:
        advice += (
            " If one of yours judges by its own rule, the laboratory knows no correct answer "
            "except the column `answer`, and may not know a wrong one. Add some with `cases=`."
        )
    for name in _JUDGE_ANSWERS:
        if name in lab.names:
            advice = (
                f"{name} gives {right[name]:.2f} to the correct one and {wrong[name]:.2f} to the "
                "wrong one. Check its weight and the column `answer`."
            )
    verdict.stops.append(
        f"an honest wrong answer earns as much as a correct one ({wrong['total']:.2f} against "
        f"{right['total']:.2f} on average), for example {other!r:.80} instead of {gold!r:.80}: "
        f"{advice}"
    )


def _advice_on_attack(lab: RewardsUnderTest, attack: str, payer: str) -> str:
    """Return what to change in the reward that pays for an attack."""
    missing = _missing_columns(lab, payer)
    if missing:
        return missing
    if lab.weights[lab.names.index(payer)] < 0:
        return (
            "Its weight is negative, so it penalises what it measures, and this attack has less of "
            "it."
        )
    is_judge = payer in lab.judges()
    if is_judge and attack in SILENT:
        return "Silence scores more than a wrong answer. Give it no more than a wrong answer gets."
    if attack == _IN_REASONING and is_own(lab.reward(payer)):
        return "It also reads the reasoning. Read only the answer, with `answer_of`."
    table = lab.results.attacks
    full = table.loc[HONEST_CORRECT, "total"] - table.loc[HONEST_WRONG, "total"]
    if is_judge and table.loc[attack, "gain"] < 0.9 * full:
        return (
            "It gives partial credit for this, more than for an honest wrong answer. Give every "
            f"wrong answer the same score{', with share=False' if payer == 'tests_reward' else ''}."
        )
    if is_judge and {*table.index} >= CODE_NAMES:
        return (
            "It accepts a program that does not solve the task. Run programs with `run_code` of "
            "helpers.judging, and compare what they return outside, as `tests_reward` does, on "
            "tests that the question does not show."
        )
    if is_judge:
        return (
            "It accepts this as correct. Make it require exactly one answer, and compare the whole "
            "answer."
        )
    return "It rewards this at any weight. Make it stricter, or remove it."


def _sample(row: pd.Series) -> str:
    """Return the beginning of an attack's text, in quotes and on one line."""
    return repr(on_one_line(shorten(row["example"], 80)))


def _columns_read(reward: Callable) -> set[str]:
    """Return the columns that a user's own reward asks for: its parameters, and the names that it
    looks up in its `**` parameter; empty for a reward of this package or of TRL.

    `def own(completions, answer, level=None, scale=2.0, **columns)` asks for answer and level. A
    parameter with a default other than None, such as scale, is an option and not a column.
    """
    if not is_own(reward):
        return set()
    if isinstance(reward, TextReward):
        reward = reward.func
    if isinstance(reward, VerlReward):  # the parameters have verl's names
        return {"answer"}

    # 1. The parameters. Some functions written in C do not list theirs.
    columns = set()
    parameters = {}
    with suppress(TypeError, ValueError):
        parameters = inspect.signature(reward).parameters
    others = ""  # the name of the parameter for all other columns, such as `columns`
    for name, parameter in parameters.items():
        is_column = parameter.default is parameter.empty or parameter.default is None
        if parameter.kind == parameter.VAR_KEYWORD:
            others = name
        elif parameter.kind != parameter.VAR_POSITIONAL and is_column:
            columns.add(name)

    # 2. The look-ups in the source: `columns["name"]`, `columns.get("name")`. A function typed at a
    # prompt has no source, and that of a lambda may be a part of a statement, which cannot be
    # parsed.
    tree = ast.Module([], [])
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(defining_function(reward))))
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(ast.Name(variable), ast.Constant(str(column))):
                if variable == others:
                    columns.add(column)
            case ast.Call(ast.Attribute(ast.Name(variable)), [ast.Constant(str(column)), *_]):
                if variable == others:
                    columns.add(column)
    return columns - {"completions"}


def _missing_columns(lab: RewardsUnderTest, name: str) -> str:
    """Return a sentence on columns that a user's own reward asks for and that the rows do not have;
    "" if there is none, or if right answers earn points without them.
    """
    missing = sorted(_columns_read(lab.reward(name)) - {*lab.results.columns, *FROM_TRL})
    if not missing or lab.results.attacks.loc[HONEST_CORRECT, name] > 0:
        return ""
    return f"It asks for {', '.join(missing)}; the columns are {', '.join(lab.results.columns)}."


def _why_nothing(lab: RewardsUnderTest, name: str) -> str:
    """Return the likely cause why a user's own reward gives 0 to correct answers."""
    missing = _missing_columns(lab, name)
    if {*lab.results.attacks.index} >= CODE_NAMES:
        return (
            "So attacks with programs say nothing. The program of `answer` may not pass its tests, "
            "or the reward may read another form than an answer block with "
            f"{' or '.join(map(repr, FORMS))}. {missing}"
        ).strip()
    if missing:
        return missing
    code = code_of(lab.reward(name))
    if "math_verify" in code and re.search("async def|thread", code, re.I):
        return (
            "math-verify's time-out needs the main thread, and fails in another or in an async "
            "reward: pass parsing_timeout=None to `parse` and timeout_seconds=None to `verify`."
        )
    if not re.search(rf"answer_of|extract_answer|answer_blocks|{lab.tags.answer}>", code):
        return (
            "Its source, without what it imports, does not name a tag, but an answer here is "
            f"{lab.tags.render('…', '42')}: read it there, as `answer_of` does, or pass your tags "
            "to the laboratory."
        )
    return (
        "Columns hold text, and in Python '84' == 84 is false. Use `cases=` to show a completion "
        "that earns it."
    )


def _add_signal(lab: RewardsUnderTest, verdict: Verdict) -> None:
    """Add stops if the groups would teach nothing, or something other than correct answers. Add
    notes on rewards that teach nothing by themselves.
    """
    signal = lab.results.signal
    rewards = signal["rewards"]
    flat = signal["total"]["zero_spread"]  # the share of groups that have one score throughout
    rates = [rate for rate in signal["pass_rate"] if rate is not None]
    passing = float(np.mean(rates)) if rates else None  # the share of completions that are correct

    # 1. Completions that were cut off. This reason comes first, because the others may follow from
    # it. If few groups learn, it is a stop, and otherwise a note.
    if signal["cut_off"] > _CUT_OFF:
        few_learn = flat > _MOSTLY_FLAT or passing is None or passing <= _NEVER_RIGHT
        reasons = verdict.stops if few_learn else verdict.notes
        reasons.insert(
            0,
            f"{signal['cut_off']:.0%} of the completions were cut off at max_completion_length. "
            "A completion without its answer usually scores as wrong. Raise this limit first.",
        )

    # 2. Rewards whose scores never differ, and totals that do not differ in most groups.
    for name, statistics in rewards.items():
        if statistics["constant"] is not None:
            verdict.notes.append(_note_on_constant(lab, name, statistics["constant"]))
    if flat > _MOSTLY_FLAT:
        verdict.stops.append(
            f"{flat:.0%} of the groups have the same score for all completions and teach nothing. "
            f"{_advice_on_spread(signal, passing)}".strip()
        )

    # 3. All reasons that follow need a judge that gave scores.
    if not signal["judges"]:
        # a reward that failed may be the one that tells correct from wrong
        if not lab.faults:
            verdict.stops.append(
                "no reward distinguishes a correct answer from a wrong one: the model cannot learn "
                "to be correct."
            )
        return
    named = " and ".join(f"`{name}`" for name in signal["judges"])
    if passing is None:
        verdict.stops.append(f"{named} gave none of these completions a score.")
        return

    # 4. A policy that is never correct, or always.
    _add_pass_rate(lab, passing, named, verdict)

    # 5. Being correct hardly moves the advantage.
    shares = {name: statistics["advantage_share"] for name, statistics in rewards.items()}
    driven = sum(shares[name] for name in signal["judges"])
    largest = max(shares, key=shares.get)
    something_to_learn = _NEVER_RIGHT < passing < _ALWAYS_RIGHT and flat < 1
    if driven < _HARDLY_DRIVEN and something_to_learn:
        verdict.stops.append(
            f"{named} drives {driven:.0%} of the advantage; the model will learn what `{largest}` "
            f"wants ({shares[largest]:.0%}) instead. Raise the weight of the former, or lower "
            "that of the latter."
        )

    # 6. Rewards that do not move the advantage, or move it together.
    for name, statistics in rewards.items():
        varies = statistics["scored"] and statistics["constant"] is None
        differs_in_no_group = statistics["zero_spread"] == 1
        if varies and differs_in_no_group and len(rewards) > 1:
            verdict.notes.append(
                f"{name} never differs within a group, so it teaches nothing here."
            )
        for other, correlation in statistics["rank_correlation"].items():
            if correlation is None or other < name:  # each pair once
                continue
            if correlation > _TWINS:
                verdict.notes.append(
                    f"{name} and {other} rank completions almost identically ({correlation:.2f}): "
                    "together they act as one reward."
                )


def _add_pass_rate(lab: RewardsUnderTest, passing: float, named: str, verdict: Verdict) -> None:
    """Add a stop if the policy is never correct, or always, and a stop or a note if text after its
    answers costs them their point.

    passing: the share of its completions that the judges call correct.
    named: the rewards that judge, as a sentence names them.
    """
    signal = lab.results.signal

    # 1. Text after an answer, which may cost the completion its point. If the policy ends at least
    # half of its correct answers in time, the reward teaches it to end the others, and this is a
    # note. Otherwise it is a stop.
    first_answer = signal["first_answer"] or 0.0  # the share that is correct without that text
    would_be_right = first_answer - passing > _RUN_ON
    if would_be_right:
        verdict.add(
            f"{first_answer:.0%} of the completions would be correct if they ended after their "
            f"first answer, but only {passing:.0%} are, because they continue. A completion ends "
            "at the chat template's token for the end of a turn, or at a stop text of yours: "
            f"stop={lab.tags.tags[-1]!r} ends them there, in 01 or 03. Worked examples in the "
            "prompt (few_shot) or a warm start on such examples teach the model to end.",
            stops=passing < first_answer / 2,
        )
    elif signal["run_on"] > _RUN_ON:
        verdict.notes.append(
            f"{signal['run_on']:.0%} of the completions continue after their first answer: "
            f"stop={lab.tags.tags[-1]!r} ends them there, in 01 or 03."
        )

    # 2. A policy that is never correct, or always.
    if passing <= _NEVER_RIGHT and not would_be_right:
        verdict.stops.append(
            f"the policy earns at least 0.5 from {named} on {passing:.1%} of its completions. "
            f"{_advice_on_never_right(signal)}".strip()
        )
    elif passing >= _ALWAYS_RIGHT:
        verdict.stops.append(
            f"the policy already earns {named} on {passing:.0%} of its completions. Use harder "
            "questions."
        )


def _advice_on_spread(signal: dict, passing: float | None) -> str:
    """Return how groups come to differ; "" if another reason has better advice."""
    if signal["cut_off"] > _CUT_OFF:
        return ""
    if passing is not None and (passing <= _NEVER_RIGHT or passing >= _ALWAYS_RIGHT):
        return ""
    if signal["one_text"] > 0.5:
        return "In most of them, all completions are the same text: raise the temperature."
    if passing is not None and passing > 0.5:
        return "Use questions that the policy has not mastered."
    return (
        "Use questions that the policy sometimes answers correctly, larger groups, or a reward "
        "with partial credit."
    )


def _advice_on_never_right(signal: dict) -> str:
    """Return what helps a policy that is never correct; "" if another reason has better advice."""
    if signal["cut_off"] > _CUT_OFF:
        return ""
    all_read_the_block = set(signal["judges"]) <= set(_JUDGE_ANSWERS)
    if signal["answered"] <= _NEVER_RIGHT and all_read_the_block:
        return (
            f"{1 - signal['answered']:.0%} have no complete answer block. Does the prompt ask "
            "for the tags, and is max_completion_length long enough? Worked examples in the "
            "prompt show the format: few_shot=examples.jsonl (docs/data.md)."
        )
    return (
        "There are too few correct answers to reinforce. Compare the data's answers with what the "
        "policy gives: they may contain more than the result (notebook 01 prints a note). "
        "Otherwise, use easier questions, worked examples in the prompt (few_shot), a warm start "
        "on such examples, or a larger model."
    )


def _note_on_constant(lab: RewardsUnderTest, name: str, score: float) -> str:
    """Return a note about a reward that gave every completion the same score."""
    note = f"{name} gave {score:g} to every completion that it judged"

    # 1. One of the user's own rewards that no attack has moved either.
    attacked_in_vain = lab.results.attacks is not None and len(_scores_of(lab, name)) == 1
    if attacked_in_vain and is_own(lab.reward(name)):
        note += ", and to all attacks."
        if score == 0:
            note += f" Nothing we tried earned a point. {_why_nothing(lab, name)}"
        if score != 0 or "completion_text" not in code_of(lab.reward(name)):
            note += f" Does it look at the text? {MESSAGES}"
        return note

    # 2. A reward that misses a tag, which only the prompt has.
    if name in lab.results.signal["want_opening"]:
        advice = "Prepare the data again with notebook 01, which detects this, or remove"
        if lab.tags.opened:
            advice = "Use format_reward, which handles this, or remove"
        return (
            f"{note}. It expects {lab.tags.tags[0]} in the completion, but none has it: the chat "
            f"template opens it in the prompt. {advice} this reward."
        )
    return f"{note}, so it teaches nothing here."
