"""The model card: its conclusions, its metadata for the hub, and its text."""

import ast
import re
import shlex
import shutil
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from finished import change, compared, entry, finished_run, proportion
from huggingface_hub import ModelCard

from helpers.commands import compare
from helpers.commands.checks import check_call
from helpers.data.prompts import example_turns
from helpers.metrics.signals import Finding
from helpers.parameters import read_parameters
from helpers.results import card
from helpers.results.card import read_facts, verdict
from helpers.results.facts import Facts, portable
from helpers.results.tables import summary
from helpers.runs import PIPELINE, Run
from helpers.settling import settings_in, settle


def written(run: Run) -> ModelCard:
    return ModelCard(card.write(run).read_text(encoding="utf-8"))


# --- The facts ------------------------------------------------------------------------------------


NOTHING = {name: {} for name in ("manifest", "data", "rewards", "outdated")}
PAIR = {"baseline": entry(167), "trained": entry(490)}
COMPARED = {"sampled": compared()}


def sentences(evaluation=PAIR, comparison=COMPARED, findings=(), **more) -> list[str]:
    known = {"name": "told", "evaluation": evaluation, "comparison": comparison}
    return verdict(Facts(**(NOTHING | known | {"findings": list(findings)} | more)))


@pytest.mark.parametrize(
    ("after", "comparison", "said"),
    [
        (
            490,
            compared(),
            "Training raised sampled accuracy on 512 held-out questions from 32.6% (28.7 to 36.8) "
            "to 95.7% (93.6 to 97.1): 326 questions won, 3 lost (exact McNemar p < 1e-15).",
        ),
        (100, compared(3, 70, p=0.004), "Training lowered sampled accuracy"),
        (180, compared(1, 0, p=1.0), ": 1 question won, 0 lost (exact McNemar p = 1)"),
        (180, compared(20, 7, p=0.05), "cannot be distinguished from chance. It went from 32.6%"),
        (180, compared(20, 7, p=0.049), "Training raised"),
        (None, compared(), "Whether training helped is not known"),
        (490, None, "Whether training helped is not known"),
    ],
)
def test_the_result_is_stated_with_its_certainty(after, comparison, said):
    evaluation = {"baseline": entry(167)} | ({"trained": entry(after)} if after else {})
    (found,) = sentences(evaluation, {"sampled": comparison} if comparison else {})
    assert said in found


def finding(severity: str, what: str = "The KL is high.") -> Finding:
    return Finding(severity, "kl", what, "0.6 at steps 1 to 9", "Lower the learning rate.")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"findings": [finding("info")]}, []),
        ({"findings": [finding("critical"), finding("warning", "Else.")]}, ["The KL is high"]),
        ({"outdated": {"merged": "why"}}, ["is from an earlier training"]),
        ({"evaluation": PAIR | {"merged": entry(480)}}, []),
        ({"evaluation": PAIR | {"merged": entry(400)}}, ["is less accurate: 78.1%"]),
    ],
)
def test_the_worst_finding_and_merge_problems_follow_the_result(facts, said):
    found = sentences(**facts)[1:]
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"cases": ["/tmp/a b.jsonl"]}, {"cases": ["a b.jsonl"]}),
        ({"source": "C:\\data\\a.csv"}, {"source": "a.csv"}),
        ({"source": "C:/data/a.csv", "seed": 7}, {"source": "a.csv", "seed": 7}),
        ({"model": "unsloth/Qwen3-4B"}, {"model": "unsloth/Qwen3-4B"}),
        ({"system_prompt": "/no_think Answer."}, {"system_prompt": "/no_think Answer."}),
    ],
)
def test_paths_are_reduced_to_file_names(value, told):
    assert portable(value) == told


# --- Metadata -------------------------------------------------------------------------------------


def test_the_hub_can_read_the_metadata(run):
    data = written(run).data
    # the pocket model and generated sums are not on the hub
    assert data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "apache-2.0",
        "tags": ["grpo", "trl", "lora", "unsloth"],
    }


@pytest.mark.parametrize(
    ("recorded", "known"),
    [
        ({"model": "unsloth/Qwen3-4B"}, {"base_model": "unsloth/Qwen3-4B"}),
        ({"model": "/models/Qwen3-4B"}, {}),
        ({"model": "pocket"}, {"license": "apache-2.0"}),
        (
            {"model": "a/b", "source": "openai/gsm8k:main"},
            {"base_model": "a/b", "datasets": ["openai/gsm8k"]},
        ),
        ({"model": "a/b", "source": "reasoning-gym/leg_counting"}, {"base_model": "a/b"}),
        ({"model": "a/b", "source": "data/my sums.csv"}, {"base_model": "a/b"}),
        ({"model": "a/b", "source": "C:\\data\\sums.csv"}, {"base_model": "a/b"}),
    ],
)
def test_unknown_metadata_is_left_out(machine, recorded, known):
    data = written(finished_run(**recorded)).data
    names = ("base_model", "datasets", "license")
    assert {name: getattr(data, name) for name in names if getattr(data, name)} == known


# --- The text -------------------------------------------------------------------------------------


def test_the_card_has_all_sections_in_order(run):
    git = {"revision": "a" * 40, "dirty": True}
    own = "rewards/mine.py:brevity*0.5"
    change(run, "manifest.json", lambda m: m["training"].update(git=git, own_rewards=own))
    text = written(run).text
    for part in (
        "LoRA adapter of rank 16 on 4-bit weights, trained for 32 steps and merged.",
        "- Training raised sampled accuracy on 512 held-out questions from 32.6% (28.7 to 36.8) "
        "to 95.7% (93.6 to 97.1): 326",
        '{"role": "system", "content": \'Think step by step inside <think> and </think>.',
        "| dropped | 3 (empty answer) |",
        "| fingerprint | 39d12b00ee4c3ef50872 |",
        "| `correctness_reward` | 1 |\n| `format_reward` | 0.5 |",
        "The laboratory, before training: **go**.",
        "| `learning_rate` | 0.001 |",
        "The reference of the KL is the base model",
        "The run has no figures: notebook 04_training_metrics draws them.",
        "| merged: the merged model, read from disk | 95.3% (93.1 to 96.8) | 95.3% (93.1 to "
        "96.8) | 50.0% | 512 |",
        "The merged model (float32), read from disk, does 100.0% of what the adapter does to the "
        "logits of its base.",
        f"git checkout {'a' * 40}\n",
        "python -m helpers run --run told --preset pocket -p seed=3407 "
        "-p 'rewards=runs/told/rewards/mine.py:brevity*0.5'\n",
        "Notebook 03 was not started by `python -m helpers run`",
        "The files of the rewards are kept in the run's folder.",
        "`39d12b00ee4c3ef5`",
        "changes that were not committed",
        "| trl | 1.15.0 |",
    ):
        assert part in text, part
        text = text[text.index(part) :]  # so the parts must be in this order


def printed(run: Run) -> list[list[str]]:
    """The words behind `python -m helpers` of each command under "How to reproduce"."""
    (block,) = re.findall(r"helpers install\n(.*?)````", written(run).text, re.DOTALL)
    commands = block.split("python -m helpers ")[1:]
    return [shlex.split(command) for command in commands]


OWN = {
    "source": "my tickets.csv",
    "columns": '{"question": "message", "answer": "what\'s right"}',
    "system_prompt": "It's $HOME:\nanswer in `tags`.",
    "tags": "reasoning/answer",
    "rewards": "mine.py:brevity*0.5,correctness",
    "learning_rate": "3e-4",
    "stop": '["</answer>", "8"]',
    "sampling_seconds": "null",
    "merge": "dequantised",
}


def test_the_printed_command_gives_every_notebook_what_it_had(
    cli, executions, machine, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("my tickets.csv").write_text("message,what's right\n1 + 1,2\n2 + 2,4\n")
    Path("mine.py").write_text("def brevity(completions, **columns):\n    return [1.0]\n")
    typed = [word for name, text in OWN.items() for word in ("-p", f"{name}={text}")]
    executions.outcomes["05"] = False  # it writes the card, before the command has recorded its end
    assert cli("run", "--run", "told", "--preset", "pocket", *typed)[0] == 1
    first = dict(executions)
    prepared = settle("pocket", **settings_in(first["01"]))
    trained = asdict(settle(prepared, **settings_in(first["03"])))
    run = finished_run(**asdict(prepared))
    change(run, "manifest.json", lambda m: m["training"].update(settings=trained))
    change(run, "manifest.json", lambda m: m["data"].update(tags="reasoning/answer"))

    executions.clear()
    executions.outcomes.clear()
    (words,) = printed(run)
    assert str(tmp_path) not in " ".join(words)
    assert cli(*words)[0] == 0, "nothing of it is refused"
    for number, values in executions:
        with_seed = first[number] | {name: 3407 for name in ("seed",) if name in values}
        assert values == with_seed


def test_without_a_command_the_recorded_settings_become_one(machine):
    run = finished_run(train_size=64, stop=["</answer>"])
    changes = {"beta": 0.0, "learning_rate": 5e-4}
    change(run, "manifest.json", lambda m: m["training"]["settings"].update(changes))
    change(run, "manifest.json", lambda m: m["data"].update(tags="reasoning/answer"))
    (words,) = printed(run)
    given = read_parameters([value for word, value in pairwise(words) if word == "-p"])
    check_call("another", [*PIPELINE], given)
    assert given.pop("tags") == "reasoning/answer" and given.pop("seed") == 3407
    assert asdict(settle("pocket", **given)) == run.section("training")["settings"]


def test_notebooks_with_different_values_get_a_command_each(machine):
    """03 was trained again with another seed and limit, and with its own list of rewards."""
    run = finished_run()
    longer = {"max_completion_length": 99}
    change(run, "manifest.json", lambda m: m["training"].update(seed=7))
    change(run, "manifest.json", lambda m: m["training"]["settings"].update(longer))
    run.record("call", given={"01": {}, "02": {"groups": 8}, "03": longer | {"seed": 7}})
    assert [" ".join(words) for words in printed(run)] == [
        "run --run told --only 01 -p max_completion_length=72 --preset pocket -p seed=3407",
        "run --run told --only 02 -p groups=8",
        "run --run told --only 03 -p seed=7 -p max_completion_length=99",
    ]
    # a lesson takes what its own command gave it
    change(run, "manifest.json", lambda m: m["training"].update(notebook="00"))
    run.record("call", given={"00": {"question": "What is 1 + 2?", "max_steps": 3}})
    ((*words, question, _, steps),) = printed(run)
    assert " ".join(words) == "run --run told --only 00 --preset pocket -p seed=7 -p"
    assert (question, steps) == ("question=What is 1 + 2?", "max_steps=3")


@pytest.mark.parametrize("text", ["true", "null", "None", "NaN", ".5", "...", "truer", "8"])
def test_a_text_that_reads_as_another_value_is_typed_back_as_this_text(machine, text):
    run = finished_run()
    run.record("call", given={"01": {"system_prompt": text}, "02": {}, "04": {}, "05": {}})
    (words,) = printed(run)
    given = read_parameters([value for word, value in pairwise(words) if word == "-p"])
    assert given["system_prompt"] == text


def test_a_call_that_failed_leaves_the_command_of_the_training_as_it_was(machine):
    run = finished_run()
    run.record("call", given={"01": {"tags": "a/b"}, "03": {"rewards": "of_a_failed_call"}})
    change(run, "manifest.json", lambda m: m["data"].update(notebook="01", given=None))
    change(
        run,
        "manifest.json",
        lambda m: m["training"].update(notebook="03", given={"control": "random"}),
    )
    ((*words,),) = printed(run)
    command = " ".join(words)
    assert command.endswith("-p seed=3407 -p control=random") and "tags" not in command


def test_statements_that_do_not_apply_are_left_out(machine):
    run = finished_run(backend="transformers", beta=0.0)
    card = written(run)
    assert card.data.tags == ["grpo", "trl", "lora"] and "reference of the KL" not in card.text


def test_the_card_names_the_quantised_base_and_the_base_of_the_merge(run):
    base = {
        "name": "unsloth/Qwen3-4B-unsloth-bnb-4bit",
        "original": "unsloth/Qwen3-4B",
        "revision": "0123456789abcdef",
        "quantised": "before",
    }
    said = (
        "The model that the adapter was trained on: unsloth/Qwen3-4B-unsloth-bnb-4bit (revision "
        "0123456789ab), stored in 4 bits."
    )
    into = "It was merged into the original weights, those of unsloth/Qwen3-4B."
    for way in ("original", "dequantised"):
        change(run, "manifest.json", lambda m: m["training"].update(base=base))
        change(run, "manifest.json", lambda m, way=way: m["merge"].update(into=way))
        text = written(run).text.replace("\\", "")
        assert said in text and (into in text) == (way == "original")


def test_only_known_figures_are_copied_and_shown(run):
    for name in ("reward", "kl", "something_else"):
        run.path(f"figures/{name}.png").write_bytes(name.encode())
    text = written(run).text
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert shown == ["figures/reward.png", "figures/kl.png"] and "draws them" not in text
    assert [(run.folder / "merged" / path).read_bytes() for path in shown] == [b"reward", b"kl"]
    assert len(list((run.folder / "merged/figures").iterdir())) == 2


def test_the_card_contains_no_local_path(machine):
    run = finished_run(source="/home/beatrix/my sums.csv", model="/home/beatrix/models/Qwen3-4B")
    text = card.write(run).read_text(encoding="utf-8")
    assert "beatrix" not in text and "/home" not in text
    assert "my sums.csv" in text


def test_missing_and_outdated_parts_are_named(run):
    later = "2100-01-01T00:00+00:00"
    change(run, "manifest.json", lambda m: m["training"].update(written=later))
    text = written(run).text
    assert "not known" in text and "earlier training" in text
    assert "95.3%" not in text, "it belongs to another model"
    change(run, "manifest.json", lambda manifest: manifest.pop("training"))
    with pytest.raises(FileNotFoundError, match="03_grpo_training"):
        read_facts(run)
    shutil.rmtree(run.folder / "merged")
    with pytest.raises(FileNotFoundError, match="05_merge_and_inference"):
        card.write(run)


def test_addresses_do_not_become_links_and_the_thinking_option_is_passed_on(machine):
    run = finished_run(thinking=False)
    note = "HTTPS://evil.example/a and www.evil.example pay"
    change(run, "reward_report.json", lambda report: report["verdict"].update(stops=[note]))
    text = written(run).text
    assert "HTTPS<!-- -->://evil.example/a and www<!-- -->.evil.example pay" in text
    assert "tokenizer_encode_kwargs={'enable_thinking': False}" in text


def test_the_card_asks_with_the_worked_examples_of_training(run):
    examples = example_turns([{"question": "/ or *?", "completion": '"/"\n<answer>/</answer>'}])
    change(run, "data_report.json", lambda report: report.update(few_shot=examples))
    text = written(run).text
    assert "the system prompt and the worked examples it was trained with" in text
    (line,) = re.findall(r"^messages = (.*)$", text, re.MULTILINE)
    asked = ast.literal_eval(line)
    assert asked[0]["role"] == "system" and asked[1:3] == examples
    assert asked[3:] == [{"role": "user", "content": "your question"}]


def test_greedy_only_results_are_labelled_greedy(run, cli):
    """Notebook 00 leaves such a run."""
    scores = {name: proportion(correct) for name, correct in (("baseline", 100), ("trained", 400))}
    scores = {
        name: one | {"in_format": 1.0, "temperature": 0.0, "greedy": one}
        for name, one in scores.items()
    }
    run.record_evaluation(run.section("training"), scores, {"greedy": compared()})
    text = written(run).text
    assert re.search("raised greedy accuracy .*512 .*19.5%", text)
    assert "| – | 78.1% (74.3 to 81.5) |" in text
    assert "78.1% (74.3% to 81.5%), greedy" in compare.outcomes([run]).to_string()
    assert [line.split()[1] for line in summary(run.evaluation)[1:]] == ["16.3%", "74.3%"]


def test_a_control_is_named_before_its_numbers():
    manifest = {"training": {"control": "random"}}
    said = sentences(manifest=manifest)
    assert "control" in said[0] and "coin" in said[0]
