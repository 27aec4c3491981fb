"""How a device runs the encoder: by which attention, compiled or not, with activations kept or made again."""

from __future__ import annotations

import torch

from xalign_ray.config.training import TrainConfig
from xalign_ray.models import attention
from xalign_ray.models.encoder import AlignedEncoder


def set_up(encoder: AlignedEncoder, train: TrainConfig, device: torch.device) -> None:
    """Makes the encoder run as a recipe asks; what it computes stays the same up to rounding."""
    encoder.attend(attention.implementation(choose_attention(train, device)))
    if train.gradient_checkpointing:
        # Not reentrant: ZeRO sees the gradient of each weight once.
        encoder.hf.gradient_checkpointing_enable({"use_reentrant": False})
    if train.torch_compile:
        # Layer by layer: one graph for all in 4 s where the whole takes 44, and the step is as fast.
        from transformers.modeling_layers import GradientCheckpointingLayer

        for module in encoder.hf.base_model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.compile(dynamic=True)


def describe(train: TrainConfig, device: torch.device) -> str:
    """How it is run, for people to read."""
    said = {
        f"{choose_attention(train, device)} attention": True,
        "gradient checkpointing": train.gradient_checkpointing,
        "compiled": train.torch_compile,
        "bf16": train.bf16,
    }
    return ", ".join(text for text, holds in said.items() if holds)


def choose_attention(train: TrainConfig, device: torch.device) -> str:
    """`train.attention`, where it is auto the faster of the two: varlen but where it would go example by example."""
    if train.attention != "auto":
        return train.attention
    # Compiled on a CPU it would be as many graphs as examples; on a GPU in fp32 each layer would wait for the device.
    by_example = train.torch_compile if device.type == "cpu" else not train.bf16
    return "dense" if by_example else "varlen"
