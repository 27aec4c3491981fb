"""Bad rows are counted, kept, merged, and too many of them stop the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.sources.records import BadRow
from xalign_ray.sources.summary import check_bad_fraction, merge_counts, open_bad_rows


def test_rows_are_counted_by_reason_and_kept_with_source_and_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bad_rows.jsonl"
    with open_bad_rows(path) as bad_rows:
        bad_rows.add(BadRow("a.txt", 3, "one side is empty"))
        bad_rows.add(BadRow("\u00e9.txt", 9, "one side is empty"))
        bad_rows.add(BadRow("a.txt", 10, "bytes are not UTF-8"))
        assert not path.exists()
    assert dict(bad_rows.counts) == {"one side is empty": 2, "bytes are not UTF-8": 1}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == [
        {"line": 3, "reason": "one side is empty", "source": "a.txt"},
        {"line": 9, "reason": "one side is empty", "source": "\u00e9.txt"},
        {"line": 10, "reason": "bytes are not UTF-8", "source": "a.txt"},
    ]


def test_a_task_that_fails_leaves_no_file_under_the_final_name_and_its_retry_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "bad_rows.jsonl"
    with pytest.raises(AttributeError), open_bad_rows(path) as bad_rows:
        bad_rows.add("no row")  # type: ignore[arg-type]
    assert not path.exists()
    with open_bad_rows(path) as bad_rows:
        bad_rows.add(BadRow("a", 2, "x"))
    assert path.read_text() == '{"line": 2, "reason": "x", "source": "a"}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["bad_rows.jsonl"]


def test_counts_of_tasks_merge() -> None:
    assert merge_counts([{"b": 1}, {"a": 1}, {"a": 1}]) == {"a": 2, "b": 1}


def test_bad_rows_within_the_bound_pass() -> None:
    check_bad_fraction({"x": 1}, 100, 0.01, "text/en")
    check_bad_fraction({}, 0, 0.0, "text/en")


def test_more_bad_rows_than_allowed_stop_the_job_with_the_counts_by_reason() -> None:
    with pytest.raises(DataError) as caught:
        check_bad_fraction(
            {"x": 1, "bytes are not UTF-8": 1200}, 10_000, 0.01, "text/en", ["a.txt", "b.txt"], "They are in x.jsonl. "
        )
    assert str(caught.value) == (
        "text/en (a.txt and 1 more): 1,201 of 10,000 rows (12.01%) cannot be used,"
        " more than data.max_bad_fraction 1.00%: bytes are not UTF-8: 1,200, x: 1."
        " They are in x.jsonl. Correct the source, or raise the bound."
    )
