"""Environments with one thing wrong each, made from a healthy one of the same size."""

import time


class Healthy:
    """Says back what it is given."""

    def reset(self, seed: int, **columns):
        self._said = []
        return f"Say {seed}."

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self._said.append(word)
        return word

    def get_reward(self) -> float:
        return float(bool(self._said))


def made(name: str, base: type = Healthy, **members) -> type:
    """A healthy environment, or another, with other methods."""
    return type(name, (base,), members)


def doing(does) -> type:
    """A healthy environment whose tool does this instead."""

    def say(self, word: str) -> str:
        return does(self, word)

    say.__doc__ = Healthy.say.__doc__
    return made("Doing", say=say)


def raising(error: BaseException):
    """What raises this."""

    def does(*ignored, **columns):
        raise error

    return does


def sleeping(*ignored):
    time.sleep(3600)


def spinning(*ignored):
    while True:
        try:
            sum(range(100))
        except Exception:
            continue
