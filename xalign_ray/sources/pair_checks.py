"""Checks of pairs before training: copies, repeats, wrong languages, markup, text in a wrong encoding, with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import DataConfig
from xalign_ray.config.sources import ParallelCorpus
from xalign_ray.errors import ConfigError
from xalign_ray.sources.formats import find_source, read, split_notes
from xalign_ray.sources.html import has_markup
from xalign_ray.sources.language_id import accepted_labels, is_installed, surest_label
from xalign_ray.sources.records import BOTH_EMPTY, Pair, list_reasons
from xalign_ray.sources.summary import check_bad_fraction

MAX_CHECKED = 1_000_000  # rows of all sources together: more do not make a run longer
MIN_CHECKED = 1_000  # rows of a source, whatever was read before it
MAX_JUDGED = 1_000  # pairs whose languages are identified, evenly spaced
MAX_SHARE = 0.2  # of the pairs, above which a fault stops a run
ALLOWED = "doubtful_pairs"  # the word of `allow` that takes them

SAME_TEXT, REPEATED, SHARED = "the same text on both sides", "a pair again", "a text of another pair"
SAME_LANGUAGE, TURNED = "one language on both sides", "the two languages the other way round"
MARKUP, MOJIBAKE = "HTML tags or entities", "letters of a wrong encoding"
_CURES = {  # what to do about a fault, and the filter that does it
    SAME_TEXT: ("drop_identical", "--set data.filters.drop_identical=true leaves these out."),
    REPEATED: ("drop_duplicates", "--set data.filters.drop_duplicates=true leaves these out."),
    SAME_LANGUAGE: ("language_threshold", "--set data.filters.language_threshold=0.6 leaves these out."),
    TURNED: ("language_threshold", "Turn these rows; if all are, name --languages or --columns in the other order."),
    MARKUP: ("drop_lines_with", "Take them out, as Python's html.unescape and BeautifulSoup do."),
    MOJIBAKE: ("", "Read the file in its own encoding, or repair the text, as ftfy does."),
}
_MIN_LETTERS = 20  # of a text whose language is identified


@dataclass(frozen=True)
class PairChecks:
    """The number of good pairs of a source, how many of how many have each fault, and counts of its other rows."""

    corpus: ParallelCorpus
    pairs: int
    faults: Mapping[str, tuple[int, int]]
    bad: Mapping[str, int]
    others: Mapping[str, int]  # rows that are left out, and notes
    rows: int  # that were read
    is_cut: bool  # there may be more
    hashes: NDArray[np.int64]  # of the distinct pairs, in either order of the sides

    @property
    def title(self) -> str:
        """The source's first file, and its languages."""
        return f"{Path(self.corpus.paths[0]).name} ({', '.join(self.corpus.languages)})"

    @property
    def is_clean(self) -> bool:
        """Whether the source has no fault, no bad row, no note, and was read to its end."""
        return not (any(count for count, _ in self.faults.values()) or self.bad or self.others or self.is_cut)

    def __str__(self) -> str:
        faults = [
            f"{kind} {count:,}{f' of {of:,}' if of < self.pairs else ''} ({count / of:.1%})"
            for kind, (count, of) in self.faults.items()
            if count
        ]
        left_out, notes = split_notes(self.others)
        named = (("bad rows", self.bad), ("left out", left_out), ("noted", notes))
        besides = "".join(f"; {title}: {list_reasons(counts)}" for title, counts in named if counts)
        first = f" of its first {self.rows:,} rows" if self.is_cut else ""
        return f"{self.title}: {self.pairs:,} pairs{first}; {'; '.join(faults) or 'nothing doubtful'}{besides}"


def check_sources(corpora: Sequence[ParallelCorpus], root: str | Path = ".") -> list[PairChecks]:
    """Reads MAX_CHECKED rows of all sources in their order, of each at least its first MIN_CHECKED."""
    checks, left = list[PairChecks](), MAX_CHECKED
    for corpus in corpora:
        checks.append(check_pairs(corpus, root, max(MIN_CHECKED, left)))
        left -= checks[-1].rows
    return checks


def check_pairs(corpus: ParallelCorpus, root: str | Path = ".", most: int = MAX_CHECKED) -> PairChecks:
    """Counts the pairs with each fault in a source's first rows; of languages by a sample that is evenly spaced."""
    first, second = _labels_of(corpus.languages)
    counts, bad, others = Counter[str](), Counter[str](), Counter[str]()
    hashes: list[tuple[int, int, int]] = []
    judged: list[tuple[str, str]] = []
    step = 1
    reader, paths = find_source(corpus, root)
    records = read(reader, paths, corpus.languages, others, corpus.read_columns, corpus.skip_empty)
    number = -1
    for number, record in enumerate(islice(records, most)):
        if not isinstance(record, Pair):
            (others if record.reason == BOTH_EMPTY else bad)[record.reason] += 1  # pyright: ignore
            continue
        left, other = record.texts
        hashes.append((hash(left), hash(other), hash(record.negatives)))
        counts[SAME_TEXT] += left.casefold() == other.casefold()
        counts[MARKUP] += has_markup(left) or has_markup(other)
        counts[MOJIBAKE] += is_mojibake(left) or is_mojibake(other)
        is_taken = first and number % step == 0 and left != other
        if is_taken and min(sum(map(str.isalpha, text)) for text in record.texts) >= _MIN_LETTERS:
            judged.append((left, other))
            if len(judged) == 2 * MAX_JUDGED:
                judged, step = judged[::2], 2 * step
    rows = np.unique(np.array(hashes, np.int64).reshape(-1, 3), axis=0)  # one for each negative of a pair
    counts[REPEATED] = len(hashes) - len(rows)
    distinct = np.unique(rows[:, :2], axis=0)
    shared = [
        times[places] > 1
        for _, places, times in (
            np.unique(distinct[:, side], return_inverse=True, return_counts=True) for side in (0, 1)
        )
    ]
    counts[SHARED] = int(np.sum(shared[0] | shared[1]))
    faults = {kind: (counts[kind], len(hashes)) for kind in (SAME_TEXT, REPEATED, SHARED, MARKUP, MOJIBAKE)}
    labels = [(surest_label(left), surest_label(other)) for left, other in judged]
    same = sum((a in first and b in first) or (a in second and b in second) for a, b in labels)
    turned = sum(a in second and b in first for a, b in labels)
    faults |= {SAME_LANGUAGE: (same, len(labels)), TURNED: (turned, len(labels))}
    return PairChecks(corpus, len(hashes), faults, bad, others, number + 1, number + 1 == most, distinct.sum(axis=1))


def _labels_of(languages: tuple[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """The identifier's labels of two languages; none where it confuses them.

    It takes a language of few speakers for its neighbour: those that have a code of three letters.
    """
    if is_installed() and all(len(code.partition("-")[0]) == 2 for code in languages):
        first, second = map(accepted_labels, languages)
        if first and second and not first & second:
            return first, second
    return frozenset(), frozenset()


def refuse_doubtful(checks: Sequence[PairChecks], data: DataConfig, allow: Sequence[str]) -> None:
    """Stops at a source with more bad rows than `data.max_bad_fraction`, or with a fault in over a fifth of its pairs
    that no filter takes out.

    A text that stands in several pairs is counted and no fault: a sentence has several translations.

    Raises:
        DataError: names source, and the reasons of its bad rows.
        ConfigError: names source, fault, what takes it out, and the word that allows it.
    """
    for source in checks:
        rows = source.pairs + sum(source.bad.values())
        check_bad_fraction(source.bad, rows, data.max_bad_fraction, source.title)
        for kind, (setting, cure) in _CURES.items() if ALLOWED not in allow else ():
            count, of = source.faults[kind]
            if count > max(1, MAX_SHARE * of) and not (setting and getattr(data.filters, setting)):
                raise ConfigError(
                    f"{source.title}: {count:,} of {of:,} pairs have {kind}, more than {MAX_SHARE:.0%}. {cure} If it "
                    f"is meant: --set allow=[{ALLOWED}]."
                )


def is_mojibake(text: str) -> bool:
    """Whether a text is UTF-8 that was read in another encoding (`FÃ¼r`), or has lost letters (U+FFFD)."""
    if text.isascii():
        return False
    for encoding in ("cp1252", "latin-1", "cp1251"):
        try:
            text.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
        return True
    return "\ufffd" in text
