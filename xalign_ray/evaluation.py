"""Evaluations: the encoder that a user names, the folder of its scores, and where they are published."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.explain import check_folder, suggest
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.track.destinations import Track, resolve_uri, track_of, tracks_of
from xalign_ray.track.follower import publish
from xalign_ray.work.artifacts import EVALUATION_KIND, finished_run, hash_value, whole_manifest
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import check_lasting, local_folder, opened, url_of
from xalign_ray.work.run_folder import CONFIG, EVALUATION, RUNS, SCORES, RunFolder, check_export
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import absolute_model, absolute_path, is_folder_name, is_url, quoted, shown_path

if TYPE_CHECKING:
    from xalign_ray.tasks.scores import Score


def refuse_other_folders(target: Path) -> None:
    """Raises ConfigError for the folder of a run, a model or a study: scores would replace its log and manifest."""
    manifest = whole_manifest(target)
    if (target / CONFIG).is_file() or (manifest is not None and manifest.get("kind") != EVALUATION_KIND):
        raise ConfigError(f"--out {shown_path(target)} is the folder of a run, a model or a study. Name another.")


def say_scores(scores: Sequence[Score], target: Path, run: Path | None) -> None:
    """The table of scores, where they are, and the command that shows them."""
    from xalign_ray.tasks.scores import show_scores

    for line in show_scores(scores, shutil.get_terminal_size().columns):
        say(line)
    layers = len({score.layer for score in scores if isinstance(score.layer, int)})
    say(f"Scores{f', of {layers} single layers too' if layers else ''}: {shown_path(target / SCORES)}")
    say_next(f"xalign report {quoted(run or target)}")


def say_replaced(scores: Iterable[Score], target: Path) -> None:
    """Prints the scores of other encoders, tasks, test sets or languages that will be replaced in a folder."""
    from xalign_ray.tasks.scores import ALL_LANGUAGES, read_scores

    before: list[Score] = []
    with suppress(DataError):
        before = read_scores(target / SCORES)
    again = {(score.encoder, score.task, score.split, score.language) for score in scores}
    lost: dict[tuple[str, str, str], dict[str, None]] = {}
    for score in before:
        test = score.encoder, score.task, score.split
        if score.language != ALL_LANGUAGES and (*test, score.language) not in again:
            lost.setdefault(test, {})[score.language] = None
    for (encoder, task, split), languages in lost.items():
        say(f"Replaced: scores of {encoder} on {task} ({split}) in {', '.join(languages)}. --out DIR keeps both.")


def name_of(encoder: str, run: Path | None) -> str:
    """The name of an encoder for the user: its run, its folder's name, or its hub id."""
    return run.name if run else Path(encoder).name if Path(encoder).is_dir() else encoder


def find_encoder(model: str) -> tuple[str, Path | None]:
    """The encoder to open, and the run folder it belongs to if it is one of ours.

    Raises:
        ConfigError: it is a path, no hub id, and there is no such folder.
        DataError: a file of our export is missing or not as it was written.
    """
    local = local_folder(model)
    model = str(opened(model)) if url_of(local) else absolute_model(str(local) if is_url(model) else model)
    folder = Path(model)
    if is_folder_name(model):
        check_folder(folder)
    named = RunFolder(folder)
    run = named if named.export.is_dir() or named.events.is_file() else RunFolder.of_export(folder)
    if run and "recipe" in read_saved(run.path) and not run.export.is_dir():
        state = "its export was removed" if finished_run(folder) else "it has not finished, and has no export yet"
        raise DataError(
            f"{shown_path(folder)} is a run, and {state}. Give its `xalign pretrain` again; `xalign export "
            f"{quoted(folder)}` exports its newest checkpoint."
        )
    if named.export.is_dir():
        check_export(named.export)
        return str(named.export), folder
    if folder.is_dir():
        check_export(folder)
    return model, run.path if run and run.config.is_file() else None


def target_folder(out: Path | None, run: Path | None, encoder: str, task: str) -> Path:
    """The folder of scores: `out`, else `<run>/evaluation/<task>`, of another model `runs/evaluation/<model>/<task>`.

    The name of a model's folder gets a hash of its path: two folders of one name have a target each.
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


def track_of_scores(run: Path | None, has_folder: bool) -> Track | None:
    """The MLflow track of scores: their run's; of another model, without `--out`, the default one in `runs`."""
    if run:
        saved = read_saved(run)
        return _track_of_run(run, saved) if "recipe" in saved else None
    return None if has_folder else Track(resolve_uri("sqlite", RUNS), "xalign")


def _track_of_run(run: Path, saved: Mapping[str, Any]) -> Track | None:
    track = saved["track"]
    return track_of(track["mlflow"], track["experiment"], _output_of(run, saved))


def _output_of(run: Path, saved: Mapping[str, Any]) -> Path:
    """The folder of runs that the recipe names, or the folder around the run if it was moved."""
    output = local_folder(saved["output"])
    return output if output.is_dir() else run.absolute().parent


def publish_scores(run: Path | None, target: Path | None = None) -> None:
    """Adds a run's new scores to its model card and to the trackers in its config.

    Args:
        target: the folder of the scores; nothing is done if it is outside of the run, which may be read-only.
    """
    if run is None or (target and not target.resolve().is_relative_to(run.resolve())):
        return
    saved = read_saved(run)
    if "recipe" not in saved:
        return
    from xalign_ray.results.card import write_model_card

    with open_job(run, "model card", upload="its card") as job:
        job.finish(card=write_model_card)
    for track in tracks_of(saved["track"], _output_of(run, saved)):
        if sentence := publish(run, track.uri, track.experiment):
            say(sentence)
