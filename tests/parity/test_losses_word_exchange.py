"""Word exchange against numbers worked by hand, an independent numpy reference, and finite differences of that."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.parity import numpy_bert
from tests.parity.test_losses import HEADS, as_tensors, random_batch, random_encoder, weights_of
from xalign_ray.config.choices import MaskedLm, WordExchange
from xalign_ray.objectives.combine import EncoderWithLosses

KIND = "word_exchange"


class GivenStates(nn.Module):
    """An encoder whose hidden states are given and whose head is the identity: states are logits."""

    compiled = False

    def __init__(self, states):
        super().__init__()
        self.states = torch.tensor(states)
        self.hidden_size = len(states[0])

    def encode(self, batch, layer=None):  # noqa: ARG002
        return self.states[batch["input_ids"].long()]

    def predict(self, hidden, language, transform):  # noqa: ARG002
        return transform(hidden)

    def copy_transform(self):
        return nn.Identity()


def packed(row_bits):
    return torch.from_numpy(np.packbits(np.array(row_bits, np.uint8), axis=-1, bitorder="little"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Label 1 at position 0, whose partners 1 and 2 have the states (0, ln 4) and (0, 0).
        # Mean (0, ln 2): p = 2/3, ln 3/2. Sum (0, ln 4): p = 4/5, ln 5/4.
        ({}, 0.4054651),
        ({"normalize": "sum"}, 0.2231436),
        # Position 3 has a label and no partner: a zero vector, two equal logits, ln 2 more.
        ({"unaligned": "literal"}, 0.4054651 + 0.6931472),
        ({"normalize": "sum", "unaligned": "literal"}, 0.2231436 + 0.6931472),
    ],
)
def test_two_partners_and_none_worked_by_hand(options, expected):
    encoder = GivenStates([[9.0, 0.0], [0.0, math.log(4.0)], [0.0, 0.0], [5.0, 0.0]])
    batch = {
        "input_ids": torch.tensor([[0, 1, 2, 3]]),
        "labels": torch.tensor([[1, -100, -100, 0]]),
        "language_ids": torch.zeros(1, 4, dtype=torch.int64),
        "aligned": packed([[[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]]),
    }
    objectives = EncoderWithLosses(encoder, [WordExchange(**options)], None, seed=0)
    assert objectives(batch, (0, 1), 0)[KIND].item() == pytest.approx(expected, abs=1e-6)
    told, over = objectives.metrics["train/aligned_label_share"]
    assert (told.item(), over.item()) == (1.0, 2.0)


def aligned_batch(seed):
    """Symmetric partners within examples, of no, one and several positions."""
    random = np.random.default_rng(seed)
    batch = random_batch(random)
    examples = batch["example_ids"]
    bits = np.triu(random.random((*examples.shape, examples.shape[1])) < 0.25, 1)
    bits &= (examples[:, :, None] == examples[:, None, :]) & (examples[:, :, None] > 0)
    bits |= bits.transpose(0, 2, 1)
    return batch, bits


def reference(w, own, batch, bits, normalize, unaligned, conditioned):
    """Label by label; `own` are the loss's parameters by name."""
    total = 0.0
    for row in range(len(batch["input_ids"])):
        hidden = np.zeros((len(batch["input_ids"][row]), len(own["bridge.bias"])))
        for example in sorted(set(batch["example_ids"][row].tolist()) - {0}):
            at = np.flatnonzero(batch["example_ids"][row] == example)
            keys = ("input_ids", "position_ids", "segment_ids", "language_ids")
            hidden[at] = numpy_bert.encode_example(w, *(batch[key][row][at] for key in keys), HEADS)
        for i in np.flatnonzero(batch["labels"][row] != -100):
            partners = [j for j in range(len(hidden)) if bits[row, i, j]]
            if not partners and unaligned == "skip":
                continue
            vector = sum((hidden[j] for j in partners), np.zeros(hidden.shape[1]))
            if partners and normalize == "mean":
                vector = vector / len(partners)
            read = own["bridge.weight"] @ vector + own["bridge.bias"]
            if conditioned:
                read = np.concatenate([read, w["languages.weight"][batch["language_ids"][row, i]]])
            t = numpy_bert.gelu(own["transform.dense.weight"] @ read + own["transform.dense.bias"])
            t = numpy_bert.layer_norm(t, own["transform.LayerNorm.weight"], own["transform.LayerNorm.bias"])
            logits = w["hf.bert.embeddings.word_embeddings.weight"] @ t + w["hf.cls.predictions.bias"]
            total += numpy_bert.cross_entropy(logits, batch["labels"][row, i])
    return total


def random_loss(settings, **options):
    """The loss around a random encoder, its own parameters away from where they start."""
    objectives = EncoderWithLosses(random_encoder(**options), [settings], None, seed=0)
    with torch.no_grad():
        for parameter in objectives.losses.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return objectives


def own_weights(objectives):
    return {
        name: value.detach().numpy().astype(np.float64) for name, value in objectives.losses[KIND].named_parameters()
    }


@pytest.mark.parametrize("normalize", ["mean", "sum"])
@pytest.mark.parametrize("unaligned", ["skip", "literal"])
@pytest.mark.parametrize("conditioned", [False, True])
def test_word_exchange_equals_the_numpy_reference(normalize, unaligned, conditioned):
    batch, bits = aligned_batch(1)
    options = {"language_embeddings": conditioned, "conditioned_head": conditioned}
    objectives = random_loss(WordExchange(normalize=normalize, unaligned=unaligned), **options)
    share = batch | {"aligned": packed(bits).numpy()}
    ours = objectives(as_tensors(batch) | {"aligned": packed(bits)}, (0, 1), 0)[KIND].item()
    w = weights_of(objectives.encoder)
    theirs = reference(w, own_weights(objectives), batch, bits, normalize, unaligned, conditioned)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert objectives.counts(share, [(0, 1)], 0)[KIND] == (batch["labels"] >= 0).sum()


def test_it_starts_as_the_encoders_own_head_and_shares_only_decoder_and_words():
    batch, bits = aligned_batch(2)
    bits[:] = np.eye(bits.shape[1], dtype=bool)  # each position its own partner: the exchange changes nothing
    objectives = EncoderWithLosses(random_encoder(), [MaskedLm(), WordExchange()], None, seed=0)
    sums = objectives(as_tensors(batch) | {"aligned": packed(bits)}, (0, 1), 0)
    assert sums[KIND].item() == pytest.approx(sums["masked_lm"].item(), rel=1e-6)
    names = sorted(name for name, _ in objectives.named_parameters() if not name.startswith("encoder."))
    layers = ("bridge", "transform.LayerNorm", "transform.dense")
    assert names == [f"losses.{KIND}.{layer}.{part}" for layer in layers for part in ("bias", "weight")]


@pytest.mark.parametrize("has_column", [False, True])
def test_rows_of_other_streams_ask_nothing_but_call_the_same_modules(has_column):
    batch, bits = aligned_batch(3)
    objectives = EncoderWithLosses(random_encoder(), [WordExchange()], None, seed=0)
    given = as_tensors(batch) | ({"aligned": packed(np.zeros_like(bits))} if has_column else {})
    for rows in (slice(None), slice(0, 0)):
        objectives.zero_grad()
        loss = objectives({key: value[rows] for key, value in given.items()}, (0, 1), 0)[KIND]
        loss.backward()
        assert loss.item() == 0.0
        assert all(p.grad is not None and not p.grad.any() for p in objectives.losses.parameters())


def test_word_exchange_gradient_equals_finite_differences_of_the_reference():
    batch, bits = aligned_batch(1)
    objectives = random_loss(WordExchange())
    objectives(as_tensors(batch) | {"aligned": packed(bits)}, (0, 1), 0)[KIND].backward()
    w, own, h = weights_of(objectives.encoder), own_weights(objectives), 1e-5
    parameters = dict(objectives.named_parameters())
    places = {
        "encoder.hf.bert.embeddings.word_embeddings.weight": (
            int(batch["labels"].max()),
            2,
        ),  # a label: the tied decoder is in it
        "encoder.hf.bert.embeddings.LayerNorm.bias": (3,),
        "encoder.hf.bert.encoder.layer.0.attention.self.value.weight": (2, 5),
        f"losses.{KIND}.bridge.weight": (3, 7),
        f"losses.{KIND}.bridge.bias": (4,),
        f"losses.{KIND}.transform.dense.weight": (1, 6),
        f"losses.{KIND}.transform.LayerNorm.weight": (9,),
    }
    for name, at in places.items():
        values = []
        for sign in (1, -1):
            moved = {key: value.copy() for key, value in w.items()}
            mine = {key: value.copy() for key, value in own.items()}
            (moved if name.startswith("encoder.") else mine)[
                name.removeprefix("encoder.").removeprefix(f"losses.{KIND}.")
            ][at] += sign * h
            values.append(reference(moved, mine, batch, bits, "mean", "skip", False))
        slope = (values[0] - values[1]) / (2 * h)
        assert parameters[name].grad[at].item() == pytest.approx(slope, rel=2e-3, abs=1e-4), name
        assert abs(slope) > 1e-3, name
