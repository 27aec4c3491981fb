"""Cuts many lines into words at the price of their distinct chunks: what stands between blanks is tokenised once."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.text.locality import Locality, find_locality
from xalign_ray.text.rows import NO_ENTRY, Index, Ints, run_index, spans, starts, sum_runs
from xalign_ray.text.tokenizer import LONGEST_WORD, CutLines, cut_lines

CACHE_BYTES = 192 << 20
LONGEST_CHUNK = 32  # characters; what is longer is seldom seen twice
CHUNK_BYTES = 160  # a key and its entry in a Python dict, without its characters and pieces

_WHOLE, _UNKNOWN = -1, -2  # rows of chunks that must be cut with their neighbours, and of chunks not seen before
_INNER_FORMAT = str.maketrans(
    "", "", "\u00ad\u200c\u200d"
)  # soft hyphen and joiners: part of words, though not at ends
# What BertNormalizer takes for Chinese and puts blanks around: each is then a chunk.
_HAN = (
    "([\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f])"
)
_HAN_LEAD = 0xE3  # the least byte that one of them begins with in UTF-8
_BLANK_MARK = "\u2581"  # what Metaspace writes for a blank; in a text it means nothing, but stops the other
_PREPENDED = "\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a"  # letters that join what follows, even a blank


@dataclass(frozen=True)
class Cut:
    """Lines cut into words: pieces [T], word_length [W], entry [W], line_words [N], as in Rows.

    blank_word [W] is the number in its line of the word by white space in which a word begins; 0 if not asked for.
    """

    pieces: Ints
    word_length: Ints
    entry: Ints
    blank_word: Ints
    line_words: Ints


class _Grown:
    """An int32 array that grows at its end."""

    def __init__(self) -> None:
        self._room = np.zeros(1 << 12, np.int32)
        self.size = 0

    @property
    def values(self) -> Ints:
        return self._room[: self.size]

    def add(self, values: NDArray[np.integer]) -> None:
        end = self.size + len(values)
        if end > len(self._room):
            self._room = np.concatenate((self.values, np.zeros(max(end, len(self._room) * 2) - self.size, np.int32)))
        self._room[self.size : end] = values
        self.size = end


class ChunkCutter:
    """Cuts lines exactly as the tokenizer cuts them whole, but asks it only for chunks that it has not seen before.

    Where a chunk cannot be known to be cut alike alone (odd or double blanks, controls, a combining mark at its
    begin, an added token), or is seldom seen twice (a long one), it is cut together with its neighbours; and a
    tokenizer that looks beyond blanks (`locality`) is given whole lines. Memory is bounded: past CACHE_BYTES what the
    last lines did not use is forgotten.

    Args:
        entries: the dictionary entry of each (language id, form).
        longest: pieces of a word; a longer one is cut into pieces.
    """

    def __init__(
        self,
        backend: Tokenizer,
        entries: Mapping[tuple[int, str], int],
        longest: int = LONGEST_WORD,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._backend, self._entries, self._longest, self._limit = backend, entries, longest, cache_bytes
        self._locality: Locality | None = find_locality(backend, longest)
        self.misses = 0  # chunks that the tokenizer was asked for, over all calls
        self._forget()

    def cut(self, lines: Sequence[str], language: int, *, place: bool = False) -> Cut:
        """The words of lines of one language.

        Args:
            place: find out which word by white space each word begins in.
        """
        if self._locality is None:
            self._forget()
            rows = self._add(cut_lines(self._backend, lines, self._longest, place=place), language)
            return self._gather(rows, np.ones(len(lines), np.int64), place)
        texts = pa.array(lines, pa.string())
        if self._locality.isolates_han and not place:
            texts = _space_han(texts)
        split = pc.split_pattern(texts, " ")  # type: ignore[attr-defined]
        chunks = split.flatten().dictionary_encode()
        line_chunks = np.diff(split.offsets.to_numpy())
        rows = self._rows_of(chunks, starts(line_chunks), language)
        used = rows[rows >= 0]
        sizes = [array.size for array in self._arrays]
        rows, line_chunks = self._cut_stretches(rows, line_chunks, chunks, language, place=place)
        found = self._gather(rows, line_chunks, place)
        for array, size in zip(self._arrays, sizes, strict=True):
            array.size = size  # stretches are not kept
        if self.cached_bytes > self._limit:
            self._keep(used)
        return found

    def _cut_stretches(
        self, rows: Index, line_chunks: NDArray[np.integer], chunks: pa.DictionaryArray, language: int, *, place: bool
    ) -> tuple[Index, Index]:
        """Puts one row in the place of each chunk that must be cut with its neighbours, and of these neighbours."""
        odd = rows == _WHOLE
        if not odd.any():
            return rows, line_chunks.astype(np.int64)
        line = run_index(line_chunks)
        same_line = line[1:] == line[:-1]
        stretched = odd.copy()
        stretched[1:] |= odd[:-1] & same_line
        stretched[:-1] |= odd[1:] & same_line
        begins = stretched.copy()
        begins[1:] &= ~(stretched[:-1] & same_line)
        at = np.flatnonzero(begins)
        counts = np.bincount((np.cumsum(begins) - 1)[stretched], minlength=len(at))
        texts = chunks.take(pa.array(np.flatnonzero(stretched))).to_pylist()
        first_of_line = at == starts(line_chunks)[line[at]]
        stretches = [
            ("" if first else " ") + " ".join(texts[begin : begin + count])
            for first, begin, count in zip(
                first_of_line.tolist(), starts(counts).tolist(), counts.tolist(), strict=True
            )
        ]
        replaced = rows.copy()
        replaced[at] = self._add(cut_lines(self._backend, stretches, self._longest, place=place), language)
        keep = begins | ~stretched
        return replaced[keep], np.bincount(line[keep], minlength=len(line_chunks))

    @property
    def cached_bytes(self) -> int:
        """About how much memory the cached chunks take."""
        return self._key_bytes + 4 * sum(array.size for array in self._arrays)

    def _forget(self) -> None:
        self._known: dict[tuple[int, bool], dict[str, int]] = {}
        self._key_bytes = 0
        self._row_pieces, self._row_words, self._row_blanks = _Grown(), _Grown(), _Grown()
        self._pieces, self._word_length, self._entry, self._blank_word = _Grown(), _Grown(), _Grown(), _Grown()
        self._arrays = (
            *(self._row_pieces, self._row_words, self._row_blanks),
            *(self._pieces, self._word_length, self._entry, self._blank_word),
        )

    def _keep(self, used: Index) -> None:
        """Forgets all chunks but those that were just used; all, if these alone are half of what may be kept."""
        keep = np.zeros(self._row_pieces.size, bool)
        keep[used] = True
        known, rows = self._known, np.flatnonzero(keep)
        words = spans(starts(self._row_words.values)[rows], self._row_words.values[rows])
        pieces = spans(starts(self._row_pieces.values)[rows], self._row_pieces.values[rows])
        indices = (*[rows] * 3, pieces, *[words] * 3)
        kept = [array.values[index] for array, index in zip(self._arrays, indices, strict=True)]
        self._forget()
        if 4 * sum(map(len, kept)) + CHUNK_BYTES * len(rows) > self._limit // 2:
            return
        number = np.cumsum(keep) - 1
        for variant, table in known.items():
            fresh = {chunk: int(number[row]) for chunk, row in table.items() if keep[row]}
            self._known[variant] = fresh
            self._key_bytes += sum(CHUNK_BYTES + len(chunk) for chunk in fresh)
        for array, values in zip(self._arrays, kept, strict=True):
            array.add(values)

    def _rows_of(self, chunks: pa.DictionaryArray, first_of_line: Index, language: int) -> Index:
        """The row of each chunk of each line; the first of a line is looked up apart where the tokenizer minds."""
        assert self._locality is not None
        codes, distinct = chunks.indices.to_numpy(), chunks.dictionary.to_pylist()
        if not self._locality.first_differs:
            return self._look_up(distinct, language, first=False)[codes]
        inner = np.ones(len(codes), bool)
        inner[first_of_line] = False
        rows = np.empty(len(codes), np.int64)
        for first, chosen in ((False, np.flatnonzero(inner)), (True, first_of_line)):
            asked = np.zeros(len(distinct), bool)
            asked[codes[chosen]] = True
            numbers = np.flatnonzero(asked)
            row = np.empty(len(distinct), np.int64)
            row[numbers] = self._look_up([distinct[i] for i in numbers], language, first=first)
            rows[chosen] = row[codes[chosen]]
        return rows

    def _look_up(self, chunks: list[str], language: int, *, first: bool) -> Index:
        known = self._known.setdefault((language, first), {})
        rows = np.fromiter(map(known.get, chunks, repeat(_UNKNOWN)), np.int64, len(chunks))
        unknown = np.flatnonzero(rows == _UNKNOWN)
        local = np.asarray([self._is_local(chunks[i]) for i in unknown.tolist()], bool)
        rows[unknown[~local]] = _WHOLE
        new: list[str] = [chunks[i] for i in unknown[local].tolist()]
        if new:
            as_in_line = new if first else [f" {chunk}" for chunk in new]
            fresh = self._add(cut_lines(self._backend, as_in_line, self._longest), language)
            rows[unknown[local]] = fresh
            self.misses += len(new)
            known.update(zip(new, fresh.tolist(), strict=True))
            self._key_bytes += sum(map(len, new)) + CHUNK_BYTES * len(new)
        return rows

    def _is_local(self, chunk: str) -> bool:
        assert self._locality is not None
        if not chunk:
            return self._locality.blanks_vanish
        if chunk.isascii():
            plain = len(chunk) <= LONGEST_CHUNK and chunk.isprintable()
        else:
            plain = (
                len(chunk) <= LONGEST_CHUNK
                and _BLANK_MARK not in chunk
                and chunk[0].isprintable()
                and chunk[-1].isprintable()
                and chunk[-1] not in _PREPENDED
                and unicodedata.category(chunk[0])[0] != "M"
                and chunk.translate(_INNER_FORMAT).isprintable()
                and not self._locality.has_blank_ends(chunk)
            )
        return plain and not self._locality.holds_added_token(chunk)

    def _add(self, cut: CutLines, language: int) -> Index:
        """Keeps lines as rows of the store; returns their numbers."""
        begin = self._row_words.size
        self._row_words.add(cut.line_words)
        self._row_blanks.add(cut.blank_words)
        self._row_pieces.add(sum_runs(cut.word_length, cut.line_words))
        self._pieces.add(cut.pieces)
        self._word_length.add(cut.word_length)
        self._blank_word.add(cut.blank_word)
        if self._entries:
            entries = self._entries
            self._entry.add(np.asarray([entries.get((language, form), NO_ENTRY) for form in cut.forms], np.int32))
        else:
            self._entry.add(np.full(len(cut.forms), NO_ENTRY, np.int32))
        return np.arange(begin, self._row_words.size)

    def _gather(self, rows: Index, line_chunks: NDArray[np.integer], place: bool) -> Cut:
        row_words, row_pieces = self._row_words.values, self._row_pieces.values
        chunk_words = row_words[rows]
        words = spans(starts(row_words)[rows], chunk_words)
        if place:
            number = starts(self._row_blanks.values[rows])
            number -= np.repeat(number[starts(line_chunks)[line_chunks > 0]], line_chunks[line_chunks > 0])
            blank_word = self._blank_word.values[words] + np.repeat(number, chunk_words).astype(np.int32)
        else:
            blank_word = np.zeros(len(words), np.int32)
        return Cut(
            pieces=self._pieces.values[spans(starts(row_pieces)[rows], row_pieces[rows])],
            word_length=self._word_length.values[words],
            entry=self._entry.values[words],
            blank_word=blank_word,
            line_words=sum_runs(chunk_words, line_chunks).astype(np.int32),
        )


def _space_han(texts: pa.Array) -> pa.Array:
    """The lines with blanks around Chinese characters, by RE2, which is given only lines that may hold any."""
    _, offsets, data = texts.buffers()
    if data is None:
        return texts
    bounds = np.frombuffer(offsets, np.int32)[: len(texts) + 1]
    may = np.flatnonzero(np.frombuffer(data, np.uint8)[: bounds[-1]] >= _HAN_LEAD)
    if not len(may):
        return texts
    chosen = np.zeros(len(texts), bool)
    chosen[np.searchsorted(bounds, may, side="right") - 1] = True
    spaced = pc.replace_substring_regex(texts.filter(pa.array(chosen)), _HAN, r" \1 ")  # type: ignore[attr-defined]
    return pc.replace_with_mask(texts, pa.array(chosen), spaced)  # type: ignore[attr-defined]
