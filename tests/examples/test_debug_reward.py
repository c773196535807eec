"""A debugged reward gives the same scores, and prints what it received."""

from functools import partial

from trl.trainer.utils import get_callable_name

from examples.debug_reward import debug
from helpers.rewards.correctness import correctness_reward
from helpers.tags import TagFormat


def test_a_debugged_reward_gives_the_same_scores_and_prints_why(capsys):
    fmt = TagFormat("reasoning", "final")
    reward = debug(partial(correctness_reward, tags=fmt), count=2, tags=fmt)
    assert get_callable_name(reward) == "correctness_reward"
    texts = [fmt.render("2 + 2", "4.0"), "4", fmt.render("so", "5")]
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    columns = {"answer": ["4", "4", "4"], "question": ["2 + 2?"] * 3, "trainer_state": object()}
    assert reward(completions=messages, **columns) == [1.0, 0.0, 0.0]
    first, second = capsys.readouterr().out.split("--- ")[1:]
    assert first.startswith("correctness_reward gave 1.0\nit sees list, with the text '<reasoning>")
    assert "column question: '2 + 2?'" in first and "trainer_state" not in first
    assert "judged as number: '4.0' beside '4'" in first and "the same: True" in first
    assert "gave 0.0" in second and "outside the reasoning: []" in second
    assert "judged as" not in second
