"""On-policy distillation: the policy learns from a better model instead of from rewards.

    config = GRPOConfig(..., beta=1.0, reward_weights=[0.0] * len(reward_functions))
    trainer = GRPOTrainer(...)
    learn_from(trainer, teacher, teacher_tokenizer)
    trainer.train()

All rewards have weight 0, so the loss is the KL divergence from the teacher. Notebook 08 trains the
pocket model this way. Left out: a teacher with another tokenizer.
"""


def learn_from(trainer, teacher, tokenizer) -> None:
    """Make a teacher the reference model of a trainer. With reward weights of 0 and `beta=1`, this
    is on-policy distillation.

    With TRL's default, `use_bias_correction_kl`, the gradient is that of the reverse KL at each
    token of the policy's own samples: KL(policy || teacher), the on-policy case of GKD (arXiv
    2306.13649, section 3).

    Call this function between the trainer's constructor and `train()`. Raise ValueError if the
    teacher's vocabulary differs: its probabilities would then belong to other tokens.
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
