"""Momentum contrast: a sentence must find its translation among a queue of sentences of earlier steps."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xalign_ray.config.choices import MomentumContrast
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.objective import Gather, LossContext, MicroStep, Objective
from xalign_ray.objectives.sentences import COLUMNS, count_pairs, sentence_rows, sentence_vectors, starts_at
from xalign_ray.private.torch import copy_each, follow_each

# What momentum contrast remembers between steps, in fp32: a running average of the encoder and a queue of keys.

_QUEUE = 0x6D6F6331  # this use of the run's seed: the random queue


class RunningAverage(nn.Module):
    """A copy of a module that follows it slowly, in fp32 and without gradient.

    Its weights are buffers: the optimizer, clipping and DeepSpeed's casts to half precision, in which an average with a
    momentum of .999 would stop moving, pass them by; checkpoints do not.
    """

    def __init__(self, live: nn.ModuleDict, momentum: float, dropout: bool) -> None:
        super().__init__()
        self.tower = copy.deepcopy(live).float()
        self.momentum = momentum
        self.dropout = dropout
        buffers: dict[nn.Parameter, Tensor] = {}  # tied weights stay tied
        for module in self.tower.modules():
            for name, weight in list(module.named_parameters(recurse=False, remove_duplicate=False)):
                delattr(module, name)
                module.register_buffer(name, buffers.setdefault(weight, weight.detach()))

    def follow(self, live: nn.Module) -> None:
        """One step of the average towards the whole weights of the module that it is a copy of."""
        weights = dict(live.named_parameters(remove_duplicate=False))
        follows = {name: average for name, average in self.tower.named_buffers() if name in weights}
        averages, values = list(follows.values()), [weights[name].detach() for name in follows]
        if any(value.dtype != torch.float32 for value in values):
            half, values = values, [torch.empty_like(average) for average in averages]
            copy_each(values, half)
        follow_each(averages, values, 1 - self.momentum)

    def train(self, mode: bool = True) -> RunningAverage:
        """Training mode is dropout; without it the copy stays in evaluation mode."""
        return cast(RunningAverage, super().train(mode and self.dropout))


class KeyQueue(nn.Module):
    """The last K keys, each with the hash of its pivot sentence; the oldest gives way to the newest.

    Attributes:
        keys: [K, width]. hashes: int64 [K]; 0, which is no sentence's, where no key has come yet.
        entered: keys since the first step.
    """

    keys: Tensor
    hashes: Tensor
    entered: Tensor

    def __init__(self, size: int, width: int, seed: int | None) -> None:
        """Random unit vectors, the same on every rank for a seed, or zeros without one."""
        super().__init__()
        self.register_buffer(
            "keys", torch.zeros(size, width) if seed is None else _random_directions(size, width, seed)
        )
        self.register_buffer("hashes", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("entered", torch.zeros((), dtype=torch.int64))

    @property
    def is_full(self) -> Tensor:
        """Whether all keys are of real sentences."""
        return self.entered >= len(self.keys)

    def push(self, keys: Tensor, hashes: Tensor) -> None:
        """Lets n keys in, wherever the last ones ended; of more than K the last K stay."""
        size = len(self.keys)
        places = (self.entered + torch.arange(len(keys), device=keys.device))[-size:] % size
        self.keys[places] = keys[-size:]
        self.hashes[places] = hashes[-size:]
        self.entered += len(keys)


def _random_directions(size: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, _QUEUE]).generate_state(1)[0]))
    return F.normalize(torch.randn(size, width, generator=random), dim=1)


class MomentumContrastLoss(Objective):
    """Finds the translation among K + 1 sentences.

    Minimises: sum over pairs of -log softmax([q.k, q.queue] / temperature)[0], with q = W2 ReLU(W1 h) of the
        query sentence's pooled state h, and k the same of the key sentence by a running average of encoder and
        projection, without gradient.
    Reference: Pan et al. 2021, PPA, equation 3; He et al. 2020, MoCo, section 3.2. The
        positive is in the denominator, as in MoCo. Masking false negatives is ours.
    Needs: the columns of both sides of sentence pairs, and `pair_hash` of the pivot sentence at each key's [CLS].
    Settings: `normalize: h` is PPA, `z` MoCo (with `h` the scale of z, logged as train/momentum_feature_norm, is
        learned); `queue_start: fill` is InfoXLM's: no loss until K real keys are there.
    Costs: two passes over the sentences, one with gradient, which is that of the rows where a loss predicts their
        pieces; a copy of the encoder and K x projection numbers, fp32 on every rank.
    Relations: every micro-step of a step sees the queue as it was before the step. After the optimizer's step the
        average moves once, and the step's keys enter the queue in the order of positions, which is rank by rank and
        micro-step by micro-step: the queue is the same on every rank and for any number of them. Queue, pointer and
        average are part of the module's state and so of the checkpoint. Not at ZeRO stage 3.
    """

    extra_columns: ClassVar[tuple[str, ...]] = COLUMNS
    beside: ClassVar[str] = "query"
    gathers_counted: ClassVar[bool] = True

    def __init__(self, settings: MomentumContrast, context: LossContext) -> None:
        super().__init__(settings, context)
        width = context.encoder.vector_width()
        self.project = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, settings.projection, bias=False)
        )
        tower = nn.ModuleDict({"encoder": context.encoder, "project": self.project})
        self.average = RunningAverage(tower, settings.momentum, settings.key_dropout)
        seed = context.seed if settings.queue_start == "random" else None
        self.queue = KeyQueue(settings.queue_size, settings.projection, seed)
        self._fresh: list[tuple[Tensor, Tensor]] = []  # keys and hashes of the step's micro-steps so far

    def forward(self, micro_step: MicroStep) -> Tensor:
        """The summed cross-entropy of the queries, in nats."""
        settings = self.settings
        query = self._features(*micro_step.sentences("query"), self.project)
        # The average is fp32, and computes in bf16 where the encoder does, as MoCo's key encoder under autocast.
        device, half = query.device.type, self.project[0].weight.dtype is torch.bfloat16
        half = half or torch.is_autocast_enabled(device)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            encoder = cast(AlignedEncoder, self.average.tower["encoder"])
            sentences = sentence_rows(micro_step.batch, "key")
            key = self._features(sentences, encoder.encode(sentences), self.average.tower["project"])
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
    def after_step(self, encoder: AlignedEncoder, gather: Gather) -> None:
        """Moves the average, then lets the step's keys into the queue in place of the oldest."""
        self.average.follow(nn.ModuleDict({"encoder": encoder, "project": self.project}))
        if not self._fresh:
            return  # a step at which the loss weighs nothing
        keys, hashes = (gather(torch.cat(parts)) for parts in zip(*self._fresh, strict=True))
        self._fresh.clear()
        self.queue.push(keys, hashes)

    def _features(self, rows: Mapping[str, Tensor], hidden: Tensor, project: nn.Module) -> Tensor:
        """The compared vector of each sentence of a side: fp32 [n, projection]."""
        pooled = self.context.encoder.behind_pooling(sentence_vectors(hidden, rows, self.settings.pooling))
        if self.settings.normalize != "z":
            pooled = F.normalize(pooled, dim=1)
        features = project(pooled.to(hidden.dtype)).float()
        return features if self.settings.normalize == "h" else F.normalize(features, dim=1)
