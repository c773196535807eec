"""What each model answers to the held-out questions, and how good that is, as notebook 05 measures
it: the same questions, decoding and judge for all.

Completions are kept as they come, so that an interrupted evaluation goes on where it stopped.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from helpers.data.tasks import load_task
from helpers.presets import Preset
from helpers.results.evaluation import sampled_scores, score
from helpers.runs import Run, atomic_write
from helpers.tags import TagFormat


def complete(
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
    """Return, for each prompt in order, a list of `samples` completions through `policy.sample`.

    They are kept in `evaluation/<name>.parquet` of the run, `chunk` prompts at a time, so that an
    interrupted evaluation goes on and a finished one costs nothing. The file is used only if all
    that decides the texts is the same; otherwise it is replaced. batch_size is free to change:
    what ran out of memory can go on with a smaller one. Each chunk has a seed of its own, so the
    texts do not depend on where an interruption fell.

    identity: whatever else decides the texts, JSON-able: which model, in 4 bits or not, which
        adapter.
    """
    import pyarrow.parquet

    from helpers.templates import options_of
    from helpers.training.policy import engine_of, sample

    # Hash all that decides the texts.
    prompts = [list(prompt) for prompt in prompts]  # a Parquet file gives arrays
    limits = {"samples": samples, "temperature": temperature, "max_new_tokens": max_new_tokens}
    settings = limits | {"seed": seed, "chunk": chunk, "engine": engine_of(model)}
    settings |= options_of(tokenizer)  # nothing, for a model that is not told whether to think
    decisive = json.dumps([identity, settings, prompts], sort_keys=True)
    made_for = hashlib.sha256(decisive.encode()).hexdigest()

    # Take what was completed for the same hash.
    path = run.path(f"evaluation/{name}.parquet")
    completions = []
    if path.exists():
        table = pyarrow.parquet.read_table(path)
        if (table.schema.metadata or {}).get(b"made_for") == made_for.encode():
            completions = table["completions"].to_pylist()
            print(
                f"{name}: {len(completions)} of {len(prompts)} prompts were answered before, "
                f"{run.show(f'evaluation/{path.name}')}"
            )

    # Complete the others, and keep each chunk.
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
            marked = table.replace_schema_metadata({"made_for": made_for})
            pyarrow.parquet.write_table(marked, temporary)
    return completions


@dataclass
class Measurement:
    """The held-out questions of a run, and what each model made of them.

    elsewhere: questions of a kind that was not trained on, from the source `other`. evaluation:
    what evaluation.json will hold, an entry per model. written: the completions, by the model's
    name and "sampled", "greedy", "samples" or "other"; the run folder keeps them too (see
    `complete`).
    """

    run: Run
    settings: Preset
    tags: TagFormat
    holdout: pd.DataFrame
    source: str
    judge: Callable | None = None
    batch_size: int | None = None
    seed: int = 3407
    evaluation: dict[str, dict] = field(default_factory=dict)
    written: dict[tuple[str, str], list] = field(default_factory=dict)

    def __post_init__(self):
        # Sums, unless sums were trained: the pocket model knows these two alone, and a larger one
        # should still know them after whatever it was trained on.
        sums = self.source == "arithmetic/sums"
        self.other = "arithmetic/differences" if sums else "arithmetic/sums"
        options = {"train_size": 1, "holdout_size": 128, "seed": self.seed, "tags": self.tags}
        self.elsewhere = load_task(self.other, **options).holdout
        # Ask them as the training asks: with its system prompt and its worked examples.
        before = list(self.holdout["prompt"].iloc[0])[:-1]
        prompts = [[*before, prompt[-1]] for prompt in self.elsewhere["prompt"]]
        self.elsewhere["prompt"] = prompts

    def measure(
        self, name: str, model, tokenizer, weights: str, samples: int = 0, questions: int = 0
    ) -> None:
        """Complete each held-out question once sampled and once greedily, and score the answers.

        weights: a text that tells these weights from all others, so that no completions of other
            weights are reused.
        samples: if given, also so many completions for each of the first `questions` (pass@k and
            the majority vote), and one for each question of a kind that was not trained on.
        """
        from helpers.training.policy import engine_of

        sampling = {
            "model": model,
            "tokenizer": tokenizer,
            "identity": {"weights": weights},
            "max_new_tokens": self.settings.max_completion_length,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }
        temperature = self.settings.temperature

        # One completion per question, in two ways.
        levels = list(self.holdout["difficulty"]) if "difficulty" in self.holdout else None
        entries = {}
        for decoding, heat in (("sampled", temperature), ("greedy", 0.0)):
            groups = complete(
                self.run,
                f"{name}-{decoding}",
                prompts=list(self.holdout["prompt"]),
                temperature=heat,
                **sampling,
            )
            texts = [text for (text,) in groups]
            self.written[name, decoding] = texts
            entries[decoding] = score(
                texts,
                list(self.holdout["answer"]),
                self.tags,
                judge=self.judge,
                rows=self.holdout,
                difficulty=levels,
                count_tokens=lambda text: len(tokenizer(text)["input_ids"]),
            )
        entry = entries["sampled"] | {
            "temperature": temperature,
            "greedy": entries["greedy"],
            "sampled_by": engine_of(model),
        }
        self.evaluation[name] = entry
        if not samples:
            return

        # Several completions per question.
        sampling["temperature"] = temperature
        rows = self.holdout[:questions]
        groups = complete(
            self.run, f"{name}-samples", prompts=list(rows["prompt"]), samples=samples, **sampling
        )
        self.written[name, "samples"] = groups
        golds = list(rows["answer"])
        entry |= sampled_scores(groups, golds, self.tags, judge=self.judge, rows=rows)

        # Questions of a kind that was not trained on.
        rows = self.elsewhere
        groups = complete(self.run, f"{name}-other", prompts=list(rows["prompt"]), **sampling)
        texts = [text for (text,) in groups]
        self.written[name, "other"] = texts
        scored = score(texts, list(rows["answer"]), self.tags, rows=rows)
        entry["other"] = {"source": self.other} | scored
