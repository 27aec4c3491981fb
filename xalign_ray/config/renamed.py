"""The new names of recipe keys that were renamed, for the error about an unknown key."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "checkpoint.every_steps": "checkpoint.save_steps",
    "checkpoint.keep_last": "checkpoint.save_total_limit",
    "data.dictionary_held_out_share": "data.dictionary_held_out_fraction",
    "data.filters.equal_sides": "data.filters.drop_identical",
    "data.filters.least_script_share": "data.filters.min_script_fraction",
    "data.filters.least_words": "data.filters.min_words",
    "data.filters.most_length_ratio": "data.filters.max_length_ratio",
    "data.filters.most_words": "data.filters.max_words",
    "data.filters.repeated": "data.filters.drop_duplicates",
    "data.held_out_share": "data.held_out_fraction",
    "data.most_pairs": "data.max_pairs",
    "data.row_tokens": "data.max_seq_length",
    "data.slack_share": "data.reserve_fraction",
    "data.tolerance": "data.max_bad_fraction",
    "masking.mask_share": "masking.mask_replace_prob",
    "masking.random_share": "masking.random_replace_prob",
    "masking.rate": "masking.mlm_probability",
    "masking.whole_word": "masking.whole_word_mask",
    "model.dropout": "model.hidden_dropout_prob",
    "model.feed_forward": "model.intermediate_size",
    "model.heads": "model.num_attention_heads",
    "model.layers": "model.num_hidden_layers",
    "model.width": "model.hidden_size",
    "track.log_every_steps": "track.logging_steps",
    "train.clip_norm": "train.max_grad_norm",
    "train.global_batch_rows": "train.global_batch_size",
    "train.held_out_every_steps": "train.eval_steps",
    "train.micro_batch_rows": "train.per_device_batch_size",
    "train.optimizer.peak_lr": "train.optimizer.learning_rate",
    "train.precision": "train.bf16",
    "train.steps": "train.max_steps",
}
