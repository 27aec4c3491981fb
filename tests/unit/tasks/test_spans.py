"""Spans of tags by hand: lenient IOB, strict IOB2, tags without B- and I-, and the level of chance."""

from __future__ import annotations

import pytest

from xalign_ray.tasks.token_classification import (
    count_spans,
    seqeval0_spans,
    seqeval1_spans,
    shuffled_tags,
    span_f1,
    strict_spans,
)

CASES = {
    "B-PER I-PER O": ({("PER", 0, 2)}, {("PER", 0, 2)}),
    "B-PER B-PER": ({("PER", 0, 1), ("PER", 1, 2)}, {("PER", 0, 1), ("PER", 1, 2)}),
    "O I-PER I-PER": ({("PER", 1, 3)}, set()),
    "B-PER I-LOC I-LOC": ({("PER", 0, 1), ("LOC", 1, 3)}, {("PER", 0, 1)}),
    "I-LOC B-LOC I-LOC": ({("LOC", 0, 1), ("LOC", 1, 3)}, {("LOC", 1, 3)}),
    "B-PER O I-PER": ({("PER", 0, 1), ("PER", 2, 3)}, {("PER", 0, 1)}),
    "O O": (set(), set()),
    "B-a-b I-a-b": ({("a-b", 0, 2)}, {("a-b", 0, 2)}),
}


@pytest.mark.parametrize("tags", CASES)
def test_lenient_and_strict_reading_of_the_same_tags(tags: str):
    assert (seqeval1_spans(tags.split()), strict_spans(tags.split())) == CASES[tags]


def test_tags_without_b_and_i_are_cut_by_their_first_letter():
    tags = ["NOUN", "NOUN", "CCONJ", "SCONJ", "SCONJ", "SYM", "SYM", "INTJ", "INTJ", "X"]
    assert seqeval0_spans(tags) == {
        ("NOUN", 0, 2), ("CCONJ", 2, 3), ("SCONJ", 3, 4), ("SCONJ", 4, 5), ("SYM", 5, 6), ("SYM", 6, 7),
        ("INTJ", 7, 9), ("X", 9, 10),
    }  # fmt: skip
    assert seqeval1_spans(tags) == {
        ("OUN", 0, 2), ("CONJ", 3, 4), ("CONJ", 4, 5), ("YM", 5, 6), ("YM", 6, 7), ("NTJ", 7, 9)
    }  # fmt: skip
    assert seqeval1_spans(["SCONJ", "CCONJ"]) == {("CONJ", 0, 1), ("CONJ", 0, 2)}, "the second begins with the first"


def test_f1_is_micro_averaged_over_sentences_and_spans_end_with_them():
    gold = [["B-PER", "I-PER"], ["I-PER", "O", "B-LOC"], ["O"]]
    said = [["B-PER", "I-PER"], ["O", "O", "B-ORG"], ["B-LOC"]]
    assert count_spans(gold, seqeval1_spans) == 3
    assert span_f1(gold, said, seqeval1_spans) == pytest.approx(2 * (1 / 3) * (1 / 3) / (2 / 3))
    assert span_f1(gold, gold, seqeval1_spans) == 1.0
    assert span_f1([["O"]], [["O"]], seqeval1_spans) == 0.0


def test_f1_over_tags_of_a_hand_worked_sentence_is_no_accuracy():
    gold = [["DET", "NOUN", "NOUN", "VERB"]]
    said = [["DET", "NOUN", "VERB", "VERB"]]  # three of four words right, one chunk of three
    assert span_f1(gold, said, seqeval0_spans) == pytest.approx(1 / 3)
    assert span_f1([["SCONJ"]], [["CCONJ"]], seqeval0_spans) == 0.0
    assert span_f1([["SCONJ", "X"]], [["CCONJ", "X"]], seqeval1_spans) == 1.0, "one kind, and X at an end is none"


def test_shuffled_tags_are_the_sentence_s_own_and_always_the_same():
    words, tags = [f"w{i}" for i in range(30)], ["B-PER", "I-PER", "O"] * 10
    first = shuffled_tags(words, tags)
    assert first == shuffled_tags(words, tags)
    assert first != tags
    assert sorted(first) == sorted(tags)
    assert shuffled_tags([*words[:-1], "other"], tags) != first
