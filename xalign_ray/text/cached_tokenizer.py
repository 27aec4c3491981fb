"""Tokenizes many lines at the price of their distinct pretokens: what stands between blanks is tokenized once."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.text.phrases import NO_PART, Phrases, split_forms
from xalign_ray.text.pretokens import BLANK_MARK, PretokenRules, find_pretoken_rules
from xalign_ray.text.rows import NO_ENTRY, NO_WORD, Index, Ints, run_index, spans, starts, sum_runs
from xalign_ray.text.tokenizer import LONGEST_WORD, TokenizedLines, tokenize_lines

CACHE_BYTES = 192 << 20
LONGEST_PRETOKEN = 32  # characters; what is longer is seldom seen twice
TOGETHER = 32  # new pretokens that the tokenizer is given as one line
PRETOKEN_BYTES = 160  # a key and its entry in a Python dict, without its characters and pieces

_WHOLE, _UNKNOWN = -1, -2  # rows of pretokens that need their neighbours, and of those not seen before
_INNER_FORMAT = str.maketrans(
    "", "", "\u00ad\u200c\u200d"
)  # soft hyphen and joiners: part of words, though not at ends
# What BertNormalizer takes for Chinese and puts blanks around: each is then a pretoken.
HAN = (
    "([\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f])"
)
# What is part of the word of a Chinese character before it, though the normalizer puts a blank between the two.
_ATTACHED_TO_HAN = HAN + r"[\p{M}\p{Cf}\x{ff9e}\x{ff9f}\x{1f3fb}-\x{1f3ff}]"
_HAN_LEAD = 0xE3  # the least byte that one of them begins with in UTF-8
_PREPENDED = "\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a"  # letters that join what follows, even a blank


@dataclass(frozen=True)
class EncodedLines:
    """Lines as words and pieces: pieces [T], word_length [W], entry [W], line_words [N], as in Rows.

    A dictionary entry of several words is one word here; `parts` [W] says how many words of text/words it is made of.
    blank_word [W] is the number in its line of the word between blanks in which a word begins, last_blank_word [W] of
    that in which the last of its parts begins; 0 if not asked for.
    """

    pieces: Ints
    word_length: Ints
    entry: Ints
    parts: Ints
    blank_word: Ints
    last_blank_word: Ints
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


class CachedTokenizer:
    """Tokenizes lines exactly as the tokenizer does, but asks it only for pretokens that it has not seen before.

    A pretoken is what stands between two blanks. Where its pieces may depend on its neighbours (odd or double blanks,
    controls, a combining mark at its begin, an added token that is no whole word), or where it is seldom seen twice (a
    long one), it is tokenized together with them; and a tokenizer that looks beyond blanks is given whole lines. Memory
    is bounded: past CACHE_BYTES what the last lines did not use is forgotten.

    Args:
        entries: the dictionary entry of each (language id, form).
        longest: pieces of a word; each piece of a longer one is a word.
        languages: the code of each language id, for the rules of its look-up forms.
    """

    def __init__(
        self,
        backend: Tokenizer,
        entries: Mapping[tuple[int, str], int],
        longest: int = LONGEST_WORD,
        cache_bytes: int = CACHE_BYTES,
        languages: Sequence[str] = (),
    ) -> None:
        self._languages = languages
        self._backend, self._entries, self._longest, self._limit = backend, entries, longest, cache_bytes
        self._rules: PretokenRules | None = find_pretoken_rules(backend, longest)
        self._phrases = Phrases(entries)
        self.misses = 0  # pretokens that the tokenizer was asked for, over all calls
        self._forget()

    def count_phrases(self, entry: Ints) -> int:
        """How many of these dictionary entries are of several words."""
        return int(self._phrases.has_several_words[entry].sum())

    def tokenize(self, lines: Sequence[str], language: int, *, place: bool = False) -> EncodedLines:
        """The words of lines of one language.

        Args:
            place: find out which word between blanks each word begins in.
        """
        if self._rules is None:
            self._forget()
            rows = self._add(self._tokenize(lines, language, place=place), language)
            return self._gather(rows, np.ones(len(lines), np.int64), place)
        texts = pa.array(lines, pa.string())
        if self._rules.isolates_han and not place:
            texts = _space_han(texts)
        split = pc.split_pattern(texts, " ")  # type: ignore[attr-defined]
        pretokens = split.flatten().dictionary_encode()
        line_pretokens = np.diff(split.offsets.to_numpy())
        rows = self._rows_of(pretokens, starts(line_pretokens), language)
        used = rows[rows >= 0]
        sizes = [array.size for array in self._arrays]
        rows, line_pretokens = self._tokenize_stretches(rows, line_pretokens, pretokens, language, place=place)
        found = self._gather(rows, line_pretokens, place)
        for array, size in zip(self._arrays, sizes, strict=True):
            array.size = size  # stretches are not kept
        if self.cached_bytes > self._limit:
            self._keep(used)
        return found

    def _tokenize_stretches(
        self,
        rows: Index,
        line_pretokens: NDArray[np.integer],
        pretokens: pa.DictionaryArray,
        language: int,
        *,
        place: bool,
    ) -> tuple[Index, Index]:
        """Puts one row in the place of each pretoken that needs its neighbours, and of these neighbours."""
        odd = rows == _WHOLE
        if not odd.any():
            return rows, line_pretokens.astype(np.int64)
        line = run_index(line_pretokens)
        same_line = line[1:] == line[:-1]
        stretched = odd.copy()
        stretched[1:] |= odd[:-1] & same_line
        stretched[:-1] |= odd[1:] & same_line
        begins = stretched.copy()
        begins[1:] &= ~(stretched[:-1] & same_line)
        at = np.flatnonzero(begins)
        counts = np.bincount((np.cumsum(begins) - 1)[stretched], minlength=len(at))
        texts = pretokens.take(pa.array(np.flatnonzero(stretched))).to_pylist()
        first_of_line = at == starts(line_pretokens)[line[at]]
        stretches = [
            ("" if first else " ") + " ".join(texts[begin : begin + count])
            for first, begin, count in zip(
                first_of_line.tolist(), starts(counts).tolist(), counts.tolist(), strict=True
            )
        ]
        replaced = rows.copy()
        replaced[at] = self._add(self._tokenize(stretches, language, place=place), language)
        keep = begins | ~stretched
        return replaced[keep], np.bincount(line[keep], minlength=len(line_pretokens))

    @property
    def cached_bytes(self) -> int:
        """About how much memory the cached pretokens take."""
        return self._key_bytes + 4 * sum(array.size for array in self._arrays)

    def _forget(self) -> None:
        self._known: dict[tuple[int, bool], dict[str, int]] = {}
        self._key_bytes = 0
        self._row_pieces, self._row_words, self._row_blanks = _Grown(), _Grown(), _Grown()
        self._pieces, self._word_length, self._entry, self._blank_word = _Grown(), _Grown(), _Grown(), _Grown()
        self._parts = (_Grown(), _Grown(), _Grown()) if self._phrases.parts else ()
        self._arrays = (
            *(self._row_pieces, self._row_words, self._row_blanks),
            *(self._pieces, self._word_length, self._entry, self._blank_word, *self._parts),
        )

    def _keep(self, used: Index) -> None:
        """Forgets all pretokens but those that were just used; all, if these alone are half of what may be kept."""
        keep = np.zeros(self._row_pieces.size, bool)
        keep[used] = True
        known, rows = self._known, np.flatnonzero(keep)
        words = spans(starts(self._row_words.values)[rows], self._row_words.values[rows])
        pieces = spans(starts(self._row_pieces.values)[rows], self._row_pieces.values[rows])
        indices = (*[rows] * 3, pieces, *[words] * (len(self._arrays) - 4))
        kept = [array.values[index] for array, index in zip(self._arrays, indices, strict=True)]
        self._forget()
        if 4 * sum(map(len, kept)) + PRETOKEN_BYTES * len(rows) > self._limit // 2:
            return
        number = np.cumsum(keep) - 1
        for variant, table in known.items():
            fresh = {pretoken: int(number[row]) for pretoken, row in table.items() if keep[row]}
            self._known[variant] = fresh
            self._key_bytes += sum(PRETOKEN_BYTES + len(pretoken) for pretoken in fresh)
        for array, values in zip(self._arrays, kept, strict=True):
            array.add(values)

    def _rows_of(self, pretokens: pa.DictionaryArray, first_of_line: Index, language: int) -> Index:
        """The row of each pretoken of each line; the first of a line is looked up apart where the tokenizer minds."""
        assert self._rules is not None
        codes, distinct = pretokens.indices.to_numpy(), pretokens.dictionary.to_pylist()
        if not self._rules.first_differs:
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

    def _look_up(self, pretokens: list[str], language: int, *, first: bool) -> Index:
        known = self._known.setdefault((language, first), {})
        rows = np.fromiter(map(known.get, pretokens, repeat(_UNKNOWN)), np.int64, len(pretokens))
        unknown = np.flatnonzero(rows == _UNKNOWN)
        local = np.asarray([self._is_local(pretokens[i]) for i in unknown.tolist()], bool)
        rows[unknown[~local]] = _WHOLE
        new: list[str] = [pretokens[i] for i in unknown[local].tolist()]
        if new:
            lines = self._tokenize(new, language) if first else self._tokenize_together(new, language)
            fresh = self._add(lines, language)
            rows[unknown[local]] = fresh
            self.misses += len(new)
            known.update(zip(new, fresh.tolist(), strict=True))
            self._key_bytes += sum(map(len, new)) + PRETOKEN_BYTES * len(new)
        return rows

    def _tokenize(self, lines: Sequence[str], language: int, *, place: bool = False) -> TokenizedLines:
        code = None if not self._entries else self._languages[language] if self._languages else ""
        return tokenize_lines(self._backend, lines, self._longest, place=place, language=code)

    def _tokenize_together(self, pretokens: list[str], language: int) -> TokenizedLines:
        """Pretokens as they stand inside a line, each as if it were a line: many in one cost a third of one by one."""
        pretokens = [unicodedata.normalize("NFC", pretoken) for pretoken in pretokens]
        lines = [
            "".join(f" {pretoken}" for pretoken in pretokens[begin : begin + TOGETHER])
            for begin in range(0, len(pretokens), TOGETHER)
        ]
        found = self._tokenize(lines, language)
        line_begin = starts(np.fromiter(map(len, lines), np.int64, len(lines)))
        word_end = line_begin[run_index(found.line_words)] + found.line_end
        pretoken_end = np.cumsum(np.fromiter(map(len, pretokens), np.int64, len(pretokens)) + 1)
        pretoken_of = np.searchsorted(pretoken_end, word_end)
        assert (np.diff(pretoken_of) >= 0).all(), "pretokens that do not need their neighbours"
        return replace(
            found,
            line_words=np.bincount(pretoken_of, minlength=len(pretokens)).astype(np.int32),
            blank_words=np.asarray([bool(pretoken) for pretoken in pretokens], np.int32),
        )

    def _is_local(self, pretoken: str) -> bool:
        assert self._rules is not None
        if not pretoken:
            return self._rules.blanks_vanish
        if pretoken.isascii():
            plain = len(pretoken) <= LONGEST_PRETOKEN and pretoken.isprintable()
        else:
            plain = (
                len(pretoken) <= LONGEST_PRETOKEN
                and BLANK_MARK not in pretoken
                and pretoken[0].isprintable()
                and pretoken[-1].isprintable()
                and pretoken[-1] not in _PREPENDED
                and unicodedata.category(pretoken[0])[0] != "M"
                and pretoken.translate(_INNER_FORMAT).isprintable()
                and not self._rules.has_blank_ends(pretoken)
            )
        return plain and not self._rules.needs_neighbours(pretoken)

    def _add(self, found: TokenizedLines, language: int) -> Index:
        """Keeps lines as rows of the store; returns their numbers."""
        begin = self._row_words.size
        self._row_words.add(found.line_words)
        self._row_blanks.add(found.blank_words)
        self._row_pieces.add(sum_runs(found.word_length, found.line_words))
        self._pieces.add(found.pieces)
        self._word_length.add(found.word_length)
        self._blank_word.add(found.blank_word)
        entry = np.where(found.lettered, NO_ENTRY, NO_WORD)
        if entries := self._entries:
            known = np.asarray([entries.get((language, form), NO_ENTRY) for form in found.forms], np.int64)
            entry = np.where(known >= 0, known, entry)
        self._entry.add(entry)
        if self._phrases.parts:
            for array, values in zip(self._parts, self._find_parts(found, language), strict=True):
                array.add(values)
        return np.arange(begin, self._row_words.size)

    def _find_parts(self, found: TokenizedLines, language: int) -> Index:
        """The numbers [3, W] of the words' forms as parts of phrases: as the first, inside and as the last of one."""
        of_joined = [form for forms in found.joined.values() for form in forms]
        words = split_forms([*found.forms, *of_joined])
        number = np.asarray([self._phrases.parts.get((language, form), NO_PART) for form in words], np.int64)
        numbers = np.tile(number[: len(found.forms)], (3, 1))
        numbers[:, [*found.joined]] = number[len(found.forms) :].reshape(-1, 3).T
        return numbers

    def _gather(self, rows: Index, line_pretokens: NDArray[np.integer], place: bool) -> EncodedLines:
        row_words, row_pieces = self._row_words.values, self._row_pieces.values
        chunk_words = row_words[rows]
        words = spans(starts(row_words)[rows], chunk_words)
        if place:
            number = starts(self._row_blanks.values[rows])
            number -= np.repeat(number[starts(line_pretokens)[line_pretokens > 0]], line_pretokens[line_pretokens > 0])
            blank_word = self._blank_word.values[words] + np.repeat(number, chunk_words).astype(np.int32)
        else:
            blank_word = np.zeros(len(words), np.int32)
        found = EncodedLines(
            pieces=self._pieces.values[spans(starts(row_pieces)[rows], row_pieces[rows])],
            word_length=self._word_length.values[words],
            entry=self._entry.values[words],
            parts=np.ones(len(words), np.int32),
            blank_word=blank_word,
            last_blank_word=blank_word,
            line_words=sum_runs(chunk_words, line_pretokens).astype(np.int32),
        )
        if not self._parts:
            return found
        parts = np.stack([array.values[words] for array in self._parts])
        return _join(found, *self._phrases.find(parts, found.word_length, found.line_words, self._longest))


def _join(lines: EncodedLines, first: Index, count: Index, entry: Index) -> EncodedLines:
    """The lines with runs of words [M] as one word each, which have these entries."""
    if not len(first):
        return lines
    parts, entries, last_blank_word = lines.parts.copy(), lines.entry.copy(), lines.last_blank_word.copy()
    parts[first], entries[first], last_blank_word[first] = count, entry, lines.last_blank_word[first + count - 1]
    kept = np.ones(len(parts), bool)
    kept[spans(first + 1, count - 1)] = False
    return EncodedLines(
        pieces=lines.pieces,
        word_length=np.add.reduceat(lines.word_length, np.flatnonzero(kept)),
        entry=entries[kept],
        parts=parts[kept],
        blank_word=lines.blank_word[kept],
        last_blank_word=last_blank_word[kept],
        line_words=sum_runs(kept.astype(np.int64), lines.line_words).astype(np.int32),
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
    attached = pc.match_substring_regex(texts.filter(pa.array(chosen)), _ATTACHED_TO_HAN)  # type: ignore[attr-defined]
    chosen[chosen] = ~attached.to_numpy(zero_copy_only=False)
    spaced = pc.replace_substring_regex(texts.filter(pa.array(chosen)), HAN, r" \1 ")  # type: ignore[attr-defined]
    return pc.replace_with_mask(texts, pa.array(chosen), spaced)  # type: ignore[attr-defined]
