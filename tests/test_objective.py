"""The settings of the objective: which go together, what recorded ones become, and what reads them
in TRL.
"""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import presets
from helpers.presets import PRESETS, as_settings, for_sampling, from_manifest, with_overrides

POCKET = PRESETS["pocket"]
NEEDED = {
    "dr_grpo": {"scale_rewards": "none"},
    "cispo": {"epsilon_high": 5.0},
    "luspo": {"importance_sampling_level": "sequence"},
}


@pytest.mark.parametrize("loss", presets._LOSS_TYPES)
def test_each_of_trls_losses_can_be_had_and_what_it_needs_beside_it_is_said(loss):
    needed = NEEDED.get(loss, {})
    assert with_overrides(POCKET, loss_type=loss, **needed).loss_type == loss
    for name in needed:
        with pytest.raises(ValueError, match=rf"{name}=.*loss_type='{loss}'.*set .*{needed[name]}"):
            with_overrides(POCKET, loss_type=loss)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            {"loss_type": "cispo", "epsilon_high": 5.0, "epsilon": 0.1},
            "epsilon=0.1 would be ignored by loss_type='cispo'",
        ),
        (
            {"loss_type": "sapo", "epsilon": 0.1},
            "epsilon=0.1 would be ignored by loss_type='sapo'; leave it at 0.2",
        ),
        (
            {"loss_type": "sapo", "epsilon_high": 0.28},
            "epsilon_high=0.28 would be ignored by loss_type='sapo'",
        ),
        (
            {"loss_type": "vespo", "epsilon_high": 0.28},
            "epsilon_high=0.28 would be ignored by loss_type='vespo'",
        ),
        (
            {"loss_type": "vespo", "importance_sampling_level": "sequence"},
            "has one weight per completion already, and only the KL would change",
        ),
        ({"loss_type": "cispo", "epsilon_high": 0.99}, "cuts the ratio off at epsilon_high itself"),
        (
            {"importance_sampling_level": "sequence"},
            "with loss_type='dapo' a completion would count by its length",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "batch"},
            "scale_rewards='batch' would be ignored",
        ),
        (
            {"vllm_importance_sampling_correction": True},
            "with engine='transformers' there is nothing to correct",
        ),
        ({"scale_rewards": "std"}, "scale_rewards='std' is not one of: group, batch, none"),
        ({"scale_rewards": False}, "scale_rewards=False is not of type str"),
        (
            {"importance_sampling_level": "word"},
            "importance_sampling_level='word' is not one of: token, sequence",
        ),
        ({"multi_objective_aggregation": "sum"}, "multi_objective_aggregation='sum' is not one of"),
        ({"epsilon": 0.0}, "epsilon=0.0 must be between"),
        ({"num_iterations": 0}, "num_iterations=0 must be at least 1"),
        (
            {"loss_type": "ppo"},
            "loss_type='ppo' is not one of: grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo",
        ),
    ],
)
def test_what_the_chosen_loss_ignores_or_changes_is_refused(override, said):
    with pytest.raises(ValueError) as error:
        with_overrides(POCKET, **override)
    assert said in str(error.value)


def test_gspo_gdpo_and_clip_higher_can_be_had():
    assert with_overrides(
        POCKET,
        loss_type="grpo",
        importance_sampling_level="sequence",
        epsilon=3e-4,
        epsilon_high=4e-4,
    )
    assert with_overrides(
        POCKET, multi_objective_aggregation="normalize_then_sum", num_iterations=2
    )
    assert with_overrides(POCKET, epsilon_high=0.28, mask_truncated_completions=True, beta=0.0)


def test_the_objective_is_trls_default_and_nothing_of_it_is_left_open():
    from trl import GRPOConfig

    trls = {name: field.default for name, field in GRPOConfig.__dataclass_fields__.items()}
    ours = [
        "loss_type",
        "epsilon",
        "scale_rewards",
        "multi_objective_aggregation",
        "importance_sampling_level",
    ]
    ours += ["mask_truncated_completions", "num_iterations"]
    for preset in PRESETS.values():
        assert {name: getattr(preset, name) for name in ours} == {name: trls[name] for name in ours}
        assert preset.epsilon_high == preset.epsilon, "what TRL's None stands for"
        assert preset.vllm_importance_sampling_correction is False


def test_which_losses_clip_is_what_trl_does():
    import trl.trainer.grpo_trainer as trls

    (loss,) = (
        node
        for node in ast.walk(ast.parse(Path(trls.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "_compute_loss"
    )
    branches = [
        node
        for node in ast.walk(loss)
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith("self.loss_type")
    ]
    for ours, theirs in (("epsilon", "self.epsilon_low"), ("epsilon_high", "self.epsilon_high")):
        reading = [
            branch for branch in branches if theirs in "".join(map(ast.unparse, branch.body))
        ]
        losses = {
            loss
            for loss in presets._LOSS_TYPES
            for branch in reading
            if f"'{loss}'" in ast.unparse(branch.test)
        }
        assert losses == {
            loss for loss in presets._LOSS_TYPES if ours not in presets._IGNORED.get(loss, [])
        }


# --- Recorded runs --------------------------------------------------------------------------------


def before_there_was_a_choice(preset=POCKET, **more) -> dict:
    """Settings as they were recorded before those of the objective existed."""
    return {
        name: value for name, value in as_settings(preset).items() if name not in presets._OBJECTIVE
    } | more


@pytest.mark.parametrize("loss", ["dr_grpo", "cispo"])
def test_an_old_manifest_whose_loss_needs_another_setting_is_mended_by_giving_it(loss):
    old = before_there_was_a_choice(loss_type=loss)
    with pytest.raises(ValueError, match=f"loss_type='{loss}'"):
        from_manifest(old)
    assert from_manifest(old, **NEEDED[loss]) == with_overrides(
        POCKET, loss_type=loss, **NEEDED[loss]
    )


def test_what_only_samples_does_not_mind_how_a_run_was_trained():
    assert (
        for_sampling(before_there_was_a_choice(loss_type="dr_grpo"), engine="transformers")
        == POCKET
    )
    assert for_sampling(as_settings(POCKET), loss_type="cispo", temperature=0.5) == replace(
        POCKET, temperature=0.5
    )
    fast = with_overrides(PRESETS["l4"], engine="vllm", vllm_importance_sampling_correction=True)
    assert for_sampling(as_settings(fast), engine="transformers") == replace(
        PRESETS["l4"], engine="transformers"
    )
    with pytest.raises(ValueError, match="must be between"):
        for_sampling(as_settings(fast), temperature=0.0)


def test_the_objective_is_the_fields_that_its_rules_are_about():
    (rules,) = (
        node
        for node in ast.walk(ast.parse(Path(presets.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "_objective"
    )
    read = {
        node.attr
        for node in ast.walk(rules)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "preset"
    }
    ignored = {name for names in presets._IGNORED.values() for name in names} | {"scale_rewards"}
    assert (read | ignored) - {"engine"} <= set(presets._OBJECTIVE) <= set(presets.OF_TRAINING)
