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
    count_pairs,
    pair_sides,
    sentence_vectors,
    text_hashes,
)

Places = tuple[Tensor, ...]  # rows and columns of [own, P]


class SentenceContrastLoss(StepObjective):
    """Finds each sentence's translation among the pairs of the global step.

    Minimises: sum over pairs i of the mean of two cross-entropies, from query to key and from key to query, of
        (cos(q_i, k_j) - margin * [i = j]) / temperature over the P pairs j of the global step.
        Where the data bring hard negatives, the step's negatives in the language of the keys stand among the k_j, and
        its negatives in the language of the queries among the q_j.
        With `matryoshka_dims` it is the sum of this over vectors that are cut to each of these widths.
        With `positives: multi` the term of a pair is the mean cross-entropy over all translations of its sentence in
        the step, each against the same negatives, which are no translations.
    Reference: Feng et al. 2022, LaBSE, section 2.2; Chi et al. 2021, InfoXLM, section 3.2, without its queue; in two
        passes as Gao et al. 2021, GradCache; Kusupati et al. 2022, Matryoshka, with equal weights; multi-way positives
        as Fazili and Goswami 2026 (arXiv 2602.21543), each against the negatives alone.
    Needs: the columns of both sides of sentence pairs.
    Settings: `layer` k compares hidden states after k layers (InfoXLM takes 8 of 12), null after the last. The whole
        vector is among `matryoshka_dims` only where they name its width.
    Costs: one pass over both sides of the pairs, and where a worker's share is several micro-batches one more without
        gradients; for P pairs of width d, vectors and gradients of 4 P d numbers on every rank. Hard negatives double
        all of it.
    Relations: the negatives are the whole step's, so that loss and gradient do not depend on workers or micro-steps;
        a larger `train.global_batch_size` is a harder question. Pairs with a sentence in common, such as the same
        pivot sentence, are no negatives of each other, and with `multi` positives.
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

        Where the data bring hard negatives, the query's follow, and the key's where it has some: up to [n, 4d], [n, 4].
        """
        sides = len(pair_sides(micro_step.batch))
        rows, hidden = micro_step.pairs(self.settings.layer)
        pooled = sentence_vectors(hidden, rows, self.settings.pooling)
        vectors = F.normalize(micro_step.encoder.behind_pooling(pooled, self.settings.layer), dim=1)
        return torch.cat(vectors.chunk(sides), dim=1), torch.stack(text_hashes(rows).chunk(sides), dim=1)

    def compare(self, vectors: Tensor, marks: Tensor, own: slice) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed cross-entropies, in nats, and which queries find a key of theirs by the widest vectors."""
        places = torch.arange(own.start, own.stop, device=vectors.device)
        pair = marks[:, :2]
        same = pair[own, None, :, None] == pair[:, None, :]  # [own, P, side of the one, side of the other]
        shares = same.flatten(2).any(dim=2)
        if is_multi := self.settings.positives == "multi":
            itself = places[:, None] == torch.arange(len(vectors), device=vectors.device)
            # A text is no translation of itself.
            positive = [(shares & ~same[:, :, side, 1 - side] | itself).nonzero(as_tuple=True) for side in (0, 1)]
        else:
            positive = [(places - own.start, places)] * 2
        no_negative = [shares, shares]
        for side in range(marks.shape[1] - 2):  # a hard negative that is a text of the pair, or of a related one
            is_text = ((pair if is_multi else pair[own])[:, None, :] == marks[:, 2 + side, None]).any(dim=2)
            of_related = shares.float() @ is_text.float() > 0 if is_multi else is_text
            no_negative[side] = torch.cat([shares, of_related], dim=1)
        terms = [self._contrast(cut, places, positive, no_negative) for cut in self._cut(vectors, marks.shape[1])]
        totals, hits = zip(*terms, strict=True)
        metrics = {"train/sentence_accuracy": hits[0].float()}
        if is_multi:
            metrics["train/positives"] = _sum_by_row(
                torch.ones_like(positive[0][0]), positive[0][0], len(places)
            ).float()
        return torch.stack(totals).sum(), metrics

    def _cut(self, vectors: Tensor, sides: int) -> Iterator[list[Tensor]]:
        """Query and key, and their hard negatives if there are some, at each width, the widest first, of length 1."""
        parts = vectors.chunk(sides, dim=1)
        for width in self._widths:
            is_uncut = width == parts[0].shape[1]
            yield list(parts) if is_uncut else [F.normalize(part[:, :width], dim=1) for part in parts]

    def _contrast(
        self, parts: Sequence[Tensor], places: Tensor, positive: Sequence[Places], no_negative: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The mean of both directions' summed cross-entropies, and [own] which queries find a key of theirs first."""
        query, key, *hard = parts
        (forth, hits), (back, _) = (
            self._entropies(
                asking[places], torch.cat([answers, *hard[side : side + 1]]), positive[side], no_negative[side]
            )
            for side, (asking, answers) in enumerate(((query, key), (key, query)))
        )
        return (forth + back) / 2, hits

    def _entropies(self, own: Tensor, others: Tensor, positive: Places, no_negative: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over a worker's sentences of the mean cross-entropy of their positives, and which find one first."""
        scores = own / self.settings.temperature @ others.T
        if not len(own):
            return scores.sum(), positive[0] > 0
        rows = positive[0]
        of_pairs, count = scores[positive], _sum_by_row(torch.ones_like(rows), rows, len(own))
        negative = scores.masked_fill(no_negative, torch.finfo(scores.dtype).min)  # finite: perhaps there is none
        log_sum = negative.logsumexp(dim=1) + self.settings.margin / self.settings.temperature
        total = (F.softplus(log_sum[rows] - of_pairs) / count[rows]).sum()
        is_first = of_pairs >= negative.amax(dim=1)[rows]
        return total, _sum_by_row(is_first.long(), rows, len(own)) > 0

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The pairs of the batch."""
        return count_pairs(batch)


def _sum_by_row(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The values of each row summed, [count]; torch's bincount would make the host wait for the device."""
    return values.new_zeros(count).index_add(0, rows, values)
