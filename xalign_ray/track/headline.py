"""From all scores of a run folder to the few that are shown as numbers of the run."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.score_files import Record, read_records
from xalign_ray.track.names import evaluation_key

_NEEDED = frozenset({"metric", "language", "layer", "value"})


def read_headlines(path: Path) -> list[Record]:
    """The score records of one scores.json, all with the fields that a headline needs.

    Raises:
        DataError: the file is not one of scores, or was changed after it was written.
    """
    records = read_records(path)
    if all(record.keys() >= _NEEDED for record in records):
        return records
    raise DataError(f"{path} is not a file of scores of this version; delete it and evaluate again.")


def headline(records: list[Record], max_keys: int) -> dict[str, tuple[float, int]]:
    """The scores that stand for a run: one value for each metric and language.

    A record of a numbered layer belongs to a layer curve and is no headline. Of several records with the same metric
    and language the first counts, as the mean over its seeds.

    Args:
        records: score records in the order of writing.
        max_keys: largest number of keys; means over languages come first, then languages in their order.

    Returns:
        MLflow key -> (value, training step of the encoder, 0 where it is not known).
    """
    chosen: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record["language"] not in (None, "all")):
        if isinstance(record["layer"], int) or record["value"] is None:
            continue
        group = chosen.setdefault(evaluation_key(record["metric"], record["language"]), [])
        if not group or _variant(group[0]) == _variant(record):
            group.append(record)
    return {
        key: (sum(record["value"] for record in group) / len(group), group[0].get("step") or 0)
        for key, group in list(chosen.items())[:max_keys]
    }


def table(records: list[Record]) -> str:
    """All records as CSV, which MLflow shows as a table."""
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, fieldnames=list(records[0]), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return text.getvalue()


def _variant(record: Record) -> tuple[Any, ...]:
    return record.get("split"), record["layer"], record.get("pooling"), record.get("step")
