"""Writes an MLflow run back as a run folder: what the follower brought there, numbers and scores and recipe."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Run
from mlflow.exceptions import MlflowException

from xalign_ray.artifacts import MANIFEST
from xalign_ray.errors import TrackingError
from xalign_ray.run_folder import CHOICES, CONFIG, EVALUATION, SCORES, RunFolder
from xalign_ray.track.events import Event
from xalign_ray.track.mlflow_values import LANGUAGE_TABLES

_FOLDERS = (EVALUATION, "data")
_DATA = f"data/{MANIFEST}"
_FILES = frozenset({CONFIG, MANIFEST, _DATA, CHOICES, *(name for name, _ in LANGUAGE_TABLES.values())})
_PAGE = 1000  # runs a search: MLflow's own limit
_EVENT_OF = {"train": "step", "held_out": "held_out", "retrieval": "retrieval"}  # by the first part of a metric's key


def find_runs(client: MlflowClient, name: str) -> list[Run]:
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
    """Writes a run into a folder, False if it has neither scores nor a study's choices.

    The event log has one attempt with the points that MLflow holds: a long run's are thinned, and what a resume
    superseded is not there.
    """
    run_id = run.info.run_id
    files = _artifacts(client, run_id)
    if not any(_is_scores(path) or path == CHOICES for path in files):
        return False
    folder.mkdir(parents=True)
    for path in files:
        if _is_scores(path) or path in _FILES:
            _download(client, run_id, path, folder / path)
    with (RunFolder(folder).events).open("w", encoding="utf-8") as log:
        for event in _events(client, run, folder):
            log.write(json.dumps(event) + "\n")
    return True


def name_of(run: Run) -> str:
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


def _events(client: MlflowClient, run: Run, folder: Path) -> Iterator[Event]:
    tags = {name: run.data.tags.get(f"xalign.{name}", "-") for name in ("recipe", "workers", "zero_stage")}
    data = {"data": str((folder / _DATA).parent)} if (folder / _DATA).is_file() else {}
    values = json.loads(run.data.tags.get("xalign.values", "{}"))
    yield _event("start", 0, run.info.start_time, **tags, **data, **({"values": values} if values else {}))
    points: dict[tuple[int, str], list[Metric]] = {}
    for key in sorted(key for key in run.data.metrics if "/" in key):
        for point in client.get_metric_history(run.info.run_id, key):
            points.setdefault((point.step, key.split("/")[0]), []).append(point)
    languages = {event: _by_step(folder / name) for event, (name, _) in LANGUAGE_TABLES.items()}
    for (step, group), together in sorted(points.items()):
        if group in _EVENT_OF:
            metrics = {point.key: point.value for point in together}
            more = {"languages": languages[group].get(step, {})} if group in languages else {}
            yield _event(_EVENT_OF[group], step, together[0].timestamp, metrics=metrics, **more)
    if run.info.status == "FINISHED":
        ended = {point.key: point.value for (_, group), own in points.items() if group == "run" for point in own}
        last = max((step for step, _ in points), default=0)
        yield _event("end", last, run.info.end_time or run.info.start_time, metrics=ended)


def _event(kind: str, step: int, milliseconds: int, **fields: Any) -> Event:
    return {"event": kind, "attempt": 1, "time": milliseconds / 1000, "step": step, **fields}


def _by_step(path: Path) -> dict[int, dict[str, float]]:
    """The values of each language, by step."""
    if not path.is_file():
        return {}
    found: dict[int, dict[str, float]] = {}
    for step, language, value in [*csv.reader(io.StringIO(path.read_text(encoding="utf-8")))][1:]:
        found.setdefault(int(step), {})[language] = float(value)
    return found
