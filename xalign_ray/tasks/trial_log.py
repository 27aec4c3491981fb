"""The event log of a fine-tuned trial: what its MLflow run is made from, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.artifacts import read_json
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, read_events, run_identity

if TYPE_CHECKING:
    from xalign_ray.tasks.grid import Trial

FINISHED, STOPPED = "finished", "stopped"


@dataclass(frozen=True, slots=True)
class TrialNotes:
    """What a trial is called where it is shown; nothing of it changes what it computes.

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
def trial_logged(folder: Path, trial: Trial, notes: TrialNotes) -> Iterator[EventLog]:
    """Writes the start of a trial, and its end if nothing is raised inside."""
    path = folder / EVENT_LOG
    with EventLog(path, last_attempt(path) + 1) as log:
        log.write(
            "start",
            0,
            fingerprint=trial.name,
            seed=trial.settings.seed,
            steps=trial.settings.num_train_epochs,
            title=notes.title or trial.name,
            parent=notes.parent,
            pretraining=dict(notes.pretraining),
            params=describe_encoder(trial.encoder, notes) | _params(trial),
        )
        yield log
        log.write("end", trial.settings.num_train_epochs, state=FINISHED)


def log_epoch(log: EventLog, epoch: int, score: float) -> None:
    """Writes the development score after an epoch; epochs are the steps of a trial."""
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
    """Wall time of a trial's last attempt, None if it has not ended."""
    path = folder / EVENT_LOG
    events = read_events(path) if path.is_file() else []
    if not events or events[-1]["event"] != "end":
        return None
    return events[-1]["time"] - max(event["time"] for event in events if event["event"] == "start")


def pretraining_of(encoder: str) -> dict[str, str]:
    """Name and identity of the run that made an exported folder; empty for any other encoder."""
    run = Path(encoder).parent
    identity = run_identity(run) if Path(encoder).is_dir() else None
    return {"run": run.name, **identity} if identity else {}


def describe_encoder(encoder: str, notes: TrialNotes) -> dict[str, Any]:
    """What an encoder says of its pretraining, under the names that a search in MLflow uses."""
    path = Path(encoder) / "config.json"
    config = read_json(path, "Export the run again.") if path.is_file() else {}
    known = {name: config.get(f"xalign_{name}") for name in ("objective", "recipe", "step")}
    known |= {"pretraining_seed": config.get("xalign_seed"), "pretraining_run": notes.pretraining.get("run")}
    return {"encoder": notes.encoder or encoder} | {name: value for name, value in known.items() if value is not None}


def _params(trial: Trial) -> dict[str, Any]:
    """Of a trial, flat; what is at its default is told as well, so that trials can be compared."""
    settings, training = trial.settings, trial.training
    told: dict[str, Any] = {
        "task": trial.task,
        "training": training.kind,
        "train_language": trial.train_language,
        "learning_rate": settings.learning_rate,
        "num_train_epochs": settings.num_train_epochs,
        "train_batch_size": settings.train_batch_size,
        "seed": settings.seed,
        "early_stopping_patience": settings.early_stopping_patience,
        "max_train_samples": settings.max_train_samples,
        "training_languages": ",".join(training.languages) or None,
    }
    return {name: value for name, value in told.items() if value is not None}
