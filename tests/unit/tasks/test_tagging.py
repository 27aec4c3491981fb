"""Rows of tagged pieces: labels on first pieces, long sentences cut between words, accuracies by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.streams.collate import IGNORED
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.task import accuracy
from xalign_ray.tasks.token_classification import Sentence

PIECES = ["the", "cat", "un", "##do", "##ing"]
LABELS = ("DET", "NOUN", "VERB")
TAGGING = TUNED_TASKS["pos"]


def sentence(*words: str, tags: Sequence[str], language: str = "en") -> Sentence:
    return Sentence("0", words, tuple(tags), language)


def rows_of(inputs: Inputs, *sentences: Sentence) -> list[Features]:
    return [row for rows in TAGGING.features(inputs, sentences, LABELS) for row in rows]


def labels_of(row: Features) -> list[int]:
    return [label for label in row["labels"] if label != IGNORED]


SENTENCE = sentence("the", "undoing", "cat", tags=("DET", "VERB", "NOUN"))


def open_inputs(folder: Path) -> Inputs:
    return Encoder.open(open_encoder(folder)).inputs


def test_the_label_stands_on_the_first_piece_of_its_word(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    rows = rows_of(inputs, SENTENCE, sentence("cat", tags=["NOUN"]))
    pieces = inputs.tokenizer.convert_ids_to_tokens(rows[0]["input_ids"])
    assert pieces == ["[CLS]", "the", "un", "##do", "##ing", "cat", "[SEP]"]
    batch = inputs.collate(rows)
    assert batch["labels"].tolist() == [[-100, 0, 2, -100, -100, 1, -100], [-100, 1, -100, -100, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 3 + [0] * 4]
    assert [labels_of(row) for row in rows] == [[0, 2, 1], [1]]


def test_a_long_sentence_becomes_rows_that_hold_every_word_once(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=7))
    long, short = TAGGING.features(inputs, [sentence(*SENTENCE.words * 3, tags=SENTENCE.tags * 3), SENTENCE], LABELS)
    assert (len(long), len(short)) == (3, 1)
    rows = long + short
    words = [
        [
            inputs.tokenizer.convert_ids_to_tokens(piece)
            for piece, label in zip(row["input_ids"], row["labels"], strict=True)
            if label != IGNORED
        ]
        for row in rows
    ]
    assert words == [["the", "un", "cat"]] * 4
    assert max(len(row["input_ids"]) for row in rows) == 7
    assert [labels_of(row) for row in rows] == [[0, 2, 1]] * 4


def test_rows_are_at_most_128_pieces_however_many_positions_there_are(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=300))
    rows = rows_of(inputs, sentence(*["undoing"] * 100, tags=["VERB"] * 100))
    assert [len(labels_of(row)) for row in rows] == [42, 42, 16]
    assert [len(row["input_ids"]) for row in rows] == [128, 128, 50]


def test_a_word_longer_than_a_row_keeps_its_label_and_its_first_pieces(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, positions=4))
    rows = rows_of(inputs, SENTENCE)
    assert [inputs.tokenizer.convert_ids_to_tokens(row["input_ids"]) for row in rows] == [
        ["[CLS]", "the", "[SEP]"],
        ["[CLS]", "un", "##do", "[SEP]"],
        ["[CLS]", "cat", "[SEP]"],
    ]


def test_a_word_that_the_tokenizer_makes_nothing_of_is_still_scored(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES))
    (row,) = rows_of(inputs, sentence("\u200e", "cat", tags=("DET", "NOUN")))
    assert inputs.tokenizer.convert_ids_to_tokens(row["input_ids"]) == ["[CLS]", "[UNK]", "cat", "[SEP]"]
    assert labels_of(row) == [0, 1]


def test_the_language_of_each_row_is_its_token_type(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(PIECES, languages=["en", "de"]))
    rows = rows_of(inputs, *(replace(SENTENCE, language=language) for language in ("de", "en")))
    assert inputs.collate(rows)["token_type_ids"].tolist() == [[2] * 7, [0] * 7]


def test_accuracy_and_majority_are_shares_of_words():
    gold = ["NOUN", "NOUN", "VERB", "DET", "NOUN"]
    found = accuracy(gold, ["NOUN", "DET", "VERB", "DET", "VERB"])
    assert (found.value, found.chance, found.n) == (0.6, 0.6, 5)
