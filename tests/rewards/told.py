"""A reward whose scores a test writes down."""

from helpers.tags import completion_text


def told(name: str, position: int):
    """A reward that reads its score off the completion: the number at this position, None
    for a dash.
    """

    def reward(completions, **columns):
        said = [completion_text(completion).split()[position] for completion in completions]
        return [None if word == "-" else float(word) for word in said]

    reward.__name__ = name
    return reward
