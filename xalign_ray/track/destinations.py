"""Addresses of MLflow and other trackers, and the pages that show a run."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from xalign_ray.errors import ConfigError
from xalign_ray.work.credentials import strip_credentials, with_credentials, without_credentials
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import absolute_path

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
_CONNECTING = threading.Lock()
_QUIET = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds; MLflow's default of 120 would hold the closing of a run
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the follower tries again itself, and can be asked to stop
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for results that a script reads
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # a bar for every small file
}


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
        if missing := [package for package in LOGGERS[name] if getattr(find_spec(package), "origin", None) is None]:
            raise ConfigError(
                f"track.report_to: {name} needs the package {missing[0]}: pip install 'xalign-ray[{name}]', or leave "
                f"{name} out."
            )


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
    uris = (os.environ.get("MLFLOW_TRACKING_URI", ""), mlflow)
    asked, used = (strip_credentials(uri).rstrip("/") for uri in uris)
    if asked not in ("", used):
        say(
            f"MLFLOW_TRACKING_URI is not read, and track.mlflow is {used}: --set track.mlflow={shlex.quote(asked)} "
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
        if row := MlflowClient(with_credentials(tracking_uri)).get_experiment_by_name(experiment):
            return f"/#/experiments/{row.experiment_id}/{RUNS_PAGE}"
    return ""


def tracker_name(tracking_uri: str) -> str:
    """A tracker in a sentence."""
    return tracking_uri if tracking_uri in LOGGERS else f"MLflow at {tracking_uri}"


def quiet_mlflow() -> None:
    """Sets short time-outs and few messages before MLflow is imported; the user's own values stay."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # It also raises these errors, which it logs with a traceback.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


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
