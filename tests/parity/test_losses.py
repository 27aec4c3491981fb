"""Losses against numbers worked by hand, an independent numpy reference, and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.parity import numpy_bert
from xalign_ray.config.choices import DictionaryAlignment, MaskedLm
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.encoder import build_encoder
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.vocabulary.dictionary import DictionaryPairs

HEADS = 2


class TableEncoder(nn.Module):
    """An encoder whose embeddings and logits are given, so that a loss can be worked out on paper."""

    compiled = False

    def __init__(self, table, logits=None):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.tensor(table), freeze=False)
        self.logits = logits

    def encode(self, batch):
        return batch["input_ids"][..., None].float()

    def predict(self, hidden, language):  # noqa: ARG002
        return torch.tensor(self.logits)[hidden[:, 0].long()]

    def embed(self, ids):
        return self.words(ids)


def dictionary(left, right):
    n = len(left)
    return DictionaryPairs(
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        left_language=np.zeros(n, np.int32),
        right_language=np.ones(n, np.int32),
    )


def random_batch(random, rows=3, length=12, vocab=40, languages=3):
    """Rows of two or three examples of unequal length, with padding and about a fifth of the positions labelled."""
    shape = (rows, length)
    examples = np.sort(random.integers(1, 4, shape), axis=1)
    examples[:, -2:] = 0
    labels = np.where(random.random(shape) < 0.2, random.integers(0, vocab, shape), -100)
    labels[0, 0] = 7
    labels[examples == 0] = -100
    return {
        "input_ids": random.integers(0, vocab, shape),
        "labels": labels,
        "position_ids": random.integers(0, length, shape),
        "segment_ids": random.integers(0, 2, shape),
        "language_ids": random.integers(0, languages, shape),
        "example_ids": examples,
    }


def as_tensors(batch):
    return {key: torch.from_numpy(value.astype(np.int32)) for key, value in batch.items()}


def random_encoder(seed=0, **options):
    """Every parameter, biases too, away from its initial value."""
    torch.manual_seed(seed)
    model = ModelConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=HEADS,
        intermediate_size=24,
        hidden_dropout_prob=0.0,
        **options,
    )
    encoder = build_encoder(model, 40, ["en", "de", "hi"], 12, pad_id=0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return encoder.eval()


def weights_of(encoder):
    return {name: parameter.detach().numpy().astype(np.float64) for name, parameter in encoder.state_dict().items()}


# --- by hand --------------------------------------------------------------------------------------------------------


ROWS = [[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [0.0, -2.0]]


def test_alignment_with_a_zero_vector_is_zero_and_finite():
    encoder = TableEncoder([[0.0, 0.0], [1.0, 2.0]])
    objectives = EncoderWithLosses(encoder, [DictionaryAlignment()], dictionary([[0]], [[1]]), seed=0)
    loss = objectives({}, (0, 1), 0)["dictionary_alignment"]
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(encoder.words.weight.grad).all()


# --- against the numpy reference ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [{}, {"language_embeddings": True}, {"language_embeddings": True, "conditioned_head": True}],
    ids=["plain", "language_embeddings", "conditioned_head"],
)
def test_masked_lm_equals_the_numpy_reference(options):
    encoder, batch = random_encoder(**options), random_batch(np.random.default_rng(1))
    objectives = EncoderWithLosses(encoder, [MaskedLm()], None, seed=0)
    ours = objectives(as_tensors(batch), (0, 1), 0)["masked_lm"].item()
    theirs = numpy_bert.masked_lm_sum(weights_of(encoder), batch, HEADS, options.get("conditioned_head", False))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert objectives.counts(batch, [(0, 1)], 0)["masked_lm"] == (batch["labels"] >= 0).sum()


def reference_alignment(table, left, right):
    total = 0.0
    for a, b in zip(left, right, strict=True):
        u, v = (np.mean([table[i] for i in word if i >= 0], axis=0) for word in (a, b))
        total -= (u @ v) / (np.linalg.norm(u) * np.linalg.norm(v))
    return total


def random_dictionary(random, n=9, vocab=40):
    left, right = random.integers(0, vocab, (n, 3)), random.integers(0, vocab, (n, 2))
    left[::2, 2], left[::3, 1:], right[1::2, 1] = -1, -1, -1
    return left, right


def test_alignment_equals_the_numpy_reference():
    random = np.random.default_rng(3)
    encoder, (left, right) = random_encoder(), random_dictionary(random)
    objectives = EncoderWithLosses(encoder, [DictionaryAlignment()], dictionary(left, right), seed=0)
    ours = objectives({}, (0, 1), 0)["dictionary_alignment"].item()
    table = weights_of(encoder)["hf.bert.embeddings.word_embeddings.weight"]
    assert ours == pytest.approx(reference_alignment(table, left, right), abs=1e-5)


# --- gradients ------------------------------------------------------------------------------------------------------
def alignment_gradient(table, left, right):
    encoder = TableEncoder(table.astype(np.float32))
    objectives = EncoderWithLosses(encoder, [DictionaryAlignment()], dictionary(left, right), seed=0)
    objectives({}, (0, 1), 0)["dictionary_alignment"].backward()
    return encoder.words.weight.grad.numpy()


def test_alignment_gradient_equals_finite_differences_of_the_reference():
    random = np.random.default_rng(4)
    table, (left, right) = random.normal(size=(40, 6)), random_dictionary(random)
    slopes, h = np.zeros_like(table), 1e-5
    for at in np.ndindex(*table.shape):
        high, low = table.copy(), table.copy()
        high[at] += h
        low[at] -= h
        slopes[at] = (reference_alignment(high, left, right) - reference_alignment(low, left, right)) / (2 * h)
    np.testing.assert_allclose(alignment_gradient(table, left, right), slopes, atol=2e-6)
