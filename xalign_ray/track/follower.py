"""Followers of the event log: a thread that brings a run to MLflow or another tracker; a finished run is replayed"""

from __future__ import annotations

import logging
import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from xalign_ray.config.explain import check_folder
from xalign_ray.errors import ConfigError, TrackingError, XalignError
from xalign_ray.track.events import check_tuned, check_whole, run_identity
from xalign_ray.work.credentials import hide_credentials, strip_credentials, with_credentials, without_credentials
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.run_folder import EVENT_LOG
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import absolute_path

_log = logging.getLogger(__name__)
# Trackers beside MLflow, as `track.report_to` names them, and the packages that each needs.
LOGGERS: Mapping[str, Sequence[str]] = {
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
_OPENED_BY = {
    "tensorboard": "tensorboard --logdir RUNS",
    "wandb": "wandb sync RUN/wandb/*",
    "trackio": "trackio show",
}
RUNS_PAGE = "runs?workflowType=machine_learning"
_PORT = 5000
_RETRY_S = 1.0  # pause between attempts while a run is being closed
_REASON_LENGTH = 200
_CONNECTING = threading.Lock()
_QUIET = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds; MLflow's default of 120 would hold the closing of a run
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the follower tries again itself, and can be asked to stop
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for results that a script reads
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # a bar for every small file
}


def resolve_uri(value: str, folder: Path) -> str:
    """A tracking URI that does not depend on the current directory of whoever uses it, and may be shown.

    Args:
        value: `sqlite` (mlflow.db in `folder`), `sqlite:///PATH`, the address of a server or database, or a name of
            LOGGERS.
        folder: the folder of runs.
    """
    value = without_credentials(value)
    if value == "sqlite":
        return f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    if value.startswith("sqlite:///"):
        return f"sqlite:///{Path(absolute_path(value.removeprefix('sqlite:///'))).resolve()}"
    return value


def check_uri(tracking_uri: str) -> None:
    """Raises ConfigError if MLflow would open another file than a `sqlite:///` URI of `resolve_uri` names, or if the
    package of another tracker is missing."""
    if tracking_uri in LOGGERS:
        check_loggers([tracking_uri])
    path = tracking_uri.removeprefix("sqlite:///")
    if path != tracking_uri and (wrong := [letter for letter in "?%" if letter in path]):
        raise ConfigError(
            f"track.mlflow: MLflow cannot open a database whose path has {' and '.join(wrong)} in it: {path}. Set "
            "track.mlflow=sqlite:///ANOTHER/mlflow.db or a server, set it to off, or give another output."
        )


def say_unread(mlflow: str) -> None:
    """Warns that MLFLOW_TRACKING_URI differs from the recipe's `track.mlflow`, which is used."""
    asked, own = (strip_credentials(uri).rstrip("/") for uri in (os.environ.get("MLFLOW_TRACKING_URI", ""), mlflow))
    if asked not in ("", own):
        say(
            f"MLFLOW_TRACKING_URI is not read, and track.mlflow is {own}: --set track.mlflow={shlex.quote(asked)} "
            "shows the run there."
        )


def open_command(tracking_uri: str, page: str = "") -> str:
    """The command and address that show the runs, if possible on the page of `runs_page`."""
    if tracking_uri.startswith(("http://", "https://")):
        return tracking_uri.rstrip("/") + page
    if tracking_uri in LOGGERS:
        return _OPENED_BY[tracking_uri]
    command = f"mlflow server --backend-store-uri {shlex.quote(tracking_uri)} --workers 1 --port {_PORT}"
    return f"{command}, then http://127.0.0.1:{_PORT}{page}"


def runs_page(tracking_uri: str, experiment: str) -> str:
    """The page of a server that has the table of an experiment's runs: its first page is that of traces.

    Returns:
        Its path, empty if there is no such experiment or MLflow does not answer.
    """
    if tracking_uri in LOGGERS:
        return ""
    quiet_mlflow()
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    with suppress(MlflowException), connecting(tracking_uri):
        if found := MlflowClient(with_credentials(tracking_uri)).get_experiment_by_name(experiment):
            return f"/#/experiments/{found.experiment_id}/{RUNS_PAGE}"
    return ""


class Mirror(Protocol):
    """A tracker's copy of a run folder."""

    @property
    def run_id(self) -> str: ...
    def advance(self) -> bool: ...
    def finish(self) -> None: ...


@dataclass(frozen=True)
class Track:
    """Where a job is shown.

    Attributes:
        uri: MLflow's tracking URI as `resolve_uri` returns it, or one of LOGGERS.
    """

    uri: str
    experiment: str


def track_of(mlflow: str, experiment: str, output: str | Path) -> Track | None:
    """The MLflow server and experiment of a recipe's `track` for runs in `output`; None if it is off."""
    return None if mlflow == "off" else Track(resolve_uri(mlflow, local_folder(output)), experiment)


def tracks_of(track: Mapping[str, Any], output: str | Path) -> list[Track]:
    """All trackers that a recipe's `track` names for runs in the folder `output`."""
    mlflow = track_of(track["mlflow"], track["experiment"], output)
    others = [Track(name, track["experiment"]) for name in track.get("report_to", ())]
    return [mlflow, *others] if mlflow else others


def check_loggers(names: Sequence[str]) -> None:
    """Raises ConfigError naming the package of a tracker that is not installed here."""
    for name in names:
        # A folder of that name, as wandb leaves where it ran, is found without an origin.
        if missing := [one for one in LOGGERS[name] if getattr(find_spec(one), "origin", None) is None]:
            raise ConfigError(
                f"track.report_to: {name} needs the package {missing[0]}: pip install 'xalign-ray[{name}]', or leave "
                f"{name} out."
            )


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
                    run = _connect(self._folder, self._uri, self._experiment)
                _catch_up(run, finish=stopping)
                self._clear()
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

    def _clear(self) -> None:
        if self._trouble is not None:
            _log.warning("%s has caught up with %s.", tracker_name(self._uri), self._folder)
        self._trouble = None


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
        run = _connect(folder, tracking_uri, experiment)
        _catch_up(run, finish=True)
    except XalignError:
        raise
    except Exception as error:
        raise TrackingError(_sentence(folder, tracking_uri, error)) from error
    return run.run_id


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


def quiet_mlflow() -> None:
    """Sets short time-outs and few messages before MLflow is imported; the user's own values stay."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # It also raises these errors, which it logs with a traceback.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def reason_of(error: BaseException) -> str:
    """The innermost cause: MLflow and requests wrap "connection refused" in several layers of text."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    text = hide_credentials(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= _REASON_LENGTH else text[:_REASON_LENGTH] + "..."


def _connect(folder: Path, tracking_uri: str, experiment: str) -> Mirror:
    if tracking_uri in LOGGERS:
        check_loggers([tracking_uri])
        from xalign_ray.track.logged_run import LoggedRun

        return LoggedRun(folder, tracking_uri, experiment)
    quiet_mlflow()
    # MLflow takes 2-3 s to import: only where it is used, and in the follower's thread.
    from xalign_ray.track.mlflow_run import MlflowRun

    with connecting(tracking_uri):
        return MlflowRun(folder, tracking_uri, experiment)


@contextmanager
def connecting(tracking_uri: str) -> Iterator[None]:
    """Inside, nobody else connects to the SQLite file.

    MLflow makes the tables of a new one, and two processes or threads at once leave it without some of them, for good.
    """
    path = Path(tracking_uri.removeprefix("sqlite:///"))
    with _CONNECTING:
        if not tracking_uri.startswith("sqlite:///"):
            yield
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            yield


def _catch_up(run: Mirror | None, finish: bool) -> None:
    if run is None:
        return
    while run.advance():
        pass
    if finish:
        run.finish()


def _sentence(folder: Path, tracking_uri: str, trouble: Exception | None) -> str:
    reason = reason_of(trouble) if trouble else "it did not answer in time"
    command = shlex.join(["xalign", "track", "replay", str(folder), "--to", tracking_uri])
    return (
        f"{tracker_name(tracking_uri)} does not hold all of {folder} ({reason}); nothing is lost, "
        f"`{command}` brings it up to date."
    )


def tracker_name(tracking_uri: str) -> str:
    """A tracker in a sentence."""
    return tracking_uri if tracking_uri in LOGGERS else f"MLflow at {tracking_uri}"
