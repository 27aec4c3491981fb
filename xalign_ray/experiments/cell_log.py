"""The event log of a fine-tuning or an evaluation: what its MLflow run is made from, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_json
from xalign_ray.experiments.cells import FINISHED, Evaluate, FineTune
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, read_events, run_identity


@dataclass(frozen=True, slots=True)
class Notes:
    """What a cell is called where it is shown; nothing of it changes what it computes.

    Attributes:
        title: name of its MLflow run.
        encoder: the encoder's label; its path if empty.
        parent: identity of the run that it is shown below, as `run_identity` gives it.
        pretraining: name and identity of the run that made the encoder: `run`, `fingerprint`, `started`.
    """

    title: str = ""
    encoder: str = ""
    parent: Mapping[str, str] | None = None
    pretraining: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def cell_logged(folder: Path, job: FineTune | Evaluate, notes: Notes) -> Iterator[EventLog]:
    """Writes the start of a cell, and its end if nothing is raised inside."""
    path = folder / EVENT_LOG
    epochs = job.settings.num_train_epochs if isinstance(job, FineTune) else 0
    with EventLog(path, last_attempt(path) + 1) as log:
        log.write(
            "start",
            0,
            fingerprint=job.name,
            steps=epochs,
            title=notes.title or job.name,
            parent=notes.parent,
            pretraining=dict(notes.pretraining),
            params=_describe_encoder(job.model, notes) | {"task": job.task} | _params(job),
        )
        yield log
        log.write("end", epochs, state=FINISHED)


def log_epoch(log: EventLog, epoch: int, score: float) -> None:
    """Writes the development score after an epoch; epochs are the steps of a fine-tuning."""
    log.write("held_out", epoch, {"fine_tune/dev_score": score})


def close_log(folder: Path, state: str) -> None:
    """Writes the end that a killed process could not write; does nothing where there is one, or no log."""
    path = folder / EVENT_LOG
    if not path.is_file():
        return
    last = next(reversed(read_events(path)), None)
    if last is not None and last["event"] != "end":
        with EventLog(path, last["attempt"]) as log:
            log.write("end", last["step"], state=state)


def seconds_of(folder: Path) -> float | None:
    """Wall time of a cell's last attempt, None if it has not ended."""
    path = folder / EVENT_LOG
    events = read_events(path) if path.is_file() else []
    if not events or events[-1]["event"] != "end":
        return None
    return events[-1]["time"] - max(event["time"] for event in events if event["event"] == "start")


def pretraining_of(model: str) -> dict[str, str]:
    """Name and identity of the run that made an exported folder; empty for any other encoder."""
    run = Path(model).parent
    identity = run_identity(run) if Path(model).is_dir() else None
    return {"run": run.name, **identity} if identity else {}


def _describe_encoder(model: str, notes: Notes) -> dict[str, Any]:
    """What an encoder says of its pretraining, under the names that a search in MLflow uses."""
    path = Path(model) / "config.json"
    config = read_json(path, "Export the run again.") if path.is_file() else {}
    known = {name: config.get(f"xalign_{name}") for name in ("objective", "recipe", "step")}
    known |= {"pretraining_seed": config.get("xalign_seed"), "pretraining_run": notes.pretraining.get("run")}
    return {"encoder": notes.encoder or model} | {name: value for name, value in known.items() if value is not None}


def _params(job: FineTune | Evaluate) -> dict[str, Any]:
    """Of a fine-tuning, flat; what is at its default is written as well, so that fine-tunings can be compared."""
    if isinstance(job, Evaluate):
        return {}
    values = asdict(job.settings) | {
        "training": job.training.kind,
        "train_language": job.train_language,
        "training_languages": ",".join(job.training.languages) or None,
    }
    return {name: value for name, value in values.items() if value is not None}
