"""The verbs on finished encoders as plain functions: a model and a task in, scores out. No option is born here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.explain import check_folder, suggest
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import ConfigError
from xalign_ray.pipeline import check_export
from xalign_ray.track.follower import Track, publish, resolve_uri, track_of
from xalign_ray.track.scored_encoder import scoring_identity
from xalign_ray.work.artifacts import EVALUATION_KIND, hash_file, hash_value, whole_manifest
from xalign_ray.work.job import open_job
from xalign_ray.work.local_paths import absolute_model, absolute_path, is_folder_name, quoted, shown_path
from xalign_ray.work.mirror import local_folder, opened, url_of
from xalign_ray.work.ray_job import check_lasting
from xalign_ray.work.run_folder import CONFIG, EVALUATION, RUNS, SCORES, RunFolder
from xalign_ray.work.status_line import say, say_next

if TYPE_CHECKING:
    from xalign_ray.tasks.scores import Score


def evaluate(
    model: str,
    task: str,
    data: Path | None,
    out: Path | None = None,
    languages: Sequence[str] | None = None,
    show: Callable[[list[Score]], None] = lambda _: None,
    prompt: str | None = None,
) -> list[Score]:
    """Scores an exported folder, a run folder or a hub model on a task. Never trains.

    Writes `scores.json` into `out`, by default into the folder of `target_folder`, with a log and a manifest: MLflow
    shows it below the encoder's run. Scores all languages of the data if none are named. `show` gets them before the
    last lines. `prompt` is put before each sentence, of a task that takes one; None is what the encoder's files name.
    """
    from xalign_ray.tasks.registry import TASKS
    from xalign_ray.tasks.scores import write_scores

    encoder, run = find_encoder(model)
    target = target_folder(out, run, encoder, task)
    if TASKS[known_task(task, TASKS)].needs_data and data is None:
        raise ConfigError(f"--data is needed: the files of {task}.")
    if prompt is not None and not TASKS[task].takes_prompt:
        takes = ", ".join(name for name, one in TASKS.items() if one.takes_prompt)
        raise ConfigError(f"--prompt: the task {task} puts no text before sentences; tasks that do: {takes}.")
    _refuse_other_folders(target)
    options = {} if prompt is None else {"prompt": prompt}
    name = name_of(encoder, run)
    say(f"Evaluating {name} on {task}: loading the model.")
    folder = opened(data) if data else None
    params = {"task": task, "data": None if folder is None else str(folder)} | options
    fingerprint = hash_value([encoder, list(languages or ()), params])
    params = {key: value for key, value in params.items() if value is not None}
    identity = scoring_identity(fingerprint, f"{name}: {task}", encoder, name, languages, params)
    if run is not None:  # which has these scores too, and which a search by method or scale is to find once
        identity["params"] = {
            key: identity["params"][key] for key in identity["params"].keys() - {"objective", "recipe"}
        }
    with open_job(target, f"evaluate {task}", identity) as job:
        job.follow(_track_of(run, out))
        scores = TASKS[task].evaluate(encoder, folder, languages, **options)
        write_scores(target / SCORES, scores)
        files = {SCORES: hash_file(target / SCORES)}
        job.finish({"kind": EVALUATION_KIND, "task": task, "encoder": encoder, "files": files})
    publish_scores(run)
    show(scores)
    say_scores(target, run)
    return scores


def _refuse_other_folders(target: Path) -> None:
    """Scores would replace the log and the manifest of what is in the folder."""
    manifest = whole_manifest(target)
    if (target / CONFIG).is_file() or (manifest is not None and manifest.get("kind") != EVALUATION_KIND):
        raise ConfigError(f"--out {shown_path(target)} is the folder of a run, a model or a study. Name another.")


def say_scores(target: Path, run: Path | None) -> None:
    """Where scores are, and the command that shows them."""
    say(f"Scores: {shown_path(target / SCORES)}")
    say_next(f"xalign report {quoted(run or target)}")


def name_of(encoder: str, run: Path | None) -> str:
    """What a user calls an encoder: its run, its folder's name, or its hub id."""
    return run.name if run else Path(encoder).name if Path(encoder).is_dir() else encoder


def find_encoder(model: str) -> tuple[str, Path | None]:
    """The encoder to open, and the run folder it belongs to if it is one of ours.

    Raises:
        ConfigError: it is a path, no hub id, and there is no such folder.
        DataError: a file of our export is missing or not as it was written.
    """
    model = str(opened(model)) if url_of(local_folder(model)) else absolute_model(model)
    folder = Path(model)
    if is_folder_name(model):
        check_folder(folder)
    if (export := RunFolder(folder).export).is_dir():
        check_export(export)
        return str(export), folder
    if folder.is_dir():
        check_export(folder)
    run = RunFolder.of_export(folder)
    return model, run.path if run and run.config.is_file() else None


def target_folder(out: Path | None, run: Path | None, encoder: str, task: str) -> Path:
    """Where scores go: `out`, else `<run>/evaluation/<task>`, of another model `runs/evaluation/<model>/<task>`.

    A folder has its place in its name: models of one name have a target each.
    """
    if out is None and run is not None:
        return RunFolder(run).evaluation(task)
    if out is None:
        is_folder = Path(encoder).is_dir()
        name = f"{Path(encoder).name}-{hash_value(encoder)[:8]}" if is_folder else encoder.replace("/", "--")
        out = absolute_path(RUNS / EVALUATION / name / task)
    check_lasting("--out", out)
    return local_folder(out)


def known_task(task: str, known: Iterable[str]) -> str:
    """The task's name, if it is one of these or a module of the user's own; else ConfigError with the nearest."""
    from xalign_ray.tasks.registry import load_task

    try:
        load_task(task)
    except ValueError as error:
        raise ConfigError(f"--task {task}: {error}.") from None
    if task not in known:
        raise ConfigError(f"unknown task '{task}'.{suggest(task, known)} Known: {', '.join(sorted(known))}.")
    return task


def _track_of(run: Path | None, out: Path | None) -> Track | None:
    """Where in MLflow an evaluation is shown: with its run; of other models in the database of `runs`."""
    if run:
        saved = read_saved(run)
        return _track_of_run(saved) if "recipe" in saved else None
    return None if out else Track(resolve_uri("sqlite", RUNS), "xalign")


def _track_of_run(saved: Mapping[str, Any]) -> Track | None:
    track = saved["track"]
    return track_of(track["mlflow"], track["experiment"], saved["output"])


def publish_scores(run: Path | None) -> None:
    """Brings a run's new scores to its model card and to where its config says it is tracked."""
    saved = read_saved(run) if run else {}
    if run is None or "recipe" not in saved:
        return
    from xalign_ray.results.card import write_model_card

    with open_job(run, "model card", upload="its card") as job:
        job.finish(card=write_model_card)
    track = _track_of_run(saved)
    if track and (sentence := publish(run, track.uri, track.experiment)):
        say(sentence)
