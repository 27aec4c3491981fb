"""Distillation: both sentences of a pair learn the vector that a teacher makes of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.config.choices import Distillation
from xalign_ray.errors import ConfigError
from xalign_ray.objectives.objective import LossContext, MicroStep, Objective, check_layer
from xalign_ray.objectives.sentences import (
    COLUMNS,
    count_pairs,
    sentence_rows,
    sentence_vectors,
    starts_at,
)

TEACHER = "teacher"  # the column of its vectors


class DistillationLoss(Objective):
    """Draws the vectors of a sentence and of its translation to the one that a teacher made of the first.

    Minimises: |s - t|^2 / d (mse) or 1 - cos(s, t) (cosine), summed over both sentences of all pairs; s is the
        sentence's vector, t the teacher's, d their width.
    Reference: Reimers and Gurevych 2020, Making Monolingual Sentence Embeddings Multilingual, section 2.
    Needs: the columns of both sides of sentence pairs; `teacher`, which prepare computed: it runs in no step.
    Settings: `normalize` gives s length 1 before the comparison, for a teacher whose vectors have it.
    Costs: one pass over both sides of the pairs, which a sentence contrast of the same layer shares; 2 d bytes a pair
        and of padding in the feed.
    """

    extra_columns: ClassVar[tuple[str, ...]] = (*COLUMNS, TEACHER)

    def __init__(self, settings: Distillation, context: LossContext) -> None:
        super().__init__(settings, context)
        check_layer(settings.kind, settings.layer, context.encoder)

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed distances."""
        query = sentence_rows(micro_step.batch, "query")
        rows, hidden = micro_step.pairs(self.settings.layer)
        pooled = sentence_vectors(hidden, rows, self.settings.pooling)[: 2 * len(starts_at(query))]
        vectors = micro_step.encoder.behind_pooling(pooled, self.settings.layer)
        if self.settings.normalize:
            vectors = F.normalize(vectors, dim=1)
        of_pair = _of_teacher(micro_step.batch, query, vectors.shape[1])
        target = torch.cat([of_pair, of_pair])
        cosine = F.cosine_similarity(vectors, target, dim=1)
        micro_step.log("train/teacher_cosine", cosine)
        return (1 - cosine).sum() if self.settings.distance == "cosine" else (vectors - target).square().mean(1).sum()

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The sentences of the batch."""
        return 2 * count_pairs(batch)


def _of_teacher(batch: Mapping[str, Tensor], query: Mapping[str, Tensor], width: int) -> Tensor:
    """The teacher's vector of each pair, fp32 [n, D], in the order of the query's examples.

    Raises:
        ConfigError: they are of another width than the encoder's.
    """
    at = starts_at(query)
    if TEACHER not in batch:
        return torch.zeros(len(at), width, device=at.device)
    column = batch[TEACHER].view(torch.float16)
    if column.shape[-1] != width:
        raise ConfigError(
            f"objective distillation: the teacher's vectors have {column.shape[-1]} numbers, the encoder's {width}. "
            "Take a teacher and an encoder of one width."
        )
    examples = query["example_ids"]
    return column[at // examples.shape[1], examples.flatten()[at] - 1].float()
