"""Synthetic training histories with TRL's column names."""

import numpy as np
import pandas as pd

from helpers.metrics.diagnosis import Finding, diagnose

N = 80
T = np.arange(1, N + 1)
GAP = "sampling/sampling_logp_difference/mean"
RIGHT, FORM = "rewards/accuracy_reward/mean", "rewards/format_reward/mean"
LENGTH, CLIPPED, ZERO = (
    "completions/mean_length",
    "completions/clipped_ratio",
    "frac_reward_zero_std",
)


def line(first: float, last: float, n: int = N) -> np.ndarray:
    return np.linspace(first, last, n)


def until(step: int, before, after) -> np.ndarray:
    return np.where(step >= T, before, after)


def history(**columns) -> pd.DataFrame:
    """Return the history of a healthy run, with the given columns replaced. None drops a column.

    The noise is the same in every call.
    """
    noise = np.random.default_rng(0)
    right, form = (columns.pop(name, None) for name in ("right", "form"))
    right = line(0.3, 0.7) if right is None else right
    form = until(20, line(0.4, 1.8), 0.9) if form is None else form
    right, form = (np.clip(values + noise.normal(0, 0.03, N), 0, 1) for values in (right, form))
    rows = pd.DataFrame(
        {
            "step": T,
            "loss": noise.normal(0, 1e-3, N),
            "grad_norm": 0.1 * noise.lognormal(0, 0.4, N),
            "learning_rate": line(1e-5, 1e-6),
            LENGTH: 100 * noise.lognormal(0, 0.05, N),
            CLIPPED: noise.uniform(0, 0.1, N),
            RIGHT: right,
            FORM: form,
            "reward": right + 0.5 * form,
            "reward_std": 0.5,
            ZERO: noise.integers(0, 3, N) / 8,
            "kl": line(0.001, 0.04) * noise.lognormal(0, 0.2, N),
            "entropy": line(0.4, 0.3) * noise.lognormal(0, 0.05, N),
        }
    )
    for name, values in columns.items():
        name = {"zero": ZERO, "length": LENGTH, "clipped": CLIPPED}.get(name, name)
        if values is None:
            rows = rows.drop(columns=name)
        else:
            rows[name] = values
    return rows


def found(rows: pd.DataFrame, rule: str) -> Finding | None:
    (finding,) = [finding for finding in diagnose(rows) if finding.rule == rule] or [None]
    return finding


def severe(rows: pd.DataFrame) -> dict[str, str]:
    return {
        finding.rule: finding.severity for finding in diagnose(rows) if finding.severity != "info"
    }


def shaken(values, size: float) -> np.ndarray:
    return values + np.random.default_rng(1).normal(0, size, N)


FLAT = {"right": np.full(N, 0.4), "form": np.full(N, 0.5)}
HACKED = {"right": line(0.6, 0.3), "form": line(0.0, 1.0)}


def gaps(sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the column that TRL logs about the sampling engine, for steps of 32 completions with
    40 tokens each.

    sizes: for each step, the standard deviation of the difference in a token's log-probability.
    """
    noise = np.random.default_rng(seed).normal(size=(len(sizes), 32 * 40))
    return {GAP: np.abs(np.asarray(sizes)[:, None] * noise).mean(axis=1)}


EVERYTHING_WRONG = HACKED | {
    "reward": line(0.6, 0.9),
    "zero": 0.95,
    "kl": 5.0,
    "clipped": 1.0,
    "length": line(100, 400),
    "entropy": line(0.4, 0.001),
    "loss": line(0, 1),
}


def agent(
    seed: int = 0, n: int = N, *, calls=4.0, failed=0.05, finished=0.95, won=None
) -> pd.DataFrame:
    """Return the history of an agent's run of n steps, with 16 episodes per step.

    calls: tool calls per episode. failed, finished, won: shares of calls and of episodes. Each is
    one value, or n values.
    """
    noise = np.random.default_rng(seed)
    calls, failed, finished, won = (
        np.broadcast_to(x, n)
        for x in (calls, failed, finished, line(0.3, 0.8) if won is None else won)
    )
    made = noise.poisson(16 * calls)
    earned = np.clip(won[:, None] + noise.normal(0, 0.3, (n, 16)), 0, 1)
    rows = {
        "step": np.arange(1, n + 1),
        "loss": noise.normal(0, 1e-3, n),
        "grad_norm": 0.1 * noise.lognormal(0, 0.4, n),
        "learning_rate": line(1e-5, 1e-6, n),
        "reward": earned.mean(axis=1),
        "reward_std": earned.std(axis=1),
        "rewards/finished/mean": noise.binomial(16, finished) / 16,
        "rewards/Guessing/mean": earned.mean(axis=1),
        ZERO: noise.integers(0, 3, n) / 8,
        CLIPPED: 0.0,
        "tools/call_frequency": made / 16,
        "tools/failure_frequency": noise.binomial(made, failed) / np.maximum(made, 1),
    }
    return pd.DataFrame(rows)
