"""Dictionaries and lists that papermill passes on as texts, `-p columns '{…}'`."""

from helpers.runs import Run


def test_columns_given_as_a_text_are_read_as_the_mapping_that_they_are(machine, execute, tmp_path):
    rows = "".join(f"What is {n} + 1?,{n + 1}\n" for n in range(40))
    (tmp_path / "mine.csv").write_text(f"problem,solution\n{rows}", encoding="utf-8")
    columns = '{"question": "problem", "answer": "solution"}'
    run = Run("texts")
    printed = execute(
        "01", run, source=str(tmp_path / "mine.csv"), columns=columns, preset="pocket"
    )
    assert "data: 40 of 40 rows usable" in printed
