"""Puts a recipe's losses around one encoder: the module that is given to DeepSpeed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from torch import Tensor, nn

from xalign_ray.config import choices
from xalign_ray.objectives.dictionary_alignment import DictionaryAlignmentLoss
from xalign_ray.objectives.masked_lm import MaskedLmLoss
from xalign_ray.objectives.objective import Encoder, Given, MicroStep, Objective
from xalign_ray.text.dictionary import DictionaryPairs

LOSSES: dict[str, type[Objective]] = {
    "masked_lm": MaskedLmLoss,
    "dictionary_alignment": DictionaryAlignmentLoss,
}


class Objectives(nn.Module):
    """An encoder and its losses. The forward pass gives sums by kind; the loop weighs, scales and adds them.

    With G the global step's count, W ranks and A micro-steps, a micro-step backpropagates
    sum_k weights[k] * sums[k] * W * A / G[k]; DeepSpeed then averages over ranks and micro-steps (ZERO 2).
    The encoder's parameters are named `encoder.*`; losses of the first four methods have none of their own.
    """

    def __init__(
        self,
        encoder: nn.Module,
        objectives: Sequence[choices.Objective],
        pairs: DictionaryPairs | None,
        seed: int,
    ) -> None:
        """Builds each objective.

        Args:
            encoder: what `build_encoder` gave.
            objectives: the recipe's `objectives`; each kind stands once.
            pairs: the dictionary pairs to train on, `prepared.pairs("trained")`.
            seed: the run's seed.

        Raises:
            ConfigError: when an objective lacks what it needs.
        """
        super().__init__()
        self.encoder = cast(Encoder, encoder)
        given = Given(pairs, seed)
        losses = nn.ModuleDict({asked.kind: LOSSES[asked.kind](asked, given) for asked in objectives})
        self.losses = cast("dict[str, Objective]", losses)
        self.weights: dict[str, float] = {asked.kind: asked.weight for asked in objectives}

    def forward(self, batch: Mapping[str, Tensor], part: tuple[int, int], step: int) -> dict[str, Tensor]:
        """The sum of each loss over a micro-batch of B >= 0 rows; see `MicroStep` for the arguments."""
        micro_step = MicroStep(self.encoder, batch, part, step)
        return {kind: loss(micro_step) for kind, loss in self.losses.items()}

    def counts(self, share: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> dict[str, float]:
        """What this rank's sums over a whole global step run over, by kind; all-reduce it before the first backward.

        Args:
            share: the rank's rows of the global step, as the feed gives them.
            parts: the `part` of each of its micro-steps.
            step: number of the global step, from 0.
        """
        return {kind: loss.count(share, parts, step) for kind, loss in self.losses.items()}
