"""Every exercise of every notebook: its solution passes its own check, and plausible wrong answers
are refused, each by name.

An exercise is two code cells, tagged `exercise` and `solution`, and a check that the first imports.
`exercises/NN.py` beside this file has, for notebook NN, the wrong answers (`WRONG`), correct ones
in other forms (`RIGHT`), and the names that its cells take over from earlier cells, if they do
(`context`).
"""

import contextlib
import io
import re
import runpy
from functools import cache, partial
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.rewards.correctness import correctness_reward
from helpers.tags import THINK_ANSWER
from notebooks.checks.nb02 import check_best_attack
from notebooks.checks.nb05 import check_pass_at_8
from tools import teach

NUMBERS = [path.name[:2] for path in sorted(teach.NOTEBOOKS.glob("*.ipynb"))][1:]  # 00 has none
SOLUTION = re.compile(r"### BEGIN SOLUTION\n.*?### END SOLUTION\n", re.DOTALL)


@cache
def exercises(number: str) -> dict[str, list]:
    """The exercises of a notebook by name, each with its two cells: exercise, solution."""
    (path,) = teach.NOTEBOOKS.glob(f"{number}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    return {one.name: notebook.cells[one.cell : one.cell + 2] for one in teach.exercises(notebook)}


@cache
def answers(number: str) -> dict:
    """What `exercises/NN.py` defines."""
    return runpy.run_path(str(Path(__file__).parent / "exercises" / f"{number}.py"))


EVERY = [(number, name) for number in NUMBERS for name in exercises(number)]
each_exercise = pytest.mark.parametrize(
    ("number", "name"), EVERY, ids=["-".join(pair) for pair in EVERY]
)


def printed(source: str, names: dict) -> str:
    """Run a cell's source with these names, which it may change; returns what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(source, names)
    return output.getvalue()


@pytest.fixture(scope="module")
def context(executed):
    """For a notebook's number, a fresh dictionary of what its exercises take from earlier cells."""
    made = cache(lambda number: answers(number).get("context", lambda run: {})(executed))
    return lambda number: dict(made(number))


@pytest.fixture
def told(number, name, context):
    """What the exercise's cell prints for an answer, in the place of the correct one."""
    (exercise, solution), names = exercises(number)[name], context(number)
    printed(exercise.source, names)

    def told(answer: str, **given) -> str:
        source = SOLUTION.sub(lambda _: f"{answer}\n", solution.source)
        return printed(source, names | given)

    return told


@pytest.mark.parametrize("number", NUMBERS)
def test_a_notebook_has_two_to_four_exercises(number):
    assert 2 <= len(exercises(number)) <= 4
    assert set(answers(number)["WRONG"]) == set(exercises(number))


@each_exercise
def test_the_solution_is_folded_and_passes_its_check(number, name, context):
    exercise, solution = exercises(number)[name]
    assert solution.metadata["jupyter"] == {"source_hidden": True, "outputs_hidden": True}
    names = context(number)
    assert printed(exercise.source, names).startswith("Not answered yet")
    assert printed(solution.source, names).startswith("Right")


NONSENSE = [
    *("10**400", "float('inf')", "'abc'", "float('nan')"),
    *("[]", "object()", "{}", "lambda *a, **k: None"),
]


@each_exercise
def test_wrong_answers_are_refused_with_the_likely_mistake_and_right_ones_pass(number, name, told):
    wrong, right = answers(number)["WRONG"][name], answers(number).get("RIGHT", {}).get(name, [])
    assert len(wrong) >= 2
    for source, said in wrong:
        whole = re.match(rf"\s*(def {name}\b|{name} =|import |from )", source)
        message = told(source if whole else f"{name} = {source}")
        assert not message.startswith(("Right", "Not answered")), (source, message)
        assert said in message, (source, message)
    for answer in right:
        message = told(f"{name} = {answer if isinstance(answer, str) else 'given'}", given=answer)
        assert message.startswith("Right"), (answer, message)
    for answer in NONSENSE:  # a message, and no traceback
        message = told(f"{name} = {answer}")
        assert message.strip() and not message.startswith("Right"), answer


def test_the_best_attack_is_judged_on_sums_if_the_questions_are_others():
    rows = [{"question": f"Ticket {n}: why?", "answer": "billing"} for n in range(9)]
    rewards = correctness_reward, lambda completions, **columns: [1.0] * len(completions)
    judged = partial(check_best_attack, train=pd.DataFrame(rows), fmt=THINK_ANSWER)
    message = judged("the whole shape three times", *rewards, settings=PRESETS["pocket"])
    earned, honest = map(float, re.findall(r"\d\.\d\d", message))
    assert earned > honest and "(On sums such as" in message


def test_pass_at_8_is_judged_without_a_measured_one():
    evaluation = {"baseline": {"pass_at_k": {"1": {"value": 0.5}, "4": {"value": 0.9}}}}
    message = check_pass_at_8(1 - 0.5**8, evaluation)
    assert message.startswith("Right: 99.6%") and "set `samples` to 8" in message
    assert "nan" not in message
