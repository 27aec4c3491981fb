"""Makes text that nobody has seen: real sentences with words exchanged and, at a chosen rate, words invented."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

REAL = Path(os.environ.get("XALIGN_REAL_TEXT", "../shared/data/wiki_text"))
BYTES_A_CHARACTER = 1.4  # of UTF-8 in the pack's languages together
EXCHANGED = 0.5  # share of words drawn anew from the language's own word frequencies


@dataclass(frozen=True)
class Source:
    """A language's real sentences: words [T] numbers of `vocabulary`, lengths [S] words of each sentence."""

    language: str
    words: np.ndarray
    lengths: np.ndarray
    vocabulary: np.ndarray
    spaced: bool  # False: words are characters, written without blanks

    @classmethod
    def read(cls, path: Path) -> Source:
        """A file of one sentence or paragraph a line."""
        language = path.stem
        spaced = language not in ("zh", "ja", "th")
        lines = path.read_text(encoding="utf-8").splitlines()
        sentences = [line.split() if spaced else list(line.replace(" ", "")) for line in lines]
        sentences = [sentence for sentence in sentences if sentence]
        vocabulary, words = np.unique(np.asarray([w for s in sentences for w in s], object), return_inverse=True)
        return cls(language, words, np.asarray([len(s) for s in sentences]), vocabulary, spaced)

    def sentences(self) -> list[str]:
        """The real sentences."""
        ends, blank = np.cumsum(self.lengths), " " if self.spaced else ""
        written = self.vocabulary[self.words]
        return [blank.join(written[end - n : end]) for end, n in zip(ends.tolist(), self.lengths.tolist(), strict=True)]

    def lines(self, characters: int, invented_share: float, random: np.random.Generator) -> list[str]:
        """About so many characters of new sentences; that share of their words was never written before."""
        mean = len("".join(self.vocabulary[self.words[:20_000]])) / min(len(self.words), 20_000) + self.spaced
        count = max(1, int(characters / (mean * self.lengths.mean())))
        chosen = random.integers(0, len(self.lengths), count)
        lengths = self.lengths[chosen]
        first = (np.cumsum(self.lengths) - self.lengths)[chosen]
        at = np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        words = self.words[at]
        exchanged = np.flatnonzero(random.random(len(words)) < EXCHANGED)
        words[exchanged] = self.words[random.integers(0, len(self.words), len(exchanged))]
        written = self.vocabulary[words]
        if self.spaced:
            new = np.flatnonzero(random.random(len(words)) < invented_share)
            written[new] = self._invent(len(new), random)
        ends = np.cumsum(lengths)
        blank = " " if self.spaced else ""
        return [blank.join(written[end - n : end]) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]

    def _invent(self, count: int, random: np.random.Generator) -> list[str]:
        """Words of the parts of three real words each: pieces like the language's own, seldom twice the same word."""
        parts = self.vocabulary[self.words[random.integers(0, len(self.words), (count, 3))]]
        return [f"{a[: len(a) // 2 + 1]}{b[len(b) // 2 :]}{c[: len(c) // 2 + 1]}" for a, b, c in parts]


def read_sources(files: Sequence[Path]) -> list[Source]:
    """A source for each file."""
    return [Source.read(path) for path in files]


def generate(sources: Sequence[Source], characters: int, invented_share: float, seed: int) -> Iterator[list[str]]:
    """The lines of each source in turn, together about so many characters."""
    for number, source in enumerate(sources):
        yield source.lines(characters // len(sources), invented_share, np.random.default_rng([seed, number]))


def generate_lines(sources: Sequence[Source], characters: int, invented_share: float, seed: int) -> list[str]:
    """The lines of all sources, one source after the other."""
    return [line for lines in generate(sources, characters, invented_share, seed) for line in lines]
