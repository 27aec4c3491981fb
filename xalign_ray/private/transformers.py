"""Private parts of transformers and accelerate: the attention of a config, parts of models, the Trainer's devices."""

from __future__ import annotations

from typing import Any


def attention_of(config: Any) -> str:
    """The implementation of attention that a model of this config computes by.

    If it changes: an AttributeError in the first forward pass.
    """
    return config._attn_implementation


def set_attention(config: Any, implementation: str) -> None:
    """Sets the implementation that a model made of this config begins with.

    If it changes: models open with transformers' default, not the recipes (test_backbones_losses.py).
    """
    config._attn_implementation = implementation


def modernbert_after_norm(layer: Any, hidden_states: Any, normed: Any, **given: Any) -> Any:
    """A layer of ModernBERT after the norm before its attention; states of any shape that ends in d.

    If it changes: a compiled ModernBERT computes otherwise than one that is not (test_train_execution.py).
    """
    hidden_states = hidden_states + layer.attn(normed, **given)[0]
    return hidden_states + layer.mlp(layer.mlp_norm(hidden_states))


def deberta_distances(row: Any, buckets: int, furthest: int) -> Any:
    """DeBERTa's bucketed distances between the tokens of a row, [1, L, L].

    If it changes: an ImportError, or other scores than the stock model's (tests/parity/test_deberta.py).
    """
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    return build_relative_position(row, row, bucket_size=buckets, max_position=furthest)


def layer_class() -> type:
    """The class that the layers of every encoder have.

    If it changes: an ImportError, or `train.torch_compile` compiles nothing (test_train_execution.py).
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    return GradientCheckpointingLayer


def keep_to_one_gpu(arguments: Any) -> None:
    """Keeps the Trainer from DataParallel on a machine of several GPUs.

    If it changes: fine-tuning there takes all GPUs, and its batches are other ones.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)


def forget_processes() -> None:
    """Undoes what accelerate notes of this process and others in its global state.

    If it changes: an AttributeError after a fine-tuning, or the next one believes in other processes.
    """
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
