"""What the cells of a study took, by hand, with the printed hours of pretraining where a paper has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.results.run_folders import entries, open_folders, score, write_run, write_study
from xalign_ray.results.tables import NONE, Entry, time_tables

ONE, TWO = {"cpus": 1.0, "gpus": 0.0}, {"cpus": 2.0, "gpus": 1.0}


def cells(folder: Path, label: str, seconds: tuple[float, ...], tuned: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for seed, took in enumerate(seconds):
        run = write_run(folder / f"{label}-{seed}", seed=seed)
        found.append({"kind": "pretraining", "label": label, "folder": str(run), "seconds": took, "resources": TWO})
    scores = [score(run=f"{label}-0")]
    return [*found, {"kind": "finetuning", "label": label, "scores": scores, "seconds": tuned, "resources": ONE}]


def test_a_cell_takes_what_it_took_and_an_arm_what_its_cells_held(tmp_path: Path) -> None:
    every = cells(tmp_path, "mlm", (3600, 1800), 60) + cells(tmp_path, "align-mlm", (5400,), 30)
    waiting = {"kind": "evaluation", "label": "mlm", "folder": None, "state": "waiting", "seconds": None}
    study = write_study(tmp_path / "study", [*every, waiting])
    (table,) = time_tables(open_folders([study]))
    assert tuple(table.rows) == (
        entries("mlm", "45m 00s", Entry("1.00", "printed 1.00"), "1m 00s", NONE, "3", "3.02", "1.50"),
        # 44.9 hours over 40.7
        entries("align-mlm", "1h 30m", Entry("2.00", "printed 1.10"), "0m 30s", NONE, "2", "3.01", "1.50"),
    )
    assert "Trans+Inv" in table.note
    plain = write_study(tmp_path / "plain", cells(tmp_path / "other", "mlm", (60,), 1))
    (table,) = time_tables(open_folders([plain]))
    assert table.rows[0][2] == Entry("1.00")
    assert "printed" not in table.note.lower()


def test_runs_without_a_study_have_no_table_of_times(tmp_path: Path) -> None:
    assert time_tables(open_folders([write_run(tmp_path / "run")])) == []
