"""Built-in arithmetic: questions with a difficulty and a worked solution, without file or network.

A sum is worked out in one of two ways. The **careful** one writes every column out and carries. The
**careless** one adds tens and units and forgets the carry, so it is correct only if there is none.
(Pupils often make this error: J. S. Brown and R. R. Burton, Diagnostic models for procedural bugs
in basic mathematical skills, Cognitive Science 2, 1978.) The pocket model knows both ways, and
mostly uses the careless one, which is shorter. Rows carry the careful working.
"""

import hashlib
import random
from collections.abc import Callable

# --- Two ways to work -----------------------------------------------------------------------------


def careful(numbers: list[int], operators: list[str]) -> tuple[str, int]:
    """Return the working with every column written out, and its result, which is always correct.

    numbers: each from 1 to 99. There are two or more to add, or two to subtract.
    operators: "+" or "-" between the numbers, one fewer than there are numbers.

    >>> careful([46, 75, 28], ["+", "+"])
    ('46 + 75: 6 + 5 = 11, 4 + 7 + 1 = 12, 121, 121 + 28: 1 + 8 = 9, 12 + 2 = 14, 149', 149)
    >>> careful([17, 52], ["-"])
    ('52 - 17: 12 - 7 = 5, 5 - 1 - 1 = 3, -35', -35)
    """
    return _step_by_step(numbers, operators, _in_columns)


def careless(numbers: list[int], operators: list[str]) -> tuple[str, int]:
    """Return the working without carry or borrow, and its result, which is wrong if one was needed.

    For the arguments, see `careful`.

    >>> careless([46, 75, 28], ["+", "+"])
    ('46 + 75 = 111, 111 + 28 = 139', 139)
    >>> careless([17, 52], ["-"])
    ('17 - 52 = -45', -45)
    """
    return _step_by_step(numbers, operators, _without_carry)


def is_careful(text: str) -> bool:
    """Return whether a completion writes columns out, as `careful` does: only then it has a colon.

    >>> is_careful("<think>6 + 34: 6 + 4 = 10, 0 + 3 + 1 = 4, 40</think><answer>40</answer>")
    True
    """
    return ":" in text


def carries(numbers: list[int], operators: list[str]) -> int:
    """Return how many steps carry or borrow in the units. `careless` is wrong if there are any.

    >>> carries([46, 75, 28], ["+", "+"]), carries([52, 17], ["-"])
    (1, 1)
    """
    count = 0
    value = numbers[0]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "+":
            count += value % 10 + number % 10 >= 10
            value += number
        else:
            low, high = sorted((value, number))
            count += high % 10 < low % 10
            value -= number
    return count


def _step_by_step(
    numbers: list[int], operators: list[str], step: Callable[[int, str, int], tuple[str, int]]
) -> tuple[str, int]:
    """Return the working from left to right, and its result. `step` works out one operator."""
    lines = []
    value = numbers[0]
    for operator, number in zip(operators, numbers[1:], strict=True):
        line, value = step(value, operator, number)
        lines.append(line)
    return ", ".join(lines), value


def _in_columns(a: int, operator: str, b: int) -> tuple[str, int]:
    if operator == "+":
        units = a % 10 + b % 10
        carry = units // 10
        tens = a // 10 + b // 10 + carry
        columns = f"{a % 10} + {b % 10} = {units}, {a // 10} + {b // 10}{' + 1' * carry} = {tens}"
        return f"{a} + {b}: {columns}, {a + b}", a + b
    high = max(a, b)
    low = min(a, b)
    borrow = int(high % 10 < low % 10)
    units = high % 10 + 10 * borrow - low % 10
    tens = high // 10 - low // 10 - borrow
    columns = (
        f"{high % 10 + 10 * borrow} - {low % 10} = {units}, {high // 10} - "
        f"{low // 10}{' - 1' * borrow} = {tens}"
    )
    return f"{high} - {low}: {columns}, {a - b}", a - b


def _without_carry(a: int, operator: str, b: int) -> tuple[str, int]:
    if operator == "+":
        result = (a // 10 + b // 10) * 10 + (a + b) % 10
    else:
        # in each column, the smaller digit is subtracted from the larger
        size = abs(a // 10 - b // 10) * 10 + abs(a % 10 - b % 10)
        result = size if a >= b else -size
    return f"{a} {operator} {b} = {result}", result


# --- Families -------------------------------------------------------------------------------------
# Each family draws the numbers of a problem and the operators between them.


def _sums(rng: random.Random) -> tuple[list[int], list[str]]:
    count = rng.choice((2, 3, 3))
    return [rng.randrange(1, 100) for _ in range(count)], ["+"] * (count - 1)


def _pairs(rng: random.Random) -> tuple[list[int], list[str]]:
    return [rng.randrange(10, 100), rng.randrange(10, 100)], ["+"]


def _differences(rng: random.Random) -> tuple[list[int], list[str]]:
    return [rng.randrange(1, 100), rng.randrange(1, 100)], ["-"]


FAMILIES: dict[str, Callable] = {"sums": _sums, "pairs": _pairs, "differences": _differences}


def problem(family: str, numbers: list[int], operators: list[str]) -> dict:
    """Return a problem of a family as a row of a source.

    difficulty: the number of operators, plus the number of steps that carry or borrow.
    split: "holdout" for a tenth of all problems, by a hash of the numbers in any order: `12 + 34`
        and `34 + 12` are on one side, for every seed. The pocket model was not trained on this
        tenth either.

    >>> row = problem("pairs", [46, 75], ["+"])
    >>> row["question"], row["answer"], row["difficulty"]
    ('What is 46 + 75?', '121', 2)
    """
    expression = str(numbers[0]) + "".join(
        f" {op} {number}" for op, number in zip(operators, numbers[1:], strict=True)
    )
    working, answer = careful(numbers, operators)
    key = f"{sorted(numbers)}{sorted(operators)}".encode()
    return {
        "question": f"What is {expression}?",
        "answer": str(answer),
        "family": family,
        "difficulty": len(operators) + carries(numbers, operators),
        "working": working,
        "split": "holdout" if hashlib.sha256(key).digest()[0] < 26 else "train",
    }
