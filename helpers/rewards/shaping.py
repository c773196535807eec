"""What all rewards share, and a reward to look through.

A reward that changes while training says so with `state_dict` and `load_state_dict`;
`training.reward_guard` saves that with every checkpoint.
"""

from collections.abc import Callable

from helpers.tags import completion_text


def reward_name(reward: Callable | str) -> str:
    """The name TRL logs a reward under: its function's, inside any functools.partial, or the last
    part of a model's.

    >>> from functools import partial
    >>> reward_name(partial(debug_reward, samples=1)), reward_name("my-org/my-classifier")
    ('debug_reward', 'my-classifier')
    """
    reward = _unwrapped(reward)
    config = getattr(reward, "config", None)
    path = reward if isinstance(reward, str) else getattr(config, "_name_or_path", None)
    return path.split("/")[-1] if path else getattr(reward, "__name__", type(reward).__name__)


def stateful(reward: object) -> object | None:
    """What in a reward, inside any functools.partial, keeps a state over a training; None where
    nothing does.

    A model keeps none that a checkpoint should hold: its weights stay as they are.
    """
    reward = _unwrapped(reward)
    is_model = hasattr(reward, "named_parameters")
    return reward if hasattr(reward, "load_state_dict") and not is_model else None


def _unwrapped(reward: object) -> object:
    """What is inside any functools.partial."""
    while hasattr(reward, "func"):
        reward = reward.func
    return reward


def debug_reward(
    completions: list,
    prompts: list | None = None,
    answer: list | None = None,
    samples: int = 2,
    **columns,
) -> list[float]:
    """1.0 for every completion, and the first `samples` of them printed with their prompt and
    answer.

    To look at what a reward is handed: add it to the list with weight 0. Scores that are all the
    same teach nothing.

    >>> debug_reward(["<answer>4</answer>", "4"], answer=["4", "4"], samples=1)
    --- completion 1 of 2, answer '4'
    <answer>4</answer>
    [1.0, 1.0]
    """
    for position, completion in enumerate(completions[:samples]):
        told = "" if answer is None else f", answer {answer[position]!r}"
        print(f"--- completion {position + 1} of {len(completions)}{told}")
        if prompts is not None:
            prompt = prompts[position]
            question = prompt[-1]["content"] if isinstance(prompt, list) else prompt
            print(printable(f"> {question}"))
        print(printable(completion_text(completion)))
    return [1.0] * len(completions)


def printable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer, no file and no terminal takes."""
    return text.encode(errors="replace").decode()
