"""Masked language modelling: cross-entropy of the labelled positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.objectives.objective import MicroStep, Objective

NOT_PREDICTED = -100


class MaskedLmLoss(Objective):
    """Asks for the word that was masked.

    What it optimises: sum over labelled positions i of -log softmax(logits_i)[y_i]; logits only at those positions.
    Reference: Devlin et al. 2019, section 3.1; conditioned head: Chaudhary et al. 2020, DICT-MLM (METHODS 1.3, 4.4).
    Needs: `labels` (-100 where nothing is asked); `language_ids` hold the label's language at a labelled slot.
    Settings: none but its weight. What is masked, and by which word a label is replaced, is the streams' business.
    Costs: one pass of the encoder, and N x V logits in fp32 for N labels (about 15 % of the tokens).
    Relations: on pairs it is TLM, on code-switched labels DICT-MLM: same loss, other rows.
    """

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy, in nats."""
        labels = micro_step.batch["labels"]
        asked = labels != NOT_PREDICTED
        logits = micro_step.encoder.predict(micro_step.hidden[asked], micro_step.batch["language_ids"][asked])
        return F.cross_entropy(logits.float(), labels[asked].long(), reduction="sum")

    def count(self, share: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The labels of the share."""
        return float(np.count_nonzero(share["labels"] != NOT_PREDICTED))
