"""The model card: metadata that the hub accepts, nothing that is not known, and how such a model
is made again.
"""

import re
import shutil

import pytest
from finished import change, finished_run
from huggingface_hub import ModelCard

from helpers.results import card, report
from helpers.runs import Run

# what the hub's own check demands of a data set's type
HUB_ID = re.compile(r"^(?:[\w-]+/)?[\w.-]+$")


def written(run: Run) -> ModelCard:
    return ModelCard(card.write(run).read_text(encoding="utf-8"))


# --- Metadata -------------------------------------------------------------------------------------


def test_the_metadata_is_what_the_hub_reads(run):
    data = written(run).data
    found = data.to_dict()
    results = found.pop("model-index")
    # the pocket model and generated sums are not on the hub
    assert found == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "apache-2.0",
        "tags": ["grpo", "trl", "unsloth", "lora"],
        "metrics": ["accuracy"],
    }
    assert data.model_name == results[0]["name"] == "told"
    sampled, greedy = data.eval_results
    assert (sampled.task_type, sampled.metric_type) == ("text-generation", "accuracy")
    assert (sampled.dataset_type, sampled.metric_value) == ("arithmetic/sums", 0.9531)
    assert sampled.metric_args == {"ci95": [0.9312, 0.9683], "questions": 512}
    assert (sampled.metric_name, greedy.metric_name) == ("accuracy, sampled", "accuracy, greedy")


def test_a_model_that_was_not_measured_claims_no_accuracy(run):
    change(run, "evaluation.json", lambda evaluation: evaluation.pop("merged"))
    assert not {"model-index", "metrics"} & written(run).data.to_dict().keys()


@pytest.mark.parametrize(
    ("recorded", "known"),
    [
        ({"model": "unsloth/Qwen3-4B"}, {"base_model": "unsloth/Qwen3-4B"}),
        ({"model": "/models/Qwen3-4B"}, {}),
        ({"model": "pocket"}, {"license": "apache-2.0"}),
        (
            {"model": "a/b", "source": "openai/gsm8k"},
            {"base_model": "a/b", "datasets": ["openai/gsm8k"]},
        ),
        (
            {"model": "a/b", "source": "openai/gsm8k:main"},
            {"base_model": "a/b", "datasets": ["openai/gsm8k"]},
        ),
        ({"model": "a/b", "source": "reasoning-gym/leg_counting"}, {"base_model": "a/b"}),
        ({"model": "a/b", "source": "data/my sums.csv"}, {"base_model": "a/b"}),
        ({"model": "a/b", "source": "data/sums.csv"}, {"base_model": "a/b"}),
        ({"model": "a/b", "source": "C:\\data\\sums.csv"}, {"base_model": "a/b"}),
    ],
)
def test_only_what_is_known_is_claimed(machine, recorded, known):
    data = written(finished_run(**recorded)).data
    names = ("base_model", "datasets", "license")
    assert {name: getattr(data, name) for name in names if getattr(data, name)} == known
    assert all(HUB_ID.match(result.dataset_type) for result in data.eval_results)
    assert HUB_ID.match(data.base_model or "none")


# --- The text -------------------------------------------------------------------------------------


def test_the_card_tells_data_rewards_settings_evaluation_and_merge(run):
    text = written(run).text
    for part in (
        "- Training raised sampled accuracy on 512 held-out questions from 32.6 % (28.7 to 36.8) "
        "to 95.7 % (93.6 to 97.1): 326",
        "LoRA adapter of rank 16 on 4-bit weights, trained for 32 steps and merged.",
        '{"role": "system", "content": \'Think step by step inside <think> and </think>.',
        "| fingerprint | 39d12b00ee4c3ef50872 |",
        "| dropped | 3 (empty answer) |",
        "| `correctness_reward` | 1 |\n| `format_reward` | 0.5 |",
        "The laboratory, before training: **go**.",
        "| `learning_rate` | 0.001 |",
        "The reference of the KL is the base model",
        "| merged: the merged model, read from disk | 95.3 % (93.1 to 96.8) | 95.3 % (93.1 to "
        "96.8) | 50.0 % | 512 |",
        "The merged model (float32), read from disk, does 100.0 % of what the adapter does to the "
        "logits of its base.",
        "| trl | 1.15.0 |",
        "`39d12b00ee4c3ef5`",
    ):
        assert part in text, part


def test_what_is_not_so_is_not_said(machine):
    run = finished_run(backend="transformers", beta=0.0)
    card = written(run)
    assert card.data.tags == ["grpo", "trl", "lora"] and "reference of the KL" not in card.text


def test_the_quantisation_that_it_was_trained_on_and_the_original_it_was_merged_into_are_told(run):
    base = {
        "name": "unsloth/Qwen3-4B-unsloth-bnb-4bit",
        "original": "unsloth/Qwen3-4B",
        "revision": "0123456789abcdef",
        "quantised": "before",
        "layers": 252,
        "layers_in_4_bits": 240,
        "fingerprint": "12ab",
    }
    said = (
        "The model that the adapter was trained on: unsloth/Qwen3-4B-unsloth-bnb-4bit (revision "
        "0123456789ab), stored in 4 bits: 240 of 252 linear layers, fingerprint 12ab."
    )
    into = "It was merged into the original weights, those of unsloth/Qwen3-4B."
    for way in ("original", "dequantised"):
        change(run, "manifest.json", lambda m: m["training"].update(base=base))
        change(run, "manifest.json", lambda m, way=way: m["merge"].update(into=way))
        text = written(run).text.replace("\\", "")
        assert said in text and (into in text) == (way == "original")


def test_the_figures_that_it_shows_lie_beside_it_and_no_other_is_shown(run):
    assert "04_training_metrics draws them" in written(run).text
    assert not (run.folder / "merged/figures").exists()
    for name in ("reward", "kl", "something_else"):
        run.path(f"figures/{name}.png").write_bytes(name.encode())
    text = written(run).text
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert shown == ["figures/reward.png", "figures/kl.png"] and "draws them" not in text
    assert [(run.folder / "merged" / path).read_bytes() for path in shown] == [b"reward", b"kl"]
    assert len(list((run.folder / "merged/figures").iterdir())) == 2


def test_a_name_that_is_markdown_stays_a_name(run):
    name = "<b>a|b</b> *c* `d`\n# e"
    change(run, "manifest.json", lambda m: m["training"].update(rewards=[name, "format_reward"]))
    text = written(run).text
    assert r"| \<b\>a\|b\</b\> \*c\* \`d\` \# e | 1 |" in text


def test_no_path_of_a_machine_is_told(machine):
    run = finished_run(source="/home/beatrix/my sums.csv", model="/home/beatrix/models/Qwen3-4B")
    change(run, "evaluation.json", lambda e: e["baseline"]["other"].update(source="/home/b.csv"))
    text, page = (made.write(run).read_text(encoding="utf-8") for made in (card, report))
    assert "beatrix" not in text + page and "/home" not in text + page and "b.csv" in page
    assert "my sums.csv is a file of the author's" in text


def test_a_training_or_a_merge_that_is_not_there_is_named(run):
    change(run, "manifest.json", lambda manifest: manifest.pop("training"))
    with pytest.raises(FileNotFoundError, match="Run notebook 03_grpo_training first"):
        card.write(run)
    shutil.rmtree(run.folder / "merged")
    with pytest.raises(FileNotFoundError, match="Run notebook 05_merge_and_inference first"):
        card.write(run)


# --- How to reproduce -----------------------------------------------------------------------------


def test_what_a_command_cannot_bring_back_is_said(run):
    git = {"revision": "a" * 40, "dirty": True}
    change(run, "manifest.json", lambda m: m["training"].update(seed=7, git=git))
    text = written(run).text
    assert f"git checkout {'a' * 40}\n" in text and "changes that were not committed" in text
    assert "python -m helpers run --run told --preset pocket -p seed=7\n" in text
    assert "prepared with seed 3407" in text
