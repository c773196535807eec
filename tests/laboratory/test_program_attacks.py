"""Rewards of a user's own that run programs: unsafe ones are a no go, for the right reason, and sound
ones a go. `tests/rewards/test_programs.py` has the attacks on our own.
"""

import contextlib
import re
import subprocess
import sys
import warnings

import pandas as pd
import pytest

from helpers.laboratory import own_attacks
from helpers.laboratory.attack_templates import answer_attack, guess_attacks
from helpers.laboratory.attacks import BATTERY
from helpers.laboratory.measures import Lab
from helpers.laboratory.program_attacks import (
    CODE_BATTERY,
    CODE_NAMES,
    FORMS,
    are_programs,
    with_wrong_programs,
)
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.programs import tests_reward
from helpers.tags import THINK_ANSWER, completion_text

# One row as a user has it: the answer is a bare program, and the question shows the first test.
OWN_ROW = {
    "question": "Write f(n) that returns n + 2. For example, f(0) == 2.",
    "answer": "def f(n):\n    return n + 2",
    "tests": ["assert f(0) == 2", "assert f(3) == 5"],
}


def fenced_answer(text):
    """The fenced program of an answer block, in this form only; else one that fails."""
    found = re.fullmatch(r"<think>[^<]*</think><answer>\s*```python\n([^`]*)```\s*</answer>", text)
    return found[1] if found else "raise ValueError"


def bare_answer(text):
    """The program of an answer block without a fence; else one that fails."""
    found = re.fullmatch(r"<think>[^<]*</think><answer>([^`]*)</answer>", text)
    return found[1] if found else "raise ValueError"


def after_the_last_fence(text):
    """The program as many rewards take it from an answer, which may leave the fence open."""
    return (THINK_ANSWER.extract_answer(text) or "").split("```python")[-1].split("```")[0]


def in_the_last_fence(text):
    """The program as many other rewards take it from a completion, in any language's block."""
    return re.findall(r"```\w*\n(.*?)```", text, re.S)[-1] if text.count("```") > 1 else ""


def in_a_process(program, tests):
    """Unsafe: a program that leaves with 0 passes."""
    command = [sys.executable, "-ISc", "\n".join([program, *tests])]
    return subprocess.run(command, capture_output=True).returncode == 0


def in_our_process(program, tests):
    """Unsafe: its `==` is the program's, and the program could patch the trainer."""
    try:
        exec("\n".join([program, *tests]), {})
    except (Exception, SystemExit):
        return False
    return True


def in_our_process_silently(program, tests):
    """Unsafe: the program could patch the trainer. But values and types are compared."""
    calls = [re.fullmatch(r"assert (.*) == (.*)", test) for test in tests]
    names = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(program, names)
            values = [eval(call[1], names) for call in calls]
    except (Exception, SystemExit):
        return False
    return all(
        type(value) is int and str(value) == call[2]
        for value, call in zip(values, calls, strict=True)
    )


def an_exit_passes(program, tests):
    """Unsafe: what a program raises decides."""
    try:
        exec("\n".join([program, *tests]), {})
    except SystemExit:
        return True
    except Exception:
        return False
    return True


def compared_outside(program, tests):
    return tests_reward([program], [tests], share=False, sandbox="monty") == [1.0]


def the_first_alone(program, tests):
    return compared_outside(program, tests[:1])


LEAVES = "'it leaves with 0' earns 1.00 .* It accepts a program that does not solve the task. Run"
LOOP = ["for n in range(2):\n    assert f(n) == n + 2"]  # `read_tests` refuses it
# how a program is judged and found, where the row's tests are, and the reason against it, if any
JUDGED = {
    "process": (in_a_process, fenced_answer, {}, LEAVES),
    "bare": (in_a_process, bare_answer, {}, LEAVES),
    "other column": (in_a_process, fenced_answer, {"tests": 2, "checks": OWN_ROW["tests"]}, LEAVES),
    "unreadable tests": (in_a_process, fenced_answer, {"tests": LOOP}, LEAVES),
    "exec": (in_our_process, fenced_answer, {}, "^judged_reward runs programs in its own process"),
    "exec, silent": (in_our_process_silently, fenced_answer, {}, "programs in its own process"),
    "exec, equal": (in_our_process, fenced_answer, {}, "'equal to everything' earns 1.00"),
    "exit": (an_exit_passes, fenced_answer, {}, LEAVES),
    "shown": (the_first_alone, fenced_answer, {}, "'the visible tests written down' earns 1.00"),
    "no form": (
        compared_outside,
        lambda text: "",
        {},
        "earns nothing: .* So attacks with programs",
    ),
    "sound": (compared_outside, fenced_answer, {}, None),
    "sound, bare": (compared_outside, bare_answer, {}, None),
    "sound, after a fence": (compared_outside, after_the_last_fence, {}, None),
    "sound, in any fence": (compared_outside, in_the_last_fence, {}, None),
}


@pytest.mark.filterwarnings("ignore:.*cannot run")
@pytest.mark.parametrize("name", JUDGED)
def test_a_users_own_reward_that_runs_programs_is_attacked_with_programs(name, monkeypatch):
    monkeypatch.setattr(own_attacks, "code_of", lambda reward: "")  # not the texts of this file
    judge, program_in, columns, says = JUDGED[name]

    def judged_reward(completions, tests, checks=None, hints=None, **columns):
        programs = [program_in(completion_text(each)) for each in completions]
        pairs = zip(programs, checks or tests, strict=True)
        return [float(judge(program, given)) for program, given in pairs]

    verdict = Lab([judged_reward], [1.0]).examine(pd.DataFrame([OWN_ROW | columns]))
    assert verdict.go is (says is None), verdict
    assert says is None or any(re.search(says, stop) for stop in verdict.stops), verdict
    # right answers earn their point without the other columns that it could read
    assert ("It asks for" in str(verdict)) is (name == "no form")


def test_the_last_right_program_is_no_attack_on_our_reward():
    rows = pd.DataFrame([OWN_ROW | {"question": "Write f(n) that returns n + 2."}])
    assert Lab([tests_reward], [1.0]).examine(rows).go


@pytest.mark.filterwarnings("ignore:.*cannot run")
@pytest.mark.parametrize("answer", [OWN_ROW["answer"], f"So:\n```py\n{OWN_ROW['answer']}\n```\n"])
def test_rewards_receive_the_answer_of_the_data_whatever_form_completions_take(answer):
    answers = set()

    def compared(completions, answer, tests, **columns):
        answers.update(answer)
        programs = [fenced_answer(completion_text(each)) for each in completions]
        return tests_reward(programs, tests, share=False, sandbox="monty")

    Lab([compared], [1.0]).attacks(pd.DataFrame([OWN_ROW | {"answer": answer}]))
    assert answers == {answer}


ASSERTS = ["assert f(3) == 5"]
SCRIPT = [{"stdin": "1", "stdout": "2"}]


@pytest.mark.parametrize(
    ("row", "is_program"),
    [
        (OWN_ROW, True),
        ({"answer": "f = lambda n: n + 2", "tests": ASSERTS}, True),
        ({"answer": "```python\nclass f(int):\n    pass\n```", "checks": ASSERTS}, True),
        ({"answer": "print(int(input()) + 1)", "checks": SCRIPT}, True),
        ({"answer": "class f:\n    pass", "tests": "for n in (1, 2): assert f(n)"}, True),
        ({"question": "What is f(3)?", "answer": "5", "tests": ASSERTS}, False),
        ({"question": "It prints?", "answer": "42", "io": [{"stdin": "", "stdout": "42"}]}, False),
        ({"question": "Name it.", "answer": "5", "partition": "{{1, 2}, {3}}"}, False),
        ({"answer": '["assert f(3) == 5"]', "visible": '["assert f(2) == 4"]'}, False),
        ({"answer": "def g(): pass", "context": "They assert that it holds"}, False),
        ({"answer": "def g(): pass", "checks": "for n in (1, 2): assert f(n)"}, False),
        ({"answer": "Hallo", "examples": [{"call": "x", "value": 1}]}, False),
        ({"answer": "x = 1", "examples": [{"call": "x", "value": 1}]}, False),
        ({"answer": "def f(n:", "tests": ASSERTS}, False),
    ],
)
def test_rows_are_program_tasks_if_the_answer_defines_what_their_tests_call(row, is_program):
    assert are_programs([row]) is is_program
    assert not are_programs([row, {"answer": "5"}])
    if not is_program:
        table = Lab([correctness_reward], [1.0]).attacks(pd.DataFrame([row]))
        assert CODE_NAMES - {*table.index}


def test_no_rows_are_no_program_tasks():
    assert not are_programs([])


def test_attacks_of_your_own_are_tried_on_programs_besides_those_of_the_library():
    def counts_words(completions, **columns):
        return [float("quokka" in completion_text(each)) for each in completions]

    own = [answer_attack("it raises", "quokka"), *guess_attacks("a word", "quokka", "wombat")]
    table = Lab([counts_words], [1.0]).attacks(pd.DataFrame([OWN_ROW]), battery=BATTERY + own)
    assert (table.loc[["it raises", "a word"], "counts_words"] == 1.0).all()
    assert "a number of the question" in {attack.name for attack in BATTERY} - {*table.index}


def runs_with_exec(completions, **columns):
    for completion in completions:
        with contextlib.suppress(Exception):
            exec(fenced_answer(completion_text(completion)), {})
    return [0.0] * len(completions)


@pytest.mark.parametrize("reward", [runs_with_exec, tests_reward, correctness_reward])
def test_a_reward_that_runs_programs_on_rows_that_are_not_recognised_is_noted(reward):
    rows = pd.DataFrame([OWN_ROW, {"question": "And f(3)?", "answer": "5", "tests": ["f(3) is 5"]}])
    lab = Lab([reward], [1.0])
    lab.attacks(rows.tail(1))
    note = f"{reward.__name__} seems to run programs, but no attack with a program was tried."
    assert (note in str(lab.verdict())) is (reward is not correctness_reward)
    lab.attacks(rows.head(1))
    assert note not in str(lab.verdict())


def test_a_reward_that_keeps_programs_from_importing_and_runs_them_itself_is_noted():
    def without_imports(completions, **columns):
        scores = []
        for completion in completions:
            names = {"__builtins__": {}}
            with contextlib.suppress(Exception):
                exec(fenced_answer(completion_text(completion)), names)
            passes = "f" in names and (names["f"](0), names["f"](3)) == (2, 5)
            scores.append(float(passes))
        return scores

    lab = Lab([without_imports], [1.0])
    lab.attacks(pd.DataFrame([OWN_ROW]))
    assert not lab.in_process
    assert "without_imports calls exec" in str(lab.verdict())


def test_a_bare_program_and_the_next_one_are_on_lines_of_their_own():
    (row,) = with_wrong_programs([OWN_ROW], FORMS[1])
    attacks = {attack.name: attack for attack in CODE_BATTERY}
    for name, returned in {"correct, then wrong": None, "wrong, then correct": 5}.items():
        completion = attacks[name].write(row, THINK_ANSWER, 200)
        names = {}
        exec(THINK_ANSWER.extract_answer(completion), names)
        assert names["f"](3) == returned


def test_a_script_that_is_followed_by_a_wrong_one_prints_what_both_print(capsys):
    script = {"question": "n + 1?", "answer": "print(1 + 1)", "tests": SCRIPT}
    (row,) = with_wrong_programs([script], FORMS[1])
    attacks = {attack.name: attack for attack in CODE_BATTERY}
    completion = attacks["correct, then wrong"].write(row, THINK_ANSWER, 200)
    exec(THINK_ANSWER.extract_answer(completion), {})
    assert capsys.readouterr().out == "2\nNone\n"
