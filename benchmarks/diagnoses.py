"""Does the diagnosis name what is wrong, on real runs and on its peers' simulated ones?

    python -m benchmarks.diagnoses train FOLDER         # FOLDER/ours/KIND-SEED.csv; goes on where it was
    peers/bin/python benchmarks/peers.py simulate FOLDER    # benchmarks/peers.py says what it needs
    peers/bin/python benchmarks/peers.py judge FOLDER
    python -m benchmarks.diagnoses table FOLDER         # benchmarks/results/diagnoses.md
    python -m benchmarks.diagnoses judge FOLDER --scale 7 -2    # ours alone, every CSV, rewards -2 to 5

Each history in FOLDER/ours is a real training run of the pocket model, with 16 completions a step
and 32 held-out questions evaluated every four steps, but for what `RUNS` names. Those in
FOLDER/smollm2 are the `metrics.csv` of runs of SmolLM2, copied by hand.
"""

import argparse
import json
from pathlib import Path

import pandas as pd
import torch
from transformers import TrainerCallback

from benchmarks.sick import POCKET, USUAL, plain_reward, train
from helpers.environment import quiet
from helpers.metrics.diagnosis import diagnose
from helpers.rewards.correctness import correctness_reward
from helpers.tags import completion_text

SEEDS = (1, 2, 3, 4, 5)
MADE_ON = ("1", "2")  # the rules were made on these seeds, and are judged on the others


# --- Rewards that make a run sick -----------------------------------------------------------------


def impossible_correctness(completions: list, answer: list, **columns) -> list[float]:
    """Correctness for answers that the policy cannot work out: the square of the sum."""
    squares = [str(int(float(value)) ** 2 + 7919) for value in answer]
    return correctness_reward(completions, answer=squares, **columns)


def full_marks(completions: list, **columns) -> list[float]:
    """Judge nothing: full marks for all."""
    return [1.0] * len(completions)


def coin_reward(completions: list, **columns) -> list[float]:
    """Judge by a coin."""
    return torch.randint(0, 2, (len(completions),)).tolist()


def brevity_reward(completions: list, **columns) -> list[float]:
    """Pay for every character that is not written."""
    return [1.0 - min(len(completion_text(text)), 200) / 200 for text in completions]


# --- What happens to a policy ----------------------------------------------------------------------


class BreakGradient(TrainerCallback):
    """Make a gradient NaN in step 20, as an overflow would. The next round of sampling fails."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        """Once."""
        if state.global_step == 19:
            weight = next(weight for name, weight in model.named_parameters() if "lora_B" in name)
            weight.register_hook(lambda gradient: gradient * float("nan"))


# name -> (rewards with weights, changes of the configuration, other options of `train`)
SHORT = {"max_steps": 32}
LONG = {"max_steps": 96}  # what is flat is told from luck only after a while
RUNS = {
    "healthy": (USUAL, SHORT, {}),
    "healthy-short": (USUAL, {"max_steps": 25}, {}),
    "healthy-long": (USUAL, {"max_steps": 64}, {}),
    "healthy-slow": (USUAL, SHORT | {"learning_rate": POCKET.learning_rate / 2}, {}),
    "healthy-fast": (USUAL, SHORT | {"learning_rate": POCKET.learning_rate * 2}, {}),
    "hacked": ({correctness_reward: 0.25, plain_reward: 1.0}, SHORT, {}),
    # a policy that only memorises could not be made of this model: its held-out accuracy rises, too
    "healthy-four-questions": (USUAL, {"max_steps": 64, "beta": 0.0}, {"questions": 4}),
    "too-hard": (
        {
            impossible_correctness: 1.0,
            **{k: v for k, v in USUAL.items() if k is not correctness_reward},
        },
        SHORT,
        {},
    ),
    "too-easy": (USUAL, SHORT, {"before": 64}),
    "rate-high": (USUAL, SHORT | {"learning_rate": 10 * POCKET.learning_rate, "beta": 1e-6}, {}),
    "rate-low": (USUAL, LONG | {"learning_rate": POCKET.learning_rate / 1000}, {}),
    "clipped": (USUAL, SHORT | {"max_completion_length": 20}, {}),
    "entropy": (USUAL, SHORT | {"entropy_coef": -0.5}, {}),
    "entropy-collapsed": (USUAL, SHORT | {"entropy_coef": -5.0}, {}),
    "no-brake": (
        {correctness_reward: 0.1, brevity_reward: 1.0},
        SHORT | {"learning_rate": 4 * POCKET.learning_rate, "beta": 1e-9},
        {},
    ),
    "constant": ({full_marks: 1.0}, SHORT, {}),
    "noisy": ({coin_reward: 1.0}, LONG, {}),
    "nan": (USUAL, SHORT, {"callbacks": [BreakGradient]}),
    "frozen": (USUAL, SHORT, {"frozen": True}),
}


# --- The table ------------------------------------------------------------------------------------

# What names each kind: rules of ours, then the names that the peers give it.
NAMES = {
    "hacked": ("hacking held_out", "reward_hacking", ""),
    "too-hard": (
        "zero_spread constant format_only no_learning",
        "advantage_collapse reward_composition",
        "DEGENERATE_GROUPS FORMAT_GAMING",
    ),
    "too-easy": ("solved", "advantage_collapse plateau", "DEGENERATE_GROUPS"),
    "rate-high": ("kl", "kl_drift", "KL_BLOWUP"),
    "rate-low": ("unmoved no_learning", "plateau", ""),
    "clipped": ("clipped", "length_pathology", "TRUNCATION_STARVE"),
    "entropy": ("entropy mode_collapse", "entropy_collapse", "ENTROPY_COLLAPSE"),
    "entropy-collapsed": ("entropy mode_collapse", "entropy_collapse", "ENTROPY_COLLAPSE"),
    "no-brake": ("kl hacking", "kl_drift reward_hacking", "KL_BLOWUP"),
    "constant": (
        "zero_spread constant",
        "advantage_collapse",
        "DEGENERATE_GROUPS REWARD_STD_DEATH",
    ),
    "noisy": ("indifferent no_learning", "plateau", ""),
    "shuffled": ("indifferent no_learning", "plateau", ""),  # SmolLM2 on a control of notebook 08
    "nan": ("gradient", "gradient_pathology", "GRAD_PATHOLOGY"),
    "frozen": ("no_gradient", "gradient_pathology", "GRAD_PATHOLOGY"),
    # rldoctor's scenarios
    "entropy_collapse": ("entropy", "entropy_collapse", "ENTROPY_COLLAPSE"),
    "saturated_groups": ("solved", "advantage_collapse", "DEGENERATE_GROUPS"),
    "too_hard": ("zero_spread", "advantage_collapse", "DEGENERATE_GROUPS"),
    "reward_hacking": ("held_out", "reward_hacking", ""),
    "length_hacking": ("length held_out", "length_pathology reward_hacking", "REWARD_HACK_LENGTH"),
    "truncation": ("clipped", "length_pathology", "TRUNCATION_STARVE"),
    "kl_blowup": ("kl", "kl_drift", "KL_BLOWUP"),
    "clip_saturation": ("clip_ratio", "clip_saturation", "CLIP_SATURATION"),
    "grad_spikes": ("gradient_spikes", "gradient_pathology", "GRAD_PATHOLOGY"),
    "plateau": ("plateau", "plateau", ""),
    "format_domination": ("format_only", "reward_composition", "FORMAT_GAMING"),
    # rlprobe's
    "reward_hack_length": ("length", "length_pathology reward_hacking", "REWARD_HACK_LENGTH"),
    "format_gaming": ("format_only", "reward_composition", "FORMAT_GAMING"),
    "degenerate_groups": ("zero_spread", "advantage_collapse", "DEGENERATE_GROUPS"),
    "adv_collapse": ("", "", "ADV_COLLAPSE"),
    "value_divergence": ("", "", "VALUE_DIVERGENCE"),
    "grad_pathology": ("gradient gradient_spikes", "gradient_pathology", "GRAD_PATHOLOGY"),
    "truncation_starve": ("clipped", "length_pathology", "TRUNCATION_STARVE"),
    "repetition_spiral": ("", "", "REPETITION_SPIRAL"),
    "reward_std_death": ("zero_spread", "advantage_collapse", "REWARD_STD_DEATH DEGENERATE_GROUPS"),
    "ref_drift_asymmetry": ("", "", "REF_DRIFT_ASYMMETRY"),
    "throughput_rot": ("slower", "", "THROUGHPUT_ROT"),
}
JUDGES = ("ours", "rldoctor", "rlprobe")
ALARMS = ("warning", "critical")


def outcome(kind: str, found: list[str], alarms: list[str], judge: int) -> str:
    """What a judge made of a history: "named", "misnamed", "missed", "alarm" or "quiet"."""
    if kind.startswith("healthy"):
        return "alarm" if alarms else "quiet"
    if set(found) & set(NAMES[kind][judge].split()):
        return "named"
    return "misnamed" if alarms else "missed"


def judged(path: Path, factor: float = 1.0, shift: float = 0.0) -> tuple[str, list[str]]:
    """What our rules made of a history, and the alarms they raised, after every reward became
    `factor * reward + shift` (factor > 0): its mean, lowest and highest values, and its spread. The
    total is shifted like each reward, as if it were their weighted mean.
    """
    history = pd.read_csv(path)
    for name in history:
        parts = name.removeprefix("eval_").split("/")
        if parts[0] == "reward" or (parts[0] == "rewards" and parts[-1] in ("mean", "min", "max")):
            history[name] = history[name] * factor + shift
        elif parts[0] == "reward_std" or (parts[0] == "rewards" and parts[-1] == "std"):
            history[name] = history[name] * factor
    findings = diagnose(history)
    roots = [finding.rule for finding in findings if not finding.cause]
    alarms = [finding.rule for finding in findings if finding.severity in ALARMS]
    return outcome(path.stem.rpartition("-")[0], roots, alarms, 0), alarms


def table(folder: Path) -> str:
    """The page: a row a kind, in how many of its histories each judge did what; then our own
    histories that our rules misjudged.
    """
    peers = json.loads((folder / "peers.json").read_text())
    rows = {}
    misjudged = []
    for path in sorted(folder.rglob("*.csv")):
        origin = path.parent.name
        kind, _, seed = path.stem.rpartition("-")
        if origin == "ours":
            origin = "ours, seeds 1 and 2" if seed in MADE_ON else "ours, seeds 3 to 5"
        verdicts = peers[str(path.relative_to(folder))]
        row = rows.setdefault((origin, kind), {judge: [] for judge in JUDGES})
        row["ours"].append(judged(path)[0])
        if path.parent.name == "ours" and row["ours"][-1] not in ("named", "quiet"):
            misjudged.append(f"{path.stem} ({row['ours'][-1]})")
        for number, judge in enumerate(JUDGES[1:], 1):
            row[judge].append(outcome(kind, verdicts[judge], verdicts[judge], number))
    lines = ["| histories | kind | n | ours | rldoctor | rlprobe |", "|---|---|---|---|---|---|"]
    for (origin, kind), row in sorted(rows.items()):
        cells = [
            ", ".join(f"{of.count(one)} {one}" for one in dict.fromkeys(of)) for of in row.values()
        ]
        lines.append(f"| {origin} | {kind} | {len(row['ours'])} | {' | '.join(cells)} |")
    lines += ["", "| histories | judge | sick ones named | healthy ones with an alarm |"]
    lines.append("|---|---|---|---|")
    for origin in sorted({origin for origin, _ in rows}):
        for judge in JUDGES:
            of = [one for (where, _), row in rows.items() if where == origin for one in row[judge]]
            sick = [one for one in of if one in ("named", "misnamed", "missed")]
            healthy = [one for one in of if one in ("alarm", "quiet")]
            lines.append(
                f"| {origin} | {judge} | {sick.count('named')} of {len(sick)} | "
                f"{healthy.count('alarm')} of {len(healthy)} |"
            )
    lines += ["", f"Our own histories that our rules misjudged: {', '.join(misjudged)}."]
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, print the table, or what our rules make of each history."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["train", "table", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, nargs=2, default=(1.0, 0.0), help="factor and shift")
    parser.add_argument("--only", default="", help="the beginning of KIND-SEED")
    parsed = parser.parse_args()
    if parsed.what == "table":
        print(table(parsed.folder))
        return
    if parsed.what == "judge":
        for path in sorted(parsed.folder.rglob("*.csv")):
            verdict, alarms = judged(path, *parsed.scale)
            print(path.relative_to(parsed.folder), verdict, *alarms)
        return
    quiet()
    for seed in SEEDS:
        for kind, (rewards, changes, options) in RUNS.items():
            path = parsed.folder / "ours" / f"{kind}-{seed}.csv"
            if path.exists() or not path.stem.startswith(parsed.only):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            changes = {"per_device_train_batch_size": 16} | changes
            history = train(rewards, changes, seed, held_out=32, **options)
            history.to_csv(path, index=False, float_format="%.4g")
            print(path.stem, history["reward"].dropna().tail(5).mean().round(3), flush=True)


if __name__ == "__main__":
    main()
