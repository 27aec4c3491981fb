"""Spans of tags by hand: where lenient IOB, strict IOB2 and runs differ, and the level of chance."""

from __future__ import annotations

import pytest

from xalign_ray.tasks.token_classification import count_spans, lenient_spans, runs, shuffled_tags, span_f1, strict_spans

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
    assert (lenient_spans(tags.split()), strict_spans(tags.split())) == CASES[tags]


def test_a_maximal_run_of_one_tag_is_one_span_and_similar_tags_are_two():
    assert runs(["NOUN", "NOUN", "CCONJ", "SCONJ", "NOUN"]) == {
        ("NOUN", 0, 2), ("CCONJ", 2, 3), ("SCONJ", 3, 4), ("NOUN", 4, 5)
    }  # fmt: skip


def test_f1_is_micro_averaged_over_sentences_and_spans_end_with_them():
    gold = [["B-PER", "I-PER"], ["I-PER", "O", "B-LOC"], ["O"]]
    said = [["B-PER", "I-PER"], ["O", "O", "B-ORG"], ["B-LOC"]]
    assert count_spans(gold, lenient_spans) == 3
    assert span_f1(gold, said, lenient_spans) == pytest.approx(2 * (1 / 3) * (1 / 3) / (2 / 3))
    assert span_f1(gold, gold, lenient_spans) == 1.0
    assert span_f1([["O"]], [["O"]], lenient_spans) == 0.0


def test_runs_of_a_hand_worked_sentence():
    gold = [["DET", "NOUN", "NOUN", "VERB"]]
    said = [["DET", "NOUN", "VERB", "VERB"]]  # accuracy 3/4, one run of three right
    assert span_f1(gold, said, runs) == pytest.approx(1 / 3)


def test_shuffled_tags_are_the_sentence_s_own_and_always_the_same():
    words, tags = [f"w{i}" for i in range(30)], ["B-PER", "I-PER", "O"] * 10
    first = shuffled_tags(words, tags)
    assert first == shuffled_tags(words, tags)
    assert first != tags
    assert sorted(first) == sorted(tags)
    assert shuffled_tags([*words[:-1], "other"], tags) != first
