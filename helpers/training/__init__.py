"""Stage 03, training: the code around `trainer.train()`.

In: the rows of stage 01, the rewards of stage 02, and the settings. Out: `checkpoints/` during the
training run; `adapter/`, `metrics.csv` and `completions.parquet` once it has finished. Every
notebook but 01 uses it.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "base": "base_in_words base_of training_in_words",
        "callbacks": "EarlyStopping Watch",
        "checkpoints": "History begin checkpoint_step keep load_adapter",
        "difficulty": "keep_pass_rates rows_between",
        "held_out": "held_out_looks keep_apart",
        "lessons": "lesson_keywords",
        "memory": "check_memory=check",
        "policy": "LORA_TARGETS add_adapter check_engine import_unsloth load load_whole "
        "lora_targets standby text_only",
        "reference": "begin_again claim_for_training freeze_reference",
        "reward_guard": "GuardedRewards",
        "sampling": "lengths_of release sample",
        "sampling_budget": "AUTO questions_within",
        "stops": "end_at_stop set_stop",
        "trial_steps": "check_limit forecast trial_step",
        "vision": "Looking image_token_ban prompts_as_text sample_pictures=sample",
        "warm": "supervised_steps=train warm_start=start",
        "helpers.runs": "seed_everything",
        "helpers.settings": "check_early_stopping check_report_to grpo_keywords unspelt_keywords",
    },
)
