"""Sources are judged one by one: none may be without a good row, whatever the bound on bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.sources import summary
from xalign_ray.sources.formats import parts
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.summary import check_first_rows, check_sources


def pairs(path: Path, content: str) -> Input:
    path.write_text(content)
    return Input("pairs/de-en", ("en", "de"), tuple(parts("tsv", [str(path)])))


def test_source_without_a_good_row_is_refused_whatever_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = pairs(tmp_path / "good.tsv", "a\tb\n"), pairs(tmp_path / "bad.csv", "a,b\n" * 5)
    records = [[{"bad_rows": {"x": 1}, "counts": {"pairs": 3}}], [{"bad_rows": {"x": 5}, "counts": {}}]]
    check_sources([good], records[:1], 1.0, tmp_path)
    said = rf"^{tmp_path}/bad\.csv: no row can be read as format tsv\. All 5 were set aside"
    with pytest.raises(DataError, match=said):
        check_sources([good, bad], records, 1.0, tmp_path)
    with pytest.raises(DataError, match=said):
        check_first_rows([good, bad])
    monkeypatch.setattr(summary, "MAX_ROWS", 5)  # a large source is judged when all of it was read
    check_first_rows([good, bad])


def test_source_that_max_pairs_left_unread_passes(tmp_path: Path) -> None:
    check_sources([pairs(tmp_path / "a.tsv", "a\tb\n")], [[{"bad_rows": {}, "counts": {}}]], 0.0, tmp_path)
