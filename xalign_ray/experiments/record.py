"""What a study says of itself: study.json with the state of each cell, and the plan as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.artifacts import whole_manifest, write_json
from xalign_ray.config.derive import derive_batch
from xalign_ray.experiments.cell_log import seconds_of
from xalign_ray.experiments.cells import FAILED, FINISHED, NOT_CHOSEN, WAITING, Cell, FineTune, Pretraining, cell_folder
from xalign_ray.experiments.verbs import Job
from xalign_ray.status_line import duration
from xalign_ray.track.events import EVENT_LOG, last_event

if TYPE_CHECKING:
    from xalign_ray.experiments.schedule import Schedule

STUDY = "study.json"


def write_record(schedule: Schedule) -> None:
    """Writes study.json: what a report is made from, and what a user looks at while the study runs."""
    study = schedule.plan.study
    declared = study.model_dump(mode="json")
    what = {"name": study.name, "notes": study.notes, "baseline": study.baseline, "labels": study.labels}
    write_json(schedule.folder / STUDY, what | {"study": declared, "cells": describe_cells(schedule)})


def describe_cells(schedule: Schedule) -> list[dict[str, Any]]:
    """Every cell of a study with its state; what is not known yet is None."""
    models = dict(
        zip(
            schedule.plan.encoders,
            [schedule.models.get(i, "") for i in range(len(schedule.plan.encoders))],
            strict=True,
        )
    )
    made = {encoder.pretraining: model for encoder, model in models.items() if encoder.pretraining and model}
    pretrainings = [_pretraining(schedule, cell, made.get(cell, "")) for cell in schedule.plan.pretrainings]
    others = [
        _cell(schedule, cell) for encoder, model in models.items() for cell in schedule.plan.cells_of(encoder, model)
    ]
    return [*pretrainings, *others]


def describe_plan(schedule: Schedule) -> str:
    """The cells as a table of text: what each is, what it takes, and whether it is done."""
    cells = describe_cells(schedule)
    jobs: list[Job] = [*schedule.plan.pretrainings]
    jobs += [
        cell
        for place, encoder in enumerate(schedule.plan.encoders)
        for cell in schedule.plan.cells_of(encoder, schedule.models.get(place, ""))
    ]
    rows = [("cell", "kind", "needs", "work", "state")]
    rows += [
        (str(job), cell["kind"], _resources(job), _work(job), _state(cell))
        for job, cell in zip(jobs, cells, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = Counter(cell["state"] for cell in cells)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, f"{len(cells)} cells: {states}"])


def _pretraining(schedule: Schedule, cell: Pretraining, model: str) -> dict[str, Any]:
    run = Path(model).parent if model else None
    last = last_event(run / EVENT_LOG) if run else {}
    return {
        "name": run.name if run else None,
        "kind": cell.kind,
        "label": cell.encoder,
        "encoder": cell.encoder,
        "folder": str(run) if run else None,
        "task": None,
        "train_language": None,
        "training": None,
        "setting": {"recipe": cell.recipe.name},
        "seed": cell.seed,
        "state": FAILED if cell in schedule.failures else FINISHED if run else WAITING,
        "reason": schedule.failures.get(cell),
        "development": None,
        "seconds": last.get("metrics", {}).get("run/seconds"),
    }


def _cell(schedule: Schedule, cell: Cell) -> dict[str, Any]:
    known = bool(cell.job.model)
    folder, tuned = cell_folder(schedule.folder, cell), cell.job if isinstance(cell.job, FineTune) else None
    state = schedule.state(cell) if known else WAITING
    if state == WAITING and cell.after_choice and schedule.is_over:
        state = NOT_CHOSEN
    return {
        "name": cell.job.name if known else None,
        "kind": cell.kind,
        "label": cell.label,
        "encoder": cell.encoder,
        "folder": folder.relative_to(schedule.folder).as_posix() if known else None,
        "task": cell.job.task,
        "train_language": tuned.train_language if tuned else None,
        "training": tuned.training.kind if tuned else None,
        "setting": cell.setting if tuned else None,
        "seed": tuned.settings.seed if tuned else cell.seed,
        "state": state,
        "reason": schedule.failures.get(cell),
        "development": (whole_manifest(folder) or {}).get("development") if known else None,
        "seconds": seconds_of(folder) if known else None,
    }


def _resources(job: Job) -> str:
    own = job.resources
    return f"{own.cpus:g} CPU" + (f", {own.gpus:g} GPU" if own.gpus else "")


def _work(job: Job) -> str:
    if isinstance(job, Pretraining):
        config = job.recipe.config
        return f"{config.train.max_steps:,} steps of {derive_batch(config).global_rows:,} rows"
    return f"{job.job.settings.num_train_epochs} epochs" if isinstance(job.job, FineTune) else "scoring"


def _state(cell: dict[str, Any]) -> str:
    took = f" in {duration(cell['seconds'])}" if cell["seconds"] is not None else ""
    return f"{cell['state']}{took}"
