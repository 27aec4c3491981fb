"""What the cells of a study took: time of a cell by arm and kind, and the hours of CPUs and GPUs that they held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from xalign_ray.results.printed import PAPERS, read_paper
from xalign_ray.results.run import Run
from xalign_ray.results.tables import NONE, Entry, Row, Table
from xalign_ray.work.status_line import duration

_KINDS = ("pretraining", "finetuning", "evaluation")
_PRINTED = "Time"  # the table of a paper that prints hours, its rows in the order of its arms
_HEADER = ("", "pretraining", "of the baseline's", "fine-tuning", "evaluation", "cells", "CPU hours", "GPU hours")
_NOTE = (
    "Mean time of a cell, of its last attempt. Hours: CPUs and GPUs that the cells held, times how long; times your "
    "price of an hour that is what an arm cost."
)

Cell = Mapping[str, Any]


def time_tables(runs: Sequence[Run]) -> list[Table]:
    """A table a study, a row an arm; none where no cell has a time."""
    studies = {run.study["name"]: run.study for run in runs if run.study}
    return [_time_table(study) for study in studies.values() if any(cell.get("seconds") for cell in study["cells"])]


def _time_table(study: Mapping[str, Any]) -> Table:
    cells = [cell for cell in study["cells"] if cell.get("seconds")]
    labels = list(dict.fromkeys([*study["labels"], *(cell["label"] for cell in cells)]))
    by_label = {label: [cell for cell in cells if cell["label"] == label] for label in labels}
    baseline = study["baseline"] or study["labels"][0]
    printed = _printed_ratios(baseline, labels)
    mean = _mean(by_label[baseline], "pretraining")
    rows = [_row(label, own, mean, printed) for label, own in by_label.items() if own]
    note = _NOTE + (" Printed: hours of ALIGN-MLM's arms on Trans+Inv over those of its MLM." if printed else "")
    return Table(f"Time of {study['name']}", _HEADER, rows, note)


def _row(label: str, cells: Sequence[Cell], baseline: float | None, printed: Mapping[str, float]) -> Row:
    means = {kind: _mean(cells, kind) for kind in _KINDS}
    own = means["pretraining"]
    note = f"printed {printed[label]:.2f}" if label in printed else ""
    ratio = Entry(f"{own / baseline:.2f}", note) if own and baseline else NONE
    pretraining, *others = (NONE if mean is None else duration(mean) for mean in means.values())
    return (label, pretraining, ratio, *others, str(len(cells)), _hours(cells, "cpus"), _hours(cells, "gpus"))


def _mean(cells: Sequence[Cell], kind: str) -> float | None:
    seconds = [cell["seconds"] for cell in cells if cell["kind"] == kind]
    return fmean(seconds) if seconds else None


def _hours(cells: Sequence[Cell], what: str) -> Entry | str:
    if not all(cell.get("resources") for cell in cells):
        return NONE  # of a study that ran before its cells said what they hold
    return f"{sum(cell['seconds'] * cell['resources'][what] for cell in cells) / 3600:,.2f}"


def _printed_ratios(baseline: str, labels: Sequence[str]) -> dict[str, float]:
    """Printed hours over those of the baseline, by label; none where a paper prints those of fewer than two of them."""
    hours = {
        row.ours["label"]: row.values[0]
        for name in PAPERS
        for row in (read_paper(name).tables[_PRINTED].rows if _PRINTED in read_paper(name).tables else ())
        if row.ours["label"] in labels
    }
    first = hours.get(baseline)
    return {label: value / first for label, value in hours.items() if value and first} if len(hours) > 1 else {}
