"""Sentence contrast against sentence-transformers' losses of the same name, whole and Matryoshka: loss and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MatryoshkaLoss
from torch import Tensor, nn

from tests.parity.train import synthetic
from tests.parity.train.plain import build
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import sentences_of, step_of

ROWS, OTHERS = 8, 12
SETTINGS: dict[str, Any] = {
    "model__hidden_dropout_prob": 0.0,
    "train__global_batch_size": ROWS,
    "objectives": [{"kind": "sentence_contrast", "temperature": 0.1}],
}


def rows_of(positions: np.ndarray) -> dict[str, np.ndarray]:
    """Rows whose pairs have no sentence in common."""
    return synthetic.rows(positions + OTHERS) | {"position": positions}


class Bert(nn.Module):
    """Token vectors of sentences that are ids already."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        seen = {name: features[name] for name in ("input_ids", "attention_mask")}
        return features | {"token_embeddings": self.bert(**seen).last_hidden_state}


def padded(sentences: list[list[int]]) -> dict[str, Tensor]:
    """Sentences as a batch of sentence-transformers."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(one) for one in sentences], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def peer(mini_batch_size: int, widths: list[int]) -> tuple[float, dict[str, Tensor]]:
    """The same by sentence-transformers, in one process, on the same pairs as one batch."""
    bert = build(synthetic.config(**SETTINGS)).encoder.hf
    model = SentenceTransformer(
        modules=[Bert(bert), Pooling(bert.config.hidden_size, pooling_mode="mean")], device="cpu"
    )
    rows = rows_of(np.arange(ROWS))
    sides = [sentences_of(rows, side) for side in ("query", "key")]
    texts = [tuple(sentence) for side in sides for sentence in side]
    assert len(set(texts)) == len(texts), "duplicates, which it takes for negatives"
    loss_of: nn.Module = CachedMultipleNegativesRankingLoss(
        model,
        scale=10.0,
        mini_batch_size=mini_batch_size,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    if widths:
        loss_of = MatryoshkaLoss(model, loss_of, widths)
    loss = loss_of([padded(side) for side in sides], torch.zeros(0))
    loss.backward()
    return loss.item(), {name: p.grad for name, p in bert.named_parameters() if p.grad is not None}


# Four workers, and each micro-batch on each number of workers, are compared with a plain batch in tests/parity/train.
@pytest.mark.parametrize(
    ("workers", "micro_batch", "widths"),
    [("one", 2, []), ("one", 8, [16, 8, 3]), ("two", 1, [16, 8, 3]), ("two", 4, [])],
)
def test_loss_and_gradient_are_those_of_sentence_transformers(
    request: pytest.FixtureRequest, workers: str, micro_batch: int, widths: list[int]
):
    pool: Pool = request.getfixturevalue(workers)
    loss, gradients = peer(3, widths)
    (contrast,) = SETTINGS["objectives"]
    settings = SETTINGS | {"objectives": [contrast | {"matryoshka_dims": widths}]}
    for ours, found, _ in pool.call(step_of, settings | {"train__per_device_batch_size": micro_batch}, rows_of):
        assert ours["sentence_contrast"] == pytest.approx(loss, abs=1e-6)
        for name, expected in gradients.items():
            torch.testing.assert_close(
                found[f"encoder.hf.{name}"], expected, rtol=1e-5, atol=1e-6 * max(1, len(widths))
            )
    assert len(gradients) > 15
