"""Text that is kept out of training: held-out lines, drawn by hash, and the pairs of tests and dev."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence, Set
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
from xalign_ray.sources.records import BOTH_EMPTY, BadRow, Pair
from xalign_ray.sources.stage import DEV, QUERY_AND_PASSAGE, TESTS, write_arrays
from xalign_ray.sources.summary import SourceSummary, check_bad_fraction, file_names
from xalign_ray.work.artifacts import write_atomic

_HASH = hashlib.blake2b(digest_size=8, person=b"held out")  # copied for each line: half the price of a new one

# Combining classes of vowel signs: most have 0; Telugu, Thai, Lao and Tibetan have further ones.
_VOWELS = frozenset((0, 84, 91, 103, 118, 129, 130, 132))
_ASCII_NO_WORD = bytes(code for code in range(128) if not re.match(r"\w", chr(code)))


@lru_cache(maxsize=1)
def _no_word() -> re.Pattern[str]:
    """Runs of neither letters nor digits; vowel signs of Hindi and Thai are letters, accents and points are not."""
    marks = (chr(point) for point in range(0x300, 0x12000))
    signs = "".join(
        mark for mark in marks if unicodedata.category(mark)[0] == "M" and unicodedata.combining(mark) in _VOWELS
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
    # ASCII punctuation is removed from bytes, at a fifth of the cost of the pattern.
    text = unicodedata.normalize("NFKC", line).encode().translate(None, _ASCII_NO_WORD)
    rest = text.decode()
    return (rest if text.isascii() else _no_word().sub("", rest)).casefold() or line.strip()


def _hash(text: str) -> int:
    digest = _HASH.copy()
    digest.update(text.encode())
    return int.from_bytes(digest.digest(), "big")


LINES = f"{TESTS}/line_hashes.npy"
MAX_PAIRS = 100_000  # of two languages: retrieval compares each sentence with all others
DRAWN_FROM = 100_000  # pairs of two languages that tests are kept out of, the first of their files
WITH_CONDITION = 3  # columns of a source without negatives, at most
TRAINED_ON, TESTED = "left to train on", "has a line of data.tests"


@dataclass(frozen=True)
class RetrievalTexts:
    """Pairs of two languages that are scored, and what became of the rows of their sources; `part` is TESTS or DEV."""

    part: str
    languages: tuple[str, str]
    pairs: list[tuple[str, str]]
    sources: list[SourceSummary]


def keep_out(config: RunConfig, texts: Sequence[Input], held: Mapping[str, Sequence[Input]]) -> list[RetrievalTexts]:
    """The tests and then the dev pairs: from `data.tests` and `data.dev`, or shares of `data.parallel`.

    A share is of the first 100,000 pairs of two languages, at most `max_test_pairs`: those whose line in the commonest
    language has the largest hash, so that all languages keep the same lines out. No line stands in two of them, and no
    dev pair has a line of a test. `kept_out_lines` takes the smallest hashes.

    Args:
        held: the sources of `data.tests` and `data.dev`, by TESTS and DEV.

    Raises:
        DataError: a source has no good pair, too many bad rows or too many pairs, or is also trained on; or two
            languages have so few pairs that `test_fraction` of them is less than one.
    """
    shares = {TESTS: config.data.test_fraction, DEV: config.data.dev_fraction}
    drawn = _drawn(texts) if any(shares.values()) else []
    kept_out, tested = list[RetrievalTexts](), set[str]()
    for part, share in shares.items():
        kept_out += _read_given(config, part, held[part], texts, tested)
        kept_out += [_cut(config, part, share, members, pairs, tested) for members, pairs in drawn if share]
        tested = {comparable(line) for test in kept_out for pair in test.pairs for line in pair}
    return [test for test in kept_out if test.pairs]


def _read_given(
    config: RunConfig, part: str, given: Sequence[Input], texts: Sequence[Input], tested: set[str]
) -> list[RetrievalTexts]:
    """An entry for two languages."""
    entries: dict[str, RetrievalTexts] = {}
    for number, source in enumerate(given):
        key = f"data.{part}.{number}"
        good, aside = _read(source, key, config)
        _check_not_trained(source, part, texts, len(good))
        left = [pair for pair in good if not tested.intersection(map(comparable, pair))]
        if not left:
            raise DataError(f"{key}: each of its {len(good):,} pairs {TESTED}. Give others, which are not the test.")
        first, second = source.languages
        entry = entries.setdefault(source.pool, RetrievalTexts(part, (first, second), [], []))
        entry.pairs.extend(left if entry.languages == (first, second) else [(b, a) for a, b in left])
        entry.sources.append(_summary(part, [source], len(left), aside + Counter({TESTED: len(good) - len(left)})))
    return list(entries.values())


def _drawn(texts: Sequence[Input]) -> list[tuple[list[Input], list[tuple[str, str]]]]:
    """The sources of each two languages, and the pairs that are kept out of them, in the order of being taken."""
    pools: dict[str, list[Input]] = {}
    for text in texts:
        if text.pool.startswith("pairs/"):
            pools.setdefault(text.pool, []).append(text)
    commonest = Counter(code for members in pools.values() for code in members[0].languages).most_common(1)
    drawn = []
    for members in pools.values():
        languages = members[0].languages
        pairs = [
            record.texts if member.languages == languages else record.texts[::-1]
            for member in members
            for record in islice(member.records(), DRAWN_FROM)
            if isinstance(record, Pair)
        ][:DRAWN_FROM]
        side = languages.index(commonest[0][0]) if commonest[0][0] in languages else 0
        order = np.argsort(hash_lines([pair[side] for pair in pairs]), kind="stable")[::-1]
        drawn.append((members, [pairs[number] for number in order.tolist()]))
    return drawn


def _cut(
    config: RunConfig,
    part: str,
    share: float,
    members: Sequence[Input],
    pairs: Sequence[tuple[str, str]],
    tested: Set[str],
) -> RetrievalTexts:
    """The first pairs that have no line of a test, nor a line in a language twice."""
    wanted = min(int(share * _count_different(members, pairs)), config.data.max_test_pairs)
    if not wanted and part == TESTS:
        raise DataError(
            f"{members[0].pool} has {len(pairs):,} pairs, too few to keep data.test_fraction "
            f"{config.data.test_fraction:g} of them out as tests. Give data.tests, or set data.test_fraction to 0."
        )
    seen: set[tuple[int, str]] = set()
    chosen: list[tuple[str, str]] = []
    for pair in pairs:
        if len(chosen) == wanted:
            break
        lines = set(enumerate(map(comparable, pair)))
        if not lines & seen and not tested & {line for _, line in lines}:
            chosen.append(pair)
            seen |= lines
    first, second = members[0].languages
    source = _summary(part, members, len(chosen), {TRAINED_ON: len(pairs) - len(chosen)})
    return RetrievalTexts(part, (first, second), chosen, [source])


def _count_different(members: Sequence[Input], pairs: Sequence[tuple[str, str]]) -> int:
    """The number that a share is taken of: pairs; of queries with passages the queries, or the passages if fewer.

    A query may stand in a pair for each passage and each negative, and none of its pairs is left to train on.
    """
    if all(len({*source.languages}) == 2 and len(source.columns or ()) <= WITH_CONDITION for source in members):
        return len(pairs)
    return min(len({comparable(pair[side]) for pair in pairs}) for side in (0, 1))


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
    total = len(good) + bad.total()
    check_bad_fraction(bad, total, config.data.max_bad_fraction, key, where=f"The first is {first_bad}. ")
    return good, bad + Counter({BOTH_EMPTY: empty})


def _summary(part: str, members: Sequence[Input], kept: int, aside: Mapping[str, int]) -> SourceSummary:
    names = list(dict.fromkeys(name for member in members for name in file_names(member)))
    pool = members[0].pool.replace("pairs/", f"{part}/")
    return SourceSummary(pool, names, kept + sum(aside.values()), kept, dict(sorted(aside.items())))


def _check_not_trained(one: Input, part: str, texts: Sequence[Input], pairs: int) -> None:
    for text in texts:
        if text.hashes and text.hashes == one.hashes:
            names = " and ".join(file_names(one))
            raise DataError(
                f"{names}: all {pairs:,} pairs are in data.{part} and in data.parallel, so none is left to train on. "
                f"Give other {part}, or leave data.{part} out."
            )


def write_tests(tests: Sequence[RetrievalTexts], folder: Path) -> None:
    """Writes tests and dev pairs as JSON lines, a file for two languages, and the hashes of their lines, if any.

    A row is called by its languages; within one language by `QUERY_AND_PASSAGE`.
    """
    if not tests:
        return
    for test in tests:
        names = test.languages if len({*test.languages}) == 2 else QUERY_AND_PASSAGE
        rows = [dict(zip(names, pair, strict=True)) for pair in test.pairs]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomic(folder / test.part / f"{'-'.join(test.languages)}.jsonl", lines)
    lines = list(chain.from_iterable(chain.from_iterable(test.pairs) for test in tests))
    write_arrays(folder / LINES, lambda file: np.save(file, np.unique(hash_lines(lines))))


@lru_cache(maxsize=1)
def hashes_of_tests(folder: str) -> NDArray[np.uint64]:
    """Sorted hashes of the lines of both sides of all tests and dev pairs of a data folder; empty where it has none."""
    path = Path(folder) / LINES
    return np.load(path, allow_pickle=False) if path.is_file() else np.zeros(0, np.uint64)
