"""The options of masked_lm and dictionary_alignment: chunks give the same gradient, word vectors are what they say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.parity import numpy_bert
from tests.parity.test_losses import (
    HEADS,
    ROWS,
    TableEncoder,
    as_tensors,
    dictionary,
    random_batch,
    random_dictionary,
    random_encoder,
    weights_of,
)
from xalign_ray.config.choices import DictionaryAlignment, MaskedLm
from xalign_ray.errors import ConfigError
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.objectives.objective import MicroStep

KIND = "dictionary_alignment"
SPECIAL = SimpleNamespace(cls=1, sep=2)


# --- masked_lm, some labels at a time -------------------------------------------------------------------------------
@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_labels_at_once_gives_the_same_sum_and_gradient(at_once):
    batch = as_tensors(random_batch(np.random.default_rng(1)))
    found = []
    for settings in (MaskedLm(), MaskedLm(labels_at_once=at_once)):
        encoder = random_encoder(language_embeddings=True, conditioned_head=True)
        loss = EncoderWithLosses(encoder, [settings], None, seed=0)(batch, (0, 1), 0)["masked_lm"]
        loss.backward()
        found.append((loss.item(), {name: p.grad for name, p in encoder.named_parameters()}))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, rtol=1e-5, atol=1e-6, msg=name)


def test_labels_at_once_bounds_the_logits_that_exist_at_a_time():
    asked = []

    class Watched(TableEncoder):
        def predict(self, hidden, language):
            asked.append(len(hidden))
            return super().predict(hidden, language) + self.words.weight.sum()

    batch = {"input_ids": torch.zeros(2, 5), "labels": torch.ones(2, 5), "language_ids": torch.zeros(2, 5)}
    EncoderWithLosses(Watched([[0.0]], logits=[[0.0, 1.0]]), [MaskedLm(labels_at_once=4)], None, 0)(batch, (0, 1), 0)[
        "masked_lm"
    ].backward()
    assert asked == [4, 4, 2, 2, 4, 4]  # forward, then again going backward


def test_labels_at_once_bounds_the_logits_of_held_out_rows_too():
    asked = []

    class Watched(TableEncoder):
        def predict(self, hidden, language):
            asked.append(len(hidden))
            return super().predict(hidden, language)

    batch = {"input_ids": torch.zeros(2, 5), "labels": torch.ones(2, 5), "language_ids": torch.zeros(2, 5)}
    encoder = Watched([[0.0]], logits=[[0.0, 1.0]])
    for at_once, expected in ((4, [4, 4, 2]), (None, [10])):
        asked.clear()
        loss = EncoderWithLosses(encoder, [MaskedLm(labels_at_once=at_once)], None, 0).losses["masked_lm"]
        assert loss.of_labels(MicroStep(encoder, batch, (0, 1), 0)).tolist() == pytest.approx([0.3132617] * 10)
        assert asked == expected


# --- dictionary_alignment: which vectors ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pool", "expected", "pairs"),
    [
        # (3,4)(4,3): 24/25.   (1,0), then (0,1), against (5,5): the mean gives 1, the first piece 1/sqrt 2.
        ("mean", -1.96, 2),
        ("first", -0.96 - 0.7071068, 2),
        ("single_piece_only", -0.96, 1),
    ],
)
def test_words_of_several_pieces_worked_by_hand(pool, expected, pairs):
    objectives = EncoderWithLosses(
        TableEncoder(ROWS), [DictionaryAlignment(pool=pool)], dictionary([[0, -1], [2, 3]], [[1], [4]]), seed=0
    )
    assert objectives({}, (0, 1), 0)[KIND].item() == pytest.approx(expected, abs=1e-6)
    assert objectives.counts({}, [(0, 1)], 0) == {KIND: pairs}


def contextual_reference(w, left, right, languages, pool):
    """Each word alone as [CLS] pieces [SEP] in its language; `w` holds as many layers as are read."""
    total = 0.0
    for words, codes in zip(zip(left, right, strict=True), languages, strict=True):
        vectors = []
        for word, code in zip(words, codes, strict=True):
            ids = np.array([SPECIAL.cls, *(i for i in word if i >= 0), SPECIAL.sep])
            at = np.arange(len(ids))
            hidden = numpy_bert.encode_example(w, ids, at, at * 0, at * 0 + code, HEADS)[1:-1]
            vectors.append(hidden[0] if pool == "first" else hidden.mean(axis=0))
        u, v = vectors
        total -= (u @ v) / (np.linalg.norm(u) * np.linalg.norm(v))
    return total


def contextual(layer, pool="mean", seed=5):
    left, right = random_dictionary(np.random.default_rng(seed))
    encoder = random_encoder(language_embeddings=True)
    settings = DictionaryAlignment(layer=layer, pool=pool)
    objectives = EncoderWithLosses(encoder, [settings], dictionary(left, right), 0, SPECIAL)
    w = weights_of(encoder)
    if layer == 1:  # the reference goes through the layers that it finds
        w = {name: value for name, value in w.items() if ".layer.1." not in name}
    return objectives, w, left, right, [(0, 1)] * len(left)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("pool", ["mean", "first"])
def test_alignment_of_hidden_states_equals_the_numpy_reference(layer, pool):
    objectives, w, left, right, languages = contextual(layer, pool)
    parts = [(index, 4) for index in range(4)]
    ours = sum(objectives({}, part, 0)[KIND].item() for part in parts)
    assert ours == pytest.approx(contextual_reference(w, left, right, languages, pool), rel=1e-5, abs=1e-5)
    assert objectives.counts({}, parts, 0) == {KIND: len(left)}


def test_contextual_gradient_equals_finite_differences_of_the_reference():
    objectives, w, left, right, languages = contextual(2)
    objectives({}, (0, 1), 0)[KIND].backward()
    parameters, h = dict(objectives.encoder.named_parameters()), 1e-5
    for name, at in {
        "hf.bert.embeddings.word_embeddings.weight": (int(left[0, 0]), 3),
        "hf.bert.encoder.layer.1.attention.self.value.weight": (4, 2),
        "languages.weight": (1, 6),
    }.items():
        values = []
        for by in (h, -h):
            changed = w[name].copy()
            changed[at] += by
            values.append(contextual_reference(w | {name: changed}, left, right, languages, "mean"))
        slope = (values[0] - values[1]) / (2 * h)
        assert parameters[name].grad[at].item() == pytest.approx(slope, rel=2e-3, abs=1e-5), name


def test_a_slice_without_a_pair_is_zero_and_calls_the_encoder_all_the_same():
    objectives, *_ = contextual(1)
    loss = objectives({}, (0, 100), 0)[KIND]
    loss.backward()
    assert loss.item() == 0.0
    assert objectives.encoder.languages.weight.grad is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            DictionaryAlignment(pool="single_piece_only"),
            "objective dictionary_alignment with pool: single_piece_only has no pair to train on: every entry has a "
            "word of several pieces. Set pool: mean, or raise data.tokenizer.vocab_size.",
        ),
        (DictionaryAlignment(layer=3), "objective dictionary_alignment reads layer 3, but the encoder has 2."),
    ],
)
def test_what_cannot_be_aligned_is_refused(settings, said):
    with pytest.raises(ConfigError) as error:
        EncoderWithLosses(random_encoder(), [settings], dictionary([[1, 2]], [[3]]), 0, SPECIAL)
    assert str(error.value) == said
