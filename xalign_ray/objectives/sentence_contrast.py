"""Sentence contrast: each sentence must find its translation in the global step, in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.config.choices import SentenceContrast
from xalign_ray.errors import ConfigError
from xalign_ray.objectives.objective import LossContext, MicroStep, StepObjective, check_layer
from xalign_ray.objectives.sentences import (
    COLUMNS,
    HARD_COLUMNS,
    HARD_ROLES,
    concat_rows,
    count_pairs,
    sentence_rows,
    sentence_vectors,
    text_hashes,
)


class SentenceContrastLoss(StepObjective):
    """Finds each sentence's translation among the pairs of the global step.

    Minimises: sum over pairs i of the mean of two cross-entropies, from query to key and from key to query, of
        (cos(q_i, k_j) - margin * [i = j]) / temperature over the P pairs j of the global step.
        Where the data bring hard negatives, the step's negatives in the language of the keys stand among the k_j, and
        its negatives in the language of the queries among the q_j.
        With `matryoshka_dims` it is the sum of this over vectors that are cut to each of these widths.
    Reference: Feng et al. 2022, LaBSE, section 2.2; Chi et al. 2021, InfoXLM, section 3.2, without its queue; in two
        passes as Gao et al. 2021, GradCache; Kusupati et al. 2022, Matryoshka, with equal weights.
    Needs: the columns of both sides of sentence pairs.
    Settings: `layer` k compares hidden states after k layers (InfoXLM takes 8 of 12), null after the last. The whole
        vector is among `matryoshka_dims` only where they name its width.
    Costs: one pass over both sides of the pairs, and where a worker's share is several micro-batches one more without
        gradients; for P pairs of width d, vectors and gradients of 4 P d numbers on every rank. Hard negatives double
        all of it.
    Relations: the negatives are the whole step's, so that loss and gradient do not depend on workers or micro-steps;
        a larger `train.global_batch_size` is a harder question. Pairs with a sentence in common, such as the same
        pivot sentence, are no negatives of each other.
    """

    extra_columns: ClassVar[tuple[str, ...]] = (*COLUMNS, *HARD_COLUMNS)

    def __init__(self, settings: SentenceContrast, context: LossContext) -> None:
        super().__init__(settings, context)
        check_layer(settings.kind, settings.layer, context.encoder)
        width = context.encoder.vector_width(settings.layer)
        if (widest := max(settings.matryoshka_dims, default=0)) > width:
            raise ConfigError(
                f"objective {settings.kind}: matryoshka_dims names {widest}, but the encoder's vectors have {width} "
                "numbers."
            )
        self._widths = sorted(settings.matryoshka_dims, reverse=True) or [width]

    def embed(self, micro_step: MicroStep) -> tuple[Tensor, Tensor]:
        """Query and key of each pair concatenated, each of length 1, [n, 2d]; the hashes of both, [n, 2].

        Where the data bring hard negatives, the query's and the key's follow: [n, 4d] and [n, 4].
        """
        has_negatives = f"{HARD_ROLES[0]}_example_ids" in micro_step.batch
        roles = ("query", "key", *(HARD_ROLES if has_negatives else ()))
        rows = concat_rows(*(sentence_rows(micro_step.batch, role) for role in roles))
        hidden = micro_step.encoder.encode(rows, self.settings.layer)
        pooled = sentence_vectors(hidden, rows, self.settings.pooling)
        vectors = F.normalize(micro_step.encoder.behind_pooling(pooled, self.settings.layer), dim=1)
        return torch.cat(vectors.chunk(len(roles)), dim=1), torch.stack(text_hashes(rows).chunk(len(roles)), dim=1)

    def compare(self, vectors: Tensor, marks: Tensor, own: slice) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed cross-entropies, in nats, and which queries find their key by the widest vectors."""
        target = torch.arange(own.start, own.stop, device=vectors.device)
        positive = target[:, None] == torch.arange(len(vectors), device=vectors.device)
        pair = marks[:, :2]
        share_a_text = (pair[own, None, :, None] == pair[:, None, :]).flatten(2).any(dim=2)
        left_out = [share_a_text & ~positive] * 2
        if marks.shape[1] > 2:  # a hard negative that is a text of the pair
            left_out = [
                torch.cat([left_out[side], (pair[own, None, :] == marks[:, 2 + side, None]).any(dim=2)], dim=1)
                for side in (0, 1)
            ]
        terms = [self._contrast(cut, target, positive, left_out) for cut in self._cut(vectors, marks.shape[1])]
        totals, hits = zip(*terms, strict=True)
        return torch.stack(totals).sum(), {"train/sentence_accuracy": hits[0].float()}

    def _cut(self, vectors: Tensor, sides: int) -> Iterator[list[Tensor]]:
        """Query and key, and their hard negatives if there are some, at each width, the widest first, of length 1."""
        parts = vectors.chunk(sides, dim=1)
        for width in self._widths:
            is_uncut = width == parts[0].shape[1]
            yield list(parts) if is_uncut else [F.normalize(part[:, :width], dim=1) for part in parts]

    def _contrast(
        self, parts: Sequence[Tensor], target: Tensor, positive: Tensor, left_out: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The mean of both directions' summed cross-entropies, and [own] which queries find their key first."""
        query, key, *hard = parts
        forth, back = (
            self._cosines(asking[target], torch.cat([answers, *hard[side : side + 1]]), positive, left_out[side])
            for side, (asking, answers) in enumerate(((query, key), (key, query)))
        )
        entropies = [
            F.cross_entropy(cosines / self.settings.temperature, target, reduction="sum") for cosines in (forth, back)
        ]
        own_cosines = forth.gather(1, target[:, None]) + self.settings.margin
        return torch.stack(entropies).sum() / 2, (forth <= own_cosines).all(dim=1)

    def _cosines(self, own: Tensor, others: Tensor, positive: Tensor, left_out: Tensor) -> Tensor:
        """[own, P] of a worker's sentences with all, less the margin for pairs; no second [own, P] is kept."""
        margin = F.pad(self.settings.margin * positive, (0, len(others) - positive.shape[1]))
        return (own @ others.T - margin).masked_fill(left_out, -torch.inf)

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The pairs of the batch."""
        return count_pairs(batch)
