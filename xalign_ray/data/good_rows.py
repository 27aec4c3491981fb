"""Refuses sources without a good row, and those with too many bad ones: each source of a recipe is judged alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from xalign_ray.data.bad_rows import check_bad_fraction, merge_counts
from xalign_ray.data.held_out_lines import TEST_LINE, TEST_PAIR
from xalign_ray.data.inputs import Input
from xalign_ray.data.sources.formats import explain_empty, explain_no_good_row, read_part
from xalign_ray.data.sources.records import BadRow
from xalign_ray.data.summary import file_names
from xalign_ray.errors import DataError

MAX_ROWS = 100_000  # that are looked at before a cluster starts; of a source that is as it should be, one


def check_first_rows(sources: Sequence[Input], *, keep_rest_out: bool) -> None:
    """Reads each source up to its first good row.

    Raises:
        DataError: a source has none; or it has a fault before that row.
    """
    for one in sources:
        bad: Counter[str] = Counter()
        broken = [] if keep_rest_out else None
        records = (record for part in one.parts for record in read_part(part, one.languages, broken=broken))
        for record in islice(records, MAX_ROWS):
            if not isinstance(record, BadRow):
                break
            bad[record.reason] += 1
        else:
            if 0 < bad.total() < MAX_ROWS:
                raise DataError(explain_no_good_row(one.parts, bad))


def check_sources(
    sources: Sequence[Input], records: Sequence[Sequence[Mapping[str, Any]]], max_bad_fraction: float, kept_in: Path
) -> None:
    """Stops the job at a source without a good row, or with too many bad ones.

    Args:
        records: what the parts of each source say of themselves.

    Raises:
        DataError: names the source, its first file and the reasons.
    """
    for one, its_records in zip(sources, records, strict=True):
        bad = merge_counts([record["bad_rows"] for record in its_records])
        counts = merge_counts([record["counts"] for record in its_records])
        good = counts.get("lines", 0) + counts.get("pairs", 0)
        if bad and not good:
            raise DataError(explain_no_good_row(one.parts, bad))
        check_bad_fraction(bad, good + sum(bad.values()), max_bad_fraction, kept_in, one.pool, file_names(one))


def check_trained(sources: Sequence[Input], records: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Stops the job at a pool of which nothing is left to train on.

    Args:
        records: what the parts of each source say of themselves.

    Raises:
        DataError: names the source, and how many of its rows are retrieval tests.
    """
    by_source = list(zip(sources, records, strict=True))
    trained = {one.pool for one, its_records in by_source if any(record["trained"] for record in its_records)}
    for one, its_records in by_source:
        if one.pool in trained:
            continue
        counts = merge_counts([record["counts"] for record in its_records])
        tests = counts.get(f"dropped: {TEST_PAIR}", 0) + counts.get(f"dropped: {TEST_LINE}", 0)
        if not tests:
            raise DataError(explain_empty(one.parts))
        rows = counts.get("pairs", 0) + counts.get("lines", 0)
        raise DataError(
            f"{one.pool} ({', '.join(file_names(one))}): {tests:,} of {rows:,} rows have a line of data.tests, so none "
            "is left to train on. Give other tests, or leave data.tests out."
        )
