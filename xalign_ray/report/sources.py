"""Finds the runs that a report is asked for: folders of runs and studies, or what MLflow holds of them."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.artifacts import check_files, read_manifest
from xalign_ray.config.explain import check_folder
from xalign_ray.credentials import with_credentials
from xalign_ray.errors import TrackingError, XalignError
from xalign_ray.report.run import Run, read_run
from xalign_ray.report.study_folder import CHOICES, HINT, STUDY, kept, read_choices, read_study, tried
from xalign_ray.report.trials import join_trials
from xalign_ray.track.follower import quiet_mlflow, reason_of

MLFLOW = "mlflow:"


def find_runs(names: Sequence[str], tracking_uri: str) -> list[Run]:
    """The runs in the order of their names, those of an experiment from the oldest; one that is named twice once.

    Of a study these are its pretraining runs with the scores of its own cells, labelled as the study labels them.
    Runs of an experiment that hold no scores are passed over, and so are fine-tunings of settings that were not chosen.

    Args:
        names: folders of runs and of studies, `mlflow:EXPERIMENT` and `mlflow:RUN_ID`.
        tracking_uri: as `follower.resolve_uri` returns it.

    Raises:
        ConfigError: there is no such folder.
        DataError: a folder is no run, or a file of it is damaged.
        TrackingError: MLflow cannot be reached, has no such run or experiment, or no scores of it.
    """
    for name in names:
        if not name.startswith(MLFLOW):
            check_folder(Path(name))
    runs: list[Run] = []
    for name in dict.fromkeys(names):
        if name.startswith(MLFLOW):
            runs += _from_mlflow(name.removeprefix(MLFLOW), tracking_uri)
        else:
            is_study = any((Path(name) / file).is_file() for file in (STUDY, CHOICES))
            runs += _from_study(Path(name)) if is_study else [read_run(Path(name))]
    return _with_distinct_labels(runs)


def _from_study(folder: Path) -> list[Run]:
    check_files(folder, (read_manifest(folder) or {}).get("files", {}), HINT)
    study = read_study(folder)
    found = []
    for cell in study.cells:
        path = folder / (cell["folder"] or "")
        if cell["kind"] == "pretraining" and path.is_dir() and cell["state"] not in ("waiting", "failed"):
            # What else was ever evaluated in its folder is not of this study.
            found.append(replace(read_run(path), scores=(), label=cell["label"], study=study))
        elif cell["kind"] != "pretraining" and study.counts(cell):
            found.append(replace(read_run(path), config={}, label=cell["label"], study=study))
    order = {label: place for place, label in enumerate(study.labels)}
    return sorted(join_trials(found), key=lambda run: order.get(run.label or "", len(order)))


def _with_distinct_labels(runs: Sequence[Run]) -> list[Run]:
    """Columns of two studies that have one label and are not of the same runs get the study's name."""
    found: dict[str, dict[str, set[Path]]] = defaultdict(lambda: defaultdict(set))
    for run in runs:
        if run.label and run.study:
            found[run.label][run.study.name].add(run.folder.resolve())
    clash = {label for label, by_study in found.items() if len(set(map(frozenset, by_study.values()))) > 1}
    return [
        replace(run, label=f"{run.label} ({run.study.name})") if run.label in clash and run.study else run
        for run in runs
    ]


def _from_mlflow(name: str, tracking_uri: str) -> list[Run]:
    database = Path(tracking_uri.removeprefix("sqlite:///"))
    if tracking_uri.startswith("sqlite:///") and not database.is_file():
        raise TrackingError(f"{database} is missing: give --tracking, where MLflow keeps the runs.")
    quiet_mlflow()
    try:
        runs = list(_restore(name, tracking_uri))
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


def _restore(name: str, tracking_uri: str) -> Iterator[Run]:
    # MLflow takes 2-3 s to import: only where it is asked for.
    from mlflow import MlflowClient

    from xalign_ray.track import restore

    client = MlflowClient(with_credentials(tracking_uri))
    with tempfile.TemporaryDirectory(prefix="xalign-report-") as scratch:
        every = [
            (run, Path(scratch) / run.info.run_id / restore.name_of(run)) for run in restore.find_runs(client, name)
        ]
        folders = [folder for run, folder in every if restore.restore(client, run, folder)]
        choices = [one for folder in folders if (folder / CHOICES).is_file() for one in read_choices(folder)]
        trainings, left_out = kept(choices), tried(choices) - kept(choices).keys()
        for run in map(read_run, folders):
            if run.scores and run.name not in left_out:
                yield _of_training(run, trainings.get(run.name, ""))


def _of_training(run: Run, training: str) -> Run:
    """An encoder that was tuned on more than plain English is another column's."""
    suffix = f", {training}" if training else ""
    own = (replace(score, run=f"{score.run or Path(score.encoder).name}{suffix}") for score in run.scores)
    return replace(run, scores=tuple(own)) if suffix else run
