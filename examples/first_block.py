"""A reward that can be cheated, to see what `check-rewards` finds: it reads the first answer block
alone, so a completion that gives two answers earns the full reward if the first is correct.
"""

from helpers.tags import completion_text


def first_block(completions: list, answer: list[str], **columns) -> list[float]:
    """Return 1.0 for each completion whose first answer block is the expected answer, else 0.0."""
    texts = [completion_text(completion) for completion in completions]
    blocks = [text.partition("<answer>")[2].partition("</answer>")[0] for text in texts]
    return [float(block == expected) for block, expected in zip(blocks, answer, strict=True)]
