"""Sources are judged one by one: none may be without a good row, whatever the bound on bad ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import one_after_the_other
from xalign_ray.clean.text_stage import make_text
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import DataError
from xalign_ray.sources import stage, summary
from xalign_ray.sources.formats import parts
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import ONE_EMPTY
from xalign_ray.sources.summary import check_first_rows, judge_text


def pairs(path: Path, content: str, skip_empty: bool = False) -> Input:
    path.write_text(content)
    cut = tuple(replace(part, skip_empty=skip_empty) for part in parts("tsv", [str(path)], "pairs"))
    return Input("pairs/de-en", ("en", "de"), cut, (path.name,))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_run_tasks", one_after_the_other)


def check(folder: Path, bound: float, *sources: Input) -> list[dict[str, int]]:
    return judge_text(make_text(sources, folder, ParallelConfig()), bound, folder / "bad.jsonl")


def test_source_without_a_good_row_is_refused_whatever_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = pairs(tmp_path / "good.tsv", "a\tb\n" * 3 + "a\t\n\t\n"), pairs(tmp_path / "bad.csv", "a\t\n" * 5)
    assert check(tmp_path, 1.0, good) == [{ONE_EMPTY: 1}]
    said = rf"^{tmp_path}/bad\.csv: no row can be read as format tsv\. All 5 were set aside"
    with pytest.raises(DataError, match=said):
        check(tmp_path, 1.0, good, bad)
    assert [json.loads(line)["line"] for line in (tmp_path / "bad.jsonl").open()] == [4, 1, 2, 3, 4, 5]
    with pytest.raises(DataError, match=said):
        check_first_rows([good, bad])
    monkeypatch.setattr(summary, "MAX_ROWS", 5)  # a large source is judged when all of it was read
    check_first_rows([good, bad])


def test_a_source_is_judged_by_its_own_rows_and_as_it_is_read(tmp_path: Path) -> None:
    content = "a\tb\n" * 3 + "a\t\n"
    with pytest.raises(DataError, match=r"b\.tsv\): 1 of 4 rows \(25\.00%\) cannot be used"):
        check(tmp_path, 0.2, pairs(tmp_path / "a.tsv", "a\tb\n" * 100), pairs(tmp_path / "b.tsv", content))
    assert check(tmp_path, 0.0, pairs(tmp_path / "c.tsv", content, skip_empty=True)) == [{}]
