"""Tokenizes many lines at the price of their distinct pretokens: what stands between blanks is tokenized once."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from xalign_ray.shards.rows import NO_ENTRY, NO_WORD, Index, Ints, run_index, spans, starts, sum_runs
from xalign_ray.vocabulary.dictionary import NO_PART, Phrases, split_forms
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, TokenizedLines, tokenize_lines

# Finds out which tokenizers give what stands between blanks the same pieces, whatever the rest of the line.

# Normalisers that map character by character, or look no further than a combining mark.
_LOCAL_NORMALIZERS = frozenset(
    ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer", "StripAccents", "Precompiled", "Nmt", "Strip")
)
_SQUEEZES = ({"Regex": " {2,}"}, {"Regex": r"\s+"})  # runs of blanks; pretokens are cached from lines without any
_SPLITTERS = frozenset(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"))
_REFINERS = frozenset(("Punctuation", "Digits"))
# Llama 3's and Qwen's: a blank stands only at the begin of a match, or in a run of white space.
_LOCAL_SPLITS = frozenset(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    + digits
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}{1,3}", r"\p{N}")
)
BLANK_MARK = "\u2581"  # what Metaspace and Gemma's normalizer write for a blank
_MARKS_BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK_MARK}

_PROBE = (
    "a", "The", "cat,", "it's", "don't", "3.14", "1990s", "--", "...", '"Hi"', "(x)", "@user", "#tag", "e-mail",
    "A.B.", "C++", "10%", "na\xefve", "nai\u0308ve", "Stra\xdfe", "\u0130stanbul", "\u039f\u0394\u039f\u03a3",
    "\u041c\u043e\u0441\u043a\u0432\u0430,", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0964",
    "\u4e2d\u6587\u5206\u8bcd", "\u65e5\u672c\u8a9e", "\ud55c\uad6d\uc5b4", "\u0e44\u0e17\u0e22", "\u2013",
    "\u201equote\u201c", "\u2603", "\U0001f600", "\U00010400", "co\xadop", "\ufb01n", "\u2581x", "##ing", "_", "x_y",
    "'", "'s", "\u2019s", "$5",
)  # fmt: skip
_PROBE_LINES = 200


@dataclass(frozen=True)
class PretokenRules:
    """What to mind where pretokens are tokenized alone.

    Attributes:
        first_differs: a line's first pretoken has other pieces.
        added: finds the added tokens.
        joined: beginnings of pretokens that may share a piece with the pretoken before.
        blanks_vanish: a run of blanks is as good as one.
        isolates_han: each Chinese character is tokenized as if it stood between blanks.
    """

    first_differs: bool
    added: re.Pattern[str] | None
    joined: tuple[str, ...]
    blanks_vanish: bool
    isolates_han: bool
    normalizer: Any

    def has_blank_ends(self, pretoken: str) -> bool:
        """Whether a pretoken is nothing, or has blanks at its ends, once it is normalised, and that matters."""
        if self.blanks_vanish or self.normalizer is None:
            return False
        text = self.normalizer.normalize_str(pretoken)
        return text != text.strip() or not text

    def needs_neighbours(self, pretoken: str) -> bool:
        """Whether an added token may be found in this pretoken, or a piece that it shares with the one before."""
        if self.joined and pretoken.startswith(self.joined):
            return True
        return self.added is not None and any(map(self.added.search, (pretoken, pretoken.lower())))


def find_pretoken_rules(backend: Tokenizer, longest: int) -> PretokenRules | None:
    """How a tokenizer treats pretokens, or None if it must be given whole lines.

    Its parts must be ones that are known to be local; then this is tried on lines of a few dozen kinds of pretokens.
    """
    added = tuple(token.content for token in backend.get_added_tokens_decoder().values() if not token.special)
    if getattr(backend.model, "dropout", None) or _reach_over_blanks(added):
        return None
    joined = _find_joined(backend) if _only_marks_blanks(backend) else ()
    if joined is None or not (joined or _only_marks_blanks(backend) or _parts_are_local(backend)):
        return None
    before = [_outcome(backend, pretoken, longest) for pretoken in _PROBE]
    inside = [_outcome(backend, f" {pretoken}", longest) for pretoken in _PROBE]
    tokens = tuple(text for token in added if not token.isspace() for text in {token, token.lower()})
    vanish = before == inside and next(_flat(backend.pre_tokenizer))["type"] in _SPLITTERS
    padded = any(part.get("handle_chinese_chars") for part in _flat(backend.normalizer))
    rules = PretokenRules(
        first_differs=before != inside,
        added=re.compile("|".join(map(re.escape, tokens))) if tokens else None,
        joined=joined,
        blanks_vanish=vanish,
        isolates_han=vanish and padded and not added,
        normalizer=backend.normalizer,
    )
    for numbers in _probe_lines(len(_PROBE)):
        line = " ".join(_PROBE[i] for i in numbers)
        wanted = [before[numbers[0]], *(inside[i] for i in numbers[1:])]
        if _outcome(backend, line, longest) != [word for words in wanted for word in words]:
            return None
    return rules


def _probe_lines(kinds: int) -> Iterator[list[int]]:
    """Every kind of pretoken first, last and between others, in a random order that is always the same."""
    source = random.Random(0)
    for number in range(_PROBE_LINES):
        yield [number % kinds, *(source.randrange(kinds) for _ in range(source.randrange(1, 7)))]


def _outcome(backend: Tokenizer, line: str, longest: int) -> list[tuple[int, ...]]:
    """The words of a line as pieces."""
    tokenized = tokenize_lines(backend, [line], longest)
    pieces = iter(tokenized.pieces.tolist())
    return [tuple(next(pieces) for _ in range(length)) for length in tokenized.word_length.tolist()]


def _only_marks_blanks(backend: Tokenizer) -> bool:
    """Whether a tokenizer is of Gemma's kind: blanks become U+2581, and nothing splits the line."""
    normalizers = list(_flat(backend.normalizer))
    splits = [part for part in _flat(backend.pre_tokenizer) if part.get("pattern") != _MARKS_BLANKS["pattern"]]
    marks = [part for part in normalizers if part == _MARKS_BLANKS]
    others = [part for part in normalizers if part != _MARKS_BLANKS]
    return len(marks) == 1 and not splits and all(map(_is_local_normalizer, others))


def _find_joined(backend: Tokenizer) -> tuple[str, ...] | None:
    """Beginnings of pretokens that a byte-pair merge may join to the pretoken before; None if any may be.

    A merge over the border of two pretokens makes a piece with U+2581 behind another character. Few vocabularies have
    any: Gemma's has `>\u2581</`.
    """
    model: Any = backend.model
    if not isinstance(model, models.BPE) or model.ignore_merges or model.continuing_subword_prefix:
        return None
    pieces = backend.get_vocab(with_added_tokens=False)
    if BLANK_MARK not in pieces or model.end_of_word_suffix:
        return None
    inner = (piece.lstrip(BLANK_MARK).split(BLANK_MARK)[1:] for piece in pieces)
    joined = {behind for parts in inner for behind in parts}
    return None if "" in joined else tuple(sorted(joined))


def _parts_are_local(backend: Tokenizer) -> bool:
    normalizers = all(map(_is_local_normalizer, _flat(backend.normalizer)))
    pre_tokenizers = list(_flat(backend.pre_tokenizer))
    split = False
    for part in pre_tokenizers:
        kind = part["type"]
        splits = (
            kind in _SPLITTERS
            or (kind == "Metaspace" and part.get("split", True))
            or (kind == "ByteLevel" and part.get("use_regex", True))
            or (kind == "Split" and _is_local_split(part))
        )
        if not splits and kind not in _REFINERS and not (split and kind in ("Metaspace", "ByteLevel")):
            return False
        split |= splits
    return normalizers and split


def _is_local_split(part: dict[str, Any]) -> bool:
    return part["pattern"].get("Regex") in _LOCAL_SPLITS and part["behavior"] == "Isolated" and not part["invert"]


def _is_local_normalizer(part: dict[str, Any]) -> bool:
    return part["type"] in _LOCAL_NORMALIZERS or (part["type"] == "Replace" and part["pattern"] in _SQUEEZES)


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    """The members of a normaliser or pre-tokenizer as the dicts of tokenizer.json, sequences unfolded."""
    if part is not None:
        yield from _unfold(json.loads(part.__getstate__()))


def _unfold(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    members = state.get("normalizers") or state.get("pretokenizers")
    if state["type"] != "Sequence":
        yield state
    for member in members or ():
        yield from _unfold(member)


def _reach_over_blanks(tokens: Iterable[str]) -> bool:
    """Whether a token holds a blank between other characters, or is a single one."""
    return any(" " in token and not (token.isspace() and len(token) > 1) for token in tokens)


CACHE_BYTES = 192 << 20
LONGEST_PRETOKEN = 32  # characters; longer ones are seldom seen twice
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
# Marks that belong to the Chinese character before them, though the normalizer puts a blank between the two.
_ATTACHED_TO_HAN = HAN + r"[\p{M}\p{Cf}\x{ff9e}\x{ff9f}\x{1f3fb}-\x{1f3ff}]"
_HAN_LEAD = 0xE3  # the least byte that one of them begins with in UTF-8
_PREPENDED = "\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a"  # letters that join what follows, even a blank


@dataclass(frozen=True)
class EncodedLines:
    """Lines as words and pieces: pieces [T], word_length [W], entry [W], line_words [N], as in Rows.

    A dictionary entry of several words is one word here; `parts` [W] counts the words of text/words in it.
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
    controls, a combining mark at its begin, an added token), or where it is seldom seen twice (a
    long one), it is tokenized together with them; and a tokenizer that looks beyond blanks is given whole lines. Memory
    is bounded: past CACHE_BYTES, entries that the last lines did not use are dropped.

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
        tokenized = self._gather(rows, line_pretokens, place)
        for array, size in zip(self._arrays, sizes, strict=True):
            array.size = size  # stretches are not kept
        if self.cached_bytes > self._limit:
            self._keep(used)
        return tokenized

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
        rows_by_pretoken, rows = self._known, np.flatnonzero(keep)
        words = spans(starts(self._row_words.values)[rows], self._row_words.values[rows])
        pieces = spans(starts(self._row_pieces.values)[rows], self._row_pieces.values[rows])
        indices = (*[rows] * 3, pieces, *[words] * (len(self._arrays) - 4))
        arrays = [array.values[index] for array, index in zip(self._arrays, indices, strict=True)]
        self._forget()
        if 4 * sum(map(len, arrays)) + PRETOKEN_BYTES * len(rows) > self._limit // 2:
            return
        number = np.cumsum(keep) - 1
        for variant, table in rows_by_pretoken.items():
            fresh = {pretoken: int(number[row]) for pretoken, row in table.items() if keep[row]}
            self._known[variant] = fresh
            self._key_bytes += sum(PRETOKEN_BYTES + len(pretoken) for pretoken in fresh)
        for array, values in zip(self._arrays, arrays, strict=True):
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
        rows_by_pretoken = self._known.setdefault((language, first), {})
        rows = np.fromiter(map(rows_by_pretoken.get, pretokens, repeat(_UNKNOWN)), np.int64, len(pretokens))
        unknown = np.flatnonzero(rows == _UNKNOWN)
        local = np.asarray([self._is_local(pretokens[i]) for i in unknown.tolist()], bool)
        rows[unknown[~local]] = _WHOLE
        new: list[str] = [pretokens[i] for i in unknown[local].tolist()]
        if new:
            lines = self._tokenize(new, language) if first else self._tokenize_together(new, language)
            fresh = self._add(lines, language)
            rows[unknown[local]] = fresh
            self.misses += len(new)
            rows_by_pretoken.update(zip(new, fresh.tolist(), strict=True))
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
        tokenized = self._tokenize(lines, language)
        line_begin = starts(np.fromiter(map(len, lines), np.int64, len(lines)))
        word_end = line_begin[run_index(tokenized.line_words)] + tokenized.line_end
        pretoken_end = np.cumsum(np.fromiter(map(len, pretokens), np.int64, len(pretokens)) + 1)
        pretoken_of = np.searchsorted(pretoken_end, word_end)
        assert (np.diff(pretoken_of) >= 0).all(), "pretokens that do not need their neighbours"
        return replace(
            tokenized,
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

    def _add(self, tokenized: TokenizedLines, language: int) -> Index:
        """Keeps lines as rows of the store; returns their numbers."""
        begin = self._row_words.size
        self._row_words.add(tokenized.line_words)
        self._row_blanks.add(tokenized.blank_words)
        self._row_pieces.add(sum_runs(tokenized.word_length, tokenized.line_words))
        self._pieces.add(tokenized.pieces)
        self._word_length.add(tokenized.word_length)
        self._blank_word.add(tokenized.blank_word)
        entry = np.where(tokenized.lettered, NO_ENTRY, NO_WORD)
        if entries := self._entries:
            listed = np.asarray([entries.get((language, form), NO_ENTRY) for form in tokenized.forms], np.int64)
            entry = np.where(listed >= 0, listed, entry)
        self._entry.add(entry)
        if self._phrases.parts:
            for array, values in zip(self._parts, self._find_parts(tokenized, language), strict=True):
                array.add(values)
        return np.arange(begin, self._row_words.size)

    def _find_parts(self, tokenized: TokenizedLines, language: int) -> Index:
        """The numbers [3, W] of the words' forms as parts of phrases: as the first, inside and as the last of one."""
        of_joined = [form for forms in tokenized.joined.values() for form in forms]
        words = split_forms([*tokenized.forms, *of_joined])
        number = np.asarray([self._phrases.parts.get((language, form), NO_PART) for form in words], np.int64)
        numbers = np.tile(number[: len(tokenized.forms)], (3, 1))
        numbers[:, [*tokenized.joined]] = number[len(tokenized.forms) :].reshape(-1, 3).T
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
        tokenized = EncodedLines(
            pieces=self._pieces.values[spans(starts(row_pieces)[rows], row_pieces[rows])],
            word_length=self._word_length.values[words],
            entry=self._entry.values[words],
            parts=np.ones(len(words), np.int32),
            blank_word=blank_word,
            last_blank_word=blank_word,
            line_words=sum_runs(chunk_words, line_pretokens).astype(np.int32),
        )
        if not self._parts:
            return tokenized
        parts = np.stack([array.values[words] for array in self._parts])
        return _join(tokenized, *self._phrases.find(parts, tokenized.word_length, tokenized.line_words, self._longest))


def _join(lines: EncodedLines, first: Index, count: Index, entry: Index) -> EncodedLines:
    """The lines with runs of words [M] as one word each, which have these entries."""
    if not len(first):
        return lines
    parts, entries, last_blank_word = lines.parts.copy(), lines.entry.copy(), lines.last_blank_word.copy()
    parts[first], entries[first], last_blank_word[first] = count, entry, lines.last_blank_word[first + count - 1]
    begins = np.ones(len(parts), bool)
    begins[spans(first + 1, count - 1)] = False
    return EncodedLines(
        pieces=lines.pieces,
        word_length=np.add.reduceat(lines.word_length, np.flatnonzero(begins)),
        entry=entries[begins],
        parts=parts[begins],
        blank_word=lines.blank_word[begins],
        last_blank_word=last_blank_word[begins],
        line_words=sum_runs(begins.astype(np.int64), lines.line_words).astype(np.int32),
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
