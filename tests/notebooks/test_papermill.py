"""What papermill passes on as texts: dictionaries and lists, `-p columns '{…}'`, and numbers such as
3e-4 in a file of parameters, `-f mine.yaml`.
"""

import yaml

from helpers.runs import Run


def test_columns_and_numbers_given_as_texts_are_read_as_what_they_are(machine, execute, tmp_path):
    rows = "".join(f"What is {n} + 1?,{n + 1}\n" for n in range(40))
    (tmp_path / "mine.csv").write_text(f"problem,solution\n{rows}", encoding="utf-8")
    columns = '{"question": "problem", "answer": "solution"}'
    run = Run("texts")
    own = yaml.safe_load("preset: pocket\nadam_beta2: 98e-2")
    printed = execute("01", run, source=str(tmp_path / "mine.csv"), columns=columns, **own)
    assert "data: 40 of 40 rows usable" in printed
    assert run.section("data")["settings"]["adam_beta2"] == 0.98
