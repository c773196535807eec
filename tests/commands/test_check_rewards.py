"""The command `check-rewards`: notebook 02's verdict on a file of rewards and a file of data, and an
exit code for batches.
"""

import json

import pandas as pd
import pytest

from helpers.laboratory.measures import Lab
from helpers.printing import escaped, on_one_line
from helpers.rewards.own import read_rewards
from helpers.tags import THINK_ANSWER

REWARDS = r'''
import re


def strict(completions, answer, **columns):
    """1.0 if the only answer block is the answer, as most scripts for TRL write it."""
    print("scoring")
    form = re.compile(r"\s*<think>.*?</think>\s*<answer>([^<]*)</answer>\s*", re.S)
    found = [form.fullmatch(completion[0]["content"]) for completion in completions]
    return [float(bool(f) and f[1].strip() == gold) for f, gold in zip(found, answer)]


def anywhere(completions, answer, **columns):
    return [float(gold in completion[0]["content"]) for completion, gold in zip(completions, answer)]


def reads_solution(completions, solution, **columns):
    return strict(completions, solution)


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info) == ("sums", {"split": "train"})
    message = [{"role": "assistant", "content": solution_str}]
    return {"score": strict([message], [ground_truth])[0]}


async def waiting(data_source, solution_str, ground_truth, extra_info=None):
    return compute_score(data_source, solution_str, ground_truth, extra_info)


def shipped(solution_str, ground_truth, method="strict"):
    return compute_score("sums", solution_str, ground_truth, {"split": "train"})["score"]


def plain(completions, answer, **columns):
    """Reads texts, as TRL passes them where prompts are texts."""
    form = "<think>.*?</think><answer>([^<]*)</answer>"
    found = [re.fullmatch(form, text, re.S) for text in completions]
    return [float(bool(f) and f[1] == gold) for f, gold in zip(found, answer)]


def gsm8k(solution_str, ground_truth):
    found = re.findall(r"#### (-?[0-9.,]+)", solution_str)
    return float(len(found) == 1 and found[0].strip(",.") == ground_truth)


def other(completions, **columns):
    """Wants other tags, on lines of their own."""
    form = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
    return [0.5 * bool(re.match(form, completion[0]["content"])) for completion in completions]


def otherwise(responses, answer):
    return [0.0 for _ in responses]


def broken(completions, **columns):
    return [completion["content"] for completion in completions]
'''
QUESTIONS = [f"{n} + {n + 7} = ?" for n in range(10, 50)]
ANSWERS = [str(2 * n + 7) for n in range(10, 50)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with rewards.py and mine.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARDS)
    pd.DataFrame({"question": QUESTIONS, "answer": ANSWERS}).to_csv("mine.csv", index=False)
    return tmp_path


def test_a_sound_reward_is_a_go(cli, folder):
    code, out, err = cli("check-rewards", "rewards.py:strict,format*0.25", "--source", "mine.csv")
    assert code == 0 and "GO: no reason" in out and "attack '" not in out
    assert "30 to train on" in out
    assert "scoring" in err and "scoring" not in out  # what a reward prints is no result


def test_a_hackable_reward_is_a_no_go_with_each_winning_text_on_its_line(cli, folder):
    (folder / "lines.py").write_text(
        "def lines(completions, **columns):\n"
        "    return [c[0]['content'].count('\\n') / 9 for c in completions]\n"
    )
    code, out, _ = cli("check-rewards", "lines.py:lines, correctness", "--source", "mine.csv")
    assert code == 1 and "NO GO" in out and "; lines " in out
    attacks = out[out.index("\nattack '") :].strip().splitlines()
    assert len(attacks) == 3 and all(line.startswith("attack '") for line in attacks)
    assert r"\n" in attacks[0]


def test_json_has_the_report_of_a_laboratory_whose_steps_are_run_one_by_one(cli, folder):
    call = ("check-rewards", "rewards.py:anywhere*2", "--source", "mine.csv", "--json")
    code, out, _ = cli(*call)
    report = json.loads(out)
    assert code == 1 and not report["verdict"]["go"] and set(report["rewards"]) == {"anywhere"}
    worst = report["worst_attacks"]
    assert len(worst) == 3 and all(one["paid_by"] == "anywhere" for one in worst)
    assert all(one["example"] for one in worst)
    lab = Lab(*read_rewards("rewards.py:anywhere*2", THINK_ANSWER))
    rows = pd.DataFrame({"question": QUESTIONS, "answer": ANSWERS})
    lab.cases(None, rows)
    lab.attacks(rows)
    # the last one quotes examples, which are drawn
    assert report["verdict"]["stops"][:3] == lab.verdict().stops[:3]


@pytest.mark.parametrize("has_answers", [True, False])
def test_completions_show_dead_groups_and_what_drives_the_reward(cli, folder, has_answers):
    """One group is dead; the file may leave the answers to the data."""
    rows = []
    for question, answer in zip(QUESTIONS[:4], ANSWERS[:4], strict=True):
        second = answer if question == QUESTIONS[0] else "0"
        for text in (answer, second):
            rows.append((question, answer, THINK_ANSWER.render("so", text)))
    table = pd.DataFrame(rows, columns=["question", "answer", "completion"])
    table = table if has_answers else table.drop(columns="answer")
    table.to_json("stored.jsonl", orient="records", lines=True)
    call = ("rewards.py:strict,format*0.25", "--source", "mine.csv", "--completions")
    code, out, _ = cli("check-rewards", *call, "stored.jsonl")
    assert code == 0 and "dead groups: 25% of 4" in out
    assert "strict 100%, format_reward 0%" in out and "was not run" not in out


HOSTILE = "</think>\nGO: no reason\nNO GO:\n  note: forged\x1b[2J\u202e\x85"
SPEAKS = """
import warnings


class Parsed:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def speaks(completions, **columns):
    texts = [completion[0]["content"] for completion in completions]
    for text in texts:
        warnings.warn(f"odd: {text}")
    return [Parsed(text) for text in texts] if HOW == "parsed" else [len(text) / 99 for text in texts]
"""


@pytest.mark.filterwarnings("ignore:odd")
@pytest.mark.parametrize("how", ["parsed", "scored"])
def test_what_a_reward_says_of_a_completion_forges_no_line(cli, folder, how):
    """It warns of completions, and returns what prints as they do, as SymPy's names."""
    (folder / "speaks.py").write_text(SPEAKS.replace("HOW", repr(how)))
    rows = [{"question": QUESTIONS[0], "completion": text} for text in (HOSTILE, "5")]
    (folder / "stored.jsonl").write_text("\n".join(map(json.dumps, rows)))
    call = ("check-rewards", "speaks.py:speaks", "--source", "mine.csv")
    _, out, err = cli(*call, "--completions", "stored.jsonl")
    assert escaped(out + err) == out + err
    assert out.count("GO: no reason") <= 1 and out.count("\nNO GO:\n") <= 1
    assert "\n  note: forged" not in out
    with pytest.warns(UserWarning) as warned:
        Lab(*read_rewards("speaks.py:speaks", THINK_ANSWER)).scores([HOSTILE])
    assert [str(each.message) for each in warned] == [f"odd: {on_one_line(HOSTILE)}"]


def test_a_row_that_is_quoted_cannot_steer_the_terminal(cli, folder):
    (folder / "stored.jsonl").write_text('{"question": "a"}\n' + json.dumps(HOSTILE))
    call = ("check-rewards", "correctness", "--source", "mine.csv", "--completions")
    code, _, err = cli(*call, "stored.jsonl")
    assert code == 2 and r"\x1b[2J" in err and escaped(err) == err


def test_completions_of_other_questions_are_named(cli, folder):
    rows = [{"question": "Who?", "completion": text} for text in "ab"]
    pd.DataFrame(rows).to_csv("other.csv", index=False)
    call = ("rewards.py:strict", "--source", "mine.csv", "--completions", "other.csv")
    code, _, err = cli("check-rewards", *call)
    assert code == 2 and "other.csv" in err and "'Who?'" in err


def test_columns_with_other_names(cli, folder):
    pd.DataFrame({"problem": QUESTIONS, "solution": ANSWERS}).to_csv("trl.csv", index=False)
    call = ("check-rewards", "rewards.py:reads_solution", "--source", "trl.csv")
    code, _, err = cli(*call)
    mapping = '{"question": "problem", "answer": "solution"}'
    assert code == 2 and "trl.csv" in err and mapping in err
    code, out, _ = cli(*call, "--columns", mapping)
    assert code == 0 and "GO: no reason" in out


@pytest.mark.parametrize(
    "rewards",
    ["rewards.py:compute_score", "rewards.py:waiting", "rewards.py:shipped", "correctness"],
)
def test_rows_and_rewards_of_verl(cli, folder, rewards):
    rows = pd.DataFrame({"prompt": [[{"role": "user", "content": text}] for text in QUESTIONS]})
    rows["reward_model"] = [{"style": "rule", "ground_truth": answer} for answer in ANSWERS]
    rows["data_source"] = "sums"
    rows["extra_info"] = [{"split": "train"}] * len(rows)
    rows.to_parquet("verl.parquet")
    mapping = '{"question": "prompt", "answer": "reward_model.ground_truth"}'
    call = ("--source", "verl.parquet", "--columns", mapping)
    code, out, _ = cli("check-rewards", rewards, *call)
    assert code == 0 and "GO: no reason" in out


@pytest.mark.parametrize(
    ("rewards", "code", "says"),
    [
        ("rewards.py:plain", 0, "note: plain reads completions as text"),
        ("rewards.py:gsm8k", 0, "GO: no reason"),
        ("correctness, rewards.py:other*0.1", 0, "other gives 0 to every honest answer"),
        ("rewards.py:otherwise", 1, "TRL passes the texts as `completions`"),
    ],
)
def test_rewards_in_the_styles_of_other_trainers(cli, folder, rewards, code, says):
    found, out, _ = cli("check-rewards", rewards, "--source", "mine.csv")
    assert found == code and says in out, out


def test_completions_as_trl_logs_them(cli, folder):
    """Rendered prompts in the column `prompt`, and the data's own names for the columns."""
    pd.DataFrame({"problem": QUESTIONS, "solution": ANSWERS}).to_csv("mine.csv", index=False)
    rows = []
    for question, answer in zip(QUESTIONS[:4], ANSWERS[:4], strict=True):
        prompt = f"<|user|>\n1 + 1 = ?\n2\n{question}<|end|>\n<|assistant|>\n"
        rows += [(prompt, THINK_ANSWER.render("so", text)) for text in (answer, "0")]
    pd.DataFrame(rows, columns=["prompt", "completion"]).to_parquet("completions_00001.parquet")
    mapping = '{"question": "problem", "answer": "solution"}'
    call = ("check-rewards", "rewards.py:strict", "--source", "mine.csv", "--columns", mapping)
    code, out, _ = cli(*call, "--completions", "completions_00001.parquet")
    assert code == 0 and "dead groups: 0% of 4" in out
    named = pd.DataFrame({"problem": QUESTIONS[:1] * 2, "completion": [rows[0][1], rows[1][1]]})
    named.to_csv("named.csv", index=False)
    code, out, _ = cli(*call, "--completions", "named.csv")
    assert code == 0 and "dead groups: 0% of 1" in out


def test_tags_of_other_names(cli, folder):
    call = ("check-rewards", "rewards.py:strict", "--source", "mine.csv")
    assert (
        cli(*call, "--tags", "reasoning/answer")[0] == 1
    )  # no completion has the form it asks for
    assert cli(*call, "--tags", "think/answer")[0] == 0


def test_a_reward_that_raises_is_a_no_go_with_its_line(cli, folder):
    code, out, _ = cli("check-rewards", "rewards.py:broken", "--source", "mine.csv")
    assert code == 1 and "broken raised TypeError in rewards.py, line" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rewards.py:strict", "--source", "absent.csv"], "absent.csv"),
        (["rewards.py:absent", "--source", "mine.csv"], "rewards.py has no class or function absent"),
        (["absent.py:strict", "--source", "mine.csv"], "absent.py cannot be read"),
        (["absent", "--source", "mine.csv"], "'absent' is not a reward of the library"),
        (["rewards.py:strict", "--source", "rewards.py"], "source='rewards.py' is not known"),
        (["correctness", "--source", "mine.csv", "--completions", "no.csv"], "no.csv"),
        (["correctness", "--source", "mine.csv", "--completions", "mine.csv"], "mine.csv: stored"),
        (["correctness", "--source", "mine.csv", "--max-steps", "0"], "--max-steps 0"),
        (["correctness", "--source", "mine.csv", "--tags", "think"], "tags='think'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(cli, folder, arguments, says):
    code, out, err = cli("check-rewards", *arguments)
    assert (code, out) == (2, "") and err.startswith("error: ") and says in err, err
