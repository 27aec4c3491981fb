"""Trained parts of an encoder by phase, and factors of their learning rate: `train.trainable`, `optimizer.rates`"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from xalign_ray.config.training import TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import AlignedEncoder

ALL, ROWS, NONE = "all", "rows", "none"  # how a parameter moves in a phase


class Trainable:
    """The phases of `train.trainable` for the parameters of an encoder.

    A parameter that does not move requires no gradient, and the optimizer passes over it: no decay, no step counted.
    All keep their place in the optimizer, so that a later phase, every ZeRO stage and checkpoints know them. Where new
    rows of a table move, the other rows have a gradient of 0, and the table has no decay: with moments of 0, AdamW does
    not move them.

    Attributes:
        moves: of each parameter of the encoder how it moves in each phase, and the factor of its learning rate; empty
            where all move always, at one rate.
    """

    def __init__(self, encoder: AlignedEncoder, train: TrainConfig) -> None:
        """Before the optimizer is built.

        Raises:
            ConfigError: the encoder lacks a part.
        """
        self._train, self._now, self._new = train, -1, encoder.new_rows
        named = [{*parts} for _, parts in train.phases]
        self.moves: dict[nn.Parameter, tuple[tuple[str, ...], float]] = {}
        rates, depth = train.optimizer.rates, encoder.num_hidden_layers
        if not rates and all("all" in parts for parts in named):
            return
        words, decoder = encoder.hf.get_input_embeddings(), encoder.hf.get_output_embeddings()
        tables = {words.weight, *(() if decoder is None else (decoder.weight, decoder.bias))}
        for parameter, layer in places(encoder).items():
            moves = [ALL if _names(parts, layer, depth) else NONE for parts in named]
            rate = prod(factor for part, factor in rates.items() if _names([part], layer, depth))
            if parameter in tables:
                moves = [ROWS if "new_rows" in p and m == NONE else m for p, m in zip(named, moves, strict=True)]
                parameter.register_hook(partial(self._of_rows, parameter))
            self.moves[parameter] = tuple(moves), rate

    @property
    def in_phases(self) -> bool:
        """Whether parameters have taken different numbers of steps."""
        return any(len({*moves}) > 1 for moves, _ in self.moves.values())

    def begin(self, step: int, groups: Collection[dict[str, Any]]) -> None:
        """Before a step: from now on its phase's parameters require gradients.

        Args:
            groups: of the optimizer.
        """
        self._now = self._train.phase_at(step)
        for parameter, (moves, _) in self.moves.items():
            parameter.requires_grad_(moves[self._now] != NONE)
        for group in groups if self.moves else ():
            group["weight_decay"] = 0.0 if self._in(group) == ROWS else group.get("decay", group["weight_decay"])

    def skip(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Hook before the optimizer's step: it passes over what does not move, whatever DeepSpeed gave it."""
        for group in optimizer.param_groups:
            if self._in(group) == NONE:
                for parameter in group["params"]:
                    parameter.grad = None
                    if not (state := optimizer.state[parameter]):  # which converters of checkpoints expect
                        state["step"] = torch.zeros((), device=parameter.device)
                        state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}

    def rate(self, group: dict[str, Any]) -> float:
        """The factor of the learning rate of a group of the optimizer."""
        return self._train.optimizer.rates.get("new_rows", 1.0) if self._in(group) == ROWS else group.get("rate", 1.0)

    def _in(self, group: dict[str, Any]) -> str:
        return group["moves"][self._now] if "moves" in group and self._now >= 0 else ALL

    def _of_rows(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        """Hook on the gradient of a table."""
        if self.moves[parameter][0][self._now] != ROWS:
            return gradient
        kept, new = torch.zeros_like(gradient), slice(self._new.start, self._new.stop)
        kept[new] = gradient[new]
        return kept


def places(encoder: AlignedEncoder) -> dict[nn.Parameter, int]:
    """Where each parameter stands: 0 is before the layers, 1 to n in one, n + 1 the head; what ends layer n is of it.

    Raises:
        ConfigError: the layers are not a list of modules.
    """
    base, depth = encoder.hf.base_model, encoder.num_hidden_layers
    lists = (module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module) == depth)
    if (layers := next(lists, None)) is None:
        raise ConfigError(
            f"train.trainable: an encoder of the family {encoder.family.model_type} has no list of layers."
        )
    of_layer = {parameter: n for n, layer in enumerate(layers, start=1) for parameter in layer.parameters()}
    found: dict[nn.Parameter, int] = {}
    place = 0
    for parameter in base.parameters():
        place = of_layer.get(parameter, depth if place else 0)
        found[parameter] = place
    for parameter in encoder.hf.parameters():
        found.setdefault(parameter, depth + 1)
    return found | {parameter: 0 for parameter in encoder.parameters() if parameter not in found}


def _names(parts: Collection[str], place: int, depth: int) -> bool:
    """Whether one of the parts has this place."""
    for part in parts:
        kind, _, layers = part.partition(":")
        first, _, last = layers.partition("-")
        if layers and int(last or first) > depth:
            raise ConfigError(f"train.trainable names {part}, but the encoder has {depth} layers.")
        of_part = {"head": range(depth + 1, depth + 2), "embeddings": range(1), "all": range(depth + 2)}
        if place in (range(int(first), int(last or depth) + 1) if layers else of_part.get(kind, ())):
            return True
    return False
