"""Tags of spans in another order of words stay tags of the same spans, in the scheme they came in."""

from __future__ import annotations

import pytest

from xalign_ray.derive.tasks import IOB2, find_scheme, tag_mover

SENTENCES = {
    # in the river New York Cape Town Bob: New York and Cape Town are two places side by side
    "IOB2": "O O O B-LOC I-LOC B-LOC I-LOC B-PER",
    "IOB1": "O O O I-LOC I-LOC B-LOC I-LOC I-PER",
    "BIOES": "O O O B-LOC E-LOC B-LOC E-LOC S-PER",
    "BILOU": "O O O B-LOC L-LOC B-LOC L-LOC U-PER",
}


@pytest.mark.parametrize("scheme", SENTENCES)
def test_a_sentence_turned_round_has_the_same_spans_in_iob2(scheme: str) -> None:
    tags = SENTENCES[scheme].split()
    assert find_scheme([tags]) == scheme
    move = tag_mover([tags])
    turned = move(tags, range(7, -1, -1))
    assert turned == ["B-PER", "B-LOC", "I-LOC", "B-LOC", "I-LOC", "O", "O", "O"]
    assert move(tags, range(8)) == move(turned, range(7, -1, -1)) == SENTENCES["IOB2"].split()


def test_a_span_that_the_order_tears_apart_becomes_two() -> None:
    tags = ["B-LOC", "I-LOC", "I-LOC", "O"]
    assert tag_mover([tags])(tags, [0, 3, 2, 1]) == ["B-LOC", "O", "B-LOC", "I-LOC"]


def test_a_stray_i_of_iob2_opens_a_span_and_is_repaired() -> None:
    tags = ["O", "I-LOC", "I-LOC", "O", "B-PER"]
    assert tag_mover([tags])(tags, [4, 3, 2, 1, 0]) == ["B-PER", "O", "B-LOC", "I-LOC", "O"]


def test_tags_of_words_move_with_them() -> None:
    tags = ["DET", "NOUN", "X"]
    assert tag_mover([tags, ["B-LOC", "O"]])(tags, [2, 1, 0]) == ["X", "NOUN", "DET"]
    assert tag_mover([["O", "O"]])(["O", "O"], [1, 0]) == ["O", "O"]


class CountedTags(list):
    """Tags that count how often one is looked at."""

    looks = 0

    def __getitem__(self, place):
        CountedTags.looks += 1
        return super().__getitem__(place)

    def __iter__(self):
        CountedTags.looks += len(self)
        return super().__iter__()


def test_scheme_of_a_long_sentence_is_found_in_linear_time() -> None:
    looks = []
    for words in (4_000, 8_000):
        CountedTags.looks = 0
        assert find_scheme([CountedTags(["I-LOC", "B-LOC", "I-PER", "O"] * (words // 4))]) == "IOB1"
        looks.append(CountedTags.looks)
    assert looks[1] <= 2.01 * looks[0]


def test_a_b_that_follows_no_name_of_its_kind_is_iob2() -> None:
    assert find_scheme([["I-LOC", "O", "B-PER"]]) == IOB2
