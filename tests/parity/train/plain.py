"""What an optimizer step is, in plain PyTorch: the whole batch at once, losses by hand, one process, no DeepSpeed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.parity.train import synthetic
from xalign_ray.config.schema import RunConfig
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.train.loop import build_model

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What a step was and did: `gradients` and `norm` are those before clipping, `after` the weights that it left."""

    losses: Mapping[str, float]
    loss: float
    learning_rate: float
    norm: float
    gradients: Weights
    after: Weights


TABLES = ("word_embeddings.weight", "predictions.bias")  # a row a piece
NEW_ROWS = slice(50, synthetic.VOCAB)  # of them


def build(config: RunConfig) -> EncoderWithLosses:
    """The recipe's module with every weight away from its first value: biases that are 0 would hide what decays."""
    objectives = build_model(config, synthetic.SyntheticRows())
    objectives.encoder.new_rows = range(NEW_ROWS.start, NEW_ROWS.stop)
    noise = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in objectives.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=noise)
    return objectives


def batch_of(rows: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Rows as the encoder reads them."""
    names = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")
    return {name: torch.from_numpy(rows[name].astype(np.int64)) for name in names}


def masked_lm(objectives: EncoderWithLosses, rows: Mapping[str, np.ndarray]) -> Tensor:
    """-log p of each label of the rows."""
    batch = batch_of(rows)
    logits = objectives.encoder.predict(objectives.encoder.encode(batch).flatten(0, 1), batch["language_ids"].flatten())
    chances, labels = logits.log_softmax(dim=-1), batch["labels"].flatten()
    return torch.stack([-chances[at, label] for at, label in enumerate(labels.tolist()) if label != -100])


def dictionary_alignment(objectives: EncoderWithLosses) -> Tensor:
    """-cos of each pair of the dictionary, whose words are one piece each."""
    pairs = synthetic.SyntheticRows().pairs("trained")
    table = objectives.get_parameter("encoder.hf.bert.embeddings.word_embeddings.weight")
    left, right = (table[torch.from_numpy(side[:, 0].astype(np.int64))] for side in (pairs.left, pairs.right))
    return -F.cosine_similarity(left, right)


def part_of(name: str) -> str:
    """The part of the two-layer encoder that a parameter belongs to."""
    if ".layer." in name:
        return "layer 1" if ".layer.0." in name else "layer 2"
    return "head" if ".cls." in name else "embeddings"


def moves_here(name: str, parts: Collection[str]) -> bool | str:
    """Whether a parameter of the two-layer encoder moves where these parts do; `rows` where its new rows alone do."""
    if {"all", part_of(name)} & {*parts}:
        return True
    return "rows" if "new_rows" in parts and name.endswith(TABLES) else False


def plain_steps(
    config: RunConfig,
    weights: Sequence[Mapping[str, float]],
    rates: Sequence[float],
    decay: float,
    trainable: Sequence[Collection[str]] = (),
    rates_of: Mapping[str, float] = MappingProxyType({}),
) -> list[Step]:
    """The first steps of a recipe of masked_lm and dictionary_alignment without dropout.

    Args:
        weights: of the two losses, for each step.
        rates: the learning rate of each step.
        decay: of the matrices.
        trainable: the parts that move in each step; all if empty. Others have no gradient for the optimizer.
        rates_of: factors of the rate of parts, and of new rows where they alone move.
    """
    objectives = build(config)
    named = dict(objectives.named_parameters())
    no_decay = ("bias", "LayerNorm.weight")
    groups = [{"params": [p], "weight_decay": 0.0 if n.endswith(no_decay) else decay} for n, p in named.items()]
    asked = config.train.optimizer
    optimizer = torch.optim.AdamW(groups, betas=(asked.beta1, asked.beta2), eps=asked.epsilon)
    rows_a_step, steps = config.train.global_batch_size, []
    for step, (weight, rate) in enumerate(zip(weights, rates, strict=True)):
        rows = synthetic.rows(np.arange(step * rows_a_step, (step + 1) * rows_a_step))
        losses = {
            "masked_lm": masked_lm(objectives, rows).mean(),
            "dictionary_alignment": dictionary_alignment(objectives).mean(),
        }
        loss = sum(weight[kind] * value for kind, value in losses.items())
        optimizer.zero_grad()
        loss.backward()
        moves = {name: moves_here(name, trainable[step]) for name in named} if trainable else {}
        for name, how in moves.items():
            given = named[name].grad
            assert given is not None
            if how is not True:
                gone, named[name].grad = given, torch.zeros_like(given) if how else None
                if how:
                    named[name].grad[NEW_ROWS] = gone[NEW_ROWS]
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in named.items()}
        norm = torch.stack([(gradient**2).sum() for gradient in gradients.values()]).sum().sqrt()
        if config.train.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(named.values(), config.train.max_grad_norm)
        for name, group in zip(named, optimizer.param_groups, strict=True):
            of_rows = moves.get(name) == "rows"
            group["lr"] = rate * rates_of.get("new rows" if of_rows else part_of(name), 1.0)
            group["weight_decay"] = 0.0 if of_rows or name.endswith(no_decay) else decay
        optimizer.step()
        told = {kind: value.item() for kind, value in losses.items()}
        steps.append(Step(told, loss.item(), rate, norm.item(), gradients, copy_of(named)))
    return steps


def copy_of(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The values as they are now."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items() if tensor is not None}
