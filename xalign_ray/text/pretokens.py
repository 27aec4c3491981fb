"""Finds out which tokenizers give what stands between blanks the same pieces, whatever the rest of the line."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from xalign_ray.text.tokenizer import tokenize_lines

# Normalisers that map character by character, or look no further than a combining mark.
_LOCAL_NORMALIZERS = frozenset(
    ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer", "StripAccents", "Precompiled", "Nmt", "Strip")
)
_SQUEEZES = ({"Regex": " {2,}"}, {"Regex": r"\s+"})  # runs of blanks; pretokens are cached from lines without any
_SPLITTERS = frozenset(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"))
_REFINERS = frozenset(("Punctuation", "Digits"))
# Llama 3's and Qwen's: a blank only ever begins what they match, or stands in a run of white space.
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
_PROBE_WORDS = 8  # added tokens that are whole words
_WORD_SHAPES = ("{}", "{},", "({})", "{}s", "x{}", "x-{}", "{0}-{0}", "{}1", "_{}")


@dataclass(frozen=True)
class PretokenRules:
    """What to mind where pretokens are tokenized alone.

    Attributes:
        first_differs: a line's first pretoken has other pieces.
        added: finds the added tokens that are no whole words.
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
    A tokenizer's truncation and padding are switched off: both are for batches, not for text.
    """
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    listed = [token for token in backend.get_added_tokens_decoder().values() if not token.special]
    whole_words = [token.content for token in listed if _is_whole_word(token)]
    added = tuple(token.content for token in listed if not _is_whole_word(token))
    if getattr(backend.model, "dropout", None) or _reach_over_blanks(added):
        return None
    joined = _find_joined(backend) if _only_marks_blanks(backend) else ()
    if joined is None or not (joined or _only_marks_blanks(backend) or _parts_are_local(backend)):
        return None
    tried = [*_PROBE, *(shape.format(word) for word in whole_words[:_PROBE_WORDS] for shape in _WORD_SHAPES)]
    before = [_outcome(backend, pretoken, longest) for pretoken in tried]
    inside = [_outcome(backend, f" {pretoken}", longest) for pretoken in tried]
    tokens = tuple(text for token in added if not token.isspace() for text in {token, token.lower()})
    vanish = before == inside and next(_flat(backend.pre_tokenizer))["type"] in _SPLITTERS
    padded = any(part.get("handle_chinese_chars") for part in _flat(backend.normalizer))
    rules = PretokenRules(
        first_differs=before != inside,
        added=re.compile("|".join(map(re.escape, tokens))) if tokens else None,
        joined=joined,
        blanks_vanish=vanish,
        isolates_han=vanish and padded and not added and not any(" " in _normalize(backend, w) for w in whole_words),
        normalizer=backend.normalizer,
    )
    for numbers in _probe_lines(len(tried)):
        line = " ".join(tried[i] for i in numbers)
        wanted = [before[numbers[0]], *(inside[i] for i in numbers[1:])]
        if _outcome(backend, line, longest) != [word for words in wanted for word in words]:
            return None
    return rules


def _probe_lines(kinds: int) -> Iterator[list[int]]:
    """Every kind of pretoken first, last and between others, in a random order that is always the same."""
    source = random.Random(0)
    for number in range(_PROBE_LINES):
        yield [number % kinds, *(source.randrange(kinds) for _ in range(source.randrange(1, 7)))]


def _is_whole_word(token: AddedToken) -> bool:
    """Whether an added token is found only where it is a whole word, and takes no more than the blank before it.

    Then what stands between the blanks around it is cut the same wherever it stands: our new pieces are such tokens.
    """
    plain = not any(c.isspace() for c in token.content)
    return plain and token.single_word and token.normalized and not token.rstrip


def _normalize(backend: Tokenizer, text: str) -> str:
    return backend.normalizer.normalize_str(text) if backend.normalizer else text


def _outcome(backend: Tokenizer, line: str, longest: int) -> list[tuple[int, ...]]:
    """The words of a line as pieces."""
    found = tokenize_lines(backend, [line], longest)
    pieces = iter(found.pieces.tolist())
    return [tuple(next(pieces) for _ in range(length)) for length in found.word_length.tolist()]


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
