"""MLflow run of a run folder; the server, not a local file, knows the points that it holds already."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    Metric,
    Param,
    Run,
    RunTag,
)
from mlflow.exceptions import MlflowException

from xalign_ray.config.identity import INPUTS
from xalign_ray.config.saved import read_saved
from xalign_ray.track.events import Event, EventReader, run_identity
from xalign_ray.track.headlines import headline_scores, table
from xalign_ray.track.trackers import Numbers, Tracker
from xalign_ray.work.artifacts import MANIFEST, hash_value, read_manifest, read_records
from xalign_ray.work.credentials import with_credentials
from xalign_ray.work.mirror import data_of_run, url_of
from xalign_ray.work.run_folder import CHOICES, COMPARISON, CONFIG, DATA, EVENT_LOG, REPORT, STUDY, RunFolder

_LENGTH = 250  # characters of a parameter's key or value
_NAMED = 8  # languages in the name of a data set
_OWN = "own"  # the scale of a recipe that is a user's file; that of a released one is its folder


def flatten(tree: Any, prefix: str = "") -> dict[str, str]:
    """A recipe's leaves as MLflow parameters: dotted keys, values of at most 250 characters.

    A list of plain values is one parameter; items of a list of trees go by number.
    """
    trees = isinstance(tree, list) and any(isinstance(item, (dict, list)) for item in tree)
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if trees else None
    if not items:
        key = re.sub(r"[^\w./: -]", "_", prefix, flags=re.ASCII)[:_LENGTH]
        value = tree if isinstance(tree, str) else json.dumps(tree, ensure_ascii=False)
        return {key: value if len(value) <= _LENGTH else value[: _LENGTH - 3] + "..."} if prefix else {}
    leaves: dict[str, str] = {}
    for name, child in items:
        leaves |= flatten(child, f"{prefix}.{name}" if prefix else str(name))
    return leaves


def found_by(start: Event, recipe: Mapping[str, Any]) -> dict[str, str]:
    """What runs of all kinds are searched by: `method`, `scale`, `objectives`, `languages`; those that are known.

    Args:
        recipe: as the run folder holds it, empty of a cell of a study.
    """
    params = start.get("params", {})
    name = Path(params.get("recipe") or start.get("recipe", ""))
    tags = {
        "method": params.get("objective"),
        "scale": _OWN if name.suffix else str(name.parent),
        "objectives": ",".join(loss["kind"] for loss in recipe.get("objectives", ())),
        **start.get("labels", {}),
    }
    return {key: value[:_LENGTH] for key, value in tags.items() if value and value != "."}


def origin_tags(origin: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Commit, user, host and versions under MLflow's own names where it has one, and the recipe's notes."""
    tags = {
        "mlflow.source.git.commit": origin.get("commit"),
        "mlflow.user": origin.get("user"),
        "mlflow.note.content": recipe.get("notes"),
        "xalign.host": origin.get("host"),
        "xalign.version.python": origin.get("python"),
        **{f"xalign.version.{package}": number for package, number in origin.get("versions", {}).items()},
    }
    return {key: value for key, value in tags.items() if value}


def dataset_input(start: Event) -> DatasetInput | None:
    """The prepared data that a start event names (`data`: its folder) as a data set input."""
    if not (data := start.get("data")):
        return None
    manifest = read_manifest(Path(data)) or {}
    digest = str(start.get("data_fingerprint") or hash_value(manifest))[:36]
    languages = manifest.get("languages", [])
    rows = sum(pool.get("rows", 0) for pool in manifest.get("pools", {}).values())
    size = {"rows": rows, "tokens": manifest.get("counts", {}).get("tokens", 0)}
    name = "-".join(languages) if 0 < len(languages) <= _NAMED else f"{len(languages)} languages"
    source = json.dumps({"uri": data})
    dataset = Dataset(name, digest, "local", source, profile=json.dumps({"languages": ", ".join(languages), **size}))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


MAX_KEYS = 100  # metric keys a run: each is a chart
_MAX_PER_BATCH = 1000  # metrics a call, MLflow's own limit
_MAX_PARAMS = 100  # parameters a call, MLflow's own limit
_FILES = (CONFIG, EVENT_LOG, MANIFEST, STUDY, CHOICES, COMPARISON)
_NO_PARAMS = ("fingerprint", INPUTS, "notes")  # tags; MLflow's comparison begins with the first parameters that differ


class MlflowRun(Tracker):
    """The `Tracker` of MLflow: finds the MLflow run of a run folder, or creates it, and brings it up to date."""

    def __init__(self, folder: Path, tracking_uri: str, experiment: str) -> None:
        """Connects; raises whatever MLflow raises when the server does not answer.

        Args:
            folder: a run folder in which the run has started (its event log has a first line).
            tracking_uri: a server or database, as `destinations.resolve_uri` returns it.
            experiment: name of the MLflow experiment; created if missing.
        """
        super().__init__(folder)
        self.folder = folder
        self._start = EventReader(RunFolder(folder).events).read(limit=1)[0]
        if data := self._start.get("data"):
            self._start["data"] = str(data_of_run(folder, data))
        self._client = MlflowClient(with_credentials(tracking_uri))
        self._experiment = _open_experiment(self._client, tracking_uri, experiment)
        run = self._find(_identity_tags(folder)) or self._create()
        self.run_id = run.info.run_id
        # The public way to the step of a key's last point. A total of a run is at step 0, its last point all the same.
        self.last_steps = {
            metric.key: sys.maxsize if _is_total(metric.key) else metric.step for metric in run.data.to_proto().metrics
        }
        self._tags_of_attempts: list[RunTag] = []
        self._describe(run)

    def log(self, numbers: Sequence[Numbers], resumed_at: Sequence[int]) -> None:
        """Adds numbers, and tags with the number of attempts. A total is a bar at step 0, not a line of one dot."""
        points = [
            Metric(key, value, int(time * 1000), 0 if _is_total(key) else step)
            for metrics, step, time in numbers
            for key, value in sorted(metrics.items())
        ]
        for first in range(0, len(points), _MAX_PER_BATCH):
            self._client.log_batch(self.run_id, metrics=points[first : first + _MAX_PER_BATCH], synchronous=True)
        tags = [
            RunTag("xalign.attempts", str(1 + len(resumed_at))),
            RunTag("xalign.resumed_at_steps", ", ".join(map(str, resumed_at))),
        ]
        if tags != self._tags_of_attempts:
            self._client.log_batch(self.run_id, tags=tags, synchronous=True)
            self._tags_of_attempts = tags

    def close(self, scores: list[dict[str, Any]], status: str, time: float) -> None:
        """Logs scores and files of the folder, and ends the run."""
        if scores:
            self._log_scores(scores)
        self._log_files()
        self._client.set_terminated(self.run_id, status, end_time=int(time * 1000))

    def _link(self, pretraining: dict[str, str]) -> None:
        """Names the run that made the encoder, which is mostly in another experiment, and its id if it is here."""
        experiments = [experiment.experiment_id for experiment in self._client.search_experiments()]
        tags = {"name": pretraining["run"]}
        if run := self._find(_tags(pretraining), experiments):
            tags["id"] = run.info.run_id
        for name, value in tags.items():
            self._client.set_tag(self.run_id, f"xalign.pretraining_run_{name}", value)

    def _find(self, tags: dict[str, str], experiments: list[str] | None = None) -> Run | None:
        query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs = self._client.search_runs(
            experiments or [self._experiment], query, max_results=1, order_by=["attributes.start_time"]
        )
        if not runs:
            return None
        # A search may lag behind on large servers; the run itself does not.
        return self._client.get_run(runs[0].info.run_id)

    def _create(self) -> Run:
        tags = {**_identity_tags(self.folder), "xalign.run": self.folder.resolve().name}
        shown = ("recipe", "workers", "zero_stage")
        tags |= {f"xalign.{name}": str(self._start[name]) for name in shown if name in self._start}
        if recipe := self._start.get("recipe"):
            tags |= {"mlflow.source.name": recipe, "mlflow.source.type": "LOCAL"}  # MLflow shows the commit next to it
        name, started = self._start.get("title") or self.folder.resolve().name, int(self._start["time"] * 1000)
        return self._client.create_run(self._experiment, start_time=started, tags=tags, run_name=name)

    def _describe(self, run: Run) -> None:
        """Brings everything but numbers up to date: status, parent, parameters, data set."""
        if run.info.status != "RUNNING":
            self._client.update_run(self.run_id, status="RUNNING")
        if (parent := self._start.get("parent")) and (parent_run := self._find(_tags(parent))):
            self._client.set_tag(self.run_id, "mlflow.parentRunId", parent_run.info.run_id)
        if pretraining := self._start.get("pretraining"):
            self._link(pretraining)
        # A resume may have another number of workers; MLflow refuses a second value for a parameter.
        saved = read_saved(self.folder)
        recipe = (
            flatten({key: saved[key] for key in saved if key not in _NO_PARAMS})
            | flatten(self._start.get("params", {}))
            | found_by(self._start, saved)
        )
        tags = origin_tags(self._start.get("origin", {}), saved)
        self._client.log_batch(self.run_id, tags=[RunTag(*tag) for tag in tags.items()], synchronous=True)
        new = [Param(key, value) for key, value in recipe.items() if key not in run.data.params]
        for first in range(0, len(new), _MAX_PARAMS):
            self._client.log_batch(self.run_id, params=new[first : first + _MAX_PARAMS], synchronous=True)
        if dataset := dataset_input(self._start):
            try:
                self._client.log_inputs(self.run_id, [dataset])
            except MlflowException:
                # Runs over the same data that start together all create it in the experiment; later it is found.
                self._client.log_inputs(self.run_id, [dataset])

    def _log_scores(self, records: list[dict[str, Any]]) -> None:
        logged = self._client.get_run(self.run_id).data.metrics
        training = sum("/" in key for key in logged)
        # A score that has not changed is not logged again; one that has gets the newest time and is shown.
        when = int(max(path.stat().st_mtime for path in RunFolder(self.folder).score_files) * 1000)
        scores = headline_scores(records, MAX_KEYS - training)
        for path in RunFolder(RunFolder(self.folder).base).score_files[-1:]:  # of the test, after the kept languages
            means = [record for record in read_records(path) if record["language"] == "all"]
            scores |= {f"before/{key}": score for key, score in headline_scores(means, MAX_KEYS).items()}
        points = [Metric(key, value, when, 0) for key, (value, _) in scores.items() if logged.get(key) != value]
        self._client.log_batch(self.run_id, metrics=points, synchronous=True)
        self._client.log_text(self.run_id, table(records), "scores.csv")

    def _log_files(self) -> None:
        read_manifest(self.folder)  # a damaged one is not brought to where it would be taken for whole
        for name in _FILES:
            if (path := self.folder / name).is_file():
                self._client.log_artifact(self.run_id, str(path))
        for path in RunFolder(self.folder).score_files:
            where = path.parent.relative_to(self.folder).as_posix()
            self._client.log_artifact(self.run_id, str(path), None if where == "." else where)
        if (report := RunFolder(self.folder).report).is_dir():
            self._client.log_artifacts(self.run_id, str(report), REPORT)
        if (data := self._start.get("data")) and read_manifest(Path(data)) is not None:
            self._client.log_artifact(self.run_id, str(Path(data) / MANIFEST), DATA)
        if read_manifest(export := RunFolder(self.folder).export) is not None:
            self._client.set_tag(self.run_id, "xalign.export", url_of(export) or str(export.resolve()))


def _is_total(metric: str) -> bool:
    return metric.startswith("run/")


def _open_experiment(client: MlflowClient, tracking_uri: str, name: str) -> str:
    if experiment := client.get_experiment_by_name(name):
        return experiment.experiment_id
    # Files stand beside a SQLite file, because MLflow's default is the current directory; a server knows its own place.
    path = tracking_uri.removeprefix("sqlite:///")
    beside = None if path == tracking_uri else (Path(path).parent / "mlflow-artifacts").as_uri()
    try:
        return client.create_experiment(name, artifact_location=beside)
    except MlflowException:
        # Two runs that start together both create it; the second finds it.
        if experiment := client.get_experiment_by_name(name):
            return experiment.experiment_id
        raise


def _identity_tags(folder: Path) -> dict[str, str]:
    identity = run_identity(folder)
    assert identity, f"the run in {folder} has not started"
    return _tags(identity)


def _tags(identity: dict[str, str]) -> dict[str, str]:
    return {f"xalign.{name}": identity[name] for name in ("fingerprint", "started")}
