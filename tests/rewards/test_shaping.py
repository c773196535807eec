"""Rewards made of rewards: the weight that adapts, ensembles, a classifier on real weights."""

import json
import math
import pickle
from functools import partial

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Qwen3ForSequenceClassification,
)

from helpers.presets import PRESETS
from helpers.rewards import (
    AdaptiveReward,
    EnsembleReward,
    ModelReward,
    debug_reward,
    format_reward,
)
from helpers.tags import THINK_ANSWER

pytestmark = pytest.mark.usefixtures("one_thread")

POCKET = PRESETS["pocket"].model_path
GOOD = THINK_ANSWER.render("2 + 2", "4")


def column(completions, scores, **columns):
    """A reward whose scores stand in the data."""
    return scores


# --- The weight that adapts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("success", "scores", "factor"),
    [
        *(
            (0.5, [1.0] * successes + [0.0] * (10 - successes), factor)
            for successes, factor in ((0, 1.2), (2, 1.2), (3, 1.0), (8, 1.0), (9, 0.9), (10, 0.9))
        ),
        (0.6, [0.6, 0.6], 0.9),
        (0.61, [0.6, 0.6], 1.2),
        (0, [0.6, 0.6], 0.9),
        (0.5, [None, None], 1.0),
        (0.5, [], 1.0),
        (0.5, [None, None, None, 1.0], 0.9),
        (0.5, [None, 0.0, 0.0, 1.0, 1.0], 1.0),
        (0.5, [None, 0.0], 1.2),
    ],
)
def test_the_weight_rises_below_30_percent_of_success_and_falls_above_80(success, scores, factor):
    """Success is a score of at least `success`, and None does not count."""
    reward = AdaptiveReward(column, success=success, weight=2.0)
    # this batch still has the weight from before
    assert reward([""] * len(scores), scores=scores) == [score and 2 * score for score in scores]
    assert reward.weight == pytest.approx(2 * factor)


@pytest.mark.parametrize(
    ("options", "scores", "end"),
    [
        ({"bounds": (0.5, 2.0)}, [0.0], 2.0),
        ({"bounds": (0.5, 2.0)}, [1.0], 0.5),
        ({}, [0.0], 4.0),
        ({}, [1.0], 0.25),
    ],
)
def test_the_weight_stays_within_its_bounds(options, scores, end):
    reward = AdaptiveReward(column, **options)
    for _ in range(50):
        reward([""], scores=scores)
    assert reward.weight == end


def test_a_restored_weight_goes_on_where_it_was():
    first, second = AdaptiveReward(column), AdaptiveReward(column)
    assert [first([""], scores=[0.0]) for _ in range(3)] == [[0.0]] * 3
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second([""], scores=[1.0]) == [1.728] and second.weight == pytest.approx(1.5552)


@pytest.mark.parametrize(
    ("weight", "bounds"),
    [
        (1, (2, 0.5)),
        (1, (0, 4)),
        (1, (-1, 4)),
        (1, (1.5, 4)),
        (5, (0.25, 4)),
        (0.1, (0.25, 4)),
        (math.nan, (0.25, 4)),
    ],
)
def test_bounds_that_do_not_hold_the_weight_are_refused(weight, bounds):
    with pytest.raises(ValueError, match=f"weight={weight} and bounds="):
        AdaptiveReward(format_reward, weight=weight, bounds=bounds)


# --- Ensembles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "mean", "minimum", "median", "trimmed"),
    [
        ([0.2], 0.2, 0.2, 0.2, 0.2),
        ([0.2, 1.0], 0.6, 0.2, 0.6, 0.6),
        ([0.0, 0.9, 0.3], 0.4, 0.0, 0.3, 0.3),
        ([1.0, 0.0, 0.5, 0.1], 0.4, 0.0, 0.3, 0.3),
        ([0.5, 0.5, 0.5, 0.5], 0.5, 0.5, 0.5, 0.5),
        ([None, 0.2, 1.0], 0.6, 0.2, 0.6, 0.6),
        ([None, 0.0, 0.9, 0.3], 0.4, 0.0, 0.3, 0.3),
        ([None, None, 0.7], 0.7, 0.7, 0.7, 0.7),
        ([None, None], None, None, None, None),
    ],
)
def test_the_scorers_are_put_together_and_none_abstains(scores, mean, minimum, median, trimmed):
    # the second completion gets another score of each, so that no two rows are put together
    scorers = [partial(column, scores=[score, 0.1]) for score in scores]
    expected = {"mean": mean, "minimum": minimum, "median": median, "trimmed": trimmed}
    for how, score in expected.items():
        wanted = [score if score is None else pytest.approx(score), pytest.approx(0.1)]
        assert EnsembleReward(scorers, how=how)(completions=["", ""]) == wanted
        assert EnsembleReward(scorers[::-1], how=how)(completions=["", ""]) == wanted


def test_an_ensemble_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"'max'.*mean, minimum, median, trimmed"):
        EnsembleReward([format_reward], how="max")


# --- The one to look through ----------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "shown"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_first_completions_are_printed_and_all_earn_1(capsys, samples, shown):
    texts = [GOOD, [{"role": "assistant", "content": "five"}], "\ud800"]
    prompts = [[{"role": "system", "content": "no"}, {"role": "user", "content": "2 \ud800"}]] * 3
    assert debug_reward(texts, prompts, ["4", "5", "6"], samples) == [1.0] * 3
    blocks = [
        f"--- completion {n} of 3, answer {gold!r}\n> 2 ?\n{text}\n"
        for n, gold, text in ((1, "4", GOOD), (2, "5", "five"), (3, "6", "?"))
    ]
    assert capsys.readouterr().out == "".join(blocks[:shown])


# --- A classifier ---------------------------------------------------------------------------------

PROMPTS = [
    [
        {"role": "system", "content": THINK_ANSWER.system_prompt},
        {"role": "user", "content": f"What is {n} + 1?"},
    ]
    for n in range(9)
]
TEXTS = [GOOD, "", "4", "so " * 60, "<think>", GOOD * 5, "I cannot.", "\n" * 20, "7"]


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory) -> dict:
    """Folders with half the pocket model under a random head, by the number of labels."""
    folders = {labels: tmp_path_factory.mktemp("models") / "classifier" for labels in (1, 2, 3)}
    for labels, folder in folders.items():
        config = AutoConfig.from_pretrained(
            POCKET, num_labels=labels, num_hidden_layers=2, layer_types=["full_attention"] * 2
        )
        torch.manual_seed(labels)
        model = Qwen3ForSequenceClassification(config).float()
        torch.nn.init.normal_(model.score.weight, std=0.3)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(POCKET).save_pretrained(folder)
    return folders


@torch.inference_mode()
def logits(folder, prompt: list[dict], completion: str, **options) -> torch.Tensor:
    """What the model says of one conversation alone, so without padding."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [*(message["content"] for message in prompt), completion]
    text = "\n\n".join(filter(None, texts))
    if tokenizer.chat_template:
        messages = [*prompt, {"role": "assistant", "content": completion}]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = tokenizer(text, return_tensors="pt", **options)["input_ids"]
    return (
        AutoModelForSequenceClassification.from_pretrained(folder)(input_ids=ids).logits[0].float()
    )


def close(scores: list[float]):
    return pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "label", "batch_size"), [(1, -1, 2), (2, -1, 32), (2, 0, 1), (2, 1, 2), (3, 1, 32)]
)
def test_each_conversation_scores_what_it_scores_alone(classifiers, labels, label, batch_size):
    folder = classifiers[labels]
    said = list(map(partial(logits, folder), PROMPTS, TEXTS))
    expected = [(x.sigmoid()[0] if labels == 1 else x.softmax(-1)[label]).item() for x in said]
    reward = ModelReward(folder, label=label, batch_size=batch_size)
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]
    assert reward(completions=chats, prompts=PROMPTS, answer=["4"] * 9) == close(expected)
    assert max(expected) - min(expected) > 0.05, "scores that are all alike would show no mix-up"


def test_prompts_may_be_texts_or_missing(classifiers):
    reward, chats = ModelReward(classifiers[1]), [[{"role": "user", "content": "2 + 2?"}]] * 9
    plain = reward(completions=TEXTS, prompts=["2 + 2?"] * 9)
    assert plain == close(reward(completions=TEXTS, prompts=chats))
    missing = reward(completions=TEXTS)
    assert missing != close(plain) and all(0 <= score <= 1 for score in missing)
    assert reward(completions=[]) == []


def with_first_token(tokenizer):
    """Many tokenizers put a first token before every text, and so do their templates."""
    first = "<|im_start|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokenizer.convert_tokens_to_ids(first))]
    )


def without_template(tokenizer):
    tokenizer.chat_template = None


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"pad_token": None}, without_template),  # the texts are joined by blank lines
        ({}, with_first_token),  # which the template's is not to double
        ({"padding_side": "left"}, id),
        ({"padding_side": "right"}, id),
    ],
)
def test_any_tokenizer_will_do(classifiers, tmp_path, options, change):
    tokenizer = AutoTokenizer.from_pretrained(POCKET, **options)
    change(tokenizer)
    AutoModelForSequenceClassification.from_pretrained(classifiers[1]).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    alone = map(partial(logits, tmp_path, add_special_tokens=False), PROMPTS[:4], TEXTS[:4])
    scores = ModelReward(tmp_path)(completions=TEXTS[:4], prompts=PROMPTS[:4])
    assert scores == close([logit.sigmoid().item() for logit in alone])


def test_texts_are_cut_to_max_length(classifiers):
    texts = ["so " * 100 + end for end in ("4", "five and more")]
    cut, whole = (
        ModelReward(classifiers[1], max_length=length)(completions=texts) for length in (50, 1024)
    )
    assert cut[0] == pytest.approx(cut[1], abs=1e-6)
    assert abs(whole[0] - whole[1]) > 1e-5


@pytest.mark.parametrize(
    "hostile",
    [None, [], {}, 3, [None], "\ud800", "a\udfffb", "\x00", "<|endoftext|>" * 9, "9" * 10**5, "٣²"],
)
def test_a_hostile_completion_gets_a_score_and_changes_no_other(classifiers, hostile):
    reward = ModelReward(classifiers[2], max_length=256)
    score, other = reward(completions=[hostile, "4"], prompts=PROMPTS[:2])
    assert 0 <= score <= 1
    assert [other] == close(reward(completions=["4"], prompts=[PROMPTS[1]]))


def test_a_pickled_copy_is_small_and_gives_the_same_scores(classifiers):
    reward = ModelReward(classifiers[2], label=0, batch_size=3, max_length=200)
    scores = reward(completions=TEXTS, prompts=PROMPTS)
    frozen = pickle.dumps(reward)
    assert len(frozen) < 1000, "the weights are not part of it"
    assert pickle.loads(frozen)(completions=TEXTS, prompts=PROMPTS) == scores


def test_a_model_that_cannot_be_a_reward_is_refused_at_the_first_call():
    with pytest.raises(ValueError, match="no sequence-classification model"):
        ModelReward(POCKET)(completions=["4"])
