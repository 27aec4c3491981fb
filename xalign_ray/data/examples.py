"""Turns the records of one part into packed rows: tokenise, cut into examples, pack, shuffle. No Ray here."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.text.collate import specials
from xalign_ray.text.packing import pack_rows
from xalign_ray.text.rows import NO_ENTRY, Rows
from xalign_ray.text.tokenizer import LONGEST_WORD, Word, cut_words

BATCH = 256  # records tokenised together

Side = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int]  # pieces, word lengths, entries, language


@dataclass(frozen=True)
class Cutter:
    """What turns text into examples: the same for every part of a run."""

    backend: Tokenizer
    languages: Sequence[str]
    entries: Mapping[tuple[int, str], int]
    capacity: int  # tokens of a row that examples may fill, special tokens included
    whole_documents: bool
    held_out_share: float


@dataclass
class Examples:
    """Examples of one part: each a list of one or two sides."""

    trained: list[list[Side]] = field(default_factory=list)
    held_out: list[list[Side]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def cut_documents(cutter: Cutter, documents: Iterable[Document]) -> Examples:
    """Sentences, or as many lines of a document as fit together; lines longer than a row are cut at a word."""
    found = Examples()
    room = cutter.capacity - specials(1)
    for batch in _batches(documents):
        lines = [line for document in batch for line in document.paragraphs]
        words = iter(cut_words(cutter.backend, lines, min(LONGEST_WORD, room)))
        for document in batch:
            language = cutter.languages.index(document.language)
            found.counts["documents"] += 1
            found.counts["lines"] += len(document.paragraphs)
            out = _is_held_out(document, cutter.held_out_share)
            kept = found.held_out if out else found.trained
            sentences = [sentence for _ in document.paragraphs if (sentence := next(words))]
            for example in _examples(sentences, room, cutter.whole_documents):
                kept.append([_as_side(example, language, cutter.entries, found.counts)])
    return found


def cut_pairs(cutter: Cutter, pairs: Iterable[Pair]) -> Examples:
    """Both sides of a translation; a pair too long for a row loses words at the end of its longer side (counted)."""
    found = Examples()
    room = cutter.capacity - specials(2)
    longest = min(LONGEST_WORD, room // 2)  # so that a side never loses its only word
    for batch in _batches(pairs):
        words = iter(cut_words(cutter.backend, [side for pair in batch for side in pair.sides], longest))
        for pair in batch:
            found.counts["pairs"] += 1
            sides = [next(words), next(words)]
            if not all(sides):
                found.counts["pairs_without_words"] += 1
                continue
            if _trim(sides, room):
                found.counts["pairs_truncated"] += 1
            tongues = [cutter.languages.index(language) for language in pair.languages]
            found.trained.append(
                [_as_side(side, t, cutter.entries, found.counts) for side, t in zip(sides, tongues, strict=True)]
            )
    return found


def pack(examples: Sequence[list[Side]], capacity: int, seed_text: str) -> Rows:
    """Packs examples into rows and shuffles the rows, the same way for the same examples and `seed_text`."""
    lengths = [sum(len(side[0]) for side in example) + specials(len(example)) for example in examples]
    packed = pack_rows(lengths, capacity)
    digest = int.from_bytes(hashlib.blake2b(seed_text.encode(), digest_size=8).digest(), "big")
    packed = [packed[i] for i in np.random.default_rng(digest).permutation(len(packed))]
    sides = [side for row in packed for example in row for side in examples[example]]
    join = lambda arrays: np.concatenate([np.zeros(0, np.int32), *arrays])  # noqa: E731
    return Rows(
        pieces=join([side[0] for side in sides]),
        word_length=join([side[1] for side in sides]),
        entry=join([side[2] for side in sides]),
        side_words=np.asarray([len(side[1]) for side in sides], np.int32),
        side_language=np.asarray([side[3] for side in sides], np.int32),
        row_sides=np.asarray([sum(len(examples[example]) for example in row) for row in packed], np.int32),
        side_links=np.zeros(len(sides), np.int32),
        link_from=np.zeros(0, np.int32),
        link_to=np.zeros(0, np.int32),
    )


def _batches(records: Iterable[Document] | Iterable[Pair]) -> Iterator[list]:
    iterator = iter(records)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _is_held_out(document: Document, share: float) -> bool:
    digest = hashlib.blake2b("\n".join(document.paragraphs).encode(), digest_size=8, person=b"held out").digest()
    return int.from_bytes(digest, "big") / 2**64 < share


def _examples(sentences: list[list[Word]], room: int, whole_documents: bool) -> Iterator[list[Word]]:
    current: list[Word] = []
    used = 0
    for stretch in (part for sentence in sentences for part in _fitting(sentence, room)):
        length = sum(len(word.pieces) for word in stretch)
        if current and (not whole_documents or used + length > room):
            yield current
            current, used = [], 0
        current = current + stretch
        used += length
    if current:
        yield current


def _fitting(sentence: list[Word], room: int) -> Iterator[list[Word]]:
    """The sentence in stretches of at most `room` pieces."""
    begin = used = 0
    for at, word in enumerate(sentence):
        if used + len(word.pieces) > room:
            yield sentence[begin:at]
            begin, used = at, 0
        used += len(word.pieces)
    yield sentence[begin:]


def _trim(sides: list[list[Word]], room: int) -> bool:
    lengths = [sum(len(word.pieces) for word in side) for side in sides]
    trimmed = sum(lengths) > room
    while sum(lengths) > room:
        longer = 0 if lengths[0] >= lengths[1] else 1
        lengths[longer] -= len(sides[longer].pop().pieces)
    return trimmed


def _as_side(words: list[Word], language: int, entries: Mapping[tuple[int, str], int], counts: Counter[str]) -> Side:
    entry = np.asarray([entries.get((language, word.form), NO_ENTRY) for word in words], np.int32)
    length = np.asarray([len(word.pieces) for word in words], np.int32)
    counts["words"] += len(words)
    counts["words_in_dictionary"] += int((entry != NO_ENTRY).sum())
    counts["tokens"] += int(length.sum())
    counts["tokens_in_dictionary"] += int(length[entry != NO_ENTRY].sum())
    return np.asarray([piece for word in words for piece in word.pieces], np.int32), length, entry, language
