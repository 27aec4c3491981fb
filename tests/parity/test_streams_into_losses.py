"""The columns that the streams of pairs make are those that the losses read: real rows through both, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.parity import test_losses_contrast, test_losses_word_exchange
from tests.parity.slow_pairs import SlowPairs
from tests.parity.slow_streams import as_rows
from tests.parity.stream_cases import ROW_TOKENS, VOCABULARY, link, make_rows, make_settings
from tests.parity.test_losses import HEADS, weights_of
from xalign_ray.config.choices import (
    AlignedPairs,
    ContrastedPairs,
    MaskedLm,
    MaskedPairs,
    MaskedTranslations,
    MomentumContrast,
    SentenceContrast,
    WordExchange,
)
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models import attention
from xalign_ray.models.encoder import build_encoder
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.streams.prediction import stream_columns
from xalign_ray.train.step import tensors


def show(stream, rows):
    _, context = make_settings(SlowPairs, 31, 0.3)
    return stream_columns(stream, as_rows(rows), np.arange(len(rows)), context)


def around(settings):
    torch.manual_seed(1)
    model = ModelConfig(
        num_hidden_layers=1,
        hidden_size=16,
        num_attention_heads=HEADS,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        language_embeddings=True,
    )
    encoder = build_encoder(model, 100, ["a", "b", "c", "d"], ROW_TOKENS, pad_id=0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    objectives = EncoderWithLosses(encoder, [settings], None, seed=0).eval()
    return objectives, weights_of(encoder)


def test_links_reach_word_exchange():
    rows = link(make_rows(6, 2))
    share = show(AlignedPairs(), rows)
    objectives, w = around(WordExchange())
    ours = objectives(tensors(share, torch.device("cpu"), objectives.extra_columns), (0, 1), 0)["word_exchange"].item()
    bits = np.unpackbits(share["aligned"], axis=-1, bitorder="little")[..., :ROW_TOKENS]
    own = test_losses_word_exchange.own_weights(objectives)
    theirs = test_losses_word_exchange.reference(w, own, share, bits, "mean", "skip", False)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert 0.2 < (objectives.metrics["train/aligned_label_share"][0] / (share["labels"] >= 0).sum()).item() < 0.95


@pytest.mark.parametrize("random_order", [False, True])
def test_sentences_reach_the_contrasts(random_order):
    rows = [row for row in make_rows(200, 2) if len(row) > 1][:6]
    share = show(ContrastedPairs(random_order=random_order, text="none"), rows)
    pairs = sum(len(row) for row in rows)
    for settings in (MomentumContrast(queue_size=4, temperature=1.0), SentenceContrast(temperature=1.0)):
        objectives, w = around(settings)
        assert objectives.counts(share, [(0, 1)], 0) == {settings.kind: pairs}
        loss = objectives(tensors(share, torch.device("cpu"), objectives.extra_columns), (0, 1), 0)[
            settings.kind
        ].item()
        assert 0 < loss < np.inf
    if not random_order:
        assert loss == pytest.approx(sentence_loss(w, rows), rel=2e-5)


def sentence_loss(w, rows):
    """From the rows themselves, not from their columns: first sides are queries; no two pairs share a sentence."""
    sides = [
        [
            test_losses_contrast.unit(
                pool(w, [2, *(piece for word in segment.words for piece in word.pieces), 3], segment.language)
            )
            for row in rows
            for segment in (example[number] for example in row)
        ]
        for number in (0, 1)
    ]
    scores, total = np.array([[q @ k for k in sides[1]] for q in sides[0]]), 0.0
    for i in range(len(scores)):
        for line in (scores[i], scores[:, i]):
            total += (np.log(np.exp(line - line.max()).sum()) + line.max() - line[i]) / 2
    return total


def pool(w, ids, language):
    return test_losses_contrast.pooled(w, ids, language, "mean")


@pytest.mark.parametrize(("where", "segments"), [("reset", False), ("running", True)])
def test_a_word_asked_of_the_other_sentence_sees_what_an_attention_mask_over_the_pair_leaves(where, segments):
    """The whole pair in place, of whose second side all is hidden but its [SEP] and the words asked for."""
    rows = [row[:1] for row in make_rows(12, 2)]
    options = {"positions": where, "segments": segments, "random_order": False}
    share = show(MaskedTranslations(**options), rows)
    objectives, _ = around(MaskedLm())
    ours = tensors(share, torch.device("cpu"), objectives.extra_columns)
    whole = tensors(show(MaskedPairs(**options), rows), torch.device("cpu"), objectives.extra_columns)
    whole["input_ids"] = torch.where(whole["labels"] == -100, whole["input_ids"], whole["labels"])
    whole["labels"] = torch.full_like(whole["labels"], -100)
    hidden = torch.zeros_like(whole["input_ids"], dtype=torch.bool)
    for row, ((first, _),) in enumerate(rows):
        length = int((whole["example_ids"][row] > 0).sum())
        begin = 2 + sum(len(word.pieces) for word in first.words)
        place = ours["position_ids"][row][ours["labels"][row] != -100].long()
        asked = place + (begin - 1 if where == "reset" else 0)
        hidden[row, begin : length - 1] = True
        hidden[row, asked] = False
        whole["labels"][row, asked] = whole["input_ids"][row, asked]
        whole["input_ids"][row, asked] = VOCABULARY.mask
    assert hidden.any()
    sees = attention.same_example(whole["example_ids"]) & ~hidden[:, None, None, :]
    sees |= torch.eye(hidden.shape[1], dtype=torch.bool)  # a row of a mask without a True would give NaN
    encoder = objectives.encoder
    states = encoder._encode(whole, None, attention_mask=sees)[whole["labels"] != -100]
    torch.testing.assert_close(encoder.encode(ours)[ours["labels"] != -100], states, rtol=1e-5, atol=1e-5)
    assert torch.equal(ours["labels"][ours["labels"] != -100], whole["labels"][whole["labels"] != -100])
