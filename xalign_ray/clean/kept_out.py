"""Text that is kept out of training: held-out lines, drawn by hash, and the pairs of retrieval tests."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import explain_no_good_row
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import BOTH_EMPTY, BadRow, Pair, list_reasons
from xalign_ray.sources.stage import TESTS, write_arrays
from xalign_ray.sources.summary import SourceSummary, file_names
from xalign_ray.work.artifacts import write_atomic

_HASH = hashlib.blake2b(digest_size=8, person=b"held out")  # copied for each line: half the price of a new one

# Combining classes of vowel signs: most have 0; those of Telugu, Thai, Lao and Tibetan have classes of their own.
_VOWELS = frozenset((0, 84, 91, 103, 118, 129, 130, 132))


@lru_cache(maxsize=1)
def _no_word() -> re.Pattern[str]:
    """What is neither letter nor digit; vowel signs of Hindi and Thai are letters, accents and points are not."""
    marks = (chr(point) for point in range(0x300, 0x12000))
    signs = "".join(
        one for one in marks if unicodedata.category(one)[0] == "M" and unicodedata.combining(one) in _VOWELS
    )
    return re.compile(f"[^\\w{re.escape(signs)}]+")


def kept_out_lines(
    lines: Sequence[str], share: float, tests: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[N] whether each line is held out, and whether it is one of the retrieval tests. Each is hashed once.

    Case, blanks and punctuation make no difference, so that a tokenized or lower-cased copy of a line shares its fate.

    Args:
        share: of the distinct lines that are held out, about.
        tests: sorted hashes.
    """
    if not share and not len(tests):
        return np.zeros(len(lines), bool), np.zeros(len(lines), bool)
    hashes = hash_lines(lines)
    return hashes / 2.0**64 < share, np.isin(hashes, tests)


def hash_lines(lines: Sequence[str]) -> NDArray[np.uint64]:
    """[N] the hash of each line, the same for lines that differ in case, blanks and punctuation only."""
    return np.asarray([_hash(comparable(line)) for line in lines], np.uint64)


def comparable(line: str) -> str:
    """The letters and digits of a line, case-folded; the line itself where it has none."""
    return _no_word().sub("", unicodedata.normalize("NFKC", line)).casefold() or line.strip()


def _hash(text: str) -> int:
    digest = _HASH.copy()
    digest.update(text.encode())
    return int.from_bytes(digest.digest(), "big")


LINES = f"{TESTS}/line_hashes.npy"
MAX_PAIRS = 100_000  # of two languages: retrieval compares each sentence with all others
DRAWN_FROM = 100_000  # pairs of two languages that tests are kept out of, the first of their files
TRAINED_ON = "left to train on"


@dataclass(frozen=True)
class RetrievalTexts:
    """The tests of two languages as text, and what became of the rows of each of their sources."""

    languages: tuple[str, str]
    pairs: list[tuple[str, str]]
    sources: list[SourceSummary]


def read_tests(config: RunConfig, tests: Sequence[Input], texts: Sequence[Input]) -> list[RetrievalTexts]:
    """Reads the pairs of `data.tests`, an entry for two languages.

    Raises:
        DataError: a source has no good pair, too many bad rows or too many pairs, or is also trained on.
    """
    found: dict[str, RetrievalTexts] = {}
    for number, one in enumerate(tests):
        good, aside = _read(one, f"data.tests.{number}", config)
        _check_not_trained(one, texts, len(good))
        first, second = one.languages
        entry = found.setdefault(one.pool, RetrievalTexts((first, second), [], []))
        entry.pairs.extend(good if entry.languages == (first, second) else [(b, a) for a, b in good])
        entry.sources.append(_summary([one], len(good), aside))
    return list(found.values())


def keep_out(config: RunConfig, texts: Sequence[Input]) -> list[RetrievalTexts]:
    """Keeps tests out of `data.parallel`: `test_fraction` of the first 100,000 pairs of two languages, at most
    `max_test_pairs`.

    Those whose line in the commonest language has the largest hash, so that all languages keep the same lines out. No
    line stands in two of them. `kept_out_lines` takes the smallest hashes.

    Raises:
        DataError: two languages have so few pairs that the fraction is less than one.
    """
    pools: dict[str, list[Input]] = {}
    for one in texts:
        if one.pool.startswith("pairs/"):
            pools.setdefault(one.pool, []).append(one)
    commonest = Counter(code for members in pools.values() for code in members[0].languages).most_common(1)
    return [_keep_out(members, commonest[0][0], config) for members in pools.values()]


def _keep_out(members: Sequence[Input], pivot: str, config: RunConfig) -> RetrievalTexts:
    languages = (members[0].languages[0], members[0].languages[1])
    pairs = [
        record.texts if one.languages == languages else record.texts[::-1]
        for one in members
        for record in islice(one.records(), DRAWN_FROM)
        if isinstance(record, Pair)
    ][:DRAWN_FROM]
    wanted = min(int(config.data.test_fraction * len(pairs)), config.data.max_test_pairs)
    if not wanted:
        raise DataError(
            f"{members[0].pool} has {len(pairs):,} pairs, too few to keep data.test_fraction "
            f"{config.data.test_fraction:g} of them out as tests. Give data.tests, or set data.test_fraction to 0."
        )
    hashes = hash_lines([pair[languages.index(pivot) if pivot in languages else 0] for pair in pairs])
    seen: set[tuple[int, str]] = set()
    kept: list[tuple[str, str]] = []
    for number in np.argsort(hashes, kind="stable")[::-1].tolist():
        lines = set(enumerate(map(comparable, pairs[number])))
        if len(kept) < wanted and not lines & seen:
            kept.append(pairs[number])
            seen |= lines
    return RetrievalTexts(languages, kept, [_summary(members, len(kept), {TRAINED_ON: len(pairs) - len(kept)})])


def _read(one: Input, key: str, config: RunConfig) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The good pairs of a source, and its other rows by reason."""
    good: list[tuple[str, str]] = []
    bad: Counter[str] = Counter()
    first_bad = ""
    for record in one.records():
        if isinstance(record, Pair):
            good.append(record.texts)
        elif isinstance(record, BadRow):
            bad[record.reason] += 1
            if record.reason != BOTH_EMPTY:
                first_bad = first_bad or f"{record.source}:{record.line}"
        if len(good) > MAX_PAIRS:
            raise DataError(
                f"{key} ({file_names(one)[0]}) has more than {MAX_PAIRS:,} pairs, too many to compare each sentence "
                "with all others. Give a part of it."
            )
    if not good:
        raise DataError(f"{key}: {explain_no_good_row(one.parts, bad)}")
    empty = bad.pop(BOTH_EMPTY, 0)
    count, rows = bad.total(), bad.total() + len(good)
    if count > config.data.max_bad_fraction * rows:
        raise DataError(
            f"{key}: {count:,} of {rows:,} rows ({count / rows:.2%}) cannot be used, more than "
            f"data.max_bad_fraction {config.data.max_bad_fraction:.2%}: {list_reasons(bad)}. The first is "
            f"{first_bad}. Correct the source, or raise the bound."
        )
    return good, bad + Counter({BOTH_EMPTY: empty})


def _summary(members: Sequence[Input], kept: int, aside: Mapping[str, int]) -> SourceSummary:
    names = list(dict.fromkeys(name for one in members for name in file_names(one)))
    pool = members[0].pool.replace("pairs/", "tests/")
    return SourceSummary(pool, names, kept + sum(aside.values()), kept, dict(sorted(aside.items())))


def _check_not_trained(one: Input, texts: Sequence[Input], pairs: int) -> None:
    for text in texts:
        if text.hashes and text.hashes == one.hashes:
            names = " and ".join(file_names(one))
            raise DataError(
                f"{names}: all {pairs:,} pairs are in data.tests and in data.parallel, so none is left to train on. "
                "Give other tests, or leave data.tests out."
            )


def write_tests(tests: Sequence[RetrievalTexts], folder: Path) -> None:
    """Writes the tests as JSON lines, a file for two languages, and the hashes of their lines; nothing if none."""
    if not tests:
        return
    for one in tests:
        rows = [dict(zip(one.languages, pair, strict=True)) for pair in one.pairs]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomic(folder / TESTS / f"{'-'.join(one.languages)}.jsonl", lines)
    lines = list(chain.from_iterable(chain.from_iterable(one.pairs) for one in tests))
    write_arrays(folder / LINES, lambda file: np.save(file, np.unique(hash_lines(lines))))


@lru_cache(maxsize=1)
def hashes_of_tests(folder: str) -> NDArray[np.uint64]:
    """Sorted hashes of the lines of both sides of all tests of a data folder; empty where it has none."""
    path = Path(folder) / LINES
    return np.load(path, allow_pickle=False) if path.is_file() else np.zeros(0, np.uint64)
