"""LoRA by peft: adapters beside an encoder's linear layers; they alone are trained, and merged for an export."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from xalign_ray.config.schema import Lora
from xalign_ray.errors import ConfigError


def adapted_layers(base: nn.Module, lora: Lora) -> dict[str, nn.Linear]:
    """The linear layers of an encoder that get an adapter, by name.

    Raises:
        ConfigError: none has a name of `model.lora.targets`.
    """
    linear = {name: module for name, module in base.named_modules() if isinstance(module, nn.Linear)}
    chosen = {
        name: layer for name, layer in linear.items() if not lora.targets or name.rpartition(".")[2] in lora.targets
    }
    if not chosen:
        names = sorted({name.rpartition(".")[2] for name in linear})
        raise ConfigError(
            f"model.lora.targets: the encoder has no linear layer {' or '.join(lora.targets)}; it has "
            f"{', '.join(names) or 'none'}."
        )
    return chosen


def count_adapters(base: nn.Module, lora: Lora) -> int:
    """Parameters that `add_adapters` adds to an encoder."""
    layers = adapted_layers(base, lora).values()
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)


def add_adapters(hf: Any, lora: Lora) -> None:
    """Puts adapters into an encoder of transformers, in place, and freezes its own weights (Hu et al. 2021, LoRA).

    A layer gives W x + alpha / rank * B A x; B begins at 0, A is drawn by torch's global generator.
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = [*adapted_layers(hf.base_model, lora)]
    hf.requires_grad_(False)
    alpha: Any = lora.alpha or 2 * lora.rank
    settings = LoraConfig(r=lora.rank, lora_alpha=alpha, target_modules=targets)
    inject_adapter_in_model(settings, hf.base_model)


def merged_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module by the names that it has without adapters; changes the module."""
    from peft.tuners.lora import LoraLayer

    for layer in module.modules():
        if isinstance(layer, LoraLayer):
            layer.merge()  # type: ignore[operator]
    state = module.state_dict()
    return {name.replace(".base_layer.", "."): state[name] for name in state if ".lora_" not in name}
