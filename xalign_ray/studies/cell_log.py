"""The event log of a fine-tuning or an evaluation, which its MLflow run is made from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_json
from xalign_ray.studies.cells import FINISHED, Cell, Trial
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, last_event, run_identity
from xalign_ray.track.origin import origin


@contextmanager
def cell_logged(study: Path, cell: Cell) -> Iterator[EventLog]:
    """Writes the start of a cell, and its end if nothing is raised inside. Epochs are the steps of a fine-tuning.

    In MLflow it is shown below its study, or below the encoder's run where the study has no log of its own (`tune`).
    """
    path = cell.folder(study) / EVENT_LOG
    epochs = cell.settings.num_train_epochs if isinstance(cell, Trial) else 0
    made_by = run_identity(run := Path(cell.model).parent) if Path(cell.model).is_dir() else None
    with EventLog(path, last_attempt(path) + 1) as log:
        began = time.monotonic()
        log.write(
            "start",
            0,
            fingerprint=cell.name,
            steps=epochs,
            title=str(cell),
            parent=run_identity(study) or made_by,
            pretraining={"run": run.name, **made_by} if made_by else {},
            params=_encoder_params(cell, run.name if made_by else None) | cell.params,
            labels={"languages": ",".join(cell.languages)} if cell.languages else {},
            origin=origin(),
        )
        yield log
        log.write("end", epochs, {"run/seconds": time.monotonic() - began}, state=FINISHED)


def close_log(folder: Path, state: str) -> None:
    """Writes the end that a killed process could not write; does nothing where there is one, or no log."""
    last = last_event(folder / EVENT_LOG)
    if last and last["event"] != "end":
        with EventLog(folder / EVENT_LOG, last["attempt"]) as log:
            log.write("end", last["step"], state=state)


def seconds_of(folder: Path) -> float | None:
    """Wall time of the last attempt of a run or a cell, None if it has not ended, or was killed."""
    return last_event(folder / EVENT_LOG).get("metrics", {}).get("run/seconds")


def _encoder_params(cell: Cell, run: str | None) -> dict[str, Any]:
    """What an encoder says of its pretraining, under the names that a search in MLflow uses."""
    path = Path(cell.model) / "config.json"
    config = read_json(path, "Export the run again.") if path.is_file() else {}
    known = {name: config.get(f"xalign_{name}") for name in ("objective", "recipe", "step")}
    known |= {"encoder": cell.encoder, "pretraining_seed": config.get("xalign_seed"), "pretraining_run": run}
    return {name: value for name, value in known.items() if value is not None}
