"""Alignment error rate against sure and possible gold links, and the readers of the two gold formats.

Formulas, and how the papers were read: docs/explanation/methods.md, Word alignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.align.links import Link
from xalign_ray.errors import DataError
from xalign_ray.sources.open import read_lines


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold links of one sentence pair, from 0; sure links are possible links too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts over a test set: links found, sure gold links, and how many of the found are sure or possible."""

    found: int
    sure: int
    found_sure: int
    found_possible: int

    @property
    def error_rate(self) -> float:
        """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), Och and Ney 2003; counts summed over the corpus."""
        total = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / total if total else 0.0

    @property
    def precision(self) -> float:
        """Share of the found links that are possible."""
        return self.found_possible / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of the sure links that were found."""
        return self.found_sure / self.sure if self.sure else 0.0


def compare(found: Sequence[Collection[Link]], gold: Sequence[Gold]) -> Agreement:
    """Compares the links found for each sentence pair with the gold of the same pair."""
    assert len(found) == len(gold), "a set of links for each gold sentence"
    sets = [(set(links), one) for links, one in zip(found, gold, strict=True)]
    return Agreement(
        found=sum(len(links) for links, _ in sets),
        sure=sum(len(one.sure) for _, one in sets),
        found_sure=sum(len(links & one.sure) for links, one in sets),
        found_possible=sum(len(links & one.possible) for links, one in sets),
    )


def read_gold(path: Path, first_word: int) -> list[Gold]:
    """Gold links a line: `i-j` is sure, `ipj` only possible (awesome-align's form, and plain Pharaoh).

    Args:
        first_word: what the file calls the first word: 1 in awesome-align's gold, 0 in Pharaoh.

    Raises:
        DataError: a link that is not of this form, or that points before the first word.
    """
    return [_gold(_parse(line, path, number, first_word)) for number, line in _lines(path)]


def read_naacl(path: Path, sentences: int, first_word: int) -> list[Gold]:
    """Gold links in NAACL's form, a link a line: `sentence word word [S|P]`, sentences from 1; no mark is sure.

    Args:
        sentences: number of sentence pairs; those without a line have no links.
        first_word: what the file calls the first word; WPT's files say 1, Bicici's 0.

    Raises:
        DataError: a line that is not of this form.
    """
    links: list[list[tuple[Link, bool]]] = [[] for _ in range(sentences)]
    for number, line in _lines(path):
        sentence, i, j, *mark = line.split() if len(line.split()) in (3, 4) else ["0", "", ""]
        if not (sentence.isdecimal() and i.isdecimal() and j.isdecimal() and 1 <= int(sentence) <= sentences):
            raise DataError(
                f"{path}, line {number}: '{line}' is not `sentence word word [S|P]` of one of {sentences} pairs."
            )
        links[int(sentence) - 1].append((_shifted(int(i), int(j), first_word, path, number), mark != ["P"]))
    return [_gold(one) for one in links]


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    if not path.is_file():
        raise DataError(f"{path} does not exist; name a file of gold alignments.")
    return ((line.number, line.text.strip()) for line in read_lines(str(path)))


def _parse(line: str, path: Path, number: int, first_word: int) -> list[tuple[Link, bool]]:
    found = []
    for word in line.split():
        sure = "-" in word
        i, mark, j = word.partition("-" if sure else "p")
        if not (mark and i.isdecimal() and j.isdecimal()):
            raise DataError(f"{path}, line {number}: '{word}' is no link; sure ones are i-j, possible ones ipj.")
        found.append((_shifted(int(i), int(j), first_word, path, number), sure))
    return found


def _shifted(i: int, j: int, first_word: int, path: Path, number: int) -> Link:
    if min(i, j) < first_word:
        raise DataError(f"{path}, line {number}: link {i}-{j} lies before word {first_word}, the first. "
                        "Does the file count from 0?")  # fmt: skip
    return i - first_word, j - first_word


def _gold(links: Sequence[tuple[Link, bool]]) -> Gold:
    return Gold(frozenset(link for link, sure in links if sure), frozenset(link for link, _ in links))
