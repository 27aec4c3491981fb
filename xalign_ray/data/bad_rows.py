"""Keeps the bad rows of a source: counted by reason, written to a file; too many of them stop the job."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from xalign_ray.data.sources.records import BadRow, list_reasons
from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import unfinished

BAD_ROWS = "bad_rows.jsonl"


class BadRowsFile:
    """Writes bad rows as JSON lines {line, reason, source} while they come; one task, one file, bounded memory.

    A context manager: the file appears under its name when the block ends without an error. `counts` (rows by reason)
    is a plain mapping that tasks can send back and that merge_counts adds up.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self._unfinished = unfinished(path)

    def __enter__(self) -> BadRowsFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._unfinished.open("w", encoding="utf-8")
        return self

    def add(self, row: BadRow) -> None:
        """Counts a row and writes it."""
        self.counts[row.reason] += 1
        self._file.write(json.dumps(asdict(row), sort_keys=True, ensure_ascii=False) + "\n")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            os.replace(self._unfinished, self.path)
        else:
            self._unfinished.unlink()


def merge_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds up the counts of several tasks, reasons in sorted order."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def merge_files(parts: Iterable[Path], target: Path) -> None:
    """Joins the file of bad rowss of several tasks, in the given order, into one that appears when it is whole."""
    temporary = unfinished(target)
    with temporary.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                while chunk := file.read(1 << 20):
                    out.write(chunk)
    os.replace(temporary, target)


def check_bad_fraction(
    counts: Mapping[str, int],
    total: int,
    max_bad_fraction: float,
    kept_in: Path | str,
    source: str,
    files: Sequence[str] = (),
) -> None:
    """Stops the job if bad rows are more than `max_bad_fraction` of all `total` rows of a source, good and bad.

    Each source is judged alone: a small one that is all wrong would vanish among the good rows of a large one.

    Args:
      source: its name for the message, such as `pairs/de-en`.
      files: the names of its files.

    Raises:
      DataError: with the counts by reason, the most frequent first, and the file in which the rows are kept.
    """
    bad = sum(counts.values())
    if bad <= max_bad_fraction * total:
        return
    named = f" ({files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''})" if files else ""
    raise DataError(
        f"{source}{named}: {bad:,} of {total:,} rows ({bad / total:.2%}) cannot be used,"
        f" more than data.max_bad_fraction {max_bad_fraction:.2%}: {list_reasons(counts)}."
        f" They are listed in {kept_in}. Correct the source, or raise the bound."
    )
