"""Denoising word alignment: a masked word points at its translation, which the encoder itself labels (XLM-Align)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from xalign_ray.config.choices import DenoisingAlignment
from xalign_ray.objectives.objective import LossContext, MicroStep, Objective, check_layer
from xalign_ray.streams.collate import IGNORED, SpecialIds

TRANSPORT_ROUNDS = 2  # of Sinkhorn's algorithm
KEPT = 0.9  # of the plan between a word that is linked already and one that is not
LEAST = 1e-6  # of a product of hidden states in the plan


class DenoisingAlignmentLoss(Objective):
    """Predicts where in the other sentence the translation of a masked word stands.

    Minimises: sum over labelled positions i of -log softmax_j(q_i . k_j / sqrt(d)), j the words of the other
        sentence of the pair, at the words that i is linked with; of several the mean. q = Wq h + bq, k = Wk h + bk
        of the hidden states of the masked pair.
        Links come from the encoder's present weights: products of hidden states of the pair without masks after
        `layer` layers, without dropout and gradient, made a transport plan by two rounds of Sinkhorn's algorithm; the
        products themselves where a side has one word. Words that are each other's best are linked, then once more
        where one of the two is still without a link.
    Reference: Chi et al. 2021, XLM-Align, sections 3.1 and 3.2; the second round is simalign's itermax. Wq and Wk
        start as the identity.
    Needs: rows of pairs with labels. Rows of one sentence have no links.
    Costs: one more pass over the rows without gradients, and four matrices [L, L] a row.
    Relations: divided by the number of all labels, as masked_lm and word_exchange are; the share that has a link is
        logged as train/self_aligned_label_share. Needs no word alignments in the data.
    """

    def __init__(self, settings: DenoisingAlignment, context: LossContext) -> None:
        super().__init__(settings, context)
        check_layer(settings.kind, settings.layer, context.encoder)
        self._layer = settings.layer or max(1, round(context.encoder.num_hidden_layers * 2 / 3))
        self.query, self.key = (nn.Linear(context.encoder.hidden_size, context.encoder.hidden_size) for _ in range(2))
        for side in (self.query, self.key):
            nn.init.eye_(side.weight)
            nn.init.zeros_(side.bias)

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy, in nats."""
        assert self.context.special is not None, "sentences end at [SEP]"
        batch, at = micro_step.batch, micro_step.labelled_at
        forth = translated_by(batch, self.context.special)
        links = self_labelled(self._unmasked(micro_step), forth, batch["example_ids"])
        candidates, linked = ((pairs | pairs.transpose(1, 2)).flatten(0, 1)[at] for pairs in (forth, links))
        query, key = self.query(micro_step.hidden), self.key(micro_step.hidden)
        with torch.autocast(query.device.type, enabled=False):
            scores = torch.bmm(query.float(), key.float().transpose(1, 2)).flatten(0, 1)[at] / query.shape[2] ** 0.5
        chances = scores.masked_fill(~candidates, torch.finfo(scores.dtype).min).log_softmax(dim=1)
        partners = linked.sum(dim=1)
        micro_step.log("train/self_aligned_label_share", (partners > 0).float())
        return -(chances.masked_fill(~linked, 0.0).sum(dim=1) / partners.clamp(min=1)).sum()

    def _unmasked(self, micro_step: MicroStep) -> Tensor:
        """Hidden states of the rows as they were before masking, fp32, without dropout and gradient."""
        batch, encoder = micro_step.batch, micro_step.encoder
        labels = batch["labels"]
        unmasked = {**batch, "input_ids": torch.where(labels != IGNORED, labels, batch["input_ids"])}
        training = encoder.training
        encoder.eval()
        with torch.no_grad():
            states = micro_step.encoder.encode(unmasked, self._layer)
        encoder.train(training)
        return states.float()

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The labels of the batch, with and without a link."""
        return float(np.count_nonzero(batch["labels"] != IGNORED))


def translated_by(batch: Mapping[str, Tensor], special: SpecialIds) -> Tensor:
    """Which tokens may translate each other, bool [B, L, L]: (i, j) of the first and the second side of one example.

    The second side is what stands behind the first [SEP] of an example. [CLS], [SEP] and padding translate nothing.
    """
    ids, examples = batch["input_ids"], batch["example_ids"]
    ends = (ids == special.sep).long()
    before = ends.cumsum(dim=1) - ends
    of_example = before - (before * (ids == special.cls)).cummax(dim=1).values
    is_word = (examples > 0) & (ids != special.sep) & (ids != special.cls)
    first, second = is_word & (of_example == 0), is_word & (of_example > 0)
    return first[:, :, None] & second[:, None, :] & (examples[:, :, None] == examples[:, None, :])


def self_labelled(states: Tensor, forth: Tensor, examples: Tensor) -> Tensor:
    """Links of words of a first side (i) with words of the second (j), bool [B, L, L].

    Args:
        states: [B, L, d] in fp32.
        forth: what may be linked, as `translated_by` gives it.
        examples: [B, L] the number of each token's example.
    """
    with torch.autocast(states.device.type, enabled=False):
        products = torch.bmm(states, states.transpose(1, 2))
    plan = products.clamp(min=LEAST) * forth
    for _ in range(TRANSPORT_ROUNDS):
        for side in (1, 2):
            plan = plan / plan.sum(dim=side, keepdim=True).clamp(min=torch.finfo(plan.dtype).tiny)
    one_word = (forth.sum(2, keepdim=True) == 1) | (forth.sum(1, keepdim=True) == 1)  # of a side: all plans are even
    plan = torch.where(one_word, products, plan)
    links = _each_others_best(plan, forth)
    free_first, free_second = forth.any(2) & ~links.any(2), forth.any(1) & ~links.any(1)
    same = examples[:, :, None] == examples[:, None, :]
    both_sides = (same & free_first[:, None]).any(2) & (same & free_second[:, None]).any(2)  # of the token's example
    either = (free_first[:, :, None] | free_second[:, None]) & forth & both_sides[:, :, None]
    one_is_linked = free_first[:, :, None] ^ free_second[:, None]
    return links | _each_others_best(torch.where(one_is_linked, KEPT * plan, plan), either)


def _each_others_best(plan: Tensor, allowed: Tensor) -> Tensor:
    """Where a number is the largest of its row and of its column, of those that are allowed: bool [B, L, L]."""
    plan = plan.masked_fill(~allowed, -torch.inf)
    best = [torch.zeros_like(allowed).scatter_(side, plan.argmax(dim=side, keepdim=True), True) for side in (1, 2)]
    return best[0] & best[1] & allowed
