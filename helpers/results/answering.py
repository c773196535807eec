"""A model's completions for many prompts, kept as they come, so that an interrupted evaluation goes
on where it stopped.
"""

import hashlib
import json
from pathlib import Path

from helpers.runs import Run, atomic_write


def answered(
    run: Run,
    name: str,
    model,
    tokenizer,
    prompts: list[list[dict]],
    *,
    identity: dict,
    samples: int = 1,
    temperature: float,
    max_new_tokens: int,
    batch_size: int | None = None,
    seed: int = 3407,
    chunk: int = 256,
) -> list[list[str]]:
    """For each prompt, in order, a list of `samples` completions through `policy.sample`.

    They are kept in `evaluation/<name>.parquet` of the run, `chunk` prompts at a time, so that an
    interrupted evaluation goes on and a finished one costs nothing. The file is trusted only where
    all that decides the texts is the same; otherwise it is replaced. batch_size is free to change:
    what ran out of memory can go on with a smaller one. Each chunk has a seed of its own, so the
    texts do not depend on where an interruption fell.

    identity: whatever else decides the texts, JSON-able: which model, in 4 bits or not, which
        adapter (see `weights_identity`).
    """
    import pyarrow.parquet

    from helpers.templates import options_of
    from helpers.training.policy import engine_of, sample

    prompts = [list(prompt) for prompt in prompts]  # a Parquet file gives arrays
    limits = {"samples": samples, "temperature": temperature, "max_new_tokens": max_new_tokens}
    settings = limits | {"seed": seed, "chunk": chunk, "engine": engine_of(model)}
    settings |= options_of(tokenizer)  # nothing, for a model that is not told whether to think
    asked = json.dumps([identity, settings, prompts], sort_keys=True)
    made_for = {"made_for": hashlib.sha256(asked.encode()).hexdigest()}
    path = run.path(f"evaluation/{name}.parquet")
    completions = []
    if path.exists():
        table = pyarrow.parquet.read_table(path)
        if (table.schema.metadata or {}).get(b"made_for") == made_for["made_for"].encode():
            completions = table["completions"].to_pylist()
            print(
                f"{name}: {len(completions)} of {len(prompts)} prompts were answered before, "
                f"{run.show(f'evaluation/{path.name}')}"
            )
    for start in range(len(completions), len(prompts), chunk):
        completions += sample(
            model,
            tokenizer,
            prompts[start : start + chunk],
            **limits,
            batch_size=batch_size,
            seed=seed + start,
            progress=False,
        )
        questions = [prompt[-1]["content"] for prompt in prompts[: len(completions)]]
        table = pyarrow.table({"question": questions, "completions": completions})
        with atomic_write(path) as temporary:
            pyarrow.parquet.write_table(table.replace_schema_metadata(made_for), temporary)
    return completions


def weights_identity(folder: Path) -> str:
    """A short hash of the safetensors files in a folder, those of an adapter or a model: equal
    weights, equal hash.

    16 hexadecimal digits of the SHA-256 of each file's name, size and content.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.safetensors")):
        digest.update(f"{path.name}\x1f{path.stat().st_size}\x1e".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # reads it block by block
    return digest.hexdigest()[:16]
