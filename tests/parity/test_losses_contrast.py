"""Momentum and sentence contrast against numbers worked by hand, a numpy reference, and finite differences of that."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.parity import numpy_bert
from tests.parity.test_losses import HEADS, random_encoder, weights_of
from xalign_ray.config.choices import Distillation, MomentumContrast, SentenceContrast
from xalign_ray.errors import ConfigError
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.objectives.sentences import sentence_rows, text_hashes

FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
SMALL = {"queue_size": 6, "projection": 5, "temperature": 0.3, "momentum": 0.5}


class GivenStates(nn.Module):
    """An encoder whose hidden state of a token is a row of a table."""

    def __init__(self, states):
        super().__init__()
        self.states = nn.Embedding.from_pretrained(torch.tensor(states), freeze=False)
        self.hidden_size, self.num_hidden_layers = len(states[0]), 1

    def encode(self, batch, layer=None):  # noqa: ARG002
        return self.states(batch["input_ids"].long())

    def vector_width(self, layer=None):  # noqa: ARG002
        return self.hidden_size

    def behind_pooling(self, pooled, layer=None):  # noqa: ARG002
        return pooled


def pairs_batch(query_rows, key_rows, hashes):
    """Rows of examples, an example a list of ids; a hash for each key example, row by row."""
    length = max(sum(map(len, row)) for rows in (query_rows, key_rows) for row in rows)
    shape = (len(query_rows), length)
    batch = {f"{side}_{field}": np.zeros(shape, np.int64) for side in ("query", "key") for field in FIELDS}
    batch |= {"pair_hash": np.zeros(shape, np.int64), "example_ids": np.zeros(shape, np.int64)}
    for side, rows in (("query", query_rows), ("key", key_rows)):
        for i, row in enumerate(rows):
            at = 0
            for number, ids in enumerate(row, start=1):
                place = (i, slice(at, at + len(ids)))
                batch[f"{side}_input_ids"][place] = ids
                batch[f"{side}_position_ids"][place] = np.arange(len(ids))
                batch[f"{side}_language_ids"][place] = int(side == "key")
                batch[f"{side}_example_ids"][place] = number
                if side == "key":
                    batch["pair_hash"][i, at] = hashes[i][number - 1]
                at += len(ids)
    return batch


def as_tensors(batch):
    return {key: torch.from_numpy(value) for key, value in batch.items()}


def random_pairs(seed):
    """Four rows of two, no, three and one pair; two pairs of the third row have the same pivot sentence."""
    random = np.random.default_rng(seed)
    counts = (2, 0, 3, 1)
    sides = [[[random.integers(5, 40, random.integers(2, 5)).tolist() for _ in range(n)] for n in counts] for _ in "qk"]
    return *sides, [[11, 12], [], [13, 14, 13], [15]]


# --- by hand --------------------------------------------------------------------------------------------------------
STATES = [[0.0, 0.0], [3.0, 4.0], [4.0, 3.0], [1.0, 0.0]]
# With length 1: q = (.6, .8), k = (.8, .6), so q.k = .96; the queue's (0, 1) and (1, 0) give .8 and .6.
# -ln e^.96 / (e^.96 + e^.8 + e^.6) = ln 6.6593562 - .96 = .9360228; without the last ln 4.8372374 - .96 = .6163438


def momentum_by_hand(**options):
    settings = {"queue_size": 2, "projection": 2, "temperature": 1.0, "normalize": "z", "momentum": 0.75}
    loss = EncoderWithLosses(GivenStates(STATES), [MomentumContrast(**settings | options)], None, seed=0)
    inner = loss.losses["momentum_contrast"]
    with torch.no_grad():
        for tower in (inner.project, inner.average.tower["project"]):
            for layer in (0, 2):
                tower[layer].weight.copy_(torch.eye(2))
        inner.queue.keys.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        inner.queue.hashes.copy_(torch.tensor([5, 7]))
    return loss, inner


@pytest.mark.parametrize(
    ("options", "pair_hash", "expected"),
    [
        ({}, 6, 0.9360228),
        ({}, 7, 0.6163438),
        ({"mask_false_negatives": False}, 7, 0.9360228),
        ({"normalize": "both"}, 6, 0.9360228),
        ({"normalize": "h"}, 6, 0.9360228),  # the identity keeps the length
    ],
)
def test_momentum_contrast_of_one_pair_worked_by_hand(options, pair_hash, expected):
    objectives, _ = momentum_by_hand(**options)
    batch = as_tensors(pairs_batch([[[1, 3]]], [[[2, 3, 3]]], [[pair_hash]]))
    assert objectives(batch, (0, 1), 0)["momentum_contrast"].item() == pytest.approx(expected, abs=2e-6)
    told = {name: (total / over).item() for name, (total, over) in objectives.metrics.items()}
    assert told["train/momentum_cosine"] == pytest.approx(0.96)
    assert told["train/momentum_accuracy"] == 1.0


def test_after_a_step_the_average_moves_a_quarter_and_keys_take_the_place_of_the_oldest():
    objectives, inner = momentum_by_hand()
    batch = as_tensors(pairs_batch([[[1]], [[3]], [[1]]], [[[2]], [[3]], [[1]]], [[21], [22], [23]]))
    for rows in (slice(0, 2), slice(2, 3)):  # two micro-steps see the same queue
        before = inner.queue.keys.clone()
        objectives({key: value[rows] for key, value in batch.items()}, (0, 1), 0)
        assert torch.equal(inner.queue.keys, before)
    with torch.no_grad():
        objectives.encoder.states.weight.add_(4.0)
    objectives.after_step(lambda rows: rows)
    # Three keys into two places, from place 0: the third overwrites the first.
    torch.testing.assert_close(inner.queue.keys, torch.tensor([[0.6, 0.8], [1.0, 0.0]]))
    assert (inner.queue.hashes.tolist(), inner.queue.entered.item()) == ([23, 22], 3)
    torch.testing.assert_close(inner.average.tower["encoder"].states.weight, torch.tensor(STATES) + 1.0)
    objectives({key: value[:1] for key, value in batch.items()}, (0, 1), 1)
    objectives.after_step(lambda rows: rows)
    assert inner.queue.hashes.tolist() == [23, 21]  # the next place after three keys is 1


def test_more_keys_than_the_queue_holds_leave_the_last_ones():
    objectives, inner = momentum_by_hand()
    batch = as_tensors(pairs_batch([[[1]]] * 5, [[[2]]] * 5, [[31], [32], [33], [34], [35]]))
    objectives(batch, (0, 1), 0)
    objectives.after_step(lambda rows: rows)
    assert inner.queue.hashes.tolist() == [35, 34]


def test_with_fill_there_is_no_loss_until_the_queue_is_full():
    objectives, inner = momentum_by_hand(queue_start="fill")
    for step, expected_full in enumerate((False, False, True)):
        batch = as_tensors(pairs_batch([[[1]]], [[[2]]], [[41 + step]]))
        loss = objectives(batch, (0, 1), 0)["momentum_contrast"]
        assert (loss.item() > 0) == expected_full
        loss.backward()
        assert objectives.encoder.states.weight.grad.any() == expected_full
        objectives.after_step(lambda rows: rows)
    assert inner.queue.entered == 3


def test_sentence_contrast_of_two_pairs_worked_by_hand():
    # Directions a = (.6, .8), b = (.8, .6), c = (1, 0); pairs (a, b) and (c, a), temperature 1:
    # cosines [[.96, 1], [.8, .6]]. Rows: ln(1 + e^.04) = .713347, ln(1 + e^.2) = .798139;
    # columns: ln(1 + e^-.16) = .616347, ln(1 + e^.4) = .913015. Half the sum: 1.5204225.
    states = [*STATES, STATES[1]]  # id 4 is another sentence in the same place
    objectives = EncoderWithLosses(GivenStates(states), [SentenceContrast(temperature=1.0)], None, seed=0)
    same_row = pairs_batch([[[1], [3]]], [[[2], [4]]], [[1, 2]])
    apart = pairs_batch([[[1]], [[3]]], [[[2]], [[4]]], [[1], [2]])
    for batch in (same_row, apart):
        sums = objectives(as_tensors(batch), (0, 1), 0)
        assert sums["sentence_contrast"].item() == pytest.approx(1.5204225, abs=2e-6)
        assert objectives.metrics["train/sentence_accuracy"][0] == 0.0  # the other key is nearer to each query


@pytest.mark.parametrize(
    ("widths", "fault"), [((2, 3), "names 3, but the encoder's vectors have 2 numbers"), ((1, 2), "")]
)
def test_widths_beyond_the_encoders_are_refused(widths, fault):
    asked = [SentenceContrast(matryoshka_dims=widths)]
    if fault:
        with pytest.raises(ConfigError, match=fault):
            EncoderWithLosses(GivenStates(STATES), asked, None, seed=0)
    else:
        EncoderWithLosses(GivenStates(STATES), asked, None, seed=0)


def test_translations_of_one_sentence_in_a_step_are_all_positives():
    # Pairs (a, b), (a, c) and (e, d) of e = (0, 1), d = (1, 0); a finds b (.96) and c (.6) against d (.6) alone:
    # (ln(1 + e^-.36) + ln(1 + e^0)) / 2 = .6103. b: (.96, .96) against e (.6): ln(1 + e^-.36) = .5293.
    states = [[0.0, 0.0], [3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    objectives = EncoderWithLosses(
        GivenStates(states), [SentenceContrast(temperature=1.0, positives="multi")], None, seed=0
    )
    batch = as_tensors(pairs_batch([[[1], [1], [4]]], [[[2], [3], [5]]], [[1, 2, 3]]))
    softplus = np.logaddexp(0.0, [0.6 - 0.96, 0.6 - 0.6, 0.0 - 0.6])
    forth = 2 * softplus[:2].mean() + np.logaddexp(0.0, np.logaddexp(0.6, 0.0))  # d is pair 3's own: 0 against .6 and 0
    back = softplus[0] + softplus[2] + np.logaddexp(0.0, np.logaddexp(0.6, 0.6))
    assert objectives(batch, (0, 1), 0)["sentence_contrast"].item() == pytest.approx((forth + back) / 2, abs=2e-6)
    assert objectives.metrics["train/positives"][0] == 5  # 2, 2 and 1


def test_hashes_of_texts_tell_ids_and_their_order():
    texts = [[5, 6], [6, 5], [5, 6, 7], [5], [5, 5], [6, 5], [250_000, 1], [1, 250_000]]
    batch = as_tensors(pairs_batch([texts], [texts], [[0] * 8]))
    hashes = text_hashes(sentence_rows(batch, "key")).tolist()
    assert hashes[1] == hashes[5]
    assert len(set(hashes)) == 7


# --- against the numpy reference ------------------------------------------------------------------------------------
def pooled(w, ids, language, pooling):
    at = np.arange(len(ids))
    hidden = numpy_bert.encode_example(w, np.array(ids), at, at * 0, at * 0 + language, HEADS)
    return hidden[0] if pooling == "cls" else hidden.mean(axis=0)


def unit(x):
    return x / np.linalg.norm(x)


def features(w, project, ids, language, settings):
    h = pooled(w, ids, language, settings.pooling)
    h = unit(h) if settings.normalize in ("h", "both") else h
    z = project[1] @ np.maximum(project[0] @ h, 0.0)
    return unit(z) if settings.normalize in ("z", "both") else z


def momentum_reference(towers, queue, hashes, pairs, settings):
    """Pair by pair; `towers` are (encoder, projection) of the query and of the key."""
    total = 0.0
    for query_row, key_row, row_hashes in zip(*pairs, strict=True):
        for query, key, pair_hash in zip(query_row, key_row, row_hashes, strict=True):
            q, k = features(*towers[0], query, 0, settings), features(*towers[1], key, 1, settings)
            rivals = [
                q @ entry
                for entry, known in zip(queue, hashes, strict=True)
                if not (settings.mask_false_negatives and known == pair_hash)
            ]
            total += numpy_bert.cross_entropy(np.array([q @ k, *rivals]) / settings.temperature, 0)
    return total


def random_momentum(settings):
    """The loss with a key tower and a queue of their own, two of its hashes being those of pairs."""
    objectives = EncoderWithLosses(random_encoder(language_embeddings=True), [settings], None, seed=0)
    inner = objectives.losses["momentum_contrast"]
    with torch.no_grad():
        for weight in [*inner.project.parameters(), *filter(torch.is_floating_point, inner.average.buffers())]:
            weight.add_(torch.randn_like(weight) * 0.2)
        inner.queue.hashes.copy_(torch.tensor([1, 13, 2, 3, 15, 4]))
    return objectives.eval(), inner


def double(parameters):
    return [parameter.detach().numpy().astype(np.float64) for parameter in parameters]


def towers_of(objectives, inner):
    key = inner.average.tower
    return (
        (weights_of(objectives.encoder), double(inner.project.parameters())),
        (weights_of(key["encoder"]), double(key["project"].buffers())),
    )


@pytest.mark.parametrize("normalize", ["h", "z", "both"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("masked", [True, False])
def test_momentum_contrast_equals_the_numpy_reference(normalize, pooling, masked):
    settings = MomentumContrast(normalize=normalize, pooling=pooling, mask_false_negatives=masked, **SMALL)
    objectives, inner = random_momentum(settings)
    pairs = random_pairs(1)
    batch = pairs_batch(*pairs)
    ours = objectives(as_tensors(batch), (0, 1), 0)["momentum_contrast"].item()
    queue, hashes = double([inner.queue.keys])[0], inner.queue.hashes.tolist()
    theirs = momentum_reference(towers_of(objectives, inner), queue, hashes, pairs, settings)
    assert ours == pytest.approx(theirs, rel=2e-5)
    assert objectives.counts(batch, [(0, 1)], 0) == {"momentum_contrast": 6.0}


# --- gradients ------------------------------------------------------------------------------------------------------
PLACES = {
    "hf.bert.encoder.layer.0.attention.self.value.weight": (2, 5),
    "hf.bert.encoder.layer.1.output.dense.weight": (1, 20),
    "hf.bert.embeddings.LayerNorm.bias": (3,),
    "languages.weight": (0, 3),
}


def moved(w, name, at, by):
    value = w[name].copy()
    value[at] += by
    return w | {name: value}


def test_momentum_gradient_equals_finite_differences_and_leaves_the_key_encoder_alone():
    settings = MomentumContrast(**SMALL)
    objectives, inner = random_momentum(settings)
    pairs, h = random_pairs(3), 1e-5
    objectives(as_tensors(pairs_batch(*pairs)), (0, 1), 0)["momentum_contrast"].backward()
    queue, hashes = double([inner.queue.keys])[0], inner.queue.hashes.tolist()
    (w, project), key = towers_of(objectives, inner)
    parameters = dict(objectives.encoder.named_parameters())
    for name, at in PLACES.items():
        high, low = (
            momentum_reference(((moved(w, name, at, by), project), key), queue, hashes, pairs, settings)
            for by in (h, -h)
        )
        assert parameters[name].grad[at].item() == pytest.approx((high - low) / (2 * h), rel=2e-3, abs=1e-4), name
    for number, weight in enumerate(inner.project.parameters()):
        values = []
        for by in (h, -h):
            mine = [value.copy() for value in project]
            mine[number][1, 2] += by
            values.append(momentum_reference(((w, mine), key), queue, hashes, pairs, settings))
        assert weight.grad[1, 2].item() == pytest.approx((values[0] - values[1]) / (2 * h), rel=2e-3, abs=1e-4)
    assert list(inner.average.parameters()) == []
    assert not any(weight.requires_grad for weight in inner.average.buffers())


# --- what a rank without pairs does ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings", [MomentumContrast(**SMALL), SentenceContrast()], ids=lambda settings: settings.kind
)
def test_a_micro_step_without_pairs_gives_zero_and_a_gradient(settings):
    empty = as_tensors(pairs_batch([[], []], [[], []], [[], []]) | {"example_ids": np.ones((2, 4), np.int64)})
    shares = ({key: value.new_zeros(2, 4) for key, value in empty.items()}, {"example_ids": empty["example_ids"]})
    objectives = EncoderWithLosses(random_encoder(), [settings], None, seed=0).train()
    for batch in shares:  # zero-filled columns, and none at all
        objectives.zero_grad()
        loss = objectives(batch, (0, 1), 0)[settings.kind]
        loss.backward()
        objectives.after_step(lambda rows: rows)
        assert loss.item() == 0.0
        assert objectives.encoder.hf.get_input_embeddings().weight.grad is not None
        assert objectives.counts({key: value.numpy() for key, value in batch.items()}, [(0, 1)], 0)[settings.kind] == 0
        assert all(over == 0 for _, over in objectives.metrics.values())


def test_losses_of_one_layer_encode_the_pairs_once(monkeypatch):
    batch = as_tensors(pairs_batch(*random_pairs(0)))
    for distilled, encodings in ((Distillation(), 1), (Distillation(layer=1), 2)):
        chosen = [SentenceContrast(), distilled]
        alone = [EncoderWithLosses(random_encoder(), [loss], None, 0).eval()(batch, (0, 1), 0) for loss in chosen]
        both = EncoderWithLosses(random_encoder(), chosen, None, seed=0).eval()
        calls = []
        encode = both.encoder.encode
        monkeypatch.setattr(both.encoder, "encode", lambda *given, e=encode, c=calls: c.append(1) or e(*given))
        assert both(batch, (0, 1), 0) == {**alone[0], **alone[1]}
        assert len(calls) == encodings


def test_key_dropout_is_a_choice():
    for wanted in (True, False):
        objectives = EncoderWithLosses(random_encoder(), [MomentumContrast(key_dropout=wanted, **SMALL)], None, seed=0)
        assert objectives.train().losses["momentum_contrast"].average.tower.training is wanted
        assert objectives.eval().losses["momentum_contrast"].average.tower.training is False


def test_the_random_queue_is_of_unit_length_and_the_same_for_a_seed():
    queues = [
        EncoderWithLosses(GivenStates(STATES), [MomentumContrast(**SMALL)], None, seed)
        .losses["momentum_contrast"]
        .queue.keys
        for seed in (0, 0, 1)
    ]
    torch.testing.assert_close(queues[0].norm(dim=1), torch.ones(6))
    assert torch.equal(queues[0], queues[1])
    assert not torch.equal(queues[0], queues[2])


def test_a_layer_that_the_encoder_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"^objective sentence_contrast reads layer 3, but the encoder has 2\.$"):
        EncoderWithLosses(random_encoder(), [SentenceContrast(layer=3)], None, seed=0)
