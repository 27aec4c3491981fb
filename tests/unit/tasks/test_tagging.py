"""Rows of tagged pieces: labels on first pieces, long sentences cut between words, accuracies by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from xalign_ray.tasks.encoder import Encoder
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.tagged import Sentence
from xalign_ray.tasks.tagging import batch_rows, gold_labels, majority_share, make_rows, token_accuracy

PIECES = ["the", "cat", "un", "##do", "##ing"]
LABELS = {"DET": 0, "NOUN": 1, "VERB": 2}
SENTENCE = Sentence(("the", "undoing", "cat"), ("DET", "VERB", "NOUN"))


def open_inputs(folder: Path) -> Inputs:
    return Encoder.open(folder).inputs


def test_the_label_stands_on_the_first_piece_of_its_word(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    rows = make_rows(inputs, [SENTENCE, Sentence(("cat",), ("NOUN",))], "en", LABELS)
    pieces = inputs.tokenizer.convert_ids_to_tokens(list(rows[0].ids))
    assert pieces == ["[CLS]", "the", "un", "##do", "##ing", "cat", "[SEP]"]
    batch = batch_rows(inputs, rows, torch.device("cpu"))
    assert batch["labels"].tolist() == [[-100, 0, 2, -100, -100, 1, -100], [-100, 1, -100, -100, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 3 + [0] * 4]
    assert gold_labels(rows).tolist() == [0, 2, 1, 1]


def test_a_long_sentence_becomes_rows_that_hold_every_word_once(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=7))
    sentence = Sentence(SENTENCE.words * 3, SENTENCE.tags * 3)
    rows = make_rows(inputs, [sentence, SENTENCE], "en", LABELS)
    words = [[inputs.tokenizer.convert_ids_to_tokens(row.ids[place]) for place in row.first] for row in rows]
    assert words == [["the", "un", "cat"]] * 4
    assert max(len(row.ids) for row in rows) == 7
    assert gold_labels(rows).tolist() == [0, 2, 1] * 4


def test_rows_are_at_most_128_pieces_however_many_positions_there_are(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=300))
    rows = make_rows(inputs, [Sentence(("undoing",) * 100, ("VERB",) * 100)], "en", LABELS)
    assert [len(row.labels) for row in rows] == [42, 42, 16]
    assert [len(row.ids) for row in rows] == [128, 128, 50]


def test_a_word_longer_than_a_row_keeps_its_label_and_its_first_pieces(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=4))
    rows = make_rows(inputs, [SENTENCE], "en", LABELS)
    assert [inputs.tokenizer.convert_ids_to_tokens(list(row.ids)) for row in rows] == [
        ["[CLS]", "the", "[SEP]"],
        ["[CLS]", "un", "##do", "[SEP]"],
        ["[CLS]", "cat", "[SEP]"],
    ]


def test_a_word_that_the_tokenizer_makes_nothing_of_is_still_scored(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    (row,) = make_rows(inputs, [Sentence(("\u200e", "cat"), ("DET", "NOUN"))], "en", LABELS)
    assert inputs.tokenizer.convert_ids_to_tokens(list(row.ids)) == ["[CLS]", "[UNK]", "cat", "[SEP]"]
    assert row.labels == (0, 1)


def test_the_language_of_each_row_is_its_token_type(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, languages=["en", "de"]))
    rows = [make_rows(inputs, [SENTENCE], language, LABELS)[0] for language in ("de", "en")]
    assert batch_rows(inputs, rows, torch.device("cpu"))["token_type_ids"].tolist() == [[2] * 7, [0] * 7]


def test_accuracy_and_majority_are_shares_of_words():
    gold = np.array([1, 1, 2, 0, 1])
    assert token_accuracy(gold, np.array([1, 0, 2, 0, 2])) == 0.6
    assert majority_share(gold) == 0.6
