"""Downloads the run folders that MLflow holds: recipe, event log, manifests, scores, choices of a study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from xalign_ray.errors import TrackingError
from xalign_ray.work.artifacts import MANIFEST
from xalign_ray.work.run_folder import CHOICES, CONFIG, DATA, EVALUATION, EVENT_LOG, SCORES

_FOLDERS = (EVALUATION, DATA)
_FILES = frozenset({CONFIG, MANIFEST, f"{DATA}/{MANIFEST}", CHOICES, EVENT_LOG})
_PAGE = 1000  # runs a search: MLflow's own limit


def search_runs(client: MlflowClient, name: str) -> list[Run]:
    """A run by its id, else all runs of an experiment, oldest first.

    Raises:
        TrackingError: there is neither; names the experiments that there are.
    """
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return [client.get_run(name)]
        except MlflowException:
            known = sorted(found.name for found in client.search_experiments())
            raise TrackingError(
                f"MLflow has neither a run nor an experiment '{name}'. Experiments: {', '.join(known)}."
            ) from None
    return list(_search(client, experiment.experiment_id))


def restore(client: MlflowClient, run: Run, folder: Path) -> bool:
    """Downloads a run into a folder; False if it has neither scores nor a study's choices.

    Raises:
        TrackingError: it has no event log, since an earlier version brought it there.
    """
    run_id = run.info.run_id
    files = _artifacts(client, run_id)
    if not any(_is_scores(path) or path == CHOICES for path in files):
        return False
    if EVENT_LOG not in files:
        raise TrackingError(
            f"The run {folder_name_of(run)} ({run_id}) in MLflow lacks {EVENT_LOG}: an earlier version logged it. "
            "Log it again: xalign track replay RUN_FOLDER."
        )
    folder.mkdir(parents=True)
    for path in files:
        if _is_scores(path) or path in _FILES:
            _download(client, run_id, path, folder / path)
    return True


def folder_name_of(run: Run) -> str:
    """The name of the run folder that the run mirrors."""
    return run.data.tags.get("xalign.run") or run.info.run_name or run.info.run_id


def _search(client: MlflowClient, experiment_id: str) -> Iterator[Run]:
    token = None
    while True:
        found = client.search_runs(
            [experiment_id], max_results=_PAGE, order_by=["attributes.start_time"], page_token=token
        )
        yield from found
        if not (token := found.token):
            return


def _artifacts(client: MlflowClient, run_id: str) -> list[str]:
    """Paths of the files of a run, as deep as scores lie: `evaluation/<task>/scores.json`."""
    files: list[str] = []
    folders = [None, *_FOLDERS]
    for folder in folders:
        for item in client.list_artifacts(run_id, folder):
            (folders if folder == EVALUATION and item.is_dir else files).append(item.path)
    return files


def _download(client: MlflowClient, run_id: str, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # MLflow keeps the name of a file; whether it keeps its folders depends on where artifacts lie.
    Path(client.download_artifacts(run_id, path, str(target.parent))).rename(target)


def _is_scores(path: str) -> bool:
    return path.split("/")[-1] == SCORES
