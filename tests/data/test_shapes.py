"""Questions, answers and options in the formats that datasets have.

A format with one clear reading is read; any other is refused with its name. Most cases come from
issues of TRL, verl, Open-R1 and ms-swift.
"""

import json

import pytest
from trl.rewards import accuracy_reward

from helpers.data import tasks
from helpers.data.answer_marks import MARKS, answer_in
from helpers.data.options import NUMBERED, options_in, with_options
from helpers.data.questions import question_in
from helpers.data.tasks import load_task

ASKED = "What is 1 + 5?\nThink."
USER = {"role": "user", "content": ASKED}


@pytest.fixture
def load(tmp_path):
    """Return a function that calls load_task on a JSONL file of eight rows, make(0) to make(7)."""

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
    "[|system|]Be good.[|endofturn|]\n[|user|]{}[|endofturn|]\n[|assistant|]",  # EXAONE
    "[|user|]{}\n[|assistant|]<thought>\n",
    "<s>[INST] {} [/INST]",
    "<s>[INST] <<SYS>>\nBe good.\n<</SYS>>\n\n{} [/INST]",
    "Below is an instruction.\n\n### Instruction:\n{}\n\n### Response:\n",
]


@pytest.mark.parametrize("template", TEMPLATED)
def test_a_question_is_found_in_a_chat_template(template):
    assert question_in(template.format(ASKED)) == (ASKED, "a chat template")


@pytest.mark.parametrize(
    ("value", "question", "found_in"),
    [
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
    ],
)
def test_a_question_is_found_in_chat_messages_and_alpacas_template(value, question, found_in):
    assert question_in(value) == (question, found_in)


@pytest.mark.parametrize(
    "value",
    [
        "[1, 2] + [3]?",
        '[{"a": 1}]',
        "f <|> g",
        "User: who?",
        "What is <|im_end|>?",
        "Why does `[INST]` open a turn?",
        5,
        None,
        [],
    ],
)
def test_any_other_value_is_the_question_itself(value):
    assert question_in(value) == (value, "")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "What is 1 + 5?<|endoftext|>",
            r"question has <\|endoftext\|>, a marker of a chat template",
        ),
        ("A talk. User: 1 + 5? Assistant: <think>", "question has Assistant:, a marker of a chat"),
        ("USER: 1 + 5? ASSISTANT:", "question has ASSISTANT:, a marker of a chat template"),
        ("Add.\n<|unknown|>1 + 5?\n<|model|> ", r"question has <\|unknown\|>, a marker of a chat"),
        ("[|human|]1 + 5?", r"question has \[\|human\|\], a marker of a chat"),
        ([{"role": "assistant", "content": "6"}], "question is a list of messages, none from"),
        (
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}],
            "question contains more than text: image",
        ),
        ("<image>\nHow many cats?", "question contains more than text: <image>"),
    ],
)
def test_a_value_without_a_clear_question_is_refused_by_name(value, reason):
    with pytest.raises(ValueError, match=reason):
        question_in(value)


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "working", "answer"),
    [(mark, *example) for mark in MARKS for example in mark.examples.items()],
)
def test_the_examples_of_each_mark_hold(mark, working, answer):
    assert len(mark.examples) == 2
    assert answer_in(working) == (answer, mark.name)
    assert (answer_in(working, "text")[0] != working) == mark.also_in_texts


@pytest.mark.parametrize(
    ("value", "answer", "found_in"),
    [
        ("#### -1,234,567.50", "-1234567.50", "####"),
        ("a #### 1\nb ####  2 ", "2", "####"),
        ("#### 12,34", "12,34", "####"),
        ("#### 1,234 or 5,678", "1,234 or 5,678", "####"),
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
        ("We add.\n#### 6\nThe answer is: 6", "6", "####"),
        ("####\n6", "6", "####"),
        (
            r"#### Step 1\nAdd.\n#### Step 2\nIt is \boxed{6}.".replace(r"\n", "\n"),
            "6",
            r"\boxed{}",
        ),
        ("#### Step 1\nAdd.\nThe answer is 6.", "6", "the last sentence"),
        ("<think>17</think>6", "6", "what follows the reasoning"),
        ("Hm.\n</think>\n\nSo <answer>6</answer>", "6", "answer tags"),
        (r"\boxed{\textbf{(C)}\ 6}", "(C) 6", "a letter in a box"),
        (r"So \boxed{\text{(C) }6}.", "(C) 6", "a letter in a box"),
        ("1 + 5 = 6. The final answer is 6.", "6", "the last sentence"),
        ("We subtract.\n\n**Answer:** -6", "-6", "the last sentence"),
        ({"ground_truth": "6", "style": "rule"}, "6", "the field ground_truth"),
        ({"ground_truth": {"target": ["Paris"]}}, "Paris", "a list of one"),
        (str({"ground_truth": "6"}), "6", "the field ground_truth"),
        (["6", " 6"], "6", "a list of one"),
        ([["6"]], "6", "a list of one"),
        ("['6']", "6", "a list of one"),
        ('["6", "six"]', ["6", "six"], ""),
    ],
)
def test_an_answer_is_found_in_worked_solutions_and_fields(value, answer, found_in):
    assert answer_in(value) == (answer, found_in)


@pytest.mark.parametrize(
    "sentence",
    [
        "The answer is 6 because we add 1 and 5",
        "The answer is **6**, since 1 + 5 is that.",
        "The answer is 6 (one digit).",
        "The answer is 6. We add 1 and 5.",
        "The answer is 6, which is even",
        "The answer is 6 — easy",
    ],
)
def test_a_reason_after_the_answer_is_left_out(sentence):
    assert answer_in(sentence) == ("6", "the last sentence")


@pytest.mark.parametrize(
    "answer", ["6 (mod 7)", "f(x) = sin (x)", "St. Louis", "6 apples", "6.5", "Dr. Who"]
)
def test_an_answer_in_a_sentence_is_not_cut_short(answer):
    assert answer_in(f"The answer is {answer}.") == (answer, "the last sentence")


@pytest.mark.parametrize(
    "value", ["1,234", "### 5", "[1, 2]", '{"item": 3}', "The answer is", 6, None, ["6", "six"]]
)
def test_any_other_value_is_the_answer_itself(value):
    assert answer_in(value) == (value, "")


@pytest.mark.parametrize("kind", ["exact", "text"])
@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("It is that.\n#### x30", "x30"),
        ("<think>so</think><answer>22</answer>", "22"),
        # the answer itself is about a mark
        ("<answer>22</answer>", "<answer>22</answer>"),
        ("#### x30", "#### x30"),
        ("#### A\nb", "#### A\nb"),
        ("a #### b c\nd", "a #### b c\nd"),
        (r"Write $\boxed{33}$.", r"Write $\boxed{33}$."),
        ("The answer is a noun.", "The answer is a noun."),
        ('["a", "b"]', '["a", "b"]'),
    ],
)
def test_in_texts_only_a_mark_at_the_end_of_a_solution_is_read(kind, value, answer):
    assert answer_in(value, kind)[0] == answer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("text", '["a", "b"]'),
        ("set", ["a", "b"]),
        ("mathematics", ["a", "b"]),
        ("choice", ["a", "b"]),
        ("algebra", ["a", "b"]),
    ],
)
def test_the_kind_decides_if_a_list_in_a_csv_cell_is_one_answer(kind, answer):
    assert answer_in('["a", "b"]', kind)[0] == answer


@pytest.mark.parametrize(
    "value",
    [
        r"(a) \boxed{1} (b) \boxed{2}",
        "<answer>1</answer><answer>2</answer>",
        "#### Step 1\nAdd.\n#### Step 2\nIt is 6",
        "#### 1\nAdd.\n#### 2\nIt is 6",
        "so ####",
    ],
)
def test_several_results_and_an_empty_one_are_refused(value):
    with pytest.raises(ValueError, match="there is not exactly one answer in"):
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
        (["A)4", "B)2", "C)1"], "2", "B"),
        (["A.4", "B.2", "C.1"], "2", "B"),
        ("a ) 4 , b ) 2 , c ) 1", "b", "B"),  # MathQA
        ("A) 4\nB) 2\nC) 1", "B", "B"),
        ("4|2|1", "B", "B"),
        ("4\n2\n1", "B", "B"),
        ("(A) 4 (B) 2 (C) 1", "B", "B"),
        ([{"key": "A", "value": 4}, {"key": "B", "value": 2}, {"key": "C", "value": 1}], "B", "B"),
        ([{"id": n, "text": text} for n, text in enumerate("421", 1)], "2", "B"),
        ([{"text": "4"}, {"text": "2"}, {"text": "1"}], "2", "B"),
        (["4", "2", "1"], "B. 2", "B"),
        (["4", "2", "1"], "(b) 2", "B"),
        (["4", "2", "1"], "B: 2", "B"),
        (["4", "2", "1"], 1, "B"),
        # a label, not a number from 0; 2.0 is how pandas writes 2 in a column with gaps
        ({"1": "4", "2": "2", "3": "1"}, "2", "B"),
        ({"1": "4", "2": "2", "3": "1"}, 2, "B"),
        ({"1": "4", "2": "2", "3": "1"}, 2.0, "B"),
        ({"label": [1.0, 2.0, 3.0], "text": ["4", "2", "1"]}, 2, "B"),
        (["4", "2", "1"], 1.0, "B"),
        ({"A": "4", "B": "2", "C": "1"}, "B", "B"),
        ({"label": ["1", "2", "3"], "text": ["4", "2", "1"]}, "2", "B"),  # ARC: a label first
    ],
)
def test_options_are_shown_below_the_question_and_the_answer_is_a_letter(options, answer, letter):
    options = options_in(options)
    assert with_options("Which?", options, answer)[:2] == (SHOWN, letter)
    assert with_options(SHOWN, options, answer)[:2] == (SHOWN, letter), "they are not shown twice"


def test_options_that_a_row_left_empty_are_none():
    assert options_in({"label": None, "text": None}) == {}


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("Which is larger, 18 or 25?", ["18", "25"]),
        ("Is a red or a blue one there?", ["red", "blue"]),
        ("What is in 281230?", ["1", "2", "3", "0"]),
        ("Which?\n1. red\n2. blue", ["red", "blue"]),
    ],
)
def test_options_that_a_question_names_without_their_letters_are_shown(question, options):
    shown, letter, _ = with_options(question, options_in(options), options[1])
    assert shown == question + "".join(f"\n{a}. {b}" for a, b in zip("ABCD", options, strict=False))
    assert letter == "B"


@pytest.mark.parametrize(
    "question", ["Which? (A) red (B) blue", "Which? A: red, B: blue", "A) red\nB) blue\nWhich?"]
)
def test_options_that_a_question_shows_by_letter_are_not_shown_again(question):
    assert with_options(question, {"A": "red", "B": "blue"}, "blue") == (question, "B", "")


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["A.D. 70", "B.C. 70", "50"], "B.C. 70"),
        (["A.D. 70", "B.C. 70"], "B.C. 70"),
        (["A. Lincoln", "Washington"], "Washington"),
        ({"A": "A.D. 70", "B": "C"}, "C"),
        (["The sky.", "The sea."], "The sea."),
        (["The sky.", "The sea."], "(B) The sea."),
        (["(1, 2)", "(3, 4)"], "(3, 4)"),
    ],
)
def test_a_text_that_begins_like_a_letter_or_ends_like_a_label_stays_whole(options, answer):
    options = options_in(options)
    shown = "".join(f"\n{letter}. {text}" for letter, text in options.items())
    assert with_options("Which?", options, answer) == ("Which?" + shown, "B", "")


@pytest.mark.parametrize(
    ("options", "answer", "shape"),
    [
        ({"A": "sun", "B": "moon"}, "1", NUMBERED),  # HellaSwag
        ({"A": "true", "B": "false"}, False, ""),
        ({"A": 1.5, "B": 2.5}, 2.5, ""),
        ({"A": "1.0", "B": "2"}, "2", ""),
    ],
)
def test_a_number_names_an_option_by_its_place_unless_it_is_an_option(options, answer, shape):
    assert with_options("Which?", options, answer)[1:] == ("B", shape)


@pytest.mark.parametrize(
    ("options", "answer", "reason"),
    [
        (["5", "7"], "1", "answer is not an option"),
        (["sun", "moon"], -1, "answer is not an option"),
        (["sun", "moon"], "stars", "answer is not an option"),
        (["sun", "moon"], "A. moon", "answer is not an option"),
        (["sun", "moon"], None, "answer is not an option"),
        (["sun", "moon"], float("nan"), "answer is not an option"),
        (["sun", "moon", "sun"], "sun", "answer is not an option"),
        (["5", "5"], "1", "answer is not an option"),
        ([f"word {n}" for n in range(27)], "word 3", "more than 26 options"),
        ({n: f"word {n}" for n in range(27)}, "word 3", "more than 26 options"),
        (
            [10, 20, 3],
            10,
            "the answer 10 is a number beyond the 3 options of .*count from 0",
        ),
        ("sun", "sun", "options are not several texts"),
        ([{"a": 1}, {"b": 2}], "A", "options are not several texts"),
        ({"A": ["sun"], "B": ["moon"]}, "A", "options are not several texts"),
    ],
)
def test_an_answer_that_is_not_an_option_is_refused(options, answer, reason):
    with pytest.raises(ValueError, match=reason):
        with_options("Which?", options_in(options), answer)


# --- Files ----------------------------------------------------------------------------------------


def plain(n: int, **columns) -> dict:
    return {"question": f"{n} + 1?", "answer": str(n + 1)} | columns


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
        (lambda n: plain(n, answer="B", A="0", B=n + 1), None, "3 + 1?\nA. 0\nB. 4", "B"),
        (
            lambda n: plain(n, answer="B", optionA="0", optionB=n + 1),
            None,
            "3 + 1?\nA. 0\nB. 4",
            "B",
        ),
        (lambda n: plain(n, options=f"A) 0\nB) {n + 1}"), None, "3 + 1?\nA. 0\nB. 4", "B"),
        (
            lambda n: plain(n, options=["0", n + 1], answer=r"So \boxed{B}."),
            None,
            "3 + 1?\nA. 0\nB. 4",
            "B",
        ),
        (
            lambda n: plain(n, choices=["0", n + 1] if n else None, answer=n and "B"),
            None,
            "3 + 1?\nA. 0\nB. 4",
            "B",
        ),
        (lambda n: plain(n, A=n, B=0), None, "3 + 1?", "4"),
        (lambda n: plain(n, options="none", choices="a few"), None, "3 + 1?", "4"),
    ],
)
def test_rows_of_common_data_sets_are_read(load, make, columns, question, answer):
    task = load(make, columns=columns)
    rows = [*task.train.to_dict("records"), *task.holdout.to_dict("records")]
    assert len(rows) == 8 and task.report["dropped"] == {}
    (row,) = (row for row in rows if row["question"] == question)
    assert row["answer"] == answer
    assert row.get("kind") == ("choice" if "\nA. " in question else None)


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (
            lambda n: plain(n, question=[{"role": "user", "content": f"{n}?"}], answer=f"#### {n}"),
            "found in the data: 8 × chat messages, 8 × ####",
        ),
        (
            lambda n: plain(n, options=["a", "b"], answer=n % 2),
            f"found in the data: 8 × {NUMBERED}",
        ),
        (
            lambda n: plain(n, answer="we add " * 20 + str(n)),
            "most answers have more than 30 words",
        ),
        (
            lambda n: plain(n, answer=f"#### {n}" if n else "So it is 0."),
            "answers without a marked result, beside 7 with one: 1, such as 'So it is 0.'",
        ),
        (
            lambda n: plain(n, answer=f"{n} + 1 = {n + 1}"),
            "answers that are a whole calculation, such as",
        ),
        (
            lambda n: plain(n, answer=f"Antwort: {n + 1} Stück"),
            "most answers contain more than the result",
        ),
        (
            lambda n: plain(
                n,
                question=[
                    {"role": "system", "content": "In mm."},
                    {"role": "user", "content": f"{n}?"},
                ],
            ),
            "found in the data: 8 × chat messages\nnote: system messages of the data that are not "
            "used: 8, such as 'In mm.'",
        ),
        (lambda n: plain(n, answer=f"{n + 1} square metres"), None),
        (lambda n: plain(n, answer=f"x = {n + 1}"), None),
        (lambda n: plain(n, answer=f"{n} + 1 = {n + 1}", kind="text"), None),
        (plain, None),
    ],
)
def test_notes_say_how_rows_were_read(load, make, note):
    line = load(make).line
    assert f"note: {note}" in line if note else "note:" not in line


@pytest.mark.parametrize(("declared", "kind"), [(None, "choice"), ("exact", "exact")])
def test_an_answer_to_options_is_a_choice_unless_a_kind_is_declared(load, declared, kind):
    make = lambda n: plain(n, options=["0", n + 1], answer="B", kind="physics")  # noqa: E731
    assert set(load(make, kind=declared).train["kind"]) == {kind}


def test_a_letter_in_a_box_is_a_choice(load):
    task = load(lambda n: {"question": f"{n}?", "answer": rf"\boxed{{\textbf{{(C)}}\ {n}}}"})
    assert set(task.train["kind"]) == {"choice"}
    assert set(task.train["answer"].str[:4]) == {"(C) "}


def test_a_mapped_column_is_there_for_rewards_under_its_own_name(load):
    columns = {"question": "problem", "answer": "solution"}
    make = lambda n: {"problem": f"{n} + 1?", "solution": rf"\boxed{{{n + 1}}}"}  # noqa: E731
    row = load(make, columns=columns).train.iloc[0]
    assert row["problem"] == row["question"] and row["solution"] == rf"\boxed{{{row['answer']}}}"
    completion = [{"role": "assistant", "content": row["solution"]}]
    assert accuracy_reward([completion], [row["solution"]]) == [1.0]


# --- Advice ---------------------------------------------------------------------------------------


MORE = "Add more rows, or ask for fewer."


@pytest.mark.parametrize(
    ("advice", "make", "arguments"),
    [
        (MORE, plain, {"train_size": 20}),
        (MORE, lambda n: plain(n, answer="" if n == 0 else "1"), {"train_size": 20}),
        (
            "Raise max_prompt_length, or shorten the questions. The prompts have 2 to 2 tokens",
            plain,
            {"count_tokens": len, "max_prompt_tokens": 0},
        ),
        (
            "Raise max_completion_length, or drop",
            plain,
            {"count_tokens": len, "max_completion_tokens": 9},
        ),
        ('join them: columns={"question": ["…", "…"]}', lambda n: plain(n, question="Add."), {}),
        ("Add more questions that differ", lambda n: plain(0), {}),
        ("such as kind='set'", lambda n: plain(n, answer=["1", "2"]), {}),
        ("such as kind='set'", lambda n: plain(n, answer='["1", "2"]'), {}),
        (
            'columns={"answer": "column.field"}',
            lambda n: plain(n, answer={"value": 1, "aliases": [2]}),
            {},
        ),
        (
            'columns={"question": "column.field"}',
            lambda n: plain(n, question={"text": "q"}),
            {},
        ),
        (
            "Give the question alone: the model's own chat template",
            lambda n: plain(n, question=f"{n}?<|endoftext|>"),
            {},
        ),
        (
            "Mark one result per row, and not several parts.",
            lambda n: plain(n, answer=r"\boxed{1} or \boxed{2}"),
            {},
        ),
        (
            "An answer is the label or the text of an option",
            lambda n: plain(n, options=["a", "b"], answer="c"),
            {},
        ),
        (
            'Give a list of texts, ["red", "blue"]',
            lambda n: plain(n, options=[{"a": 1}, {"b": 1}], answer="A"),
            {},
        ),
        ("Are these the right columns?", lambda n: plain(n, answer=None), {}),
        ("declare kind='text' or kind='exact'", lambda n: plain(n, answer="N/A"), {}),
        ("Each row is an object", lambda n: [n], {}),
        ("Paths of images are relative", plain, {"columns": {"image": "question"}}),
    ],
)
def test_the_error_gives_the_advice_for_the_most_frequent_reason(load, advice, make, arguments):
    with pytest.raises(ValueError) as error:
        load(make, **arguments)
    _, _, given = str(error.value).partition("were asked for. ")
    assert advice in given.partition(" Read ")[0]
    assert (MORE in given) == (advice == MORE)


def test_rows_with_and_without_options_may_be_mixed(load):
    task = load(
        lambda n: plain(n, options='["a", "b"]' if n < 4 else None, answer="B" if n < 4 else n)
    )
    assert task.report["dropped"] == {}
    for row in [*task.train.to_dict("records"), *task.holdout.to_dict("records")]:
        assert (row["kind"] == "choice") == (row["answer"] == "B")


def test_numbers_of_options_that_count_from_1_are_refused(load):
    with pytest.raises(ValueError, match="if yours count from 1"):
        load(lambda n: plain(n, options=["a", "b", "c"], answer=n % 3 + 1))
