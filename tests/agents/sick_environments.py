"""Environments with one thing wrong each, and a healthy one of the same size."""

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


class OtherColumns(Healthy):
    def reset(self, puzzle: str, **columns):
        return None


class NoOtherColumns(Healthy):
    def reset(self, seed: int):
        return None


class NoReset:
    say = Healthy.say


class NoTool:
    reset = Healthy.reset


class NoDocstring:
    reset = Healthy.reset

    def say(self, word: str) -> str:
        return word


class Closing(Healthy):
    def close(self) -> str:
        """Close the connection."""
        return "closed"


class Tidying(Healthy):
    def tidy(self) -> None:
        """Throw what was said away."""


class NeedsArguments(Healthy):
    def __init__(self, host: str, port: int = 80):
        self._host = host


def doing(does) -> type:
    """A healthy environment whose tool does this instead."""

    class Doing(Healthy):
        def say(self, word: str) -> str:
            """Say a word.

            Args:
                word: The word.
            """
            return does(self, word)

    return Doing


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


def broken_reset(error: BaseException) -> type:
    return type("BrokenReset", (Healthy,), {"reset": raising(error)})


def saying(text) -> type:
    """A healthy environment that begins with this."""

    class Saying(Healthy):
        def reset(self, seed: int, **columns):
            super().reset(seed)
            return text

    return Saying


def rewarding(value) -> type:
    """A healthy environment with this reward."""
    return type("Rewarding", (Healthy,), {"get_reward": lambda self: value})
