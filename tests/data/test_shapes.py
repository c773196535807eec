r"""Data in the shapes that people have: read right if there is one right reading, and otherwise
refused by the name of the shape. The reports behind them are of TRL, verl, Open-R1 and ms-swift.
"""

import json

import pytest

from helpers.data import tasks
from helpers.data.shapes import answer_in, question_in, with_options
from helpers.data.tasks import load_task

ASKED = "What is 1 + 5?\nThink."
USER = {"role": "user", "content": ASKED}


@pytest.fixture
def load(tmp_path):
    """load_task on a JSONL file of 8 rows, each as `make` makes it from its number."""

    def load_rows(make, **arguments) -> tasks.Task:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(make(n)) + "\n" for n in range(8)), encoding="utf-8")
        return load_task(str(path), **{"holdout_size": 2} | arguments)

    return load_rows


# --- Questions ------------------------------------------------------------------------------------

TEMPLATED = [
    "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe good.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "<|system|>\nBe good.<|end|>\n<|user|>\n{}<|end|>\n<|assistant|>\n",
    "<|user|>\n{}</s>\n<|assistant|>\n",
    "<｜begin▁of▁sentence｜><｜User｜>{}<｜Assistant｜><think>\n",
    "<|start|>system<|message|>Be good.<|end|><|start|>user<|message|>{}<|end|><|start|>assistant",
    "<bos><|turn>user\n{}<turn|>\n<|turn>model\n",
    "<s>[INST] {} [/INST]",
    "<s>[INST] <<SYS>>\nBe good.\n<</SYS>>\n\n{} [/INST]",
    "Below is an instruction.\n\n### Instruction:\n{}\n\n### Response:\n",
]


@pytest.mark.parametrize(
    ("value", "question", "place"),
    [
        *((text.format(ASKED), ASKED, "a chat template") for text in TEMPLATED),
        (
            "### Instruction:\nAdd.\n\n### Input:\n1\n\n### Response:",
            "Add.\n\n1",
            "a chat template",
        ),
        ([{"role": "system", "content": "Be good."}, USER], ASKED, "chat messages"),
        (json.dumps([USER]), ASKED, "chat messages"),
        (str([USER]), ASKED, "chat messages"),
        ([{"role": "user", "content": [{"type": "text", "text": ASKED}]}], ASKED, "chat messages"),
        (
            [{"from": "human", "value": ASKED}, {"from": "gpt", "value": "6"}],
            ASKED,
            "chat messages",
        ),
        (
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, USER],
            ASKED,
            "chat messages, the last user's",
        ),
        # neither of these
        *((text, text, "") for text in ("[1, 2] + [3]?", '[{"a": 1}]', "f <|> g", "User: who?", 5)),
        (None, None, ""),
        ([], [], ""),
    ],
)
def test_a_question_is_found_in_messages_and_templates(value, question, place):
    assert question_in(value) == (question, place)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("What is 1 + 5?<|endoftext|>", r"question has <\|endoftext\|>, a mark of a chat template"),
        ("A talk. User: 1 + 5? Assistant: <think>", "question has Assistant:, a mark of a chat"),
        ("USER: 1 + 5? ASSISTANT:", "question has ASSISTANT:, a mark of a chat template"),
        ([{"role": "assistant", "content": "6"}], "question is a list of messages, none of"),
    ],
)
def test_what_holds_no_question_is_named(value, reason):
    with pytest.raises(ValueError, match=reason):
        question_in(value)


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "answer", "place"),
    [
        ("He pays 1,234. #### 1,234", "1234", "####"),
        ("#### -1,234,567.50", "-1234567.50", "####"),
        ("a #### 1\nb ####  2 ", "2", "####"),
        ("#### 12,34", "12,34", "####"),
        ("#### 1,234 or 5,678", "1,234 or 5,678", "####"),
        ("1,234", "1,234", ""),
        ("### 5", "### 5", ""),
        (r"We add. The answer is $\boxed{6}$.", "6", r"\boxed{}"),
        (
            r"So \boxed{\frac{1}{\sqrt{2}}}, as \fbox{\frac{1}{\sqrt{2}}}.",
            r"\frac{1}{\sqrt{2}}",
            r"\boxed{}",
        ),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right.", r"\boxed{}"),
        (r"It is \boxed 5", "5", r"\boxed{}"),
        (r"\boxed{1,234}", "1234", r"\boxed{}"),
        ("<think>1 + 5</think>\n<answer> 6 </answer>", "6", "answer tags"),
        (r"<answer>so \boxed{6}</answer>", "6", r"\boxed{}"),
        ("We add.\n#### 6\nThe answer is: 6", "6", "the last sentence"),
        ("1 + 5 = 6. The final answer is 6.", "6", "the last sentence"),
        ("We subtract.\n\n**Answer:** -6", "-6", "the last sentence"),
        ({"ground_truth": "6", "style": "rule"}, "6", "the field ground_truth"),
        ({"ground_truth": {"target": ["Paris"]}}, "Paris", "a list of one"),
        (str({"ground_truth": "6"}), "6", "the field ground_truth"),
        (["6", " 6"], "6", "a list of one"),
        # the answer itself
        *((value, value, "") for value in ("[1, 2]", '{"item": 3}', "The answer is", 6, None)),
        (["6", "six"], ["6", "six"], ""),
    ],
)
def test_an_answer_is_found_in_worked_solutions_and_fields(value, answer, place):
    assert answer_in(value) == (answer, place)


@pytest.mark.parametrize(
    "value", [r"(a) \boxed{1} (b) \boxed{2}", "<answer>1</answer><answer>2</answer>", "so ####"]
)
def test_several_results_and_none_are_refused(value):
    with pytest.raises(ValueError, match="there is not one answer in"):
        answer_in(value)


# --- Options --------------------------------------------------------------------------------------

SHOWN = "Which?\nA. 4\nB. 2\nC. 1"


@pytest.mark.parametrize(
    ("options", "answer", "letter"),
    [
        (["4", "2", "1"], 2, "C"),  # MMLU: a number counts from 0
        (["4", "2", "1"], "2", "B"),
        (["4", "2", "1"], "b", "B"),
        (["4", "2", "1"], "(C)", "C"),
        (["A) 4", "B) 2", "C) 1"], "B", "B"),  # AQuA
        ({"A": "4", "B": "2", "C": "1"}, "B", "B"),
        ({"label": ["1", "2", "3"], "text": ["4", "2", "1"]}, "2", "B"),  # ARC: a label first
    ],
)
def test_options_are_shown_below_the_question_and_the_answer_is_a_letter(options, answer, letter):
    assert with_options("Which?", options, answer) == (SHOWN, letter)
    assert with_options(SHOWN, options, answer) == (SHOWN, letter), "they are not shown twice"


# --- Files ----------------------------------------------------------------------------------------


def verl(n: int) -> dict:
    return {
        "prompt": [{"role": "user", "content": f"{n} + 1?"}],
        "reward_model": {"ground_truth": str(n + 1), "style": "rule"},
    }


@pytest.mark.parametrize(
    ("make", "columns", "question", "answer"),
    [
        (verl, {"question": "prompt", "answer": "reward_model"}, "3 + 1?", "4"),
        (verl, {"question": "prompt", "answer": "reward_model.ground_truth"}, "3 + 1?", "4"),
        (verl, {"question": "prompt.0.content", "answer": "reward_model"}, "3 + 1?", "4"),
        (
            lambda n: {"instruction": "Add.", "input": f"{n} + 1", "output": n + 1},
            {"question": "instruction", "answer": "output"},
            "Add.\n\n3 + 1",
            "4",
        ),
        (
            lambda n: {"instruction": f"{n} + 1?", "input": "", "output": n + 1},
            {"question": "instruction", "answer": "output"},
            "3 + 1?",
            "4",
        ),
        (
            lambda n: {"context": f"n is {n}.", "question": "n + 1?", "answer": n + 1},
            {"question": ["context", "question"]},
            "n is 3.\n\nn + 1?",
            "4",
        ),
        (
            lambda n: {"question": f"{n} + 1?", "choices": ["0", str(n + 1)], "answer": 1},
            None,
            "3 + 1?\nA. 0\nB. 4",
            "B",
        ),
        (
            lambda n: {"q": f"{n} + 1?", "A": "0", "B": n + 1, "answer": "B"},
            '{"question": "q", "options": ["A", "B"]}',  # as papermill passes it
            "3 + 1?\nA. 0\nB. 4",
            "B",
        ),
    ],
)
def test_rows_are_read_as_they_are_meant(load, make, columns, question, answer):
    task = load(make, columns=columns)
    rows = [*task.train.to_dict("records"), *task.holdout.to_dict("records")]
    assert len(rows) == 8 and task.report["dropped"] == {}
    (row,) = (row for row in rows if row["question"] == question)
    assert row["answer"] == answer and row.get("kind") == (
        "choice" if "\nA. " in question else None
    )


def test_where_questions_and_answers_were_found_is_said(load):
    task = load(verl, columns={"question": "prompt", "answer": "reward_model"})
    assert task.line.endswith(
        "\nnote: questions and answers were found in: 8 × chat messages, 8 × the field ground_truth"
    )
    prose = load(lambda n: {"question": f"{n}?", "answer": "we add " * 20 + str(n)})
    assert "note: most answers have more than 30 words" in prose.line


# --- Advice ---------------------------------------------------------------------------------------


def plain(n: int, **columns) -> dict:
    return {"question": f"{n} + 1?", "answer": str(n + 1)} | columns


@pytest.mark.parametrize(
    ("cause", "make", "arguments"),
    [
        (None, plain, {"train_size": 20}),
        (None, lambda n: plain(n, answer="" if n == 0 else "1"), {"train_size": 20}),
        ("prompt over", plain, {"count_tokens": len, "max_prompt_tokens": 0}),
        ("answer over", plain, {"count_tokens": len, "max_completion_tokens": 9}),
        ("two answers", lambda n: plain(n, question="Add."), {}),
        ("duplicate question", lambda n: plain(0), {}),
        ("answer is a list", lambda n: plain(n, answer=["1", "2"]), {}),
        ("answer is a dict", lambda n: plain(n, answer={"value": 1, "aliases": [2]}), {}),
        ("question is a", lambda n: plain(n, question={"text": "q"}), {}),
        ("chat template", lambda n: plain(n, question=f"{n}?<|endoftext|>"), {}),
        ("not one answer in", lambda n: plain(n, answer=r"\boxed{1} or \boxed{2}"), {}),
        ("no option", lambda n: plain(n, options=["a", "b"], answer="c"), {}),
        ("is blank", lambda n: plain(n, answer=None), {}),
        ("missing value", lambda n: plain(n, answer="N/A"), {}),
        ("not a JSON object", lambda n: [n], {}),
        ("picture cannot be opened", plain, {"columns": {"image": "question"}}),
    ],
)
def test_the_advice_is_that_of_the_cause_and_of_no_other(load, cause, make, arguments):
    with pytest.raises(ValueError) as error:
        load(make, **arguments)
    said = str(error.value)
    ours = tasks.ADVICE.get(cause, "Bring more rows, or ask for fewer.")
    assert ours.partition("LENGTHS")[2] in said
    others = {"Bring more rows, or ask for fewer.", *tasks.ADVICE.values()} - {ours}
    assert not any(other.replace("LENGTHS", "2 to 2") in said for other in others)
    if cause == "prompt over":
        assert (
            "The prompts have 2 to 2 tokens, half of them over 2: raise max_prompt_length" in said
        )


def test_fields_of_a_csv_and_pictures_have_their_advice(tmp_path):
    (tmp_path / "a.csv").write_text("question,answer\n" + "a, b,1\n" * 4)
    with pytest.raises(ValueError, match="needs double quotes around it"):
        load_task(str(tmp_path / "a.csv"))


def test_a_number_written_as_text_names_an_option_unless_there_are_numbers_among_them():
    assert with_options("Which?", ["sun", "moon"], "1")[1] == "B"  # HellaSwag
    for options, answer in ((["5", "7"], "1"), (["sun", "moon"], -1), (["sun", "moon"], "stars")):
        with pytest.raises(ValueError, match="answer is no option"):
            with_options("Which?", options, answer)


def test_a_row_without_options_or_question_is_as_in_any_other_data(load):
    task = load(
        lambda n: plain(n, options='["a", "b"]' if n < 4 else None, answer="B" if n < 4 else n)
    )
    assert task.report["dropped"] == {} and list(task.train["kind"]).count("choice") <= 4


def test_numbers_of_options_that_count_from_1_are_refused(load):
    with pytest.raises(ValueError, match="4 answers are numbers beyond the last option"):
        load(lambda n: plain(n, options=["a", "b"], answer=n % 2 + 1))
