"""Stage 01, data preparation: turn a source into checked rows.

In: a built-in generator, a CSV, JSON or Parquet file, or a hub dataset.
Out: `data/train.parquet`, `data/holdout.parquet` and `data_report.json` in the run folder.
Used by every notebook but 02 and 03, which read these files. Start reading at `tasks.load_task`.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "arithmetic": "careful careless is_careful",
        "files": "file_rows parse_literal",
        "overlap": "benchmark_texts shared_text shared_text_line",
        "pictures": "draw_scene open_picture",
        "prompts": "chat_prompt example_turns",
        "sources": "check_columns",
        "tasks": "Task load_task prompt_token_counter save tokenizer_of",
        "helpers.judging": "check_kind survey",
    },
)
