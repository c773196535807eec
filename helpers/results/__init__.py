"""Stage 05, merge and inference: evaluate the policy, and merge it into its base model.

In: `adapter/`, the holdout and the settings of a run. Out: `evaluation.json`,
`comparison.json`, and `merged/` with its model card. Used by notebooks 00 and 05 to 11, and by
commands such as `generate` and `report`.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "llama_cpp": "",
        "card": "",
        "plots": "",
        "answering": "Measurement",
        "evaluation": "compare compare_outcomes comparison_lines proportion right "
        "sampled_scores score",
        "exports": "check_merge",
        "intervals": "mcnemar_test student_interval wilson_interval",
        "looking": "CONDITIONS blind_floor completions score_conditions",
        "merging": "largest_difference load_base merge_with_unsloth precision prompt_logits",
        "planning": "widths",
        "serving": "serve_commands",
        "tables": "difficulty_summary samples_summary summary",
    },
)
