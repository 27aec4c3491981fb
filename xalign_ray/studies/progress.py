"""What a user sees of a study at work: a line for each cell that ends, study.json, and its runs in MLflow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.studies.cell_log import seconds_of
from xalign_ray.studies.cells import FINISHED, Cell, Job
from xalign_ray.studies.record import write_record
from xalign_ray.track.events import run_identity
from xalign_ray.track.follower import publish
from xalign_ray.work.artifacts import whole_manifest
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.studies.schedule import Schedule


class Progress:
    """Tells of a study. MLflow is fed by one thread, which no cell waits for."""

    def __init__(self, schedule: Schedule, uri: str | None) -> None:
        self._schedule, self._uri = schedule, uri
        self._experiment = schedule.plan.study.experiment or schedule.plan.study.name
        self._publisher = ThreadPoolExecutor(1)  # MLflow has one writer
        if done := len(schedule.jobs) - schedule.left:
            say(f"{done} of {len(schedule.jobs)} cells had ended before.")
        self._publish(schedule.folder)

    def report_end(self, job: Job) -> None:
        """Says how a job ended, and brings it to study.json and MLflow."""
        schedule, said = self._schedule, self._schedule.states[job]
        if isinstance(job, Cell):
            folder = job.folder(schedule.folder)
            self._publish(folder)
            if said == FINISHED:
                development = (whole_manifest(folder) or {}).get("development")
                said = describe_end(development, seconds_of(folder))
        if reason := schedule.failures.get(job):
            said += f": {reason}"
        say(f"[{len(schedule.jobs) - schedule.left}/{len(schedule.jobs)}] {job}: {said}")
        write_record(schedule)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._publisher.shutdown(cancel_futures=True)

    def _publish(self, folder: Path) -> None:
        if self._uri and run_identity(folder):
            self._publisher.submit(publish, folder, self._uri, self._experiment)


def describe_end(development: float | None, seconds: float | None) -> str:
    """How a finished cell ended.

    Args:
        development: score of a fine-tuning.
        seconds: wall time; None where its process was killed before it wrote the end of its log.
    """
    what = FINISHED if development is None else f"development {development:.3f}"
    return what if seconds is None else f"{what}, {seconds:.0f} s"
