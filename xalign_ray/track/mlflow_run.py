"""One MLflow run as the mirror of one run folder; what it already holds is asked of the server, never remembered."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from xalign_ray.config.saved import read_saved
from xalign_ray.results.headline import comparison_metrics, headline_scores, read_headlines, table
from xalign_ray.track.events import Event, EventReader, run_identity
from xalign_ray.track.logged_model import log_model
from xalign_ray.track.mlflow_page import ExperimentKind, experiment_tags
from xalign_ray.track.mlflow_values import (
    Thinning,
    dataset_input,
    flatten,
    found_by,
    language_tables,
    milliseconds,
    origin_tags,
)
from xalign_ray.work.artifacts import MANIFEST, read_manifest
from xalign_ray.work.credentials import with_credentials
from xalign_ray.work.run_folder import CHOICES, COMPARISON, CONFIG, DATA, EVENT_LOG, REPORT, STUDY, RunFolder

MAX_KEYS = 100  # metric keys a run: each is a chart of its own
_MAX_PER_BATCH = 1000  # metrics a call, MLflow's own limit
_MAX_PARAMS = 100  # parameters a call, MLflow's own limit
_EVENTS_A_PIECE = 4000
_STOPPED = "stopped"  # as its last event says: a job told to stop, a fine-tuning stopped early for better ones
_STUDIES = "studies/"  # what the recipe of a study's log begins with
_FILES = (CONFIG, EVENT_LOG, MANIFEST, STUDY, CHOICES, COMPARISON)
_NO_PARAMS = ("fingerprint", "notes")  # tags; MLflow's comparison begins with the first parameters that differ


class MlflowRun:
    """Finds the MLflow run of a run folder, or creates it, and brings it up to date.

    A metric has at most one point a step. When a resumed run redoes steps, the first point stays: redone steps repeat
    the same numbers (same `batch_hash`, same loss), and MLflow cannot delete a point. Long runs are thinned to
    `MAX_POINTS` evenly spread points, the last step always among them.
    """

    def __init__(self, folder: Path, tracking_uri: str, experiment: str) -> None:
        """Connects; raises whatever MLflow raises when the server does not answer.

        Args:
            folder: a run folder in which the run has started (its event log has a first line).
            tracking_uri: a server or database, as `follower.resolve_uri` returns it.
            experiment: name of the MLflow experiment; created if missing.
        """
        self.folder = folder
        self._reader = EventReader(RunFolder(folder).events)
        self._start = EventReader(RunFolder(folder).events).read(limit=1)[0]
        self._client = MlflowClient(with_credentials(tracking_uri))
        self._experiment = _open_experiment(self._client, tracking_uri, experiment, self._kind())
        run = self._find(_identity_tags(folder)) or self._create()
        self.run_id = run.info.run_id
        self._attempt = 0
        self._resumed: list[int] = []
        self._last: Event = self._start
        self._ended = False
        self._thinning = Thinning(self._start.get("steps") or read_saved(folder).get("train", {}).get("max_steps", 0))
        # to_proto is the public way to the step of a key's last point.
        self._marks = {m.key: self._thinning.place(m.step) for m in run.data.to_proto().metrics}
        self._describe(run)

    def _kind(self) -> ExperimentKind:
        if "parent" in self._start or self._start.get("recipe", "").startswith(_STUDIES):
            return "study"
        data = read_saved(self.folder).get("data", {})
        return "continued" if data.get("tests") or data.get("test_fraction") else "pretrainings"

    def advance(self) -> bool:
        """Logs the next piece of the event log; True while there may be more."""
        events = self._reader.read(limit=_EVENTS_A_PIECE)
        points = [point for event in events for point in self._points(event)]
        for first in range(0, len(points), _MAX_PER_BATCH):
            self._client.log_batch(self.run_id, metrics=points[first : first + _MAX_PER_BATCH], synchronous=True)
        if any(event["event"] == "start" for event in events):
            resumed = ", ".join(map(str, self._resumed))
            tags = [RunTag("xalign.attempts", str(self._attempt)), RunTag("xalign.resumed_at_steps", resumed)]
            self._client.log_batch(self.run_id, tags=tags, synchronous=True)
        return len(events) == _EVENTS_A_PIECE

    def finish(self) -> None:
        """Logs scores and files of the folder, and ends the run: FINISHED if its last step was reached, else FAILED.

        One that was told to stop, and a fine-tuning that was stopped early for better ones, is KILLED.
        """
        self._log_scores()
        self._log_comparison()
        self._log_files()
        self._log_model()
        stopped = _STOPPED in (self._last["event"], self._last.get("state"))
        status = "KILLED" if stopped else "FINISHED" if self._ended else "FAILED"
        self._client.set_terminated(self.run_id, status, end_time=milliseconds(self._last))

    def _points(self, event: Event) -> Iterator[Metric]:
        if event["attempt"] < self._attempt:
            return  # written by a worker that had been given up
        if event["event"] == "start":
            self._attempt = event["attempt"]
            self._resumed += [event["step"]] if event["attempt"] > 1 else []
        self._last = event
        self._ended = event["event"] == "end" or (self._ended and event["event"] != "start")
        place = self._thinning.place(event["step"])
        for key, value in sorted(event.get("metrics", {}).items()):
            if value is not None and place > self._marks.get(key, -math.inf):
                self._marks[key] = place
                yield Metric(key, value, milliseconds(event), event["step"])

    def _link(self, pretraining: dict[str, str]) -> None:
        """Names the run that made the encoder, which is mostly in another experiment, and its id if it is here."""
        every = [one.experiment_id for one in self._client.search_experiments()]
        tags = {"name": pretraining["run"]}
        if found := self._find(_tags(pretraining), every):
            tags["id"] = found.info.run_id
        for name, value in tags.items():
            self._client.set_tag(self.run_id, f"xalign.pretraining_run_{name}", value)

    def _find(self, tags: dict[str, str], experiments: list[str] | None = None) -> Run | None:
        query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        found = self._client.search_runs(
            experiments or [self._experiment], query, max_results=1, order_by=["attributes.start_time"]
        )
        if not found:
            return None
        # A search may lag behind on large servers; the run itself does not.
        return self._client.get_run(found[0].info.run_id)

    def _create(self) -> Run:
        tags = {**_identity_tags(self.folder), "xalign.run": self.folder.resolve().name}
        shown = ("recipe", "workers", "zero_stage")
        tags |= {f"xalign.{name}": str(self._start[name]) for name in shown if name in self._start}
        if recipe := self._start.get("recipe"):
            tags |= {"mlflow.source.name": recipe, "mlflow.source.type": "LOCAL"}  # beside it MLflow shows the commit
        name, started = self._start.get("title") or self.folder.resolve().name, milliseconds(self._start)
        return self._client.create_run(self._experiment, start_time=started, tags=tags, run_name=name)

    def _describe(self, run: Run) -> None:
        """Brings everything but numbers up to date: status, parent, parameters, data set."""
        if run.info.status != "RUNNING":
            self._client.update_run(self.run_id, status="RUNNING")
        if (parent := self._start.get("parent")) and (found := self._find(_tags(parent))):
            self._client.set_tag(self.run_id, "mlflow.parentRunId", found.info.run_id)
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
            self._log_dataset(dataset)

    def _log_dataset(self, dataset: DatasetInput) -> None:
        try:
            self._client.log_inputs(self.run_id, [dataset])
        except MlflowException:
            # Runs over the same data that start together all create it in the experiment; later it is found.
            self._client.log_inputs(self.run_id, [dataset])

    def _log_scores(self) -> None:
        files = RunFolder(self.folder).score_files
        records = [record for path in files for record in read_headlines(path)]
        if not records:
            return
        known = self._client.get_run(self.run_id).data.metrics
        training = sum("/" in key for key in known)
        # A score that has not changed is not logged again; one that has gets the newest time and is shown.
        when = int(max(path.stat().st_mtime for path in files) * 1000)
        scores = headline_scores(records, MAX_KEYS - training).items()
        points = [Metric(key, value, when, step) for key, (value, step) in scores if known.get(key) != value]
        self._client.log_batch(self.run_id, metrics=points, synchronous=True)
        self._client.log_text(self.run_id, table(records), "scores.csv")

    def _log_comparison(self) -> None:
        """Of a continued run with its base, at the run's last step."""
        path = RunFolder(self.folder).comparison
        if not path.is_file():
            return
        known = self._client.get_run(self.run_id).data.metrics
        when = int(path.stat().st_mtime * 1000)
        found = {key: value for key, value in comparison_metrics(path).items() if known.get(key) != value}
        room = max(0, MAX_KEYS - len(known.keys() - found.keys()))
        points = [Metric(key, value, when, self._last["step"]) for key, value in list(found.items())[:room]]
        self._client.log_batch(self.run_id, metrics=points, synchronous=True)

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
        for name, text in language_tables(RunFolder(self.folder).events).items():
            self._client.log_text(self.run_id, text, name)

    def _log_model(self) -> None:
        """Of a finished pretraining."""
        export = RunFolder(self.folder).export
        if read_manifest(self.folder) is None or read_manifest(export) is None:
            return
        name = read_saved(self.folder).get("track", {}).get("registered_model_name")
        log_model(self._client, self._client.get_run(self.run_id), export.resolve(), self._start["fingerprint"], name)


def _open_experiment(client: MlflowClient, tracking_uri: str, name: str, kind: ExperimentKind) -> str:
    if found := client.get_experiment_by_name(name):
        return found.experiment_id
    try:
        tags = experiment_tags(int(time.time() * 1000), kind)
        return client.create_experiment(name, artifact_location=_artifact_location(tracking_uri), tags=tags)
    except MlflowException:
        # Two runs that start together both create it; the second finds it.
        if found := client.get_experiment_by_name(name):
            return found.experiment_id
        raise


def _artifact_location(tracking_uri: str) -> str | None:
    """Beside a SQLite file, because MLflow's default is the current directory; a server knows its own."""
    if not tracking_uri.startswith("sqlite:///"):
        return None
    return (Path(tracking_uri.removeprefix("sqlite:///")).parent / "mlflow-artifacts").as_uri()


def _identity_tags(folder: Path) -> dict[str, str]:
    identity = run_identity(folder)
    assert identity, f"the run in {folder} has not started"
    return _tags(identity)


def _tags(identity: dict[str, str]) -> dict[str, str]:
    return {f"xalign.{name}": identity[name] for name in ("fingerprint", "started")}
