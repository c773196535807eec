"""Number guessing over several turns. The best strategy is known, so the regret of each guess can
be computed.
"""

import random
import re
from collections.abc import Iterator

from helpers.agents.protocol import ToolError


class Guessing:
    """Find a number from 1 to `span`. The reply to a guess says if the number is higher or lower.

    Halving the remaining range finds the number within floor(log2(span)) + 1 guesses (7 for a span
    of 100), and no strategy can promise fewer. This earns 1.0. Each further guess costs 0.1, down
    to 0.4. A number that is not found within twice as many guesses earns 0.1, and no guess at all
    0.0. The number is drawn from `seed`.
    """

    def __init__(self, span: int = 100):
        self._span = span
        self._enough = span.bit_length()
        self._number = 0  # until `reset` draws one
        self._guesses = []

    def reset(self, seed: int, **columns) -> str:
        """Draw a number, and return the question about it."""
        self._number = random.Random(int(seed)).randint(1, self._span)
        self._guesses = []
        return (
            f"I am thinking of a number from 1 to {self._span}. Find it with as few guesses as "
            "you can."
        )

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        if self._number in self._guesses or len(self._guesses) >= 2 * self._enough:
            raise ToolError("The game is over.")
        self._guesses.append(number)
        if number == self._number:
            return f"Yes, it is {number}."
        left = 2 * self._enough - len(self._guesses)
        where = "Higher" if number < self._number else "Lower"
        return f"{where} than {number}." if left else f"{where}. No guesses are left."

    def get_reward(self) -> float:
        """Return what the guesses have earned; the docstring of the class says how much."""
        if self._number not in self._guesses:
            return 0.1 if self._guesses else 0.0
        return max(0.4, round(1.0 - 0.1 * max(0, len(self._guesses) - self._enough), 1))

    @staticmethod
    def _oracle(question: str) -> Iterator:
        """Play the best strategy: guess the middle of the remaining range."""
        low, high = map(int, re.search(r"from (\d+) to (\d+)", question).groups())
        reply = ""
        while "Yes" not in reply and low <= high:
            middle = (low + high) // 2
            reply = yield "guess", {"number": middle}
            if "Higher" in reply:
                low = middle + 1
            else:
                high = middle - 1

    def _regret(self) -> float:
        """Return the number of guesses that were wasted; 0.0 for halving.

        A guess wastes the difference between two expected numbers of guesses: with this guess and
        the best play after it, and with the best guess. The expectation is over all remaining
        numbers, so that luck plays no part. The underscore keeps this method from being a tool.
        """
        wasted = 0.0
        for guess, low, high in self._ranges():
            count = high - low + 1
            if low <= guess <= high:
                after = _total_guesses(guess - low) + _total_guesses(high - guess)
                wasted += 1 + (after - _total_guesses(count)) / count
            else:
                wasted += 1
        return wasted

    def _places(self) -> list[float | None]:
        """Return each guess's place in the remaining range: 0.0 is the smallest number, 1.0 the
        largest, and None a number outside the range. Guesses at fewer than eight numbers are left
        out, because nearly all of their places are in the middle.
        """
        return [
            (guess - low) / (high - low) if low <= guess <= high else None
            for guess, low, high in self._ranges()
            if high - low >= 7
        ]

    def _ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield each guess with the smallest and the largest number of the remaining range."""
        low = 1
        high = self._span
        for guess in self._guesses:
            yield guess, low, high
            if guess < self._number:
                low = max(low, guess + 1)
            elif guess > self._number:
                high = min(high, guess - 1)


def _total_guesses(count: int) -> int:
    """Return the sum, over all of `count` numbers, of the guesses that halving takes to find them
    (the depths in a balanced tree).

    The tree has d = count.bit_length() levels. A full level k has 2**(k - 1) numbers, and each of
    them takes k guesses. Levels 1 to d - 1 are full: they have 2**(d - 1) - 1 numbers, which take
    (d - 2) * 2**(d - 1) + 1 guesses in all. The last level has the other count - 2**(d - 1) + 1
    numbers, which take d guesses each. The sum is (count + 1) * d - 2**d + 1.

    >>> [_total_guesses(count) for count in (0, 1, 3)]
    [0, 1, 5]
    """
    levels = count.bit_length()
    return (count + 1) * levels - 2**levels + 1
