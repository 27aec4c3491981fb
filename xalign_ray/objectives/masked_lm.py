"""Masked language modelling: cross-entropy of the labelled positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.objective import MicroStep, Objective, summed_cross_entropy
from xalign_ray.streams.collate import IGNORED


class MaskedLmLoss(Objective):
    """Predicts the word that was masked.

    Minimises: sum over labelled positions i of -log softmax(logits_i)[y_i]; logits only at those positions.
    Reference: Devlin et al. 2019, section 3.1; conditioned head: Chaudhary et al. 2020, DICT-MLM.
    Needs: `labels` (-100 elsewhere); `language_ids` hold the label's language at a labelled position.
    Settings: `labels_at_once` bounds the logits that exist at a time, the same sum and gradient. The streams make the
        masks and replace labels.
    Costs: one pass of the encoder, and N x V logits in fp32 for N labels (about 15 % of the tokens); with
        `labels_at_once` only that many rows, and the head runs once more in the backward pass. Not at ZeRO stage
        3, where each rank must call the head equally often.
    Relations: on pairs it is TLM, on code-switched labels DICT-MLM: same loss, other rows.
    """

    predicts: ClassVar[bool] = True

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy, in nats."""
        labelled = _labelled(micro_step)
        at_once = self.settings.labels_at_once
        if at_once is None or len(labelled[0]) <= at_once:
            return _cross_entropy(micro_step.encoder, *labelled)
        # Not reentrant: the decoder's gradient of one group of labels is added to the others' before ZeRO sees it.
        chunks = zip(*(values.split(at_once) for values in labelled), strict=True)
        sums = [
            checkpoint(_cross_entropy, micro_step.encoder, *chunk, use_reentrant=False, preserve_rng_state=False)
            for chunk in chunks
        ]
        return torch.stack(sums).sum()

    def of_labels(self, micro_step: MicroStep) -> Tensor:
        """The cross-entropy of each label, [N], row by row; `labels_at_once` as in training."""
        labelled = _labelled(micro_step)
        at_once = self.settings.labels_at_once or max(len(labelled[0]), 1)
        chunks = zip(*(values.split(at_once) for values in labelled), strict=True)
        return torch.cat([_cross_entropies(micro_step.encoder, *chunk) for chunk in chunks])

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The labels of the batch."""
        return float(np.count_nonzero(batch["labels"] != IGNORED))


def _labelled(micro_step: MicroStep) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [N, d], languages and labels of the positions that have one."""
    batch = micro_step.batch
    at = micro_step.labelled_at
    columns = (micro_step.hidden.flatten(0, 1), batch["language_ids"].flatten(), batch["labels"].flatten())
    hidden, language, labels = (values[at] for values in columns)
    return hidden, language, labels.long()


def _cross_entropy(encoder: AlignedEncoder, hidden: Tensor, language: Tensor, labels: Tensor) -> Tensor:
    return summed_cross_entropy(encoder.predict(hidden, language), labels, encoder.compiled)


def _cross_entropies(encoder: AlignedEncoder, hidden: Tensor, language: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(encoder.predict(hidden, language).float(), labels, reduction="none")
