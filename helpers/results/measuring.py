"""What notebook 05 measures of each model: the same questions, decoding and judge for all."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from helpers.data.tasks import load_task
from helpers.presets import Preset
from helpers.results.answering import answered
from helpers.results.evaluation import sampled_scores, score
from helpers.runs import Run
from helpers.tags import TagFormat


@dataclass
class Measurement:
    """The held-out questions of a run, and what each model made of them.

    evaluation: what evaluation.json will hold, an entry per model. written: the completions, by
    the model's name and "sampled", "greedy", "samples" or "other"; the run folder keeps them too
    (see `answered`).
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

    def measure(
        self, name: str, model, tokenizer, weights: str, samples: int = 0, questions: int = 0
    ) -> None:
        """One sampled and one greedy completion for each held-out question.

        weights: a text that tells these weights from all others, so that no completions of other
            weights are reused.
        samples: if given, also so many completions for each of the first `questions` (pass@k and
            the majority vote), and one for each question of a kind that was not trained on.
        """
        from helpers.training.policy import engine_of

        def completed(kind: str, rows: pd.DataFrame, temperature: float, samples: int = 1) -> list:
            groups = answered(
                self.run,
                f"{name}-{kind}",
                model,
                tokenizer,
                list(rows["prompt"]),
                identity={"weights": weights},
                samples=samples,
                temperature=temperature,
                max_new_tokens=self.settings.max_completion_length,
                batch_size=self.batch_size,
                seed=self.seed,
            )
            texts = groups if kind == "samples" else [text for (text,) in groups]
            self.written[name, kind] = texts
            return texts

        rows, temperature, entries = self.holdout, self.settings.temperature, {}
        for decoding, heat in (("sampled", temperature), ("greedy", 0.0)):
            entries[decoding] = score(
                completed(decoding, rows, heat),
                list(rows["answer"]),
                self.tags,
                judge=self.judge,
                rows=rows,
                difficulty=list(rows["difficulty"]) if "difficulty" in rows else None,
                count_tokens=lambda text: len(tokenizer(text)["input_ids"]),
            )
        entry = self.evaluation[name] = entries["sampled"] | {
            "temperature": temperature,
            "greedy": entries["greedy"],
            "sampled_by": engine_of(model),
        }
        if samples:
            some, other = rows[:questions], self.elsewhere
            groups = completed("samples", some, temperature, samples)
            entry |= sampled_scores(
                groups, list(some["answer"]), self.tags, judge=self.judge, rows=some
            )
            texts = completed("other", other, temperature)
            scored = score(texts, list(other["answer"]), self.tags, rows=other)
            entry["other"] = {"source": self.other} | scored
