"""Sample and score each model's answers to the held-out questions, for notebook 05.

    exam = Measurement(run, settings, tags, holdout, source)
    exam.measure("baseline", model, tokenizer, weights)
    exam.evaluation["baseline"]  # accuracy, ci95, n, in_format, …

All models get the same questions, decoding settings and grader. Completions are saved while they
are sampled, so that an interrupted evaluation continues where it stopped.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from helpers.data.tasks import load_task
from helpers.results.evaluation import sampled_scores, score
from helpers.runs import Run, atomic_write
from helpers.settings import Preset
from helpers.tags import TagFormat


@dataclass
class Measurement:
    """The held-out questions of a run, and the results of each model that was measured on them.

    other: a source of questions of a kind the policy was not trained on; None: differences or sums
        for the built-in arithmetic, and none for other data.
    evaluation: the contents of evaluation.json, one entry per model.
    written: the completions, by (name of the model, "sampled", "greedy", "samples" or "other").
    """

    run: Run
    settings: Preset
    tags: TagFormat
    holdout: pd.DataFrame
    source: str
    grader: Callable | None = None
    batch_size: int | None = None
    seed: int = 3407
    other: str | None = None
    evaluation: dict[str, dict] = field(default_factory=dict)
    written: dict[tuple[str, str], list] = field(default_factory=dict)

    def __post_init__(self):
        # The pocket model knows nothing but sums and differences.
        if self.other is None and self.source.startswith("arithmetic/"):
            trained_on_sums = self.source == "arithmetic/sums"
            self.other = "arithmetic/differences" if trained_on_sums else "arithmetic/sums"

    @cached_property
    def elsewhere(self) -> pd.DataFrame:
        """Up to 128 questions of the source `other`, with the system prompt and the worked examples
        of the training prompts; none if there is no such source.
        """
        if self.other is None:
            return self.holdout.head(0)
        # A file may have fewer rows, so all its rows are loaded.
        sizes = {"train_size": 1, "holdout_size": 128}
        if Path(self.other).exists():
            sizes = {"holdout_size": 1}
        task = load_task(self.other, **sizes, seed=self.seed, tags=self.tags)
        rows = pd.concat([task.holdout, task.train]).head(128).reset_index(drop=True)
        *before, _ = self.holdout["prompt"].iloc[0]
        rows["prompt"] = [[*before, prompt[-1]] for prompt in rows["prompt"]]
        return rows

    def measure(
        self, name: str, model, tokenizer, weights: str, samples: int = 0, questions: int = 0
    ) -> None:
        """Score a sampled and a greedy completion of each held-out question as entry `name` of
        `evaluation`.

        weights: a text that identifies these weights, so that completions of other weights are not
            reused.
        samples: if given, also sample this many completions for each of the first `questions`
            questions (pass@k and the majority vote), and one for each question of `elsewhere`; what
            has no question has no entry.
        """
        from helpers.training.sampling import engine_of

        ask = partial(
            complete,
            self.run,
            model=model,
            tokenizer=tokenizer,
            identity={"weights": weights},
            max_new_tokens=self.settings.max_completion_length,
            batch_size=self.batch_size,
            seed=self.seed,
        )
        temperature = self.settings.temperature

        # 1. Complete each question once sampled and once greedily.
        levels = list(self.holdout["difficulty"]) if "difficulty" in self.holdout else None
        scores = {}
        for decoding, heat in (("sampled", temperature), ("greedy", 0.0)):
            groups = ask(
                f"{name}-{decoding}", prompts=list(self.holdout["prompt"]), temperature=heat
            )
            texts = [text for (text,) in groups]
            self.written[name, decoding] = texts
            scores[decoding] = score(
                texts,
                list(self.holdout["answer"]),
                self.tags,
                grader=self.grader,
                rows=self.holdout,
                difficulty=levels,
                count_tokens=lambda text: len(tokenizer(text)["input_ids"]),
            )
        entry = scores["sampled"] | {
            "temperature": temperature,
            "greedy": scores["greedy"],
            "sampled_by": engine_of(model),
        }

        # 2. Sample several completions per question.
        rows = self.holdout[:questions]
        if samples and len(rows):
            groups = ask(
                f"{name}-samples",
                prompts=list(rows["prompt"]),
                samples=samples,
                temperature=temperature,
            )
            self.written[name, "samples"] = groups
            answers = list(rows["answer"])
            entry |= sampled_scores(groups, answers, self.tags, grader=self.grader, rows=rows)

        # 3. Ask the questions of another kind.
        rows = self.elsewhere
        if samples and len(rows):
            groups = ask(f"{name}-other", prompts=list(rows["prompt"]), temperature=temperature)
            texts = [text for (text,) in groups]
            self.written[name, "other"] = texts
            # without `grader`, which may need columns that only the run's own rows have
            scored = score(texts, list(rows["answer"]), self.tags, rows=rows)
            entry["other"] = {"source": self.other} | scored
        self.evaluation[name] = entry


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
    """Return a list of `samples` completions for each prompt, from `sampling.sample` or from disk.

    After every `chunk` prompts, the completions are saved in `evaluation/<name>.parquet` of the
    run. A later call reads them and samples only the missing ones. It reads them only if everything
    that affects the completions is unchanged; otherwise the file is replaced. batch_size may
    change, so an evaluation that ran out of memory can continue with a smaller one. Each chunk has
    its own seed, so an interruption does not change the completions.

    identity: what else affects the completions, as JSON data: the model, its quantisation, and the
        adapter.
    """
    import pyarrow.parquet

    from helpers.templates import options_of
    from helpers.training.sampling import engine_of, sample
    from helpers.training.stops import stop_of

    # 1. Hash everything that affects the completions.
    prompts = [list(prompt) for prompt in prompts]  # prompts from a Parquet file are arrays
    limits = {"samples": samples, "temperature": temperature, "max_new_tokens": max_new_tokens}
    settings = limits | {"seed": seed, "chunk": chunk, "engine": engine_of(model)}
    settings |= options_of(tokenizer)  # whether to think, for models with that option
    if stop_of(tokenizer):
        settings["stop"] = stop_of(tokenizer)
    decisive = json.dumps([identity, settings, prompts], sort_keys=True)
    made_for = hashlib.sha256(decisive.encode()).hexdigest()

    # 2. Read the completions saved with the same hash.
    path = run.path(f"evaluation/{name}.parquet")
    completions = []
    if path.exists():
        table = pyarrow.parquet.read_table(path)
        if table.schema.metadata[b"made_for"] == made_for.encode():
            completions = table["completions"].to_pylist()
            print(
                f"{name}: {len(completions)} of {len(prompts)} prompts were answered before, "
                f"{run.show(f'evaluation/{path.name}')}"
            )

    # 3. Sample the others, and save them after each chunk.
    for start in range(len(completions), len(prompts), chunk):
        completions += sample(
            model,
            tokenizer,
            prompts[start : start + chunk],
            **limits,
            batch_size=batch_size,
            seed=seed + start,
        )
        questions = [prompt[-1]["content"] for prompt in prompts[: len(completions)]]
        table = pyarrow.table(
            {"question": questions, "completions": completions}, metadata={"made_for": made_for}
        )
        with atomic_write(path) as temporary:
            pyarrow.parquet.write_table(table, temporary)
    return completions
