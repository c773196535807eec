"""Each rule on a synthetic history that triggers it and on one that nearly does; and what a history may lack."""

import re

import numpy as np
import pandas as pd
import pytest

from helpers.diagnosis import SEVERITIES
from helpers.metrics import Finding, diagnose

N = 80
T = np.arange(1, N + 1)
RIGHT, FORM = "rewards/accuracy_reward/mean", "rewards/format_reward/mean"
LENGTH, CLIPPED, ZERO = "completions/mean_length", "completions/clipped_ratio", "frac_reward_zero_std"


def line(first: float, last: float, n: int = N) -> np.ndarray:
    return np.linspace(first, last, n)


def until(step: int, before, after) -> np.ndarray:
    return np.where(step >= T, before, after)


def history(**columns) -> pd.DataFrame:
    """A training that goes well, with other values in some columns; None drops one. The noise is the same in every test."""
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


def found(rows: pd.DataFrame, rule: str, **options) -> Finding | None:
    (finding,) = [finding for finding in diagnose(rows, **options) if finding.rule == rule] or [None]
    return finding


def severe(rows: pd.DataFrame, **options) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in diagnose(rows, **options) if finding.severity != "info"}


def shaken(values, size: float) -> np.ndarray:
    return values + np.random.default_rng(1).normal(0, size, N)


HIGH_FORM = np.full(N, 0.95)
COLLAPSED = {"zero": until(40, 0.1, 0.9), "right": until(40, 0.3, 0.05), "entropy": until(40, 0.4, 0.1)}
FLAT = {"right": np.full(N, 0.4), "form": np.full(N, 0.5)}
HACKED = {"right": line(0.6, 0.3), "form": line(0.0, 1.0)}
SPIKY = history()["grad_norm"].to_numpy()


def spiked(times: float, *steps: int) -> np.ndarray:
    return np.where(np.isin(T, steps), times * np.median(SPIKY), SPIKY)


def broken(column: str, value: float, steps) -> np.ndarray:
    return np.where(np.isin(T, steps), value, history()[column])


# What is named, how severe, the history that shows it, and one that nearly does.
CASES = {
    "flat rewards": ("no_learning", "warning", FLAT, {"right": line(0.4, 0.6), "form": np.full(N, 0.5)}),
    "a reward that falls": ("reward_fall", "warning", {"right": until(40, line(0.1, 1.4), 0.3)}, {"right": line(0.7, 0.65)}),
    "a reward below its start": ("reward_fall", "critical", {"right": line(0.7, 0.2), "form": line(0.8, 0.3)}, FLAT),
    "mode collapse": ("mode_collapse", "critical", COLLAPSED, COLLAPSED | {"right": until(40, 0.3, 0.97)}),
    "collapse needs low entropy": ("mode_collapse", "critical", COLLAPSED, COLLAPSED | {"entropy": 0.4}),
    "half of the groups alike": ("zero_spread", "warning", {"zero": shaken(0.65, 0.05)}, {"zero": shaken(0.45, 0.05)}),
    "nearly all groups alike": ("zero_spread", "critical", FLAT | {"zero": 0.95}, FLAT | {"zero": shaken(0.85, 0.02)}),
    "high KL": ("kl", "warning", {"kl": shaken(0.6, 0.03)}, {"kl": shaken(0.4, 0.03)}),
    "KL that runs away": ("kl", "critical", {"kl": line(0.01, 10)}, {"kl": shaken(1.8, 0.03)}),
    "exponential KL": ("kl", "warning", {"kl": 0.4 * 1.05 ** (T - N)}, {"kl": line(0, 0.4)}),
    "quick exponential KL": ("kl", "warning", {"kl": np.maximum(0.01, 0.4 * 1.2 ** (T - N))}, {"kl": 0.4 * (T / N) ** 2}),
    "hacking": ("hacking", "critical", HACKED | {"reward": line(0.6, 0.9)}, HACKED | {"reward": line(0.9, 0.6)}),
    "hacking late": (
        "hacking",
        "critical",
        {"right": until(40, line(0.2, 0.8), 0.2), "reward": line(1, 2)},
        {"reward": line(1, 2)},
    ),
    "format alone": ("format_only", "warning", {"right": np.full(N, 0.3)}, {"right": line(0.3, 0.45)}),
    "format just learned": (
        "format_only",
        "warning",
        {"right": np.full(N, 0.3), "form": until(55, 0.3, 0.95)},
        {"right": np.full(N, 0.3), "form": until(70, 0.3, 0.95)},
    ),
    "length explosion": ("length", "warning", FLAT | {"length": line(100, 260)}, FLAT | {"length": line(100, 170)}),
    "length collapse": ("length", "warning", FLAT | {"length": line(100, 30)}, FLAT | {"length": line(100, 60)}),
    "most completions clipped": ("clipped", "warning", {"clipped": shaken(0.65, 0.05)}, {"clipped": shaken(0.45, 0.05)}),
    "all completions clipped": ("clipped", "critical", {"clipped": 0.97}, {"clipped": shaken(0.85, 0.02)}),
    "entropy collapse": ("entropy", "warning", FLAT | {"entropy": line(0.4, 0.02)}, FLAT | {"entropy": line(0.4, 0.15)}),
    "entropy spent to learn": ("entropy", "warning", FLAT | {"entropy": line(0.4, 0.02)}, {"entropy": line(0.4, 0.02)}),
    "gradient spikes": ("gradient", "warning", {"grad_norm": spiked(30, 20, 40, 60)}, {"grad_norm": spiked(8, 20, 40, 60)}),
    "a NaN loss": ("gradient", "critical", {"loss": broken("loss", np.nan, T[70:])}, {"kl": broken("kl", np.nan, T[70:])}),
    "a NaN gradient": ("gradient", "critical", {"grad_norm": broken("grad_norm", np.nan, [80])}, {}),
    "an infinite gradient": ("gradient", "warning", {"grad_norm": broken("grad_norm", np.inf, [40])}, {}),
}


@pytest.mark.parametrize(("rule", "severity", "shows", "nearly"), CASES.values(), ids=CASES)
def test_a_rule_names_what_it_is_for_and_not_what_nearly_is(rule, severity, shows, nearly):
    rows = history(**shows)
    finding = found(rows, rule)
    assert finding is not None and finding.severity == severity, [str(finding) for finding in diagnose(rows)]
    less = severe(history(**nearly)).get(rule, "info")
    assert SEVERITIES.index(less) > SEVERITIES.index(severity), str(found(history(**nearly), rule))
    first, last = finding.steps
    assert 1 <= first <= last <= N and re.search(r"\bsteps? \d+", finding.evidence), finding.evidence


def test_a_training_that_goes_well_gives_no_warning_at_any_of_its_steps():
    rows = history()
    assert [severe(rows[:n]) for n in range(N + 1)] == [{}] * (N + 1)


@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_makes_no_warning_of_a_slow_training(seed):
    """16 completions a step on questions of all difficulties, as the presets for small cards have it."""
    noise = np.random.default_rng(seed)
    rate = np.clip(line(0.35, 0.75, 240)[:, None] + noise.normal(0, 0.3, (240, 2)), 0, 1)
    correct = noise.random((240, 2, 8)) < rate[..., None]
    rows = pd.DataFrame({"step": range(1, 241), RIGHT: correct.mean(axis=(1, 2)), "reward": correct.mean(axis=(1, 2))})
    rows = rows.assign(reward_std=correct.std(axis=(1, 2)), **{ZERO: (correct.std(axis=2) == 0).mean(axis=1)})
    assert severe(rows) == {}


# --- What is told apart ------------------------------------------------------------------------------------------------


def test_groups_that_agree_because_they_are_right_are_solved():
    rows = history(right=until(40, line(0.3, 1.6), 0.97), zero=until(40, 0.1, 0.9), entropy=until(40, 0.4, 0.02))
    solved = found(rows, "solved")
    assert severe(rows) == {} and solved.severity == "info" and "correctness 0.9" in solved.evidence
    assert "90% of the groups" in solved.evidence and "10% at the start" in solved.evidence


def test_without_a_reward_that_judges_the_answer_a_risen_total_speaks_for_the_groups_that_agree():
    unnamed = {RIGHT: None, FORM: None, "zero": until(40, 0.1, 0.9), "entropy": until(40, 0.4, 0.02)}
    assert severe(history(**unnamed)) == {} and found(history(**unnamed), "solved")
    assert severe(history(**unnamed, **FLAT))["mode_collapse"] == "critical"


def test_spread_is_read_from_the_groups_and_never_from_the_batch():
    assert severe(history(reward_std=1e-9, zero=0.0)) == {}, "one score a question, in every batch, is no collapse"
    assert severe(history(reward_std=0.9, zero=0.95, right=line(0.1, 0.4))) == {"zero_spread": "critical"}
    assert severe(history(reward_std=1e-9, zero=None)) == {}


def test_a_constant_reward_is_named_from_the_fifth_step_and_is_no_learning_later():
    rows = history(reward=1.0, reward_std=0.0, zero=1.0, grad_norm=0.0, **{RIGHT: None, FORM: None})
    assert severe(rows[:4]) == {}
    assert severe(rows[:5]) == {"zero_spread": "critical"}
    assert severe(rows) == {"zero_spread": "critical", "no_learning": "warning"}


def test_single_kl_spikes_are_explained_and_are_no_warning():
    rows = history(kl=np.where(np.isin(T, [30, 50, 51, 52]), 7.8, history()["kl"]))
    finding = found(rows, "kl")
    assert finding.severity == "info" and finding.steps == (30, 52)
    assert "7.8 at step 30" in finding.evidence and "4 of 80 rows" in finding.evidence and "heavy tail" in finding.advice


def test_a_kl_that_came_back_is_told_with_its_height_and_when_it_was():
    finding = found(history(kl=np.where((T > 20) & (T <= 40), 0.9, 0.02)), "kl")
    assert finding.severity == "info" and "0.9 nats" in finding.evidence
    assert finding.steps == (25, 44), "five of nine rows make a median"


def test_a_high_kl_is_dated_from_the_last_time_it_rose():
    assert found(history(kl=until(40, np.where(T <= 10, 0.9, 0.02), 0.9)), "kl").steps == (45, 80)


@pytest.mark.parametrize("rises", [True, False])
def test_a_loss_that_rises_from_zero_is_explained_as_healthy(rises):
    finding = found(history(loss=shaken(line(0, 0.01 if rises else 0.0005), 1e-3)), "loss")
    assert (finding is not None) == rises
    if rises:
        assert finding.severity == "info" and "healthy" in finding.what and "beta" in finding.advice


def test_a_loss_that_rises_with_a_kl_that_ran_away_is_not_called_healthy():
    assert found(history(loss=line(0, 0.2), kl=line(0, 10)), "loss") is None


def test_longer_and_better_is_no_warning():
    finding = found(history(length=line(100, 300)), "length")
    assert finding.severity == "info" and "longer, and better" in finding.what


def test_a_total_that_falls_while_correctness_does_not_is_an_adaptive_weight():
    assert "reward_fall" not in severe(history(reward=line(1.2, 0.5)))
    assert severe(history(reward=line(1.2, 0.5), **{RIGHT: None}))["reward_fall"] == "critical"


def test_gradients_of_solved_steps_are_not_what_a_spike_is_measured_by():
    rows = history(right=np.full(N, 0.97), zero=until(20, 0.2, np.where(T % 5, 1.0, 0.5)))
    rows["grad_norm"] = np.where(rows[ZERO] < 1, 0.2, 1e-5)
    assert found(rows, "gradient") is None


def test_overflows_at_the_start_are_the_loss_scalers():
    assert found(history(grad_norm=broken("grad_norm", np.inf, [1, 2, 3])), "gradient").severity == "info"


# --- Too few steps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 5, 19])
def test_too_few_steps_are_said_to_be_too_few_and_no_trend_is_judged(n):
    rows = history(**HACKED, entropy=line(0.4, 0.001), length=line(1, 1000))[:n]
    (finding,) = diagnose(rows)
    assert (finding.severity, finding.rule) == ("info", "too_few_steps") and f"{n} logged" in finding.evidence
    assert finding.steps == ((1, n) if n else (0, 0))


def test_from_twenty_steps_on_trends_are_judged():
    assert [finding.rule for finding in diagnose(history()[:20])] != ["too_few_steps"]


@pytest.mark.parametrize(
    ("rule", "columns"),
    [("kl", {"kl": 5.0}), ("zero_spread", {"zero": 1.0}), ("clipped", {"clipped": 1.0}), ("gradient", {"loss": np.nan})],
)
def test_what_cannot_be_luck_is_judged_from_the_fifth_step(rule, columns):
    assert severe(history(**columns)[:6]) == {rule: "critical"}
    assert diagnose(history(**columns)[:6])[-1].rule == "too_few_steps"


def test_one_group_with_spread_among_few_steps_is_no_verdict():
    assert severe(history(zero=np.where(T == 3, 0.5, 1.0))[:8]) == {}


def test_where_noise_hides_a_trend_that_is_said_instead_of_a_guess():
    noise = np.random.default_rng(4).choice([0.0, 1.0], N)
    rows = history(reward=noise, right=np.full(N, 0.5), form=np.full(N, 0.5))[:30]
    finding = found(rows.assign(learning_rate=1e-5), "too_few_steps")
    assert finding is not None and "noise" in finding.what and severe(rows) == {}


def test_a_warm_up_is_not_called_no_learning():
    warming = np.minimum(T / 65, 1.0)
    assert severe(history(**FLAT)) == {"no_learning": "warning"}
    assert severe(history(**FLAT, learning_rate=warming)) == {}, "15 steps at the full rate"
    assert severe(history(**FLAT, learning_rate=np.minimum(T / 40, 1.0))) == {"no_learning": "warning"}


# --- What a history may lack -------------------------------------------------------------------------------------------

EVERYTHING_WRONG = HACKED | {
    "reward": line(0.6, 0.9), "zero": 0.95, "kl": 5.0, "clipped": 1.0, "grad_norm": spiked(99, 20, 40, 60),
    "length": line(100, 400), "entropy": line(0.4, 0.001), "loss": line(0, 1),
}  # fmt: skip
NEEDS = {
    "kl": "kl", "zero_spread": ZERO, "clipped": CLIPPED, "gradient": "grad_norm", "length": LENGTH, "entropy": "entropy",
    "hacking": RIGHT,
}  # fmt: skip


@pytest.mark.parametrize(("rule", "column"), NEEDS.items())
@pytest.mark.parametrize("lacks", ["the column", "every value"])
def test_a_rule_without_its_column_is_silent_and_the_others_speak(rule, column, lacks):
    rows = history(**EVERYTHING_WRONG)
    assert rule in severe(rows)
    if lacks == "every value" and column != "grad_norm":  # where every norm is NaN, that is the finding
        rows[column] = np.nan
    else:
        rows = rows.drop(columns=column)
    assert rule not in severe(rows) and len(severe(rows)) >= 3


def test_gaps_are_left_out():
    rows = history(**EVERYTHING_WRONG)
    gaps = rows.mask(np.random.default_rng(2).random(rows.shape) < 0.1)
    gaps[["step", "loss", "grad_norm"]] = rows[["step", "loss", "grad_norm"]]
    assert severe(gaps).keys() == severe(rows).keys()


def test_rows_of_an_evaluation_and_the_summary_are_no_steps():
    rows = history()[:10]
    extra = pd.DataFrame([{"step": 5, "eval_loss": 0.1}, {"step": 10, "train_runtime": 60.0, "train_loss": 0.1}])
    assert [str(finding) for finding in diagnose(pd.concat([rows, extra]))] == [str(finding) for finding in diagnose(rows)]


@pytest.mark.parametrize("columns", [[], ["step"], ["step", "reward"], ["reward"], ["kl"]])
def test_any_columns_will_do(columns):
    assert severe(history()[columns]) == {}


def test_the_order_of_rows_does_not_matter():
    rows = history(**EVERYTHING_WRONG)
    assert diagnose(rows.sample(frac=1, random_state=3)) == diagnose(rows)


def test_the_history_is_not_changed():
    rows = history(**EVERYTHING_WRONG)
    before = rows.copy()
    diagnose(rows)
    pd.testing.assert_frame_equal(rows, before)


# --- Which reward judges what ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["correctness_reward", "accuracy_reward", "exact_match_reward", "numeric_reward", "task_reward", "proximity_reward",
     "fuzzy_match_reward", "check_answer"],
)  # fmt: skip
def test_the_reward_that_judges_the_answer_is_known_by_its_name(name):
    rows = history(**EVERYTHING_WRONG).rename(columns={RIGHT: f"rewards/{name}/mean"})
    assert severe(rows)["hacking"] == "critical"


def test_partial_credit_does_not_judge_where_a_strict_reward_does():
    rows = history(**EVERYTHING_WRONG)
    rows.insert(0, "rewards/proximity_reward/mean", line(0.3, 0.6))
    assert "hacking" in severe(rows)


def test_a_format_reward_never_judges_the_answer():
    rows = history(**EVERYTHING_WRONG).rename(columns={RIGHT: "rewards/answer_format_reward/mean"})
    assert "hacking" not in severe(rows)


def test_rewards_of_any_name_can_be_told():
    names = {RIGHT: "rewards/judge/mean", FORM: "rewards/shape/mean"}
    rows, silent = (history(**columns).rename(columns=names) for columns in (HACKED | {"reward": line(0.6, 0.9)}, {}))
    assert "hacking" not in severe(rows) and severe(rows, correctness="judge")["hacking"] == "critical"
    assert severe(silent, correctness="judge", formats=["shape"]) == {}
    alone = history(right=np.full(N, 0.3)).rename(columns=names)
    assert severe(alone, correctness="judge", formats=["shape"]) == {"format_only": "warning"}


@pytest.mark.parametrize("options", [{"correctness": "corectness"}, {"formats": ["form", "format_reward"]}])
def test_a_reward_that_was_not_logged_is_named_with_those_that_were(options):
    with pytest.raises(ValueError, match=r"no reward '(corectness|form)' was logged.*accuracy_reward, format_reward"):
        diagnose(history(), **options)


def test_a_reward_that_is_no_share_is_not_taken_for_one():
    rows = history(zero=0.95)
    rows[RIGHT] = 2 * rows[RIGHT]  # full marks are 2.0, so 1.4 is no solved task
    assert found(rows.assign(reward=1.0), "solved") is None


# --- What a finding says -----------------------------------------------------------------------------------------------


def test_findings_come_with_the_most_severe_first_and_one_a_rule():
    findings = diagnose(history(**EVERYTHING_WRONG))
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks) and len({finding.rule for finding in findings}) == len(findings) >= 6


def test_each_prints_as_one_line_that_holds_all_of_it():
    for columns in (EVERYTHING_WRONG, FLAT, {}, *(case[2] for case in CASES.values())):
        for finding in diagnose(history(**columns)):
            line = str(finding)
            assert "\n" not in line and line.startswith(f"{finding.severity} ({finding.rule}): ")
            assert finding.evidence in line and finding.advice in line and finding.what[:-1] in line
            assert finding.what.endswith(".") and finding.advice[-1] in ".?" and ":" not in finding.what
            assert not re.search(r"\d", finding.what) and re.search(r"\d", finding.evidence)
            assert not finding.evidence.endswith(".") and "nan" not in line.lower()


def test_the_numbers_are_those_of_the_history():
    finding = found(history(right=line(0.6, 0.3), reward=line(1.0, 1.79)), "hacking")
    rows = history(right=line(0.6, 0.3))[RIGHT]
    assert finding.steps == (1, 80)
    assert finding.evidence == (
        "reward 1.1 at steps 1 to 20, 1.69 at steps 61 to 80; "
        f"correctness {rows[:20].mean():.3g} at steps 1 to 20, {rows[60:].mean():.3g} at steps 61 to 80"
    )
