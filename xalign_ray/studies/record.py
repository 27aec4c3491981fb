"""What a study says of itself: study.json with the state of each cell, and the plan as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.studies.cell_log import seconds_of
from xalign_ray.studies.cells import Job, Pretraining
from xalign_ray.work.artifacts import whole_manifest, write_json
from xalign_ray.work.mirror import url_of
from xalign_ray.work.run_folder import STUDY
from xalign_ray.work.status_line import duration

if TYPE_CHECKING:
    from xalign_ray.studies.schedule import Schedule

UNKNOWN = dict.fromkeys(("name", "folder", "task", "train_language", "training", "setting", "development", "seconds"))


def write_record(schedule: Schedule) -> None:
    """Writes study.json: what a report is made from, and what a user looks at while the study runs."""
    study = schedule.plan.study
    declared = study.model_dump(mode="json")
    what = {"name": study.name, "scale": study.scale, "notes": study.notes, "baseline": study.baseline}
    what |= {"labels": study.labels}
    cells = [_known(schedule, job) for job in schedule.jobs]
    write_json(schedule.folder / STUDY, what | {"study": declared, "cells": cells})


def _known(schedule: Schedule, job: Job) -> dict[str, Any]:
    """As `describe`, which reads the files of a cell, once for each state that it comes to."""
    key = job, schedule.states[job]
    if key not in schedule.described:
        schedule.described[key] = describe(schedule, job)
    return schedule.described[key]


def describe(schedule: Schedule, job: Job) -> dict[str, Any]:
    """A cell with its state; what is not known yet is None."""
    cell = UNKNOWN | {"kind": job.kind, "encoder": job.encoder, "seed": job.seed} | job.described
    cell |= {"resources": job.resources.model_dump(mode="json")}
    cell |= {"state": schedule.states[job], "reason": schedule.failures.get(job)}
    if folder := _folder(schedule, job):
        inside = folder.is_relative_to(schedule.folder)
        shown = folder.relative_to(schedule.folder).as_posix() if inside else url_of(folder) or str(folder)
        development = (whole_manifest(folder) or {}).get("development")
        cell |= {"name": folder.name, "folder": shown, "development": development, "seconds": seconds_of(folder)}
    return cell


def describe_plan(schedule: Schedule) -> str:
    """The cells as a table of text: what each is, what it takes, and whether it is done."""
    rows = [("cell", "kind", "needs", "work", "state")]
    for job in schedule.jobs:
        cell = describe(schedule, job)
        took = "" if cell["seconds"] is None else f" in {duration(cell['seconds'])}"
        rows.append((str(job), job.kind, str(job.resources), job.work, cell["state"] + took))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = Counter(schedule.states[job] for job in schedule.jobs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, f"{len(schedule.jobs)} cells: {states}"])


def _folder(schedule: Schedule, job: Job) -> Path | None:
    """Of a cell whose encoder is there, of a pretraining that has finished."""
    if not isinstance(job, Pretraining):
        return job.folder(schedule.folder) if job.model else None
    return schedule.runs.get(job)
