"""The level of chance of spans; tests/peers has the spans themselves against seqeval."""

from __future__ import annotations

from xalign_ray.tasks.token_classification import (
    shuffled_tags,
)


def test_shuffled_tags_are_the_sentence_s_own_and_always_the_same():
    words, tags = [f"w{i}" for i in range(30)], ["B-PER", "I-PER", "O"] * 10
    first = shuffled_tags(words, tags)
    assert first == shuffled_tags(words, tags)
    assert first != tags
    assert sorted(first) == sorted(tags)
    assert shuffled_tags([*words[:-1], "other"], tags) != first
