"""Finds the runs that a report is asked for: folders of runs and sweeps, or what MLflow holds of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.artifacts import check_files, read_manifest
from xalign_ray.config.explain import check_folder
from xalign_ray.credentials import with_credentials
from xalign_ray.errors import DataError, TrackingError, XalignError
from xalign_ray.report.run import Run, read_run
from xalign_ray.report.sweep_choices import CHOICES, HINT, read_choices
from xalign_ray.track.events import EVENT_LOG
from xalign_ray.track.follower import quiet_mlflow, reason_of

MLFLOW = "mlflow:"
_PLAN, _TRIALS, _BESIDE = "sweep.json", "trials", "beside"  # of a sweep


def find_runs(names: Sequence[str], tracking_uri: str) -> list[Run]:
    """The runs in the order of their names, those of an experiment from the oldest; one that is named twice once.

    Runs of an experiment that hold no scores are passed over, and so are the trials that a sweep did not choose.

    Args:
        names: folders of runs and of sweeps, `mlflow:EXPERIMENT` and `mlflow:RUN_ID`.
        tracking_uri: as `follower.resolve_uri` returns it.

    Raises:
        ConfigError: there is no such folder.
        DataError: a folder is no run, or a file of it is damaged.
        TrackingError: MLflow cannot be reached, has no such run or experiment, or no scores of it.
    """
    for name in names:
        if not name.startswith(MLFLOW):
            check_folder(Path(name))
    runs = []
    for name in dict.fromkeys(names):
        if name.startswith(MLFLOW):
            runs += _from_mlflow(name.removeprefix(MLFLOW), tracking_uri)
        else:
            runs += _from_folder(Path(name))
    return runs


def _from_folder(folder: Path) -> list[Run]:
    if not (folder / CHOICES).is_file() and not (folder / _PLAN).is_file():
        return [read_run(folder)]
    check_files(folder, (read_manifest(folder) or {}).get("files", {}), HINT)
    if not (folder / CHOICES).is_file():
        raise DataError(f"{folder / CHOICES} is missing. {HINT}")
    choices = read_choices([folder])
    trials = [read_run(folder / _TRIALS / name) for name in choices.kept]
    return choices.keep([*trials, *(read_run(path.parent) for path in sorted(folder.glob(f"{_BESIDE}/*/{EVENT_LOG}")))])


def _from_mlflow(name: str, tracking_uri: str) -> list[Run]:
    database = Path(tracking_uri.removeprefix("sqlite:///"))
    if tracking_uri.startswith("sqlite:///") and not database.is_file():
        raise TrackingError(f"{database} is missing: give --tracking, where MLflow keeps the runs.")
    quiet_mlflow()
    try:
        runs = _restore(name, tracking_uri)
    except XalignError:
        raise
    except Exception as error:  # whatever MLflow and the way to its files raise
        raise TrackingError(f"MLflow at {tracking_uri} does not answer: {reason_of(error)}") from error
    if not runs:
        raise TrackingError(
            f"'{name}' at {tracking_uri} holds no scores; evaluate the runs, or bring them there with "
            "`xalign track replay`."
        )
    return runs


def _restore(name: str, tracking_uri: str) -> list[Run]:
    # MLflow takes 2-3 s to import: only where it is asked for.
    from mlflow import MlflowClient

    from xalign_ray.track import restore

    client = MlflowClient(with_credentials(tracking_uri))
    folders = []
    with tempfile.TemporaryDirectory(prefix="xalign-report-") as scratch:
        for run in restore.find_runs(client, name):
            folder = Path(scratch) / run.info.run_id / restore.name_of(run)
            if restore.restore(client, run, folder):
                folders.append(folder)
        with_scores = [read_run(folder) for folder in folders]
        return read_choices(folders).keep(run for run in with_scores if run.scores)
