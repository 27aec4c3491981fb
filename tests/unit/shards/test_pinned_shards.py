"""Which rows are held out, sampled or dropped, and how rows are shuffled into shards: the same for the same input."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.unit.streams.pinned import assert_pinned
from xalign_ray.align.corpus import hash_pair
from xalign_ray.clean.duplicates import hash_records
from xalign_ray.clean.filters import Filters
from xalign_ray.shards.rows import NO_ENTRY, Rows, starts
from xalign_ray.sources.records import Document, Pair
from xalign_ray.tokens.examples import ExampleEncoder, encode_documents, pack
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.dictionary import Translations, add_entries

HELD_OUT_LINES = [9, 11, 13, 14, 21, 23, 24, 28, 39]
HELD_OUT_CONCEPTS = [3, 14, 16, 23, 32, 33, 34]
PACKED = [[4, 9], [0, 7], [2, 3], [6, 8], [1, 5]]
REPEATED = [9486855274845555209, 4743559667856356885, 9458036150728352247]
SAMPLED = 7950453715520738804


def test_held_out_lines():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoder = ExampleEncoder(CachedTokenizer(backend, {}, 16), ["en"], 16, False, 0.2, Filters())
    documents = [Document("en", (f"line {number}",), "here", 1) for number in range(40)]
    assert_pinned(np.flatnonzero(encode_documents(encoder, documents).held_out), HELD_OUT_LINES)


def test_held_out_concepts():
    translations = Translations()
    entries = [((0, f"word {number}"), (1, f"Wort {number}")) for number in range(40)]
    add_entries(translations, entries, 0, 0.2, held_out=False)
    assert_pinned([int(left[1].split()[1]) for left, _ in translations.held_out], HELD_OUT_CONCEPTS)


def test_rows_of_a_shard():
    lines = np.array([3, 5, 2, 6, 4, 3, 1, 5, 2, 4], np.int32)
    words = int(lines.sum())
    examples = Rows(
        pieces=np.repeat(np.arange(10, dtype=np.int32), lines),
        word_length=np.ones(words, np.int32),
        entry=np.full(words, NO_ENTRY, np.int32),
        segment_words=lines,
        segment_language=np.zeros(10, np.int32),
        row_segments=np.ones(10, np.int32),
        segment_links=np.zeros(10, np.int32),
        link_from=np.zeros(0, np.int32),
        link_to=np.zeros(0, np.int32),
    )
    rows = pack(examples, 12, "text/en 0")
    first_words = np.split(rows.pieces[starts(rows.segment_words)], np.cumsum(rows.row_segments)[:-1])
    assert_pinned([row.tolist() for row in first_words], PACKED)


def test_hashes_of_lines_and_pairs():
    documents = [Document("en", ("A line.", "Another."), "here", 1)]
    pairs = [Pair(("en", "de"), ("one", "eins"), "here", 1)]
    assert_pinned(np.frombuffer(b"".join(hash_records([*documents, *pairs])), "<u8"), REPEATED)
    assert_pinned(hash_pair(pairs[0], 7), SAMPLED)
