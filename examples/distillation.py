"""On-policy distillation: a better model teaches, in place of the rewards.

    config = GRPOConfig(..., beta=1.0, reward_weights=[0.0] * len(reward_functions))
    trainer = GRPOTrainer(...)
    learn_from(trainer, teacher, teacher_tokenizer)
    trainer.train()

The rewards weigh nothing, and the loss is the KL to a reference that is the teacher. Notebook 08
trains the pocket model so. Left out: a teacher with another tokenizer.
"""


def learn_from(trainer, teacher, tokenizer) -> None:
    """Let a trainer take a teacher as the reference of its KL: on-policy distillation, if the
    rewards weigh 0 and `beta` is 1.

    With TRL's default, `use_bias_correction_kl`, the gradient is that of the reverse KL at each
    token of the policy's own samples: KL(policy || teacher), the on-policy case of GKD (arXiv
    2306.13649, section 3).

    Call this between the trainer's constructor and `train()`. ValueError if the teacher's tokenizer
    has other tokens: its probabilities would be of other texts.
    """
    from trl.trainer.grpo_trainer import add_fused_lm_head  # Unsloth must be imported before TRL

    if tokenizer.get_vocab() != trainer.processing_class.get_vocab():
        raise ValueError(
            f"the teacher {teacher.config._name_or_path} and the policy "
            f"{trainer.model.config._name_or_path} have different tokenizers: take a teacher of "
            "the policy's family."
        )
    base = teacher.get_base_model() if hasattr(teacher, "peft_config") else teacher
    add_fused_lm_head(base, trainer.temperature, trainer.args.cast_lm_head_to_fp32)
    trainer.ref_model = trainer.accelerator.prepare_model(teacher.eval(), evaluation_mode=True)
