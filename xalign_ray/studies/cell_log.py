"""The event log of a fine-tuning or an evaluation, which its MLflow run is made from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xalign_ray.studies.cells import Cell, Trial
from xalign_ray.track.events import EVENT_LOG, EventLog, last_event, run_identity
from xalign_ray.track.scored_encoder import scoring_identity
from xalign_ray.work.job import OpenJob, open_job


@contextmanager
def open_cell(study: Path, cell: Cell) -> Iterator[OpenJob]:
    """Makes the folder of a cell, with its log; the study uploads it. Epochs are the steps of a fine-tuning.

    In MLflow it is shown below its study, or below the encoder's run where the study has no log of its own (`tune`).
    """
    identity = scoring_identity(
        fingerprint=cell.name,
        title=str(cell),
        model=cell.model,
        label=cell.encoder,
        languages=cell.languages,
        params=cell.params,
        parent=run_identity(study),
        steps=cell.settings.num_train_epochs if isinstance(cell, Trial) else 0,
    )
    with open_job(cell.folder(study), cell.kind, identity, upload=None) as job:
        yield job


def close_log(folder: Path, state: str) -> None:
    """Writes the end that a killed process could not write; does nothing where there is one, or no log."""
    last = last_event(folder / EVENT_LOG)
    if last and last["event"] != "end":
        with EventLog(folder / EVENT_LOG, last["attempt"]) as log:
            log.write("end", last["step"], state=state)


def seconds_of(folder: Path) -> float | None:
    """Wall time of the last attempt of a run or a cell, None if it has not ended, or was killed."""
    return last_event(folder / EVENT_LOG).get("metrics", {}).get("run/seconds")
