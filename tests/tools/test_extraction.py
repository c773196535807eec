"""The order messages and the model that was trained on them: seeded, disjoint where it matters, and
as the card says.
"""

import json

from tools.pocket import extraction

# --- The generator --------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path):
    extraction.main(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == extraction.ORDERS_CSV.read_bytes()
    assert extraction.orders(seed=1) != extraction.orders(seed=2)


# --- The model ------------------------------------------------------------------------------------


def test_the_weights_reproduce_the_card(reproduced):
    rows = [row for row in extraction.orders() if row["message"] and row["expert_answer"]][-128:]
    records = [json.loads(row["expert_answer"]) for row in rows]
    system = {"role": "system", "content": extraction.SYSTEM_PROMPT}
    prompts = [[system, {"role": "user", "content": row["message"]}] for row in rows]

    def right(number: int, text: str) -> bool:
        return extraction.is_asked_for(text, records[number])

    cells = ("fp32", "sampled")
    texts = reproduced("extraction", cells, prompts, right, max_new_tokens=40, seed=11)
    assert sum(map(extraction.is_known, texts, records)) / len(texts) > 0.9
