"""Followers of the event log: a thread that brings a run to MLflow or another tracker; a finished run is replayed"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from pathlib import Path

from xalign_ray.config.explain import check_folder
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import TrackingError, XalignError
from xalign_ray.track.destinations import LOGGERS, check_loggers, connecting, quiet_mlflow, tracker_name
from xalign_ray.track.events import EventReader, Thinning, check_tuned, check_whole, run_identity
from xalign_ray.track.trackers import Numbers, TensorboardTracker, Tracker, TrackioTracker, WandbTracker
from xalign_ray.work.artifacts import read_records
from xalign_ray.work.credentials import hide_credentials
from xalign_ray.work.run_folder import EVENT_LOG, RunFolder

_log = logging.getLogger(__name__)
_RETRY_S = 1.0  # pause between attempts while a run is being closed
_REASON_LENGTH = 200
_EVENTS_A_PIECE = 4000
_STOPPED = "stopped"  # of the last event: a stopped job, a fine-tuning that was stopped early for better ones


class Mirror:
    """Brings the event log of a run to a tracker, piece by piece.

    A metric has at most one point a step. When a resumed run redoes steps, the first point stays: redone steps repeat
    the same numbers (same `batch_hash`, same loss), and MLflow cannot delete a point. Long runs are thinned to
    `MAX_POINTS` evenly spread points, the last step always among them.
    """

    def __init__(self, folder: Path, tracking_uri: str, experiment: str) -> None:
        """Opens the tracker; raises whatever it raises.

        Args:
            folder: of a run that has started.
            tracking_uri: as `destinations.resolve_uri` returns it.
            experiment: MLflow's experiment, or another tracker's project.
        """
        self._folder, self._reader = folder, EventReader(RunFolder(folder).events)
        self._last = EventReader(RunFolder(folder).events).read(limit=1)[0]
        recipe = read_saved(folder)
        self.tracker: Tracker
        if tracking_uri in LOGGERS:
            check_loggers([tracking_uri])
            loggers = {"tensorboard": TensorboardTracker, "wandb": WandbTracker, "trackio": TrackioTracker}
            self.tracker = loggers[tracking_uri](folder, recipe, experiment)
        else:
            quiet_mlflow()
            # MLflow takes 2-3 s to import: only where it is used, and in the follower's thread.
            from xalign_ray.track.mlflow_run import MlflowRun

            with connecting(tracking_uri):
                self.tracker = MlflowRun(folder, tracking_uri, experiment)
        self._thinning = Thinning(self._last.get("steps") or recipe.get("train", {}).get("max_steps", 0))
        for metric, step in self.tracker.last_steps.items():
            self._thinning.take({metric: 0.0}, step)
        self._attempt = 0
        self._resumed_at: list[int] = []
        self._has_ended = False

    def catch_up(self) -> None:
        """Logs the new events."""
        while events := self._reader.read(limit=_EVENTS_A_PIECE):
            numbers = []
            for event in events:
                if event["attempt"] < self._attempt:
                    continue  # written by a worker that had been given up
                if event["event"] == "start":
                    self._attempt = event["attempt"]
                    self._resumed_at += [event["step"]] if self._attempt > 1 else []
                self._last = event
                self._has_ended = event["event"] == "end" or (self._has_ended and event["event"] != "start")
                if metrics := self._thinning.take(event.get("metrics", {}), event["step"]):
                    numbers.append(Numbers(metrics, event["step"], event["time"]))
            self.tracker.log(numbers, self._resumed_at)

    def finish(self) -> None:
        """Logs scores and files, and ends the tracker's run: FINISHED if its last step was reached, else FAILED.

        A stopped run, and a fine-tuning that was stopped early for better ones, is KILLED.
        """
        self.catch_up()
        scores = [record for path in RunFolder(self._folder).score_files for record in read_records(path)]
        stopped = _STOPPED in (self._last["event"], self._last.get("state"))
        status = "KILLED" if stopped else "FINISHED" if self._has_ended else "FAILED"
        self.tracker.close(scores, status, self._last["time"])


class Follower:
    """Brings the event log of a run folder to a tracker every few seconds; never raises and never holds up its caller.

    The folder may still be empty. Whoever makes a follower closes it when the run is over.
    """

    def __init__(
        self,
        folder: Path,
        tracking_uri: str,
        experiment: str,
        every_s: float = 3.0,
    ) -> None:
        self._folder = folder
        self._uri = tracking_uri
        self._experiment = experiment
        self._every_s = every_s
        self._stop = threading.Event()
        self._give_up_at = float("inf")
        self._trouble: Exception | None = None
        self._done = False
        self._thread = threading.Thread(target=self._run, name="mlflow-follower", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 15.0) -> str | None:
        """Logs the rest, with scores and files, and ends the tracker's run.

        Args:
            timeout_s: longest time to wait, outages included.

        Returns:
            None if the tracker holds everything, else a sentence for the user with the command that catches up.
        """
        self._give_up_at = time.monotonic() + timeout_s
        self._stop.set()
        self._thread.join(timeout_s)
        return None if self._done else _sentence(self._folder, self._uri, self._trouble)

    def _run(self) -> None:
        run = None
        while True:
            stopping = self._stop.is_set()  # read first, so that this round has all that was logged before close()
            try:
                if run is None and run_identity(self._folder):
                    run = Mirror(self._folder, self._uri, self._experiment)
                if run and stopping:
                    run.finish()
                elif run:
                    run.catch_up()
                if self._trouble is not None:
                    _log.warning("%s has caught up with %s.", tracker_name(self._uri), self._folder)
                self._trouble = None
                if stopping:
                    self._done = True
                    return
            except Exception as error:  # whatever a tracker raises, training goes on
                run = None
                self._note(error)
            if stopping and time.monotonic() + _RETRY_S > self._give_up_at:
                return
            if stopping:
                time.sleep(_RETRY_S)
            else:
                self._stop.wait(self._every_s)

    def _note(self, error: Exception) -> None:
        if self._trouble is None:
            _log.warning(
                "%s does not answer for %s (%s). The run goes on, its numbers are in %s; trying again.",
                tracker_name(self._uri),
                self._folder,
                reason_of(error),
                EVENT_LOG,
            )
        self._trouble = error


def replay(folder: Path, tracking_uri: str, experiment: str) -> list[str]:
    """Brings MLflow up to date with a run folder as it stands: numbers, scores, files; and with the runs inside it.

    Doing it again adds nothing that is there already, so it also serves after an outage and after a later evaluation.

    Returns:
        MLflow's run ids, the folder's own first.

    Raises:
        ConfigError: there is no such folder.
        DataError: the folder is not that of a run that has started, or its log is damaged.
        TrackingError: MLflow cannot be reached or refuses.
    """
    check_folder(folder)
    check_tuned(folder)
    if not run_identity(folder):
        raise TrackingError(f"{folder} holds no run that has started: {EVENT_LOG} is missing or empty.")
    return [replay_one(each, tracking_uri, experiment) for each in (folder, *runs_inside(folder))]


def runs_inside(folder: Path) -> list[Path]:
    """Folders of the runs that have started below a folder, such as the cells of a study."""
    return [path.parent for path in sorted(folder.glob(f"*/**/{EVENT_LOG}")) if run_identity(path.parent)]


def replay_one(folder: Path, tracking_uri: str, experiment: str) -> str:
    """As `replay`, without the runs inside the folder."""
    check_whole(folder / EVENT_LOG)
    check_tuned(folder)
    try:
        run = Mirror(folder, tracking_uri, experiment)
        run.finish()
    except XalignError:
        raise
    except Exception as error:
        raise TrackingError(_sentence(folder, tracking_uri, error)) from error
    return run.tracker.run_id


def publish(folder: Path, tracking_uri: str, experiment: str) -> str | None:
    """`replay` for a pipeline that goes on whatever MLflow does.

    Returns:
        None if MLflow holds everything, else a sentence for the user with the command that catches up.
    """
    try:
        replay(folder, tracking_uri, experiment)
    except XalignError as error:
        return str(error)
    return None


def reason_of(error: BaseException) -> str:
    """The innermost cause: MLflow and requests wrap "connection refused" in several layers of text."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    text = hide_credentials(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= _REASON_LENGTH else text[:_REASON_LENGTH] + "..."


def _sentence(folder: Path, tracking_uri: str, trouble: Exception | None) -> str:
    reason = reason_of(trouble) if trouble else "it did not answer in time"
    command = shlex.join(["xalign", "track", "replay", str(folder), "--to", tracking_uri])
    return (
        f"{tracker_name(tracking_uri)} does not hold all of {folder} ({reason}); nothing is lost, "
        f"`{command}` brings it up to date."
    )
