"""A model's completions for many prompts, kept as they come, so that an interrupted evaluation goes
on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from helpers.runs import Run, atomic_write

# bytes, and how many such blocks of one file weights_identity reads
_BLOCK, _MOST_BLOCKS = 2**20, 64


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
    progress: bool = True,
    chunk: int = 256,
) -> list[list[str]]:
    """The completions of all prompts through `policy.sample`: for each prompt, in order, a list of
    `samples` texts.

    They are kept in `evaluation/<name>.parquet` of the run, `chunk` prompts at a time, and taken
    from there when the same is asked for again: after a kill it goes on, and what was finished
    costs nothing. The file is trusted only where it was made for the same identity, engine,
    prompts, samples, temperature, max_new_tokens, seed and chunk; any other is replaced. batch_size
    is free to change, so that what ran out of memory can go on with a smaller one.

    identity: whatever else decides the texts, JSON-able: which model, in 4 bits or not, which
        adapter (see `weights_identity`).
    seed: each chunk is sampled with a seed of its own, so the texts do not depend on where an
        interruption fell.
    """
    from tqdm.auto import tqdm

    from helpers.training.policy import engine_of, sample

    prompts = [list(prompt) for prompt in prompts]  # a Parquet file gives arrays
    settings = {
        "samples": samples,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
        "seed": seed,
        "chunk": chunk,
        "engine": engine_of(model),
    }
    made_for = json.dumps([identity, settings, prompts], sort_keys=True)
    path = run.path(f"evaluation/{name}.parquet")
    completions = _kept(path, made_for)
    if completions:
        print(
            f"{name}: {len(completions)} of {len(prompts)} prompts were answered before, "
            f"{run.show(f'evaluation/{path.name}')}"
        )
    with tqdm(total=len(prompts), initial=len(completions), desc=name, disable=not progress) as bar:
        for start in range(len(completions), len(prompts), chunk):
            chosen = prompts[start : start + chunk]
            completions += sample(
                model,
                tokenizer,
                chosen,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                samples=samples,
                batch_size=batch_size,
                seed=seed + start,
                progress=False,
            )
            _keep(path, made_for, prompts, completions)
            bar.update(len(chosen))
    return completions


def weights_identity(folder: Path) -> str:
    """A short hash of the safetensors files in a folder, those of an adapter or a model: equal
    weights, equal hash.

    The SHA-256 (16 hexadecimal digits of it) of each file's name, size and content. Of a file above
    64 MiB, 64 blocks of 1 MiB at equal distances are read, the first and the last among them:
    training changes every block. FileNotFoundError where there is no such file.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"{Path(folder).name} holds no .safetensors file, so its weights cannot be told from "
            "others."
        )
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}\x1f{size}\x1e".encode())
        starts = range(0, size, _BLOCK)
        if len(starts) > _MOST_BLOCKS:
            starts = [i * (size - _BLOCK) // (_MOST_BLOCKS - 1) for i in range(_MOST_BLOCKS)]
        with path.open("rb") as file:
            for start in starts:
                file.seek(start)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]


def _keep(
    path: Path, made_for: str, prompts: list[list[dict]], completions: list[list[str]]
) -> None:
    import pyarrow.parquet

    questions = [prompt[-1]["content"] for prompt in prompts[: len(completions)]]
    table = pyarrow.table({"question": questions, "completions": completions})
    sealed = table.replace_schema_metadata({"fingerprint": _fingerprint(made_for, completions)})
    with atomic_write(path) as temporary:
        pyarrow.parquet.write_table(sealed, temporary)


def _kept(path: Path, made_for: str) -> list[list[str]]:
    """The completions that the file holds; none where it is absent or was made for something
    else.
    """
    import pyarrow.parquet

    if not path.exists():
        return []
    table = pyarrow.parquet.read_table(path)
    completions = table["completions"].to_pylist()
    made = (table.schema.metadata or {}).get(b"fingerprint", b"").decode()
    return completions if made == _fingerprint(made_for, completions) else []


def _fingerprint(made_for: str, completions: list[list[str]]) -> str:
    """Of what was asked and of what came back."""
    return hashlib.sha256(f"{made_for}\x1f{json.dumps(completions)}".encode()).hexdigest()
