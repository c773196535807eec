"""The environment of alphabet-sort.yaml, for notebook 10: `environment=…/alphabet_sort.py:AlphabetSort`.

The rules are those of primeintellect/alphabet-sort; the names are made here of lists of first and
last names, not taken from authors of papers.
"""

import random
from difflib import SequenceMatcher

_FIRST = (
    "Ada Alan Barbara Claude Donald Edsger Frances Grace Hedy Ida John Katherine Leslie Margaret"
)
_LAST = "Allen Backus Church Dijkstra Engelbart Floyd Goldwasser Hopper Iverson Kay Lovelace Turing"
_NEW = " // new name!"


class AlphabetSort:
    """Keep a list of names in order, by first or by last name, while 1 to 4 more come in each turn.

    From the second turn on, names that are new in the turn are marked. Each turn earns the
    similarity of the list to the correct one to the power of 8; the reward is the mean over three
    turns, one that is not played earning 0.0. The names come from `seed`.
    """

    def reset(self, seed: int, **columns) -> str:
        draw = random.Random(int(seed))
        names = [f"{first} {last}" for first in _FIRST.split() for last in _LAST.split()]
        draw.shuffle(names)
        self._turns = [[names.pop() for _ in range(draw.randint(1, 4))] for _ in range(3)]
        self._by, self._scores = draw.randrange(2), []
        return (
            f"Sort these names by {('first', 'last')[self._by]} name, all of them in one list, a "
            "line for each. More will come; then mark those that were not in your last list with "
            f"'{_NEW.strip()}' after the name.\n" + "\n".join(self._turns[0])
        )

    def sort(self, names: str) -> str:
        """Give the whole list of names in order.

        Args:
            names: The names, a line for each.
        """
        turn = len(self._scores)
        if turn == len(self._turns):
            return "There are no more names."
        given = "\n".join(line.strip() for line in names.strip().splitlines())
        self._scores.append(SequenceMatcher(None, given, self._right(turn)).ratio() ** 8)
        if turn + 1 == len(self._turns):
            return "Thank you."
        return "Add these names:\n" + "\n".join(self._turns[turn + 1])

    def get_reward(self) -> float:
        return sum(self._scores) / len(self._turns)

    def _right(self, turn: int) -> str:
        """The list that earns 1.0 in a turn; a first or last name that is shared is decided by the
        whole name.
        """
        new = self._turns[turn] if turn else []
        given = [name for names in self._turns[: turn + 1] for name in names]
        listed = sorted(given, key=lambda name: (name.split()[self._by], name))
        return "\n".join(name + _NEW * (name in new) for name in listed)
