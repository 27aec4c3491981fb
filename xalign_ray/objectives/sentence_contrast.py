"""Sentence contrast: each sentence of a row must find its translation among the others', and the other way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.config.choices import SentenceContrast
from xalign_ray.objectives.objective import LossContext, MicroStep, Objective, check_layer
from xalign_ray.objectives.sentences import (
    COLUMNS,
    count_pairs,
    one_below_the_other,
    sentence_rows,
    sentence_vectors,
    starts_at,
)


class SentenceContrastLoss(Objective):
    """Asks which sentence is the translation, among the pairs packed into the same row.

    What it optimises: sum over pairs of the mean of two cross-entropies, from query to key and from key to query, of
        cos(q_i, k_j) / temperature over the pairs j of i's own row.
    Reference: Chi et al. 2021, InfoXLM, section 3.2, without its queue; symmetric as in Feng et al. 2022, LaBSE.
    Needs: the columns of both sides of sentence pairs, and `pair_hash` of the pivot sentence at each key's [CLS].
    Settings: `layer` k compares hidden states after k layers (InfoXLM takes 8 of 12), null those of the last.
    Costs: one pass over both sides of the pairs.
    Relations: the negatives are those of the row, not of the micro-batch: what a pair is compared with then does not
        depend on workers or micro-steps, and the loss is the same for any number of them. So rows should be long (a row
        with one pair asks nothing); many negatives are momentum_contrast's business. Pairs with the same pivot sentence
        are no negatives of each other. A plug-in's whole is this file, its options in config/choices.py and its line
        in combine.LOSSES.
    """

    extra_columns: ClassVar[tuple[str, ...]] = COLUMNS

    def __init__(self, settings: SentenceContrast, context: LossContext) -> None:
        super().__init__(settings, context)
        check_layer(settings.kind, settings.layer, context.encoder)

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropies, in nats."""
        sentences = [sentence_rows(micro_step.batch, role) for role in ("query", "key")]
        both = one_below_the_other(*sentences)
        hidden = micro_step.encoder.encode(both, self.settings.layer)
        query, key = F.normalize(sentence_vectors(hidden, both, self.settings.pooling), dim=1).chunk(2)
        begin_at, hashes = starts_at(sentences[1]), sentences[1]["pair_hash"]
        row, pair_hash = begin_at // hashes.shape[1], hashes.flatten()[begin_at]
        own = torch.eye(len(row), dtype=torch.bool, device=row.device)
        negative = (row[:, None] == row[None, :]) & (pair_hash[:, None] != pair_hash[None, :])
        with torch.autocast(query.device.type, enabled=False):  # in fp32 at every ZeRO stage
            cosines = query @ key.T
        logits = (cosines / self.settings.temperature).masked_fill(~(negative | own), -torch.inf)
        micro_step.log("train/sentence_accuracy", (logits <= logits.diagonal()[:, None]).all(dim=1).float())
        target = torch.arange(len(row), device=row.device)
        forth, back = (F.cross_entropy(one, target, reduction="sum") for one in (logits, logits.T))
        return (forth + back) / 2

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The pairs of the batch."""
        return count_pairs(batch)
