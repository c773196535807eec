"""Environments for tests: a healthy one, and functions that make variants with one fault."""

import time


class Healthy:
    """Repeats each word it is given."""

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
    """Return a subclass of the healthy environment, or of another, with these members."""
    return type(name, (base,), members)


def doing(does) -> type:
    """Return the healthy environment with `does` in place of its tool."""

    def say(self, word: str) -> str:
        return does(self, word)

    say.__doc__ = Healthy.say.__doc__
    return made("Doing", say=say)


def raising(error: BaseException):
    """Return a function that raises this error."""

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
