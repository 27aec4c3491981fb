"""Runs of a report: facts of a folder and its event log, and the labels of runs that share a column"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pandas as pd

from xalign_ray.config.saved import read_saved
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.track.events import Event, check_whole, stream_events
from xalign_ray.work.artifacts import read_manifest, whole_manifest
from xalign_ray.work.mirror import data_of_run
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.storage import hide_places

MAX_POINTS = 2000  # of a series; more are averaged in bins of steps
TOTAL, MASKED_LM, HELD_OUT = "train/loss", "train/loss_masked_lm", "held_out/loss"
RETRIEVAL = "retrieval/accuracy"
_BY_LANGUAGE = {"held_out": HELD_OUT, "retrieval": RETRIEVAL}  # the series of an event's `languages`
POINT = {"series": object, "language": object, "step": int, "value": float, "steps": int}
_COSTS = ("tokens", "cpu_seconds", "peak_memory_mb")  # of the end of a run or command, under `run/`
_WAITING = "waiting"
_AT_ONCE = 5000  # points that are read before they are thinned


@dataclass(frozen=True)
class Log:
    """A run's history along its surviving lineage; empty for an encoder made elsewhere.

    Attributes:
        starts, end: the events; no end of a run that has not ended.
        started: when the first attempt began, seconds since 1970.
        seconds: wall time of all attempts, work lost by a restart included.
        memory: peak, in MB, 0 where it was not logged.
        waiting: median share of step time spent waiting for rows.
        points: a row a point of a loss: series, language ("" for a mean over languages), step, value, and the number
            of logged steps up to this one that the value is the mean of. Losses that were not finite are left out.
        width: of the bins of steps that points are means over.
    """

    starts: tuple[Event, ...] = ()
    end: Event | None = None
    last_step: int = 0
    started: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    waiting: float | None = None
    points: pd.DataFrame = field(default_factory=lambda: _frame([]))
    width: int = 1

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Metrics of the end event; empty before the run has ended."""
        return (self.end or {}).get("metrics") or {}


def thin_points(points: pd.DataFrame, width: int = 1) -> tuple[pd.DataFrame, int]:
    """Points averaged over bins of steps, at least `width` wide and so wide that a series has at most MAX_POINTS.

    Returns:
        The points, and the width that was taken.
    """
    while len(points) and points.step.max() / width > MAX_POINTS:
        width *= 2
    weighted = points.assign(value=points.value * points.steps, bin=(points.step - 1) // width)
    bins = weighted.groupby(["series", "language", "bin"], sort=False)
    joined = bins.agg(step=("step", "max"), value=("value", "sum"), steps=("steps", "sum")).reset_index()
    return joined.assign(value=joined.value / joined.steps).reindex(columns=list(POINT)), width


def read_log(path: Path) -> Log:
    """Streams a log, however long it is: memory does not grow with its steps.

    Raises:
        DataError: the log ends before its run did, or a line inside it is damaged.
    """
    times: dict[int, tuple[float, float]] = {}
    points, width, read = _frame([]), 1, list[tuple]()
    starts, memory, last = list[Event](), 0.0, Event()
    for event, survives in stream_events(path):
        first, newest = times.get(event["attempt"], (event["time"], event["time"]))
        times[event["attempt"]] = min(first, event["time"]), max(newest, event["time"])
        if not survives:
            continue
        last = event
        starts += [event] if event["event"] == "start" else []
        memory = max(memory, event.get("metrics", {}).get("train/peak_memory_mb") or 0)
        read += _points(event)
        if len(read) > _AT_ONCE:
            points, width = thin_points(pd.concat([points, _frame(read)]), width)
            read = []
    points, width = thin_points(pd.concat([points, _frame(read)]), width)
    waited = points.value[points.series == _WAITING]
    return Log(
        starts=tuple(starts),
        end=last if last.get("event") == "end" else None,
        last_step=last.get("step", 0),
        started=min((first for first, _ in times.values()), default=0.0),
        seconds=sum(newest - first for first, newest in times.values()),
        memory=memory,
        waiting=float(waited.median()) if len(waited) else None,
        points=cast(pd.DataFrame, points[points.series != _WAITING]),
        width=width,
    )


def is_loss(metric: str) -> bool:
    """Whether it is the loss of a step, or of one of its objectives, which may be a plug-in's."""
    return metric.startswith(TOTAL)


def _frame(rows: Sequence[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(POINT)).astype(POINT)


def _points(event: Event) -> Iterator[tuple]:
    metrics = event.get("metrics", {})
    points = [("", name, metrics.get(name)) for name in _BY_LANGUAGE.values()]
    if series := _BY_LANGUAGE.get(event["event"]):
        points += [(language, series, value) for language, value in event.get("languages", {}).items()]
    if event["event"] == "step":
        points += [("", name, value) for name, value in metrics.items() if is_loss(name)]
        if metrics.get("train/step_ms"):
            points.append(("", _WAITING, metrics["train/data_wait_ms"] / metrics["train/step_ms"]))
    return ((name, language, event["step"], value, 1) for language, name, value in points if value is not None)


FIELDS = [field.name for field in fields(Score)]
_values_of = attrgetter(*FIELDS)


def frame_scores(scores: Iterable[Score], file: Any = None) -> pd.DataFrame:
    """A row a score: FIELDS, and the `file` that they were read from, beside which their predictions lie."""
    return pd.DataFrame([(*_values_of(score), file) for score in scores], columns=[*FIELDS, "file"], dtype=object)


NO_SCORES = frame_scores(())
PATHS = ("/", "./", "~/", "encoder:/", "encoder:./", "encoder:~/", "file:")  # of folders, which machines have elsewhere


@dataclass(frozen=True)
class Run:
    """One run folder, or a folder that holds only scores of an encoder made elsewhere.

    Attributes:
        folder: where it is; of a run that is not `on_disk`, such as one of a table or a bundle, no more than its name.
        config: the resolved recipe with its `recipe` and `fingerprint`; empty for an encoder made elsewhere.
        log: its history; empty for an encoder made elsewhere.
        scores: all scores of all evaluations, as `frame_scores` has them; a score that two files have stands twice.
        data: manifest of the prepared data, None where its folder is gone.
        label: of its column; empty before `label_runs`, unless a study gives one.
        study: the study.json of its study, with the `rates` that it tried.
        given_seed: that of an encoder without a recipe, where it is known.
        made_by: the cell of its study whose command made the encoder; None of others.
        on_disk: whether it was read from `folder`: of others no file is looked for there.
    """

    folder: Path
    config: Mapping[str, Any]
    log: Log
    scores: pd.DataFrame
    data: Mapping[str, Any] | None = None
    label: str = ""
    study: Mapping[str, Any] | None = None
    given_seed: int | None = None
    made_by: str | None = None
    on_disk: bool = False

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name if self.on_disk else self.folder.name

    @property
    def recipe(self) -> str:
        """The recipe's name, or the folder's where there was no recipe."""
        return self.config.get("recipe") or self.name

    @property
    def seed(self) -> int | None:
        """Seed of pretraining."""
        return self.config.get("seed", self.given_seed)

    @property
    def is_given(self) -> bool:
        """Whether its study did not train the encoder: none of the study's seeds belongs to it."""
        study = self.study or {}
        encoders = (encoder for encoder in study.get("study", {}).get("encoders", ()) if encoder.get("model"))
        return any(is_of(self.label, encoder.get("label") or encoder["model"], study) for encoder in encoders)

    @property
    def column(self) -> str:
        """The same for runs that differ in nothing but their seed."""
        return self.config.get("column") or self.config.get("fingerprint", "")

    @property
    def scale(self) -> str:
        """That of its study, else the folder of its recipe, such as papers or tiny; empty where neither is known."""
        of_study = (self.study or {}).get("scale")
        name = Path(self.config.get("recipe") or "")
        return of_study or ("own" if name.suffix else "" if name.parent == Path() else str(name.parent))

    @property
    def finished(self) -> bool:
        """Whether the last step was reached; an encoder made elsewhere counts as finished."""
        return not self.log.started or self.log.end is not None

    @property
    def on_demo(self) -> bool:
        """Whether the data is the embedded world, which is no source of claims."""
        root = self.config.get("data", {}).get("root")
        return root == "demo" or bool(root and (whole_manifest(Path(root)) or {}).get("kind") == "demo")

    def sources(self, key: str) -> Sequence[Mapping[str, Any]]:
        """The recipe's `corpora`, `parallel`, `tests` or `dictionaries`."""
        return self.config.get("data", {}).get(key, [])


def read_run(folder: Path) -> Run:
    """Reads a run folder, finished or not, or a folder with scores.json alone.

    Raises:
        DataError: there is neither an event log nor a score in it, or a file of it is damaged.
    """
    path = RunFolder(folder).events
    check_whole(path)
    frames = [frame_scores(read_scores(file), file) for file in RunFolder(folder).score_files]
    scores = pd.concat([NO_SCORES, *frames], ignore_index=True)
    if not path.is_file() and scores.empty:
        raise DataError(
            f"{folder} is not a run: it holds neither {path.name} nor a scores.json. Give run folders, such as those "
            "below runs/, or results of mteb with their model_meta.json."
        )
    log = read_log(path) if path.is_file() else Log()
    made_of = next((start["data"] for start in reversed(log.starts) if start.get("data")), None)
    downloaded = RunFolder(folder).data
    data = downloaded if downloaded.is_dir() else made_of and data_of_run(folder, made_of)
    return Run(folder, read_saved(folder), log, scores, read_manifest(data) if data else None, on_disk=True)


def as_published(runs: Sequence[Run]) -> list[Run]:
    """Runs as others may read of them: see `hide_places`; hosts and users of start events are left out."""
    studies = {id(run.study): hide_places(run.study) for run in runs}
    return [replace(_published(run), study=studies[id(run.study)]) for run in runs]


def _published(run: Run) -> Run:
    config = {**hide_places(run.config), "output": "runs"} if run.config else {}
    if run.on_demo:
        config["data"]["root"] = "demo"  # where it lies here, it does not lie there
    starts = tuple(
        hide_places({**start, "hosts": None, "origin": start.get("origin", {}) | {"host": None, "user": None}})
        for start in run.log.starts
    )
    log = replace(run.log, starts=starts, end=hide_places(run.log.end))
    scores = run.scores.assign(encoder=[*map(hide_places, run.scores.encoder)])
    return replace(run, config=config, log=log, scores=scores, data=hide_places(run.data), label=hide_places(run.label))


def label_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs with labels, grouped by label, in the order of each label's first run.

    Without a label of a study, runs belong together by the column that each wrote at its start; a second run of the
    same seed gets another label, so that a repetition is never counted as a seed. Of one recipe's several columns each
    has the label that was written at its start.

    Raises:
        ConfigError: there is none.
    """
    if not runs:
        raise ConfigError("A report needs at least one run.")
    groups: dict[tuple[Any, ...], list[Run]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for run in runs:
        recipe = (run.recipe, run.column)
        key = (run.label,) if run.label else (*recipe, seen[(*recipe, run.seed)])
        seen[(*recipe, run.seed)] += not run.label
        groups.setdefault(key, []).append(run)
    firsts = [group[0] for group in groups.values()]
    names = Counter(run.recipe for run in firsts if not run.label)
    labels = [
        run.label or (run.config.get("label", run.recipe) if names[run.recipe] > 1 else run.recipe) for run in firsts
    ]
    count = Counter(labels)
    return [
        replace(run, label=f"{group[0].recipe} ({group[0].name})" if count[label] > 1 else label)
        for label, group in zip(labels, groups.values(), strict=True)
        for run in group
    ]


def is_of(shown: str, label: str, study: Mapping[str, Any]) -> bool:
    """Whether a column is of an encoder: its label, which another study or a kind of training lengthens."""
    own_label = shown.removesuffix(f" ({study['name']})")
    return own_label == label or (label not in study["labels"] and own_label.startswith(f"{label} "))


def columns_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each label."""
    columns: dict[str, list[Run]] = {}
    for run in runs:
        columns.setdefault(run.label, []).append(run)
    return columns


def cost_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """What each training took, a row a run; seconds are of all attempts, megabytes of a command's processes."""
    rows = [
        (
            *(run.label, run.name, run.seed, run.log.seconds),
            run.log.seconds * run.log.starts[-1].get("workers", 1) / 3600,
            *(run.log.metrics.get(f"run/{name}") for name in _COSTS),
        )
        for run in runs
        if run.log.started
    ]
    frame = pd.DataFrame(rows, columns=["encoder", "name", "seed", "seconds", "worker_hours", *_COSTS])
    return frame.astype(dict.fromkeys(_COSTS, float))


def studies_of(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """The studies of the runs by name, once each."""
    return {run.study["name"]: run.study for run in runs if run.study}
