"""Notebook 05: what it prints about the models is what their stored completions say."""

import ast
import json
import re
from dataclasses import asdict, replace

import pytest
from reading import said

from helpers import presets
from helpers.commands.run import NOTEBOOKS
from helpers.data.arithmetic import is_careful
from helpers.environment import this_machine
from helpers.results.evaluation import right
from helpers.training import policy


@pytest.mark.parametrize("name", ["baseline", "trained"])
def test_either_way_of_working_is_counted_with_its_right_answers(executed, name):
    answers = list(executed.table("data/holdout.parquet")["answer"])
    texts = [
        text for (text,) in executed.table(f"evaluation/{name}-sampled.parquet")["completions"]
    ]
    ways = {True: [], False: []}
    for text, correct in zip(texts, right(texts, answers), strict=True):
        ways[is_careful(text)].append(correct)
    copy = executed.require("notebooks/05_merge_and_inference.ipynb")
    (row,) = re.findall(f"^{name} .*", said(copy, 'workings(name, "sampled"'), re.MULTILINE)
    counts = [(sum(hits), len(hits)) for hits in (ways[True], ways[False])]
    # the third pair counts numbers, in an answer block or not
    assert [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+)", row)][:2] == counts
    assert f"{len(ways[True]) / len(texts):.1%}" in row


L4 = replace(this_machine(), gpu="NVIDIA L4", gpu_memory_gb=24.2, compute_capability=8.9)


@pytest.mark.parametrize("prepared", ["auto", "vllm"])  # in notebook 01
@pytest.mark.parametrize(
    ("backend", "asked", "engine"),
    [
        ("transformers", None, "transformers"),
        ("unsloth", None, "vllm"),
        ("unsloth", "transformers", "transformers"),
    ],
)
def test_the_engine_goes_with_what_trained_the_model(monkeypatch, prepared, backend, asked, engine):
    """Notebook 03 alone may have been given another back end, on a card that vLLM serves."""
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: None)
    data = {"settings": asdict(presets.override(presets.PRESETS["l4"], engine=prepared))}
    trained = presets.override(data["settings"], backend=backend)
    training = {"settings": asdict(presets.check_machine(trained, L4))}
    (path,) = NOTEBOOKS.glob("05_*.ipynb")
    sources = ["".join(c["source"]) for c in json.loads(path.read_text("utf-8"))["cells"]]
    (cell,) = (source for source in sources if "presets.for_sampling(" in source)
    names = {"data": data, "training": training, "presets": presets, "machine": L4}
    names["for_model"] = policy.for_model
    names["engine"] = asked
    for node in ast.parse(cell).body:
        if ast.unparse(node).startswith(("if engine is None", "settings = ")):
            exec(ast.unparse(node), names)
    assert names["settings"].engine == engine
