"""Words to align, links between the words of two sides, and ways to join both directions' links."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from xalign_ray.vocabulary.words import split_words

Link = tuple[int, int]  # word of the first side, word of the second side, both from 0
WordPair = tuple[Sequence[str], Sequence[str]]

# Koehn, Och and Marcu 2003: next to it, then diagonal.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def write_pharaoh(links: Iterable[Link]) -> str:
    """Links as `i-j i-j`, sorted, from 0."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def read_pharaoh(line: str) -> list[Link]:
    """The links of a line `i-j i-j`, in its order."""
    return [(int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split())]


def grow_diag(forward: set[Link], backward: set[Link]) -> set[Link]:
    """The intersection, grown into the union from neighbour to neighbour while a link touches an unaligned word.

    Links are visited row by row (first side), each grown in the order of Koehn, Och and Marcu (2003), until a pass
    over all links adds none. A link needs one visit only: words never become unaligned, so a neighbour that
    could not be added at first cannot be added later. Links added before the current row wait for the next pass.
    """
    grown = forward & backward
    left, right = {i for i, _ in grown}, {j for _, j in grown}
    free = (forward | backward) - grown
    this_pass, next_pass = sorted(grown), []
    while free and this_pass:
        while this_pass:
            here = heapq.heappop(this_pass)
            for down, across in _NEIGHBOURS:
                near = here[0] + down, here[1] + across
                if near in free and (near[0] not in left or near[1] not in right):
                    free.discard(near)
                    grown.add(near)
                    left.add(near[0])
                    right.add(near[1])
                    heapq.heappush(this_pass if near > here else next_pass, near)
        this_pass, next_pass = next_pass, []
    return grown


def grow_diag_final(forward: set[Link], backward: set[Link]) -> set[Link]:
    """grow-diag, then the links of each direction in turn that have one or both words still unaligned."""
    return _finish(grow_diag(forward, backward), (forward, backward), lambda i, j: i or j)


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """grow-diag, then the links of each direction in turn that have both words still unaligned."""
    return _finish(grow_diag(forward, backward), (forward, backward), lambda i, j: i and j)


def _finish(grown: set[Link], directions: Sequence[set[Link]], wanted: Callable[[bool, bool], bool]) -> set[Link]:
    left, right = {i for i, _ in grown}, {j for _, j in grown}
    for links in directions:
        for i, j in sorted(links - grown):
            if wanted(i not in left, j not in right):
                grown.add((i, j))
                left.add(i)
                right.add(j)
    return grown


GROW_DIAG_FINAL_AND = "grow-diag-final-and"

SYMMETRISERS: Mapping[str, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": set.intersection,
    "union": set.union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    GROW_DIAG_FINAL_AND: grow_diag_final_and,
}


# Which words of a line are aligned: those between blanks, or the very words that prepare finds.

NO_FORM = "\ue000"  # leads the number of a piece that has no form, so that it is no word of any text


class WordSplitter(Protocol):
    """How lines become words; small, so that it travels to a worker."""

    def identity(self) -> dict[str, Any]:
        """What its words depend on: JSON."""
        ...

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line as for a look-up: NFC, lower case."""
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
            "longest": self.longest,
        }

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line."""
        tokenized = tokenize_lines(_open_backend(self.folder), lines, self.longest)
        first = tokenized.pieces[starts(tokenized.word_length)].tolist()
        words = iter([form or f"{NO_FORM}{piece}" for form, piece in zip(tokenized.forms, first, strict=True)])
        return [list(islice(words, number)) for number in tokenized.line_words.tolist()]


@lru_cache(maxsize=1)
def _open_backend(folder: str) -> tokenizers.Tokenizer:
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no tokenizer: it has no tokenizer.json.")
    return tokenizers.Tokenizer.from_file(str(path))
