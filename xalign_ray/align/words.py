"""Which words of a line are aligned: those between blanks, or the very words that prepare finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from xalign_ray.errors import ConfigError
from xalign_ray.models.own_tokenizer import identify_tokenizer
from xalign_ray.shards.rows import starts
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, tokenize_lines
from xalign_ray.vocabulary.words import WORDS_VERSION, split_words

NO_FORM = "\ue000"  # leads the number of a piece that has no form, so that it is no word of any text


class WordSplitter(Protocol):
    """How lines become words; small, so that it travels to a worker."""

    def identity(self) -> dict[str, Any]:
        """What its words depend on: JSON."""
        ...

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line, as they are looked up: NFC, lower case."""
        ...


@dataclass(frozen=True)
class BlankSplitter:
    """Words between blanks (text/blanks.py), as Pair.alignment and Moses' alignment files count them."""

    def identity(self) -> dict[str, Any]:
        """Nothing but the rule."""
        return {"words": "blanks"}

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line."""
        return [[look_up_form(word) for word in split_words(line)] for line in lines]


@dataclass(frozen=True)
class TokenizerSplitter:
    """The words of text.tokenizer.tokenize_lines, in its order: word k of a line is the k-th that prepare sees.

    Attributes:
        folder: holds a tokenizer.json.
        longest: pieces, as in prepare. Of a longer word each piece is a word, known by its number.
    """

    folder: str
    longest: int = LONGEST_WORD

    def identity(self) -> dict[str, Any]:
        """The tokenizer by content, and the rule."""
        return {
            "words": "tokenizer",
            "tokenizer": identify_tokenizer(_open_backend(self.folder).to_str()),
            "tokenizers": tokenizers.__version__,
            "rule": WORDS_VERSION,
            "longest": self.longest,
        }

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line."""
        found = tokenize_lines(_open_backend(self.folder), lines, self.longest)
        first = found.pieces[starts(found.word_length)].tolist()
        words = iter([form or f"{NO_FORM}{piece}" for form, piece in zip(found.forms, first, strict=True)])
        return [list(islice(words, number)) for number in found.line_words.tolist()]


@lru_cache(maxsize=1)
def _open_backend(folder: str) -> tokenizers.Tokenizer:
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no tokenizer: it has no tokenizer.json.")
    return tokenizers.Tokenizer.from_file(str(path))
