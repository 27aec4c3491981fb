"""Outcomes of each source's rows: kept, dropped, set aside; too many bad ones stop the job."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from xalign_ray.errors import DataError
from xalign_ray.sources.formats import explain_empty, explain_no_good_row, split_notes
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import BOTH_EMPTY, ONE_EMPTY, BadRow, list_reasons
from xalign_ray.sources.stored import read_bad_rows, read_facts
from xalign_ray.vocabulary.exchange import show_fertility
from xalign_ray.work.artifacts import replacing, write_atomic

BAD_ROWS = "bad_rows.jsonl"


class BadRowsFile:
    """Bad rows as JSON lines {line, reason, source}, written while they come, and their `counts` by reason."""

    def __init__(self, file: TextIO) -> None:
        self.counts: Counter[str] = Counter()
        self._file = file

    def add(self, row: BadRow) -> None:
        """Counts a row and writes it."""
        self.counts[row.reason] += 1
        self._file.write(json.dumps(asdict(row), sort_keys=True, ensure_ascii=False) + "\n")


@contextmanager
def open_bad_rows(path: Path) -> Iterator[BadRowsFile]:
    """A file of bad rows that appears under its name when the block ends without an error."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield BadRowsFile(file)


def merge_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds up the counts of several tasks, reasons in sorted order."""
    total: Counter[str] = Counter()
    for counter in counts:
        total.update(counter)
    return dict(sorted(total.items()))


def check_bad_fraction(
    counts: Mapping[str, int],
    total: int,
    max_bad_fraction: float,
    source: str,
    files: Sequence[str] = (),
    where: str = "",
) -> None:
    """Stops the job if bad rows are more than `max_bad_fraction` of all `total` rows of a source, good and bad.

    Each source is judged alone: a small one that is all wrong would vanish among the good rows of a large one.

    Args:
      source: its name for the message, such as `pairs/de-en`.
      files: the names of its files.
      where: a sentence on where the rows stand.

    Raises:
      DataError: with the counts by reason, the most frequent first.
    """
    bad = sum(counts.values())
    if bad <= max_bad_fraction * total:
        return
    named = f" ({files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''})" if files else ""
    raise DataError(
        f"{source}{named}: {bad:,} of {total:,} rows ({bad / total:.2%}) cannot be used,"
        f" more than data.max_bad_fraction {max_bad_fraction:.2%}: {list_reasons(counts)}. {where}"
        "Correct the source, or raise the bound."
    )


DROPPED = "dropped.jsonl"
SAMPLE = 10  # rows of each reason that a part keeps, and a source of all its parts
SHOWN = 200  # characters of a row's text


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A document, line or pair that a filter dropped; of a line `line` is where its document begins."""

    source: str
    line: int
    reason: str
    text: str


def dropped_row(source: str, line: int, reason: str, texts: Iterable[str]) -> DroppedRow:
    """With the beginning of its text: the two sides of a pair, or the first lines of a document."""
    return DroppedRow(source, line, reason, " ||| ".join(texts)[:SHOWN])


def first_rows(rows: Iterable[DroppedRow], seen: Counter[str]) -> Iterator[DroppedRow]:
    """The first SAMPLE of each reason; `seen` counts over several calls."""
    for row in rows:
        seen[row.reason] += 1
        if seen[row.reason] <= SAMPLE:
            yield row


def write_sample(path: Path, rows: Sequence[DroppedRow]) -> None:
    """As JSON lines {line, reason, source, text}."""
    lines = [json.dumps(asdict(row), sort_keys=True, ensure_ascii=False) + "\n" for row in rows]
    write_atomic(path, "".join(lines))


def merge_samples(sources: Iterable[Mapping[Path, Iterable[str]]], target: Path) -> None:
    """Joins the samples of the parts of each source, in order, opening no more of them than are needed.

    Args:
        sources: of each the files of its parts that have one, with the reasons in it.
    """
    samples: list[DroppedRow] = []
    for files in sources:
        seen: Counter[str] = Counter()
        for path, reasons in files.items():
            if any(seen[reason] < SAMPLE for reason in reasons):
                lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a text may hold U+2028
                samples += first_rows((DroppedRow(**json.loads(line)) for line in lines), seen)
    if samples:
        write_sample(target, samples)


KEPT = "kept"  # lines or pairs that are, in part, trained on or held out
NO_WORDS = "no words"
OVER_MAX_PAIRS = "over max_pairs"
HELD_OUT_LINE = "repeats a held-out line"
HELD_OUT_PAIR = "a side is a held-out line"
TEST_LINE = "is a line of the tests or dev pairs"
TEST_PAIR = "a side is a line of the tests or dev pairs"
LEFT_FILES = "files_not_read_on"
_SET_ASIDE = ("dropped: ", "skipped: ")


@dataclass(frozen=True)
class SourceSummary:
    """What became of one source; `rows` is `kept` and all of `set_aside`.

    A row is a line of text, a pair or an entry; what cannot be cut into lines (a bad record, a skipped page) is one.
    """

    name: str  # the pool, or the languages of a dictionary
    files: list[str]  # their names: the same inputs elsewhere make the same manifest
    rows: int
    kept: int
    set_aside: dict[str, int]
    noted: dict[str, int] = field(default_factory=dict)  # what takes no row away
    files_not_read_on: int = 0  # files left when they had given data.max_pairs

    def __str__(self) -> str:
        files = self.files[0] + (f" and {len(self.files) - 1} more" if len(self.files) > 1 else "")
        aside = sorted(self.set_aside.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{reason} {count:,}" for reason, count in aside)
        noted = "".join(f"; {what}: {count:,}" for what, count in self.noted.items())
        left = f"; not read on after max_pairs: {self.files_not_read_on} files" if self.files_not_read_on else ""
        listed = listed and f"; set aside: {listed}"
        return f"{self.name} ({files}): {self.rows:,} rows in, {self.kept:,} kept{listed}{noted}{left}"


def summarize(one: Input, records: Sequence[Mapping[str, Any]], bad: Mapping[str, int]) -> SourceSummary:
    """The summary of a source of text or pairs, from its parts' records and its bad rows."""
    counts = merge_counts([record["counts"] for record in records])
    aside: Counter[str] = Counter(bad)
    for key, count in counts.items():
        if (prefix := next((prefix for prefix in _SET_ASIDE if key.startswith(prefix)), None)) is not None:
            aside[key.removeprefix(prefix)] += count
    skipped = sum(count for key, count in counts.items() if key.startswith("skipped: "))
    return SourceSummary(
        name=one.pool,
        files=file_names(one),
        rows=counts.get("lines", 0) + counts.get("pairs", 0) + sum(bad.values()) + skipped,
        kept=counts.get(KEPT, 0),
        set_aside={reason: count for reason, count in sorted(aside.items()) if count},
        noted=dict(split_notes(counts)[1]),
        files_not_read_on=counts.get(LEFT_FILES, 0),
    )


def file_names(one: Input) -> list[str]:
    """Of a source, in its order."""
    return list(dict.fromkeys(path.rpartition("/")[2] for part in one.parts for path in part.paths))


def missing_held_out(pools: Mapping[str, Mapping[str, Any]], held_out: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of lines of the languages without a held-out one."""
    texts = {name.removeprefix("text/"): pool for name, pool in pools.items() if name.startswith("text/")}
    return {
        language: pool["counts"].get("lines", 0)
        for language, pool in sorted(texts.items())
        if f"text/{language}" not in held_out
    }


def lines(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What `prepare` ends with: a line a source, then what else is left out."""
    for source in manifest["sources"]:
        yield str(SourceSummary(**source))
    if pieces := manifest.get("pieces"):
        yield f"pieces a word: {show_fertility(pieces)}"
    if missing := manifest["held_out_missing"]:
        listed = ", ".join(f"{language} ({count:,} lines)" for language, count in missing.items())
        yield f"held-out loss: no rows of {listed}: none of so few was drawn by data.held_out_fraction"


def say_lines(manifest: Mapping[str, Any]) -> None:
    """The same for the user, on the standard error of the process that asked."""
    sys.stderr.writelines(f"prepare: {line}\n" for line in lines(manifest))


MAX_ROWS = 100_000  # that are looked at before a cluster starts; of a source that is as it should be, one


def check_first_rows(sources: Sequence[Input]) -> None:
    """Reads each source up to its first good row.

    Raises:
        DataError: a source has none; or it has a fault before that row.
    """
    for source in sources:
        bad: Counter[str] = Counter()
        for record in islice(source.records(), MAX_ROWS):
            if not isinstance(record, BadRow):
                break
            bad[record.reason] += 1
        else:
            if 0 < bad.total() < MAX_ROWS:
                raise DataError(explain_no_good_row(source.parts, bad))


def judge_text(sources: Sequence[Input], max_bad_fraction: float, kept_in: Path) -> list[dict[str, int]]:
    """Writes the bad rows of text that was just parsed, and stops the job at a source that has too many.

    Returns:
        Of each source its bad rows by reason.

    Raises:
        DataError: a source has no good row, or too many bad ones: names it, its first file and the reasons.
    """
    bad_by_source: list[dict[str, int]] = []
    with open_bad_rows(kept_in) as out:
        for source in sources:
            before = out.counts.copy()
            for part in source.parts:
                # Borders of documents are empty on both sides: nothing is lost.
                spared = (BOTH_EMPTY, ONE_EMPTY) if part.skip_empty else (BOTH_EMPTY,)
                for row in read_bad_rows(part):
                    if row.reason not in spared:
                        out.add(row)
            bad_by_source.append(dict(sorted((out.counts - before).items())))
    listed = f"They are listed in {kept_in}. "
    for source, bad in zip(sources, bad_by_source, strict=True):
        good = sum(read_facts(part)["good"] for part in source.parts)
        if bad and not good:
            raise DataError(explain_no_good_row(source.parts, bad))
        check_bad_fraction(bad, good + sum(bad.values()), max_bad_fraction, source.pool, file_names(source), listed)
    return bad_by_source


def check_trained(sources: Sequence[Input], records: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Stops the job at a pool without a row to train on.

    Args:
        records: of the parts of each source.

    Raises:
        DataError: names the source, and how many of its rows are retrieval tests.
    """
    by_source = list(zip(sources, records, strict=True))
    trained = {source.pool for source, its_records in by_source if any(record["trained"] for record in its_records)}
    for source, its_records in by_source:
        if source.pool in trained:
            continue
        counts = merge_counts([record["counts"] for record in its_records])
        tests = counts.get(f"dropped: {TEST_PAIR}", 0) + counts.get(f"dropped: {TEST_LINE}", 0)
        if not tests:
            raise DataError(explain_empty(source.parts))
        rows = counts.get("pairs", 0) + counts.get("lines", 0)
        raise DataError(
            f"{source.pool} ({', '.join(file_names(source))}): {tests:,} of {rows:,} rows have a line of the tests, so "
            "none is left to train on. Give other tests, or leave data.tests out."
        )
