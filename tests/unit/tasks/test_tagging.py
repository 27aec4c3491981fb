"""Rows of tagged pieces: labels on first pieces, long sentences cut between words, accuracies by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.tasks.encoder import Encoder
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.pos import majority_share, token_accuracy
from xalign_ray.tasks.tagged import Sentence
from xalign_ray.tasks.tagging import TaggedRow, batch_rows, make_rows

PIECES = ["the", "cat", "un", "##do", "##ing"]
LABELS = {"DET": 0, "NOUN": 1, "VERB": 2}


def sentence(*words: str, tags: Sequence[str], language: str = "en") -> Sentence:
    return Sentence("0", words, tuple(tags), language)


def rows_of(inputs: Inputs, *sentences: Sentence) -> list[TaggedRow]:
    return [row for rows in make_rows(inputs, sentences, LABELS) for row in rows]


SENTENCE = sentence("the", "undoing", "cat", tags=("DET", "VERB", "NOUN"))


def open_inputs(folder: Path) -> Inputs:
    return Encoder.open(folder).inputs


def test_the_label_stands_on_the_first_piece_of_its_word(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    rows = rows_of(inputs, SENTENCE, sentence("cat", tags=["NOUN"]))
    pieces = inputs.tokenizer.convert_ids_to_tokens(list(rows[0].ids))
    assert pieces == ["[CLS]", "the", "un", "##do", "##ing", "cat", "[SEP]"]
    batch = batch_rows(inputs, rows)
    assert batch["labels"].tolist() == [[-100, 0, 2, -100, -100, 1, -100], [-100, 1, -100, -100, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 3 + [0] * 4]
    assert [row.labels for row in rows] == [(0, 2, 1), (1,)]


def test_a_long_sentence_becomes_rows_that_hold_every_word_once(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=7))
    long, short = make_rows(inputs, [sentence(*SENTENCE.words * 3, tags=SENTENCE.tags * 3), SENTENCE], LABELS)
    assert (len(long), len(short)) == (3, 1)
    rows = long + short
    words = [[inputs.tokenizer.convert_ids_to_tokens(row.ids[place]) for place in row.first] for row in rows]
    assert words == [["the", "un", "cat"]] * 4
    assert max(len(row.ids) for row in rows) == 7
    assert [row.labels for row in rows] == [(0, 2, 1)] * 4


def test_rows_are_at_most_128_pieces_however_many_positions_there_are(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=300))
    rows = rows_of(inputs, sentence(*["undoing"] * 100, tags=["VERB"] * 100))
    assert [len(row.labels) for row in rows] == [42, 42, 16]
    assert [len(row.ids) for row in rows] == [128, 128, 50]


def test_a_word_longer_than_a_row_keeps_its_label_and_its_first_pieces(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=4))
    rows = rows_of(inputs, SENTENCE)
    assert [inputs.tokenizer.convert_ids_to_tokens(list(row.ids)) for row in rows] == [
        ["[CLS]", "the", "[SEP]"],
        ["[CLS]", "un", "##do", "[SEP]"],
        ["[CLS]", "cat", "[SEP]"],
    ]


def test_a_word_that_the_tokenizer_makes_nothing_of_is_still_scored(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    (row,) = rows_of(inputs, sentence("\u200e", "cat", tags=("DET", "NOUN")))
    assert inputs.tokenizer.convert_ids_to_tokens(list(row.ids)) == ["[CLS]", "[UNK]", "cat", "[SEP]"]
    assert row.labels == (0, 1)


def test_the_language_of_each_row_is_its_token_type(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, languages=["en", "de"]))
    rows = rows_of(inputs, *(replace(SENTENCE, language=language) for language in ("de", "en")))
    assert batch_rows(inputs, rows)["token_type_ids"].tolist() == [[2] * 7, [0] * 7]


def test_accuracy_and_majority_are_shares_of_words():
    gold = ["NOUN", "NOUN", "VERB", "DET", "NOUN"]
    assert token_accuracy(gold, ["NOUN", "DET", "VERB", "DET", "VERB"]) == 0.6
    assert majority_share(gold) == 0.6
