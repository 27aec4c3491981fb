"""Lines at random that are hard to tokenize: all of Unicode, odd blanks, invisible characters, tokens spelled out."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Sequence
from functools import cache

from tests.parity.tokenizer_zoo import HOSTILE, WORDS

BLANKS = (
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\xa0", "\u3000", "\u2003", "\u200b", "\u2028", "\x85", "\x0b"),
    "\u1680",
)
INVISIBLE = (
    "\u200c", "\u200d", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069", "\u2060", "\ufeff", "\xad",
    "\u061c", "\u180e", "\x00", "\x01", "\x1f", "\x7f", "\ufe0f", "\U000e0101", "\u0301", "\u0338", "\ufffd", "\u2581",
)  # fmt: skip
EMOJI = (
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "\U0001f44d\U0001f3fd", "#\ufe0f\u20e3",
)  # fmt: skip
SIGNS = (
    "'", "'s", "'ll", "\u2019", ",", ".", "...", "!?", "(", ")", '"', "--", "_", "@", "#", "</", ">", "%", "$",
    "\u3002", "\u0964", "\u060c",
)  # fmt: skip
SPELLED = (
    "[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<mask>", "<pad>", "<unk>", "<bos>", "<eos>",
    "<|begin_of_text|>", "<|mask|>", "<unused7>", "<table>", "</td>", "<start_of_image>", "[multimodal]",
)  # fmt: skip
BLOCKS = ((0x21, 0x7E), (0xA1, 0x24F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xFFF),
          (0x1000, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x3040, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x1FAFF), (0x20000, 0x2FA1F))  # fmt: skip
_ODD = tuple(pretoken for line in HOSTILE for pretoken in line.split(" "))


@cache
def _block(first: int, last: int) -> str:
    return "".join(c for c in map(chr, range(first, last + 1)) if unicodedata.category(c) not in ("Cn", "Cs", "Co"))


def wild_lines(count: int, seed: int, spelled: Sequence[str] = SPELLED) -> list[str]:
    """So many lines; those of a seed are always the same."""
    source = random.Random(seed)
    return [_line(source, spelled) for _ in range(count)]


def _line(source: random.Random, spelled: Sequence[str]) -> str:
    parts = [_part(source, spelled) for _ in range(source.randrange(1, 9))]
    odd = source.random() < 0.3
    blanks = [source.choice(BLANKS) if odd and source.random() < 0.3 else " " for _ in parts]
    line = "".join(part + blank for part, blank in zip(parts, blanks, strict=True))
    return line if source.random() < 0.1 else line.rstrip(" ")


def _part(source: random.Random, spelled: Sequence[str]) -> str:
    draw = source.random()
    if draw < 0.45:
        word = source.choice(WORDS)
        return word if source.random() < 0.6 else word + source.choice(SIGNS)
    if draw < 0.7:
        letters = _block(*source.choice(BLOCKS))
        return "".join(source.choice(letters) for _ in range(source.randrange(1, 9)))
    if draw < 0.78:
        return source.choice(_ODD)
    if draw < 0.84:
        at = source.choice(SIGNS) if source.random() < 0.5 else source.choice(WORDS)
        return source.choice((at + source.choice(spelled), source.choice(spelled) + at, source.choice(spelled)))
    if draw < 0.90:
        inner = source.choice(INVISIBLE)
        return source.choice((inner, "ab" + inner, inner + "ab", "a" + inner + "b", "\u0939" + inner + "\u093f"))
    if draw < 0.94:
        return "".join(source.choice(EMOJI) for _ in range(source.randrange(1, 4)))
    if draw < 0.97:
        return "".join(source.choice(SIGNS) for _ in range(source.randrange(1, 6)))
    if draw < 0.995:
        return str(source.randrange(10 ** source.randrange(1, 12))) + source.choice(("", "th", ".5", ",000"))
    return source.choice(("xyz", "\u6587", "\u0e20\u0e32", "ab1")) * source.randrange(20, 80)
