"""A reward whose scores a test writes down, and answers that a policy under pressure writes."""

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


HOSTILE_ANSWERS = [
    "9" * 10**6,
    "9**9**9**9",
    "9^{9^{9^{9}}}",
    "1e999999999",
    "9" * 50 + "/" + "0" * 40,
    "1" + ",000" * 5000,
    "10000000!",
    "{" * 10_000 + "}" * 10_000,
    r"\frac{" * 10_000,
    r"\boxed{" * 10_000 + "4" + "}" * 10_000,
    "$" * 10_000,
    "((((9!)!)!)!)!",
    r"\binom{10^8}{10^7}",
    r"\sum_{n=1}^{10^9} n^n",
    "(x+1)^{9999999}",
    "__import__('os').abort()",
    "exit()",
    "\ud800",
    "\x00",
    " " * 10**6 + "$" * 10,
    "٣",
    "4²",
    "\ud800\udfff",
    "[" * 10_000,
    "[٣]",
    "[" + "9" * 5000 + ", 1e999, -1e999]",
    "```json\n" * 6_000,
    "```" + " " * 9_000,
    "```python\n" + "(" * 5_000 + "\n```",
    "</think>" * 1000,
    "<answer>" * 10_000,
    "</answer><answer>" * 5_000,
    "or " * 10_000,
]
