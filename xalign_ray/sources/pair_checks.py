"""Checks of pairs before training: copies, repeats, wrong languages, markup, text in a wrong encoding, with counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from xalign_ray.config.schema import DataConfig
from xalign_ray.config.sources import ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.formats import NOTED, find_source, read
from xalign_ray.sources.language_id import accepted_labels, is_installed, surest_label
from xalign_ray.sources.records import BOTH_EMPTY, Pair, list_reasons

MAX_CHECKED = 1_000_000  # pairs of a source: more do not make a run longer
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
_TAGS = """
    a abbr b big body br code dd div dl dt em font h1 h2 h3 h4 h5 h6 head hr html i img li ol p pre s script small span
    strike strong style sub sup table tbody td th tr tt u ul
"""
_NAMES = "|".join(_TAGS.split())
_MARKUP = re.compile(rf"(?i)</?({_NAMES})(\s[^<>]*)?/?>|&([a-z]{{2,8}}|#\d{{2,6}}|#x[0-9a-f]{{2,6}});")
_MIN_LETTERS = 20  # of a text whose language is identified


@dataclass(frozen=True)
class PairChecks:
    """The number of good pairs of a source, how many of how many have each fault, and counts of its other rows."""

    corpus: ParallelCorpus
    pairs: int
    faults: Mapping[str, tuple[int, int]]
    bad: Mapping[str, int]
    others: Mapping[str, int]  # rows that are left out, and notes

    @property
    def title(self) -> str:
        """The source's first file, and its languages."""
        return f"{Path(self.corpus.paths[0]).name} ({', '.join(self.corpus.languages)})"

    def __str__(self) -> str:
        faults = [
            f"{kind} {count:,}{f' of {of:,}' if of < self.pairs else ''} ({count / of:.1%})"
            for kind, (count, of) in self.faults.items()
            if count
        ]
        others = {what.removeprefix(NOTED): count for what, count in self.others.items()}
        besides = f"; bad rows: {list_reasons(self.bad)}" if self.bad else ""
        besides += f"; left out and noted: {list_reasons(others)}" if others else ""
        return f"{self.title}: {self.pairs:,} pairs; {'; '.join(faults) or 'nothing doubtful'}{besides}"


def check_pairs(corpus: ParallelCorpus, root: str | Path = ".") -> PairChecks:
    """Reads a source and counts the pairs with each fault; of languages by a sample that is evenly spaced."""
    first, second = _labels_of(corpus.languages)
    counts, bad, others = Counter[str](), Counter[str](), Counter[str]()
    hashes: list[tuple[int, int]] = []
    judged: list[tuple[str, str]] = []
    step = 1
    reader, paths = find_source(corpus, root)
    records = read(reader, paths, corpus.languages, others, corpus.read_columns, corpus.skip_empty)
    for number, record in enumerate(islice(records, MAX_CHECKED)):
        if not isinstance(record, Pair):
            (others if record.reason == BOTH_EMPTY else bad)[record.reason] += 1  # pyright: ignore
            continue
        one, other = record.texts
        hashes.append((hash(one), hash(other)))
        counts[SAME_TEXT] += one.casefold() == other.casefold()
        counts[MARKUP] += any("<" in text or "&" in text for text in (one, other)) and has_markup(one, other)
        counts[MOJIBAKE] += is_mojibake(one) or is_mojibake(other)
        if first and number % step == 0 and min(_letters(one), _letters(other)) >= _MIN_LETTERS and one != other:
            judged.append((one, other))
            if len(judged) == 2 * MAX_JUDGED:
                judged, step = judged[::2], 2 * step
    distinct = np.unique(np.array(hashes, np.int64).reshape(-1, 2), axis=0)
    counts[REPEATED] = len(hashes) - len(distinct)
    shared = [values[places] > 1 for _, places, values in (_counted(distinct[:, side]) for side in (0, 1))]
    counts[SHARED] = int(np.sum(shared[0] | shared[1]))
    faults = {kind: (counts[kind], len(hashes)) for kind in (SAME_TEXT, REPEATED, SHARED, MARKUP, MOJIBAKE)}
    labels = [(surest_label(one), surest_label(other)) for one, other in judged]
    same = sum((a in first and b in first) or (a in second and b in second) for a, b in labels)
    turned = sum(a in second and b in first for a, b in labels)
    return PairChecks(
        corpus, len(hashes), faults | {SAME_LANGUAGE: (same, len(labels)), TURNED: (turned, len(labels))}, bad, others
    )


def _labels_of(languages: tuple[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """The identifier's labels of two languages; none where it cannot tell them apart.

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
        bad, rows = sum(source.bad.values()), source.pairs + sum(source.bad.values())
        if bad > data.max_bad_fraction * rows:
            raise DataError(
                f"{source.title}: {bad:,} of {rows:,} rows cannot be used ({list_reasons(source.bad)}), more than "
                f"data.max_bad_fraction {data.max_bad_fraction:.2%}. Correct the source, or raise the bound."
            )
        for kind, (setting, cure) in _CURES.items() if ALLOWED not in allow else ():
            count, of = source.faults[kind]
            if count > max(1, MAX_SHARE * of) and not (setting and getattr(data.filters, setting)):
                raise ConfigError(
                    f"{source.title}: {count:,} of {of:,} pairs have {kind}, more than {MAX_SHARE:.0%}. {cure} If it "
                    f"is meant: --set allow=[{ALLOWED}]."
                )


def has_markup(*texts: str) -> bool:
    """Whether a text has a tag or an entity of HTML."""
    return any(map(_MARKUP.search, texts))


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


def _counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.unique(values, return_inverse=True, return_counts=True)


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))
