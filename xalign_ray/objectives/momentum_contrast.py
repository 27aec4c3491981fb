"""Momentum contrast: a sentence must find its translation among a queue of sentences of earlier steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xalign_ray.config.choices import MomentumContrast
from xalign_ray.objectives.momentum import KeyQueue, RunningAverage
from xalign_ray.objectives.objective import Gather, LossContext, MicroStep, Objective, TrainableEncoder
from xalign_ray.objectives.sentences import COLUMNS, count_pairs, sentence_rows, sentence_vectors, starts_at


class MomentumContrastLoss(Objective):
    """Asks which of K + 1 sentences is the translation.

    What it optimises: sum over pairs of -log softmax([q.k, q.queue] / temperature)[0], with q = W2 ReLU(W1 h) of the
        query sentence's pooled state h, and k the same of the key sentence by a running average of encoder and
        projection, without gradient.
    Reference: Pan et al. 2021, PPA, equation 3; He et al. 2020, MoCo, section 3.2. The
        positive is in the denominator, as in MoCo. Masking false negatives is ours.
    Needs: the columns of both sides of sentence pairs, and `pair_hash` of the pivot sentence at each key's [CLS].
    Settings: `normalize: h` is PPA, `z` MoCo (with `h` the scale of z, logged as train/momentum_feature_norm, is
        learned); `queue_start: fill` is InfoXLM's: no loss until K real keys are there.
    Costs: two passes over the sentences, one with gradient; a copy of the encoder and K x projection numbers, fp32 on
        every rank.
    Relations: every micro-step of a step sees the queue as it was before the step. After the optimizer's step the
        average moves once, and the step's keys enter the queue in the order of positions, which is rank by rank and
        micro-step by micro-step: the queue is the same on every rank and for any number of them. Queue, pointer and
        average are part of the module's state and so of the checkpoint. Not at ZeRO stage 3.
    """

    extra_columns: ClassVar[tuple[str, ...]] = COLUMNS

    def __init__(self, settings: MomentumContrast, context: LossContext) -> None:
        super().__init__(settings, context)
        width = context.encoder.hidden_size
        self.project = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, settings.projection, bias=False)
        )
        tower = nn.ModuleDict({"encoder": cast(nn.Module, context.encoder), "project": self.project})
        self.average = RunningAverage(tower, settings.momentum, settings.key_dropout)
        seed = context.seed if settings.queue_start == "random" else None
        self.queue = KeyQueue(settings.queue_size, settings.projection, seed)
        self._fresh: list[tuple[Tensor, Tensor]] = []  # keys and hashes of the step's micro-steps so far

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy of the queries, in nats."""
        settings = self.settings
        query = self._features(micro_step, "query", micro_step.encoder, self.project)
        # The average is fp32, and computes in bf16 where the encoder does, as MoCo's key encoder under autocast.
        device, half = query.device.type, self.project[0].weight.dtype is torch.bfloat16
        half = half or torch.is_autocast_enabled(device)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            tower = self.average.tower
            key = self._features(micro_step, "key", cast(TrainableEncoder, tower["encoder"]), tower["project"])
        sentences = sentence_rows(micro_step.batch, "key")
        hashes = sentences["pair_hash"].flatten()[starts_at(sentences)]
        with torch.autocast(query.device.type, enabled=False):  # in fp32 at every ZeRO stage
            negatives = query @ self.queue.keys.T
        if settings.mask_false_negatives:
            negatives = negatives.masked_fill(hashes[:, None] == self.queue.hashes[None, :], -torch.inf)
        logits = torch.cat([(query * key).sum(dim=1, keepdim=True), negatives], dim=1) / settings.temperature
        if self.training:
            self._fresh.append((key, hashes))
        micro_step.log("train/momentum_accuracy", (logits[:, 1:] <= logits[:, :1]).all(dim=1).float())
        micro_step.log("train/momentum_cosine", F.cosine_similarity(query, key))
        micro_step.log("train/momentum_feature_norm", query.norm(dim=1))
        total = F.cross_entropy(logits, torch.zeros_like(hashes), reduction="sum")
        return total * self.queue.is_full if settings.queue_start == "fill" else total

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The pairs of the batch."""
        return count_pairs(batch)

    @torch.no_grad()
    def after_step(self, encoder: TrainableEncoder, gather: Gather) -> None:
        """Moves the average, then lets the step's keys into the queue in place of the oldest."""
        self.average.follow(nn.ModuleDict({"encoder": cast(nn.Module, encoder), "project": self.project}))
        if not self._fresh:
            return  # a stage that leaves the loss out
        keys, hashes = (gather(torch.cat(parts)) for parts in zip(*self._fresh, strict=True))
        self._fresh.clear()
        self.queue.push(keys, hashes)

    def _features(self, micro_step: MicroStep, role: str, encoder: TrainableEncoder, project: nn.Module) -> Tensor:
        """What is compared of each sentence of a side: fp32 [n, projection]."""
        rows = sentence_rows(micro_step.batch, role)
        hidden = encoder.encode(rows)
        pooled = sentence_vectors(hidden, rows, self.settings.pooling)
        if self.settings.normalize != "z":
            pooled = F.normalize(pooled, dim=1)
        features = project(pooled.to(hidden.dtype)).float()
        return features if self.settings.normalize == "h" else F.normalize(features, dim=1)
