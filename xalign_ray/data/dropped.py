"""Keeps a sample of what the filters dropped, the first rows of each reason, for the user to look at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from xalign_ray.work.artifacts import write_atomic

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
    kept: list[DroppedRow] = []
    for files in sources:
        seen: Counter[str] = Counter()
        for path, reasons in files.items():
            if any(seen[reason] < SAMPLE for reason in reasons):
                lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a text may hold U+2028
                kept += first_rows((DroppedRow(**json.loads(line)) for line in lines), seen)
    if kept:
        write_sample(target, kept)
