"""Word exchange: a masked word is predicted from the contextual vector of the word that it is aligned with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xalign_ray.config.choices import WordExchange
from xalign_ray.objectives.objective import LossContext, MicroStep, Objective, summed_cross_entropy
from xalign_ray.streams.collate import IGNORED


class WordExchangeLoss(Objective):
    """Predicts a masked word of one language from the other language's word for it.

    Minimises: sum over labelled positions i of -log softmax(logits_i)[y_i], logits_i = head3(W2 h'_i + b2);
        h'_i is the mean of the hidden states of the positions that i is aligned with, in the same forward pass as
        masked_lm's. head3 has its transform; decoder and embedding table are the encoder's.
    Reference: Yang et al. 2021, WEAM, equations 5-8. The mean, and leaving out positions without a partner,
        are ours: the paper's sum grows with the pieces of a word, and its unaligned positions teach only how frequent
        words are. W2 starts as the identity and head3 as a copy of the encoder's head.
    Needs: `aligned` uint8 [B, L, ceil(L/8)], a symmetric 0/1 matrix over the positions of a row, eight to a byte.
    Settings: `normalize: sum` and `unaligned: literal` are the paper's formula.
    Costs: the head once more at the aligned labels, and a product [L, L] x [L, d] a row.
    Relations: divided by the number of all labels, as masked_lm is, so that their relative weight is the paper's
        whatever the fraction of aligned words, which is logged as train/aligned_label_share.
    """

    extra_columns: ClassVar[tuple[str, ...]] = ("aligned",)

    def __init__(self, settings: WordExchange, context: LossContext) -> None:
        super().__init__(settings, context)
        self.bridge = nn.Linear(context.encoder.hidden_size, context.encoder.hidden_size)
        nn.init.eye_(self.bridge.weight)
        nn.init.zeros_(self.bridge.bias)
        self.transform = context.encoder.copy_transform()

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy, in nats."""
        batch, hidden = micro_step.batch, micro_step.hidden
        aligned = _unpack(batch["aligned"], hidden.shape[1]) if "aligned" in batch else None
        if aligned is None:
            aligned = hidden.new_zeros(len(hidden), hidden.shape[1], hidden.shape[1])
        partners = aligned.sum(dim=2, dtype=hidden.dtype)
        labelled_at = micro_step.labelled_at
        has_partner = partners.flatten()[labelled_at] > 0
        asked = labelled_at[has_partner] if self.settings.unaligned == "skip" else labelled_at
        exchanged = torch.bmm(aligned.to(hidden.dtype), hidden)
        if self.settings.normalize == "mean":
            exchanged = exchanged / partners.clamp(min=1)[..., None]
        bridged = self.bridge(exchanged.flatten(0, 1)[asked])
        logits = micro_step.encoder.predict(bridged, batch["language_ids"].flatten()[asked], self.transform)
        micro_step.log("train/aligned_label_share", has_partner.float())
        return summed_cross_entropy(logits, batch["labels"].flatten()[asked], micro_step.encoder.compiled)

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The labels of the batch, with and without a partner."""
        return float(np.count_nonzero(batch["labels"] != IGNORED))


def _unpack(packed: Tensor, length: int) -> Tensor:
    """The bits of each byte, lowest first: [B, L, ceil(L/8)] -> 0 or 1 [B, L, L]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[..., None] >> shifts) & 1).flatten(2)[..., :length]
