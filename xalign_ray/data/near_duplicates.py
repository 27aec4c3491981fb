"""MinHash signatures of documents and pairs, in bands: what shares a band with an earlier one is nearly a duplicate."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.sources import NearDuplicatesConfig
from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.text.characters import read_characters
from xalign_ray.text.counter_random import mix
from xalign_ray.text.n_grams import Hashes, unit_hashes
from xalign_ray.text.rows import Index, spans, starts
from xalign_ray.text.scripts import letters_a_word

WINDOW_CHARACTERS = 1 << 20  # whose signatures are made together
_STEP = np.uint64(0x9E3779B97F4A7C15)


def band_hashes(
    settings: NearDuplicatesConfig, languages: Sequence[str], records: Iterable[Document | Pair]
) -> Iterator[bytes]:
    """8 bytes of each band of each record, in reading order: `num_buckets` of a record, one after the other."""
    window: list[tuple[str, ...]] = []
    characters = 0
    for record in records:
        texts = record.paragraphs if isinstance(record, Document) else record.texts
        window.append(texts)
        characters += sum(map(len, texts))
        if characters >= WINDOW_CHARACTERS:
            yield from _digests(settings, languages, window)
            window, characters = [], 0
    if window:
        yield from _digests(settings, languages, window)


def sign(settings: NearDuplicatesConfig, languages: Sequence[str], texts: Sequence[Sequence[str]]) -> Hashes:
    """The hash of each band of each record [N, num_buckets].

    A record's shingles are the n-grams of the words of its lines, lower-cased and without punctuation; a shorter line
    is one shingle. Of a language without blanks n is as many letters as make so many words.

    Args:
        languages: of all lines of a record, or of each of the two texts of a pair.
    """
    hashes, record = _shingles(settings, languages, texts)
    order = np.argsort(record, kind="stable")
    hashes, record = hashes[order], record[order]
    begins = np.searchsorted(record, np.arange(len(texts)))
    rows = settings.hashes_per_bucket
    bands = np.empty((len(texts), settings.num_buckets), np.uint64)
    seeds = mix(np.arange(1, settings.num_buckets * rows + 1, dtype=np.uint64) * _STEP).reshape(-1, rows)
    for band, some in enumerate(seeds):
        key = np.full(len(texts), some[0])
        for seed in some:  # each as good as an own order of all shingles, of which the first is kept
            key = mix(key * _STEP + np.minimum.reduceat((hashes ^ seed) * (seed | np.uint64(1)), begins))
        bands[:, band] = key
    return bands


def _digests(
    settings: NearDuplicatesConfig, languages: Sequence[str], texts: Sequence[Sequence[str]]
) -> Iterator[bytes]:
    packed = sign(settings, languages, texts).astype("<u8").tobytes()
    return (packed[at : at + 8] for at in range(0, len(packed), 8))


def _shingles(
    settings: NearDuplicatesConfig, languages: Sequence[str], texts: Sequence[Sequence[str]]
) -> tuple[Hashes, Index]:
    """The hash of each shingle, and the record it is of; a record without a word has one like all of its kind."""
    found, records = [np.zeros(len(texts), np.uint64)], [np.arange(len(texts))]
    for number, language in enumerate(languages):
        lines = [lines if len(languages) == 1 else lines[number : number + 1] for lines in texts]
        of_line = np.repeat(np.arange(len(texts)), [len(some) for some in lines])
        plain = [unicodedata.normalize("NFC", line).lower() for some in lines for line in some]
        hashes, line = _n_grams(plain, settings.n_grams * round(letters_a_word(language)))
        found.append(hashes)
        records.append(of_line[line])
    hashes, record = np.concatenate(found), np.concatenate(records)
    wordless = np.bincount(record, minlength=len(texts)) == 1
    keep = np.ones(len(hashes), bool)
    keep[: len(texts)] = wordless
    return hashes[keep], record[keep]


def _n_grams(lines: Sequence[str], n: int) -> tuple[Hashes, NDArray[np.int64]]:
    """The hash of each n-gram of words of each line, or of all words of a shorter one; and its line."""
    text = read_characters(lines, punctuation=False)
    words = unit_hashes(text)
    count = np.where(text.line_units > 0, np.maximum(text.line_units - n + 1, 1), 0)
    begins = spans(starts(text.line_units), count)
    line = np.repeat(np.arange(len(lines)), count)
    left = np.minimum(starts(text.line_units)[line] + text.line_units[line] - begins, n)
    hashes = left.astype(np.uint64)
    for k in range(n):
        longer = np.flatnonzero(left > k)
        hashes[longer] = hashes[longer] * _STEP + words[begins[longer] + k]
    return mix(hashes), line
