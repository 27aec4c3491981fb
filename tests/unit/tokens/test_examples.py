"""From records to packed rows: what is cut where, what is counted, what is held out."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.unit.shards.test_rows import as_lists
from xalign_ray.clean.filters import Filters
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.shards.rows import NO_ENTRY, NO_WORD, Rows, starts, sum_runs, take
from xalign_ray.sources.records import Document, Pair
from xalign_ray.tokens.examples import ExampleEncoder, Examples, encode_documents, encode_pairs, longest_word, pack
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, train_bpe

LINES = ["the cat sat on the mat", "der hund sah die katze", "abcdefghijklmnopqrstuvwxyz"] * 10
ENTRIES = {(0, "cat"): 0, (1, "katze"): 1}


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    return train_bpe(BpeTokenizer(vocab_size=200), lambda: LINES)


@pytest.fixture(scope="module")
def encoder(backend: Tokenizer):
    def make(
        capacity: int = 16,
        *,
        segments: int = 1,
        whole_documents: bool = False,
        held_out: float = 0.0,
        filters: Filters | None = None,
    ) -> ExampleEncoder:
        tokenizer = CachedTokenizer(backend, ENTRIES, longest_word(capacity, segments))
        return ExampleEncoder(tokenizer, ["en", "de"], capacity, whole_documents, held_out, filters or Filters())

    return make


def document(*paragraphs: str, language: str = "en") -> Document:
    return Document(language, paragraphs, "here", 1)


def pair(left: str, right: str, alignment: str | None = None) -> Pair:
    return Pair(("en", "de"), (left, right), "here", 1, alignment)


def trained(examples: Examples) -> Rows:
    return take(examples.rows, np.flatnonzero(~examples.held_out))


def segment_pieces(rows: Rows) -> list[list[int]]:
    counts = sum_runs(rows.word_length, rows.segment_words)
    return [rows.pieces[b : b + n].tolist() for b, n in zip(starts(counts), counts, strict=True)]


def word_counts(examples: Examples) -> list[list[int]]:
    """Words of each side of each example."""
    words = iter(trained(examples).segment_words.tolist())
    return [[next(words) for _ in range(segments)] for segments in trained(examples).row_segments.tolist()]


def text(backend: Tokenizer, examples: Examples) -> list[str]:
    """What the sides say that are not held out."""
    return read(backend, trained(examples))


def read(backend: Tokenizer, rows: Rows) -> list[str]:
    """What the sides say."""
    tokens = [[backend.id_to_token(piece) for piece in segment] for segment in segment_pieces(rows)]
    return ["".join(pieces).replace("\u2581", " ").strip() for pieces in tokens]


def test_sentences_are_examples(backend: Tokenizer, encoder) -> None:
    found = encode_documents(encoder(), [document("the cat", "", "the mat"), document("on the mat")])
    assert text(backend, found) == ["the cat", "the mat", "on the mat"]
    assert found.rows.segment_language.tolist() == [0, 0, 0]
    assert found.counts["documents"] == 2
    assert found.counts["lines"] == 4
    assert found.counts["words"] == 7
    german = encode_documents(encoder(), [document("der hund", language="de")])
    assert german.rows.segment_language.tolist() == [1]


def test_entries_are_found_by_language(encoder) -> None:
    settings = encoder()
    found = encode_documents(settings, [document("The Cat katze")])
    assert found.rows.entry.tolist() == [-1, 0, -1]
    assert encode_documents(settings, [document("katze cat", language="de")]).rows.entry.tolist() == [1, -1]
    assert found.counts["words_in_dictionary"] == 1
    assert 0 < found.counts["tokens_in_dictionary"] < found.counts["tokens"]


def test_a_document_fills_rows_with_whole_lines(backend: Tokenizer, encoder) -> None:
    lines = ["the cat sat", "on the mat", "the cat", "sat on", "the mat"]
    found = encode_documents(encoder(10, whole_documents=True), [document(*lines), document("the cat")])
    assert text(backend, found) == [*lines, "the cat"]
    assert found.rows.row_segments.tolist() == [3, 2, 1], "what goes together is a row"
    rows = pack(found.rows, 10, "x")
    assert sorted(read(backend, rows)) == ["sat on the mat", "the cat", "the cat sat on the mat the cat"]
    assert len(rows.segment_words) == 3, "and then one side"


def test_an_example_is_parted_between_lines_to_fill_what_other_rows_leave(backend: Tokenizer, encoder) -> None:
    documents = [document("the cat sat on the mat"), document("on the mat sat the cat"), document("the mat", "cat sat")]
    found = encode_documents(encoder(12, whole_documents=True), documents)
    assert found.rows.row_segments.tolist() == [1, 1, 2]
    rows = pack(found.rows, 12, "x")
    assert rows.row_segments.tolist() == [2, 2]
    assert sorted(read(backend, rows)) == ["cat sat", "on the mat sat the cat", "the cat sat on the mat", "the mat"]


def test_a_long_line_is_cut_at_words(backend: Tokenizer, encoder) -> None:
    long = "the cat sat on the mat " * 5
    found = encode_documents(encoder(10), [document(long)])
    assert " ".join(text(backend, found)) == long.strip()
    assert all(len(segment) <= 8 for segment in segment_pieces(found.rows))
    assert word_counts(found) == [[8], [8], [8], [6]]


@pytest.mark.parametrize("capacity", [8, 9, 16])
@pytest.mark.parametrize("whole_documents", [True, False])
def test_no_example_is_longer_than_a_row(backend: Tokenizer, encoder, capacity: int, whole_documents: bool) -> None:
    lines = ["zyxwvut", "cat zyxwvu the", "qwertyuiopas dfg", "the cat sat on the mat"] * 3
    settings = encoder(capacity, whole_documents=whole_documents)
    found = encode_documents(settings, [document(*lines)])
    assert "".join(text(backend, found)).replace(" ", "") == "".join(lines).replace(" ", "")
    assert pack(found.rows, capacity, "x").pieces.size == found.rows.pieces.size
    pairs = encode_pairs(encoder(capacity, segments=2), [pair(a, b) for a in lines for b in lines])
    assert (pairs.rows.segment_words > 0).all(), "no side is trimmed away"
    pack(pairs.rows, capacity, "x", segments=2)


def test_pairs_keep_both_sides(encoder) -> None:
    found = encode_pairs(encoder(), [pair("the cat", "die katze"), pair("the cat", " "), pair("", "die")])
    assert word_counts(found) == [[2, 2]]
    assert found.rows.segment_language.tolist() == [0, 1]
    assert found.counts["pairs"] == 3
    assert found.counts["dropped: no words"] == 2


def test_a_long_pair_loses_words_of_its_longer_side(encoder) -> None:
    found = encode_pairs(encoder(12), [pair("the cat sat on the mat the cat", "der hund sah die")])
    assert len(found.rows.pieces) <= 9
    assert found.counts["pairs_truncated"] == 1
    ((left, right),) = word_counts(found)
    assert right == 4, "the shorter side is whole"
    assert left < 8
    assert encode_pairs(encoder(64), [pair("the cat", "die katze")]).counts["pairs_truncated"] == 0


def test_lines_are_held_out_by_their_text(encoder) -> None:
    words = ["the", "cat", "sat", "on", "mat", "der", "hund", "sah", "die", "katze"]
    documents = [document(" ".join(words[int(digit)] for digit in f"{n:03}")) for n in range(1000)]
    found = encode_documents(encoder(held_out=0.1), documents)
    assert len(found.rows) == len(found.held_out) == 1000
    assert abs(found.held_out.sum() - 100) < 4.5 * np.sqrt(90)
    again = encode_documents(encoder(held_out=0.1), documents[::-1] + documents[:500])

    def says(examples: Examples, *, held_out: bool) -> set[tuple[int, ...]]:
        return {tuple(segment_pieces(examples.rows)[i]) for i in np.flatnonzero(examples.held_out == held_out)}

    kept = says(found, held_out=True)
    assert says(again, held_out=True) == kept
    assert not kept & says(again, held_out=False)


def as_tuples(rows: Rows) -> list[tuple]:
    """(pieces of the row, languages of its sides) for each row."""
    return [tuple((language, str(words)) for language, words in row) for row in as_lists(rows)]


def test_packing_keeps_every_example_whole_and_shuffles_rows(encoder) -> None:
    documents = [document(*(f"the cat {n}" for n in range(m, m + 3))) for m in range(100)]
    found = encode_documents(encoder(24, whole_documents=False), documents)
    rows = pack(found.rows, 24, "trained part-00000")
    segments = sorted(segment for row in as_tuples(rows) for segment in row)
    apart = pack(found.rows, 1000, "x")
    assert segments == sorted(segment for row in as_tuples(apart) for segment in row)
    assert len(rows.row_segments) > 20
    again, other = pack(found.rows, 24, "trained part-00000"), pack(found.rows, 24, "trained part-00001")
    assert as_tuples(again) == as_tuples(rows)
    assert as_tuples(other) != as_tuples(rows)
    assert sorted(as_tuples(other)) == sorted(as_tuples(rows))


def test_pairs_are_never_parted(encoder) -> None:
    found = encode_pairs(encoder(24), [pair(f"the cat {n}", f"die katze {n}") for n in range(50)])
    rows = pack(found.rows, 24, "x", segments=2)
    assert rows.segment_language.tolist() == [0, 1] * 50
    assert (rows.row_segments % 2 == 0).all()


def links(examples: Rows) -> list[list[tuple[int, int]]]:
    """The links that each side owns."""
    pairs = iter(zip(examples.link_from.tolist(), examples.link_to.tolist(), strict=True))
    return [[next(pairs) for _ in range(count)] for count in examples.segment_links.tolist()]


Linked = tuple[Literal["blanks", "tokenizer"], list[tuple[str, str, str | None]], list[list[tuple[int, int]]]]
LINKED: dict[str, Linked] = {
    # ours: it 's the-cat -> it ' s the - cat | die katze , die -> die katze , die
    "between words by white space": (
        "blanks",
        [("it's the-cat", "die katze, die", "0-0 1-1 0-2")],
        [[(0, 0), (0, 3), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (5, 2)], []],
    ),
    "between the tokenizer's own words": (
        "tokenizer",
        [("it's the-cat", "die katze, die", "0-0 3-1 5-3"), ("the cat", "die", "1-0")],
        [[(0, 0), (3, 1), (5, 3)], [], [(1, 0)], []],
    ),
    "with their pair, and each once": (
        "blanks",
        [
            ("the cat", "die katze", "0-0 1-1 1-1"),
            ("", "die", "0-0"),
            ("the mat", "der hund", None),
            ("on\u00a0the  mat", "der hund", "1-1 0-0"),  # a no-break space and two blanks: two words between blanks
        ],
        [[(0, 0), (1, 1)], [], [], [], [(0, 0), (1, 0), (2, 1)], []],
    ),
}


@pytest.mark.parametrize("case", LINKED)
def test_links_are_between_our_words(encoder, case: str) -> None:
    aligned_words, pairs, wanted = LINKED[case]
    found = encode_pairs(replace(encoder(64, segments=2), aligned_words=aligned_words), [pair(*one) for one in pairs])
    assert links(found.rows) == wanted
    assert found.counts["links"] == sum(map(len, wanted))


def test_links_to_trimmed_words_are_dropped(encoder) -> None:
    long = pair("the cat sat on the mat the cat", "der hund sah die", " ".join(f"{i}-{i % 4}" for i in range(8)))
    rows = encode_pairs(encoder(12, segments=2), [long]).rows
    left = int(rows.segment_words[0])
    assert left < 8
    assert links(rows) == [[(i, i % 4) for i in range(left)], []]


def test_a_word_cut_into_pieces_is_linked_by_each(encoder) -> None:
    rows = encode_pairs(encoder(64, segments=2), [pair(f"the {'abcdqrstuvzyxwvu' * 2}", "katze", "1-0")]).rows
    words = int(rows.segment_words[0])
    assert words > LONGEST_WORD
    assert links(rows)[0] == [(i, 0) for i in range(1, words)]


def test_packing_moves_links_with_their_sides(encoder) -> None:
    pairs = [pair("the cat sat"[: 7 + 4 * (n % 2)], "die katze", f"{n % 2}-1 0-0") for n in range(60)]
    rows = encode_pairs(encoder(24, segments=2), pairs).rows
    packed = pack(rows, 24, "x", segments=2)
    assert sorted(map(str, links(packed))) == sorted(map(str, links(rows)))
    wanted = {(tuple(p), str(q)) for p, q in zip(segment_pieces(rows), links(rows), strict=True)}
    assert {(tuple(p), str(q)) for p, q in zip(segment_pieces(packed), links(packed), strict=True)} == wanted


def test_filters_drop_and_count(backend: Tokenizer, encoder) -> None:
    filters = Filters(min_words=2, max_words=5, min_script_fraction=0.5)
    lines = ["the", "the cat", "the cat sat on the mat", "\u043a\u043e\u0442 \u0434\u043e\u043c", "3 4", "der hund"]
    found = encode_documents(encoder(32, filters=filters), [document(*lines), document("sah")])
    assert text(backend, found) == ["the cat", "[UNK] [UNK]", "der hund"]
    dropped = {reason: count for reason, count in found.counts.items() if reason.startswith("dropped")}
    assert dropped == {"dropped: too short": 2, "dropped: too long": 1, "dropped: not in the language's script": 1}


def test_filters_of_pairs_drop_and_count(backend: Tokenizer, encoder) -> None:
    filters = Filters(max_length_ratio=2, drop_identical=True, min_script_fraction=0.5)
    pairs = [
        pair("the cat", "die katze"),
        pair("the cat sat on the", "die katze", "0-0"),
        pair("the mat", " the mat "),
        pair("the mat", "\u043a\u043e\u0442 \u0434\u043e\u043c"),
        pair("on the mat", "der hund sah", "2-1"),
        pair("the", ""),
    ]
    found = encode_pairs(encoder(64, segments=2, filters=filters), pairs)
    assert text(backend, found) == ["the cat", "die katze", "on the mat", "der hund sah"]
    assert links(found.rows) == [[], [], [(2, 1)], []]
    dropped = {reason: count for reason, count in found.counts.items() if reason.startswith("dropped")}
    assert dropped == {
        "dropped: lengths too different": 1,
        "dropped: texts are identical": 1,
        "dropped: not in the language's script": 1,
        "dropped: no words": 1,
    }
    duplicate = encode_pairs(encoder(64, segments=2), [pairs[0], replace(pairs[1], duplicate=(True,))])
    assert text(backend, duplicate) == ["the cat", "die katze"]
    assert duplicate.counts["dropped: duplicate pair"] == 1


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u202f", "\x85"])
def test_links_count_words_between_spaces_and_tabs(encoder, backend: Tokenizer, blank: str) -> None:
    pairs = [pair("hello! the black cat", f"gr\u00fc\u00df{blank}! die schwarze katze", "0-0 1-1 2-2 3-3")]
    rows = encode_pairs(encoder(64, segments=2), pairs).rows
    words = iter(rows.pieces.tolist())
    texts = ["".join(backend.id_to_token(next(words)) for _ in range(length)) for length in rows.word_length.tolist()]
    first, second = texts[: rows.segment_words[0]], texts[rows.segment_words[0] :]
    links = [(first[i], second[j]) for i, j in zip(rows.link_from.tolist(), rows.link_to.tolist(), strict=True)]
    assert links[-3:] == [("\u2581the", "\u2581die"), (first[-2], second[-2]), ("\u2581cat", "\u2581katze")]


def test_dotless_i_is_found_in_a_turkish_dictionary() -> None:
    tokenizer = train_bpe(BpeTokenizer(vocab_size=200), lambda: ["I\u015f\u0131k \u0131l\u0131k"] * 10)
    for language, entries in ((0, [-1, 1]), (1, [0, 1])):
        cached = CachedTokenizer(
            tokenizer, {(language, "\u0131\u015f\u0131k"): 0, (language, "\u0131l\u0131k"): 1}, languages=["en", "tr"]
        )
        for line in ("I\u015f\u0131k \u0131l\u0131k", "I\u015f\u0131k\u00a0\u0131l\u0131k"):  # from the cache, and not
            assert cached.tokenize([line], language).entry.tolist() == entries


def test_chinese_entry_of_several_words_is_one_word_with_the_links_of_each() -> None:
    zh, pieces = "\u6211\u53bb\u5b66\u6821", {"\u5b66\u6821": 0, "\u6211": 1}
    backend = train_bpe(BpeTokenizer(vocab_size=80), lambda: ["i go to school", " ".join(zh)] * 10)
    entries = {(0, form): number for form, number in pieces.items()}
    for longest, wanted in ((16, [1, -1, 0]), (1, [1, -1, -1, -1])):  # an entry has no more pieces than a word may have
        encoding = CachedTokenizer(backend, entries, longest).tokenize([zh], 0)
        assert encoding.entry.tolist() == wanted
        assert encoding.line_words.tolist() == [len(wanted)]
    tokenizer = CachedTokenizer(backend, entries)
    encoder = ExampleEncoder(tokenizer, ["zh", "en"], 64, False, 0.0, Filters(), aligned_words="tokenizer")
    aligned = Pair(("zh", "en"), (zh, "i go to school"), "x", 1, "0-0 1-1 2-3 3-3 3-2")
    rows = encode_pairs(encoder, [aligned]).rows
    assert rows.word_length.tolist()[:3] == [1, 1, 2]
    assert links(rows)[0] == [(0, 0), (1, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize("aligned_words", ["blanks", "tokenizer"])
def test_phrase_is_one_word_with_the_links_of_each_of_its_words(aligned_words: Literal["blanks", "tokenizer"]) -> None:
    english, german = "See the data base, please.", "Siehe die Datenbank, bitte."
    backend = train_bpe(BpeTokenizer(vocab_size=80), lambda: [english, german] * 10)
    entries = {(0, "data base"): 0, (0, "base"): 1, (1, "datenbank"): 2}
    encoder = ExampleEncoder(CachedTokenizer(backend, entries), ["en", "de"], 128, False, 0.0, Filters(),
                             aligned_words=aligned_words)  # fmt: skip
    # By blanks `base,` is one word, and its comma is linked with what it is; else `,` is a word of its own.
    alignment = "3-2" if aligned_words == "blanks" else "3-2 4-3"  # of its second word
    found = encode_pairs(encoder, [Pair(("en", "de"), (english, german), "x", 1, alignment)])
    entry_of = [[NO_ENTRY, NO_ENTRY, entry, NO_WORD, NO_ENTRY, NO_WORD] for entry in (0, 2)]
    assert found.rows.entry.tolist() == [*entry_of[0], *entry_of[1]]
    of_phrase = [(2, 2), (2, 3), (3, 2), (3, 3)] if aligned_words == "blanks" else [(2, 2), (3, 3)]
    assert links(found.rows)[0] == of_phrase
    counted = ("words", "words_in_dictionary", "phrases_in_dictionary")
    assert [found.counts[name] for name in counted] == [8, 2, 1]
