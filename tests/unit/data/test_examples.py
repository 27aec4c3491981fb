"""From records to packed rows: what is cut where, what is counted, what is held out."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.unit.text.test_rows import as_lists
from xalign_ray.config.choices import BpeTokenizer
from xalign_ray.data.examples import Cutter, Examples, cut_documents, cut_pairs, pack
from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.text.rows import Rows
from xalign_ray.text.tokenizer import train_bpe

LINES = ["the cat sat on the mat", "der hund sah die katze", "abcdefghijklmnopqrstuvwxyz"] * 10
ENTRIES = {(0, "cat"): 0, (1, "katze"): 1}


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    return train_bpe(BpeTokenizer(vocab_size=200), lambda: LINES)


@pytest.fixture(scope="module")
def cutter(backend: Tokenizer):
    def make(capacity: int = 16, *, whole_documents: bool = False, held_out: float = 0.0) -> Cutter:
        return Cutter(backend, ["en", "de"], ENTRIES, capacity, whole_documents, held_out)

    return make


def document(*paragraphs: str, language: str = "en") -> Document:
    return Document(language, paragraphs, "here", 1)


def pair(left: str, right: str) -> Pair:
    return Pair(("en", "de"), (left, right), "here", 1)


def word_counts(examples: Examples) -> list[list[int]]:
    return [[len(side[1]) for side in example] for example in examples.trained]


def text(backend: Tokenizer, examples: Examples) -> list[str]:
    tokens = [[backend.id_to_token(int(i)) for side in example for i in side[0]] for example in examples.trained]
    return ["".join(pieces).replace("\u2581", " ").strip() for pieces in tokens]


def test_sentences_are_examples(backend: Tokenizer, cutter) -> None:
    found = cut_documents(cutter(), [document("the cat", "", "the mat"), document("der hund", language="de")])
    assert text(backend, found) == ["the cat", "the mat", "der hund"]
    assert [example[0][3] for example in found.trained] == [0, 0, 1]
    assert found.counts["documents"] == 2
    assert found.counts["lines"] == 4
    assert found.counts["words"] == 6


def test_entries_are_found_by_language(cutter) -> None:
    found = cut_documents(cutter(), [document("The Cat katze"), document("katze cat", language="de")])
    assert [example[0][2].tolist() for example in found.trained] == [[-1, 0, -1], [1, -1]]
    assert found.counts["words_in_dictionary"] == 2
    assert 0 < found.counts["tokens_in_dictionary"] < found.counts["tokens"]


def test_a_document_fills_rows_with_whole_lines(backend: Tokenizer, cutter) -> None:
    lines = ["the cat sat", "on the mat", "the cat", "sat on", "the mat"]
    found = cut_documents(cutter(10, whole_documents=True), [document(*lines), document("the cat")])
    assert text(backend, found) == ["the cat sat on the mat the cat", "sat on the mat", "the cat"]


def test_a_long_line_is_cut_at_words(backend: Tokenizer, cutter) -> None:
    long = "the cat sat on the mat " * 5
    found = cut_documents(cutter(10), [document(long)])
    assert " ".join(text(backend, found)) == long.strip()
    assert all(len(example[0][0]) <= 8 for example in found.trained)
    assert word_counts(found) == [[8], [8], [8], [6]]


@pytest.mark.parametrize("capacity", [8, 9, 16])
@pytest.mark.parametrize("whole_documents", [True, False])
def test_no_example_is_longer_than_a_row(backend: Tokenizer, cutter, capacity: int, whole_documents: bool) -> None:
    lines = ["zyxwvut", "cat zyxwvu the", "qwertyuiopas dfg", "the cat sat on the mat"] * 3
    settings = cutter(capacity, whole_documents=whole_documents)
    found = cut_documents(settings, [document(*lines)])
    assert "".join(text(backend, found)).replace(" ", "") == "".join(lines).replace(" ", "")
    assert pack(found.trained, capacity, "x").pieces.size == sum(len(example[0][0]) for example in found.trained)
    pairs = cut_pairs(settings, [pair(a, b) for a in lines for b in lines])
    assert all(len(side[1]) > 0 for example in pairs.trained for side in example), "no side is trimmed away"
    pack(pairs.trained, capacity, "x")


def test_pairs_keep_both_sides(cutter) -> None:
    found = cut_pairs(cutter(), [pair("the cat", "die katze"), pair("the cat", " "), pair("", "die")])
    assert word_counts(found) == [[2, 2]]
    assert [side[3] for side in found.trained[0]] == [0, 1]
    assert found.counts["pairs"] == 3
    assert found.counts["pairs_without_words"] == 2


def test_a_long_pair_loses_words_of_its_longer_side(cutter) -> None:
    found = cut_pairs(cutter(12), [pair("the cat sat on the mat the cat", "der hund sah die")])
    lengths = [len(side[0]) for side in found.trained[0]]
    assert sum(lengths) <= 9
    assert found.counts["pairs_truncated"] == 1
    left, right = found.trained[0]
    assert len(right[1]) == 4, "the shorter side is whole"
    assert len(left[1]) < 8
    assert cut_pairs(cutter(64), [pair("the cat", "die katze")]).counts["pairs_truncated"] == 0


def test_documents_are_held_out_by_what_they_say(cutter) -> None:
    words = ["the", "cat", "sat", "on", "mat", "der", "hund", "sah", "die", "katze"]
    documents = [document(" ".join(words[int(digit)] for digit in f"{n:03}")) for n in range(1000)]
    found = cut_documents(cutter(held_out=0.1), documents)
    assert len(found.trained) + len(found.held_out) == 1000
    assert abs(len(found.held_out) - 100) < 4.5 * np.sqrt(90)
    again = cut_documents(cutter(held_out=0.1), documents[::-1] + documents[:500])
    kept = {example[0][0].tobytes() for example in found.held_out}
    assert {example[0][0].tobytes() for example in again.held_out} == kept
    assert not kept & {example[0][0].tobytes() for example in again.trained}


def as_tuples(rows: Rows) -> list[tuple]:
    """(pieces of the row, languages of its sides) for each row."""
    return [tuple((language, str(words)) for language, words in row) for row in as_lists(rows)]


def test_packing_keeps_every_example_whole_and_shuffles_rows(cutter) -> None:
    documents = [document(*(f"the cat {n}" for n in range(m, m + 3))) for m in range(100)]
    found = cut_documents(cutter(24, whole_documents=False), documents)
    rows = pack(found.trained, 24, "trained part-00000")
    sides = sorted(side for row in as_tuples(rows) for side in row)
    apart = pack(found.trained, 1000, "x")
    assert sides == sorted(side for row in as_tuples(apart) for side in row)
    assert len(rows.row_sides) > 20
    again, other = pack(found.trained, 24, "trained part-00000"), pack(found.trained, 24, "trained part-00001")
    assert as_tuples(again) == as_tuples(rows)
    assert as_tuples(other) != as_tuples(rows)
    assert sorted(as_tuples(other)) == sorted(as_tuples(rows))


def test_pairs_are_never_parted(cutter) -> None:
    found = cut_pairs(cutter(24), [pair(f"the cat {n}", f"die katze {n}") for n in range(50)])
    rows = pack(found.trained, 24, "x")
    assert rows.side_language.tolist() == [0, 1] * 50
    assert (rows.row_sides % 2 == 0).all()
