"""Distillation against sentence-transformers' MSELoss on pairs, as its make_multilingual uses it: loss and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling
from sentence_transformers.sentence_transformer.losses import MSELoss
from torch import Tensor

from tests.parity.train import synthetic
from tests.parity.train.plain import build
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import sentences_of
from tests.parity.train.test_train_distillation import ROWS, asked, rows_of, step_of
from tests.peers.test_contrast import Bert, padded


def peer() -> tuple[float, dict[str, Tensor]]:
    """The loss of the step's pairs as one batch."""
    bert = build(synthetic.config(**asked({}))).encoder.hf
    pooling = Pooling(bert.config.hidden_size, pooling_mode="mean")
    model = SentenceTransformer(modules=[Bert(bert), pooling], device="cpu")
    rows = rows_of(np.arange(ROWS))
    held = rows["query_example_ids"].max(axis=1)
    vectors = rows["teacher"].view(np.float16).astype(np.float32)
    labels = np.concatenate([vectors[row, :number] for row, number in enumerate(held)])
    sides = [padded(sentences_of(rows, side)) for side in ("query", "key")]
    loss = MSELoss(model)(sides, torch.from_numpy(labels))
    loss.backward()
    return loss.item(), {name: p.grad for name, p in bert.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("micro_batch", [2, 8])
def test_loss_and_gradient_are_those_of_sentence_transformers(two: Pool, micro_batch: int):
    loss, gradients = peer()
    for losses, found, _ in two.call(step_of, asked({}, train__per_device_batch_size=micro_batch)):
        assert losses["distillation"] == pytest.approx(loss, abs=1e-6)
        for name, expected in gradients.items():
            torch.testing.assert_close(found[f"encoder.hf.{name}"], expected, rtol=1e-5, atol=1e-6)
    assert len(gradients) > 15
