"""Runs one evaluation or fine-tuning in its folder, and reads from a folder how its cell ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.finetune.tune import tune_task
from xalign_ray.studies.cells import FINISHED, STOPPED, TOKENIZED, WAITING, Cell, Trial
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS, load_task
from xalign_ray.tasks.scores import SCORES, are_whole, write_scores
from xalign_ray.track.events import EVENT_LOG, EventLog, last_event, run_identity
from xalign_ray.track.scored_encoder import scoring_identity
from xalign_ray.work.artifacts import EVALUATION_KIND, hash_file, whole_manifest, write_json
from xalign_ray.work.job import OpenJob, open_job

STOP_MARK = "stopped.json"  # of a fine-tuning that was stopped early: it has no manifest, and is not run again

GoesOn = Callable[[Trial, int, float], bool]
"""Whether a fine-tuning goes on after an epoch with this development score."""


@dataclass(frozen=True)
class End:
    """How a cell ended, by its folder.

    Attributes:
        state: FINISHED, STOPPED, or WAITING where the folder is not whole.
        development: development score of a fine-tuning that finished.
        seconds: wall time; None where the process was killed before it wrote the end of its log.
    """

    state: str
    development: float | None = None
    seconds: float | None = None


class _StoppedEarlyError(Exception):
    """Ends a fine-tuning after an epoch, with its epoch and development score."""


def run_cell(cell: Cell, study: Path, keep_model: bool, goes_on: GoesOn = lambda *_: True) -> None:
    """Runs a cell; its event log has the start, each epoch and the end, and its manifest is written last.

    In MLflow it is shown below its study, or below the encoder's run where the study has no log (`tune`).

    Args:
        cell: an evaluation or a fine-tuning whose encoder is there.
        study: folder of the study.
        keep_model: whether the fine-tuned model is kept.
        goes_on: asked after each epoch; a fine-tuning that does not go on is marked as stopped.
    """
    load_task(cell.task)
    folder, epochs = cell.folder(study), cell.settings.num_train_epochs if isinstance(cell, Trial) else 0
    identity = scoring_identity(
        fingerprint=cell.name,
        title=str(cell),
        model=cell.model,
        label=cell.encoder,
        languages=cell.languages,
        params=cell.params,
        parent=run_identity(study),
        steps=epochs,
    )
    try:
        with open_job(folder, cell.kind, identity, upload=None) as job:  # the study uploads it
            _score(cell, study, keep_model, goes_on, job)
    except _StoppedEarlyError as stopped:
        epoch, score = stopped.args
        write_json(folder / STOP_MARK, {"epoch": epoch, "development": score})
        read_end(folder)


def read_end(folder: Path) -> End:
    """How a cell ended. A log whose process was killed after its last file gets its end."""
    manifest, log = whole_manifest(folder, "kind"), folder / EVENT_LOG
    last = last_event(log)
    if manifest is not None and are_whole(folder / SCORES):
        end = End(FINISHED, manifest.get("development"), seconds_of(folder))
    else:
        end = End(STOPPED if (folder / STOP_MARK).is_file() else WAITING)
    if end.state != WAITING and last and last["event"] != "end":
        with EventLog(log, last["attempt"]) as again:
            again.write("end", last["step"], state=end.state)
    return end


def seconds_of(folder: Path) -> float | None:
    """Wall time of the last attempt of a run or cell; None if it has not ended, or was killed."""
    return last_event(folder / EVENT_LOG).get("metrics", {}).get("run/seconds")


def _score(cell: Cell, study: Path, keep_model: bool, goes_on: GoesOn, job: OpenJob) -> None:
    folder, data = cell.folder(study), [Path(path) for path in cell.data]
    if not isinstance(cell, Trial):
        write_scores(folder / SCORES, TASKS[cell.task].evaluate(cell.model, data[0] if data else None, cell.languages))
        files = {SCORES: hash_file(folder / SCORES)}
        job.finish({"kind": EVALUATION_KIND, "task": cell.task, "encoder": cell.model, "files": files})
        return

    def on_epoch(epoch: int, score: float) -> None:
        assert job.log
        job.log.write("held_out", epoch, {"fine_tune/dev_score": score})
        if not goes_on(cell, epoch, score):
            raise _StoppedEarlyError(epoch, score)

    tune_task(
        TUNED_TASKS[cell.task],
        cell.model,
        data,
        folder,
        languages=cell.languages,
        settings=cell.settings,
        training=cell.training,
        train_language=cell.train_language,
        on_epoch=on_epoch,
        cache=study / TOKENIZED,
        keep_model=keep_model,
    )
