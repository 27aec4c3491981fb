"""Each variant of distillation is one large batch in plain torch; test_train_over_a_step.py has all cuts of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.train import synthetic
from tests.parity.train.plain import build, copy_of
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import (
    CONTENT,
    ROWS,
    alone,
    assert_same,
    rows_of,
    sentences_of,
    step_of,
)
from xalign_ray.errors import ConfigError

KIND = "distillation"
SETTINGS: dict[str, Any] = {
    "data__teacher": {"path": "teacher"},
    "model__hidden_dropout_prob": 0.0,
    "train__global_batch_size": ROWS,
    "train__max_grad_norm": 0.0,
    "objectives": [{"kind": KIND}],
}
VARIANTS = [
    {},
    {"distance": "cosine", "pooling": "cls"},
    {"normalize": True},
    {"distance": "cosine", "layer": 1},
]


def asked(changes: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return SETTINGS | {"objectives": [{"kind": KIND} | changes]} | settings


def plain_step(settings: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor], float]:
    """The same sentence by sentence, each encoded by itself, over the whole step."""
    config = synthetic.config(**settings)
    objectives, rows = build(config), rows_of(np.arange(ROWS))
    loss = config.objectives[0]
    stored = rows["teacher"].view(np.float16).astype(np.float32)
    of_pair = [torch.from_numpy(stored[row, slot]) for row, number in enumerate(CONTENT) for slot in range(number % 4)]
    terms, cosines = [], []
    for language, side in enumerate(("query", "key")):
        for ids, teacher in zip(sentences_of(rows, side), of_pair, strict=True):
            vector = alone(objectives, ids, language, loss)  # of length 1
            if not loss.normalize and loss.distance == "mse":
                vector = vector * length_of(objectives, ids, language, loss.pooling)
            cosines.append((vector @ teacher / vector.norm() / teacher.norm()).detach())
            cosine = vector @ teacher / (vector.norm() * teacher.norm())
            terms.append(1 - cosine if loss.distance == "cosine" else ((vector - teacher) ** 2).sum() / len(teacher))
    total = torch.stack(terms).mean()
    total.backward()
    gradients = copy_of({name: parameter.grad for name, parameter in objectives.named_parameters()})
    return {KIND: total.item()}, gradients, float(torch.stack(cosines).mean())


def length_of(objectives: Any, ids: list[int], language: int, pooling: str) -> Tensor:
    """The length of a sentence's vector before `alone` divides by it."""
    row = torch.tensor([ids])
    batch = {"input_ids": row, "position_ids": torch.arange(len(ids))[None], "segment_ids": row * 0}
    states = objectives.encoder.encode(batch | {"language_ids": row * 0 + language, "example_ids": row * 0 + 1})[0]
    return (states[0] if pooling == "cls" else states.mean(dim=0)).norm()


@pytest.mark.parametrize("changes", VARIANTS)
def test_each_variant_is_that_of_one_batch(two: Pool, changes: dict[str, Any]):
    settings = asked(changes, model__num_hidden_layers=2)
    losses, gradients, cosine = plain_step(settings)
    taken = two.call(step_of, settings | {"train__per_device_batch_size": 2})
    assert_same(taken, losses, gradients)
    assert [one[2]["train/teacher_cosine"] for one in taken] == pytest.approx([cosine] * 2, abs=1e-6)


def test_a_teacher_of_another_width_is_refused():
    objectives = build(synthetic.config(**SETTINGS))
    batch = {name: torch.from_numpy(values) for name, values in rows_of(np.arange(2, 4)).items() if name != "row_hash"}
    batch["teacher"] = batch["teacher"][..., :-4].contiguous()
    with pytest.raises(ConfigError, match="the teacher's vectors have 14 numbers, the encoder's 16"):
        objectives(batch, (0, 1), 0)
