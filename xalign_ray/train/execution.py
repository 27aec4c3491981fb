"""How a device runs the encoder: by which attention, compiled or not, with activations kept or made again."""

from __future__ import annotations

import torch

from xalign_ray.config.derive import choose_attention
from xalign_ray.config.training import TrainConfig
from xalign_ray.models import attention
from xalign_ray.models.encoder import AlignedEncoder


def set_up(encoder: AlignedEncoder, train: TrainConfig, device: torch.device) -> None:
    """Makes the encoder run as a recipe asks; what it computes stays the same up to rounding."""
    encoder.attend(attention.implementation(choose_attention(train, device.type != "cpu", encoder.family.dense_only)))
    if train.gradient_checkpointing:
        # Not reentrant: ZeRO sees the gradient of each weight once.
        encoder.hf.gradient_checkpointing_enable({"use_reentrant": False})
    if train.torch_compile:
        # Layer by layer: one graph for all in 4 s where the whole takes 44, and the step is as fast.
        from transformers.modeling_layers import GradientCheckpointingLayer

        for module in encoder.hf.base_model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.compile(dynamic=True)


def describe(train: TrainConfig, device: torch.device, dense_only: bool = False) -> str:
    """How it is run, for people to read; `dense_only` as the encoder's family says."""
    kind = choose_attention(train, device.type != "cpu", dense_only)
    said = {
        f"{kind} attention": True,
        "gradient checkpointing": train.gradient_checkpointing,
        "compiled": train.torch_compile,
        "bf16": train.bf16,
    }
    return ", ".join(text for text, holds in said.items() if holds)
