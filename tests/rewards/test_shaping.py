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
    reward_name,
)
from helpers.tags import THINK_ANSWER

pytestmark = pytest.mark.usefixtures("one_thread")

POCKET = PRESETS["pocket"].model_path
GOOD, BAD = THINK_ANSWER.render("2 + 2", "4"), "4"


def column(completions, scores, **columns):
    """A reward whose scores stand in the data."""
    return scores


def other_column(completions, others, **columns):
    return others


# --- The weight that adapts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "factor"),
    [(0, 1.2), (1, 1.2), (2, 1.2), (3, 1.0), (5, 1.0), (8, 1.0), (9, 0.9), (10, 0.9)],
)
def test_the_weight_rises_below_30_percent_and_falls_above_80(successes, factor):
    reward = AdaptiveReward(format_reward, weight=2.0)
    batch = [GOOD] * successes + [BAD] * (10 - successes)
    # this batch still has the weight from before
    assert reward(batch) == [2.0] * successes + [0.0] * (10 - successes)
    assert reward.weight == pytest.approx(2.0 * factor)
    assert reward([GOOD]) == [pytest.approx(2.0 * factor)]


@pytest.mark.parametrize(("success", "factor"), [(0.6, 0.9), (0.61, 1.2), (0, 0.9)])
def test_success_is_a_score_of_at_least_that(success, factor):
    reward = AdaptiveReward(column, success=success)
    assert reward([""] * 2, scores=[0.6, 0.6]) == [0.6, 0.6]
    assert reward.weight == pytest.approx(factor)


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


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        ([None, None], 1.0),
        ([], 1.0),
        ([None, None, None, 1.0], 0.9),
        ([None, 0.0, 0.0, 1.0, 1.0], 1.0),
        ([None, 0.0], 1.2),
    ],
)
def test_rows_that_cannot_be_judged_do_not_count(scores, factor):
    reward = AdaptiveReward(column)
    assert reward([""] * len(scores), scores=scores) == scores
    assert reward.weight == pytest.approx(factor)


def test_a_restored_weight_goes_on_where_it_was():
    first = AdaptiveReward(column)
    assert [first([""], scores=[0.0]) for _ in range(3)] == [[0.0]] * 3
    # also from a checkpoint of before, which holds no counts
    for state in (json.loads(json.dumps(first.state_dict())), {"weight": first.weight}):
        second = AdaptiveReward(column)
        second.load_state_dict(state)
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
    scorers = [partial(_fixed, score=score) for score in scores]
    expected = {"mean": mean, "minimum": minimum, "median": median, "trimmed": trimmed}
    for how, score in expected.items():
        wanted = None if score is None else pytest.approx(score)
        assert EnsembleReward(scorers, how=how)(completions=["", ""]) == [wanted] * 2
        assert EnsembleReward(scorers[::-1], how=how)(completions=[""]) == [wanted]


def _fixed(completions, score, **columns):
    return [score] * len(completions)


def test_each_row_is_put_together_for_itself():
    both = EnsembleReward([column, other_column], how="minimum")
    scores, others = [1.0, 0.5, None, None], [0.2, 0.9, 0.3, None]
    assert both(completions=[""] * 4, scores=scores, others=others) == [0.2, 0.5, 0.3, None]
    with pytest.raises(ValueError):  # the longer is not cut to the shorter
        both(completions=[""] * 4, scores=scores, others=[1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "max"}, "'max'.*mean, minimum, median, trimmed"),
        ({"how": None}, "None"),
        ({}, "at least one"),
    ],
)
def test_an_ensemble_that_is_none_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EnsembleReward([format_reward] if options else [], **options)


# --- The one to look through ----------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "shown"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_first_completions_are_printed_and_all_earn_1(capsys, samples, shown):
    texts = [GOOD, [{"role": "assistant", "content": "five"}], "six"]
    assert debug_reward(texts, answer=["4", "5", "6"], samples=samples) == [1.0] * 3
    blocks = [
        f"--- completion {n} of 3, answer {gold!r}\n{text}\n"
        for n, gold, text in ((1, "4", GOOD), (2, "5", "five"), (3, "6", "six"))
    ]
    assert capsys.readouterr().out == "".join(blocks[:shown])


@pytest.mark.parametrize(
    "prompt",
    ["2 \ud800?", [{"role": "system", "content": "no"}, {"role": "user", "content": "2 \ud800?"}]],
)
@pytest.mark.parametrize("completion", ["4", "\ud800", None, 3], ids=repr)
def test_the_prompt_is_printed_and_what_cannot_be_encoded_is_replaced(capsys, prompt, completion):
    assert debug_reward([completion], prompts=[prompt]) == [1.0]
    shown = {"4": "4", "\ud800": "?"}.get(completion, "")
    assert capsys.readouterr().out == f"--- completion 1 of 1\n> 2 ??\n{shown}\n"


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
def logits(folder, text: str, **options) -> torch.Tensor:
    """What the model says of one text alone, so without padding."""
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", **options)["input_ids"]
    return (
        AutoModelForSequenceClassification.from_pretrained(folder)(input_ids=ids).logits[0].float()
    )


def templated(folder, prompt: list[dict], completion: str) -> str:
    messages = [*prompt, {"role": "assistant", "content": completion}]
    return AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)


def chat(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def close(scores: list[float]):
    return pytest.approx(scores, abs=1e-5)


@pytest.fixture
def variant(classifiers, tmp_path):
    """Save the one-label classifier with another tokenizer: variant(tokenizer) gives the folder."""

    def save(tokenizer):
        AutoModelForSequenceClassification.from_pretrained(classifiers[1]).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.mark.parametrize(
    ("labels", "label", "batch_size"), [(1, -1, 2), (2, -1, 32), (2, 0, 1), (2, 1, 2), (3, 1, 32)]
)
def test_each_conversation_scores_what_it_scores_alone(classifiers, labels, label, batch_size):
    folder = classifiers[labels]
    said = [
        logits(folder, templated(folder, prompt, text))
        for prompt, text in zip(PROMPTS, TEXTS, strict=True)
    ]
    expected = [(x.sigmoid()[0] if labels == 1 else x.softmax(-1)[label]).item() for x in said]
    reward = ModelReward(folder, label=label, batch_size=batch_size)
    chats = [chat(text) for text in TEXTS]
    assert reward(completions=chats, prompts=PROMPTS, answer=["4"] * 9) == close(expected)
    assert max(expected) - min(expected) > 0.05, "scores that are all alike would show no mix-up"


def test_prompts_may_be_texts_or_missing(classifiers):
    reward, chats = ModelReward(classifiers[1]), [[{"role": "user", "content": "2 + 2?"}]] * 9
    plain = reward(completions=TEXTS, prompts=["2 + 2?"] * 9)
    assert plain == close(reward(completions=TEXTS, prompts=chats))
    missing = reward(completions=TEXTS)
    assert missing != close(plain) and all(0 <= score <= 1 for score in missing)
    assert reward(completions=[], prompts=[]) == reward(completions=[]) == []


def test_without_a_chat_template_the_texts_are_joined_by_blank_lines(variant):
    tokenizer = AutoTokenizer.from_pretrained(POCKET)
    tokenizer.chat_template = None
    folder = variant(tokenizer)
    expected = [
        logits(folder, "\n\n".join([*(m["content"] for m in PROMPTS[0]), text])).sigmoid().item()
        for text in ("4", "so 5")
    ]
    assert ModelReward(folder)(completions=["4", chat("so 5")], prompts=[PROMPTS[0]] * 2) == close(
        expected
    )


def test_special_tokens_that_the_template_writes_are_not_doubled(variant):
    # As TRL scores with a model: many tokenizers put a first token before every text, and so do
    # their templates.
    tokenizer = AutoTokenizer.from_pretrained(POCKET)
    first = "<|im_start|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, tokenizer.convert_tokens_to_ids(first))]
    )
    folder = variant(tokenizer)
    once, twice = (
        logits(folder, templated(folder, PROMPTS[0], "4"), add_special_tokens=added)
        for added in (False, True)
    )
    assert once.item() != pytest.approx(twice.item(), abs=1e-3), "a second one would not show"
    assert ModelReward(folder)(completions=["4"], prompts=PROMPTS[:1]) == close(
        [once.sigmoid().item()]
    )


@pytest.mark.parametrize(
    "setting", [{"pad_token": None}, {"padding_side": "left"}, {"padding_side": "right"}], ids=str
)
def test_padding_does_not_matter_however_the_tokenizer_pads(variant, setting):
    folder = variant(AutoTokenizer.from_pretrained(POCKET, **setting))
    scores = ModelReward(folder)(completions=TEXTS, prompts=PROMPTS)
    assert scores == close(ModelReward(folder, batch_size=1)(completions=TEXTS, prompts=PROMPTS))


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
    reward = ModelReward(classifiers[2], label=0, batch_size=3, max_length=200, name="politeness")
    scores = reward(completions=TEXTS, prompts=PROMPTS)
    frozen = pickle.dumps(reward)
    assert len(frozen) < 1000, "the weights are not part of it"
    copied = pickle.loads(frozen)
    assert copied(completions=TEXTS, prompts=PROMPTS) == scores
    assert reward_name(copied) == "politeness"


def test_a_model_that_cannot_be_a_reward_is_refused_at_the_first_call(tmp_path):
    with pytest.raises((OSError, ValueError), match=r"empty|model_type|config"):
        ModelReward(tmp_path)(completions=["4"])
    with pytest.raises(ValueError, match="no sequence-classification model"):
        ModelReward(POCKET)(completions=["4"])


def test_a_loaded_model_is_named_as_trl_names_it(classifiers):
    model = AutoModelForSequenceClassification.from_pretrained(classifiers[1])
    assert reward_name(model) == "classifier"
