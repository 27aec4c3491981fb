"""The verbs as plain functions: a recipe or a folder in, an artifact out. No option is born here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xalign_ray.artifacts import read_manifest, write_atomic, write_manifest
from xalign_ray.config.derive import run_fingerprint
from xalign_ray.config.explain import suggest
from xalign_ray.config.load import Recipe
from xalign_ray.config.start import base_recipe, settle
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, DataError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from xalign_ray.data.prepared import Prepared
    from xalign_ray.tasks.grid import Trial
    from xalign_ray.tasks.scores import Score

CONFIG, EXPORT, EVALUATION = "config.yaml", "export", "evaluation"
JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what Ray sets in the process that `ray job submit` started, and only there


def prepare(recipe: Recipe, verify: bool = True) -> Prepared:
    """The token shards of a recipe: made if they do not exist, checked and mended if they do."""
    _check_lasting("output", recipe.config.output)
    from xalign_ray.data.inputs import check_inputs

    check_inputs(recipe.config)  # before the imports that take seconds
    from xalign_ray.data.prepare import prepare as prepare_data
    from xalign_ray.train.driver import connect

    base = base_recipe(recipe)
    tokenizer = str(prepare(base, verify).tokenizer_folder) if base else recipe.config.model.init_from
    connect(recipe.config.parallel)
    return prepare_data(settle(recipe, tokenizer).config, verify)


def pretrain(recipe: Recipe, out: Path | None = None, local: bool = False) -> Path:
    """Trains a recipe to its last step, from its newest checkpoint if there is one, and exports it.

    Args:
        out: the run folder; `<output>/<recipe>-<fingerprint>` if not given.
        local: train in this process (or in torchrun's processes) without Ray; the shards must have been prepared.

    Returns:
        The run folder. A finished one is returned as it is.
    """
    _check_lasting("output", recipe.config.output)
    _check_lasting("--out", out)
    base = base_recipe(recipe)
    start = str((pretrain(base, local=local) / EXPORT).absolute()) if base else recipe.config.model.init_from
    recipe = settle(recipe, start)
    return _pretrain_here(recipe, out) if local else _pretrain_on_ray(recipe, out)


def find_run(recipe: Recipe) -> Path | None:
    """The folder of a recipe's run if its shards are there, whether or not the run is; makes nothing."""
    from xalign_ray.data.prepare import find_prepared

    if base := base_recipe(recipe):
        start = find_run(base)
        if start is None or read_manifest(start) is None:
            return None
        recipe = settle(recipe, str((start / EXPORT).absolute()))
    prepared = find_prepared(recipe.config)
    return run_folder(recipe, run_fingerprint(recipe.config, prepared.fingerprint)) if prepared else None


def _check_lasting(key: str, path: str | Path | None) -> None:
    """Refuses a relative output in a Ray job: its working directory is an unpacked upload that goes with the job."""
    if JOB_MARK in os.environ and path is not None and not Path(path).is_absolute():
        raise ConfigError(
            f"{key} is '{path}': in a Ray job a relative path lies in the uploaded copy of the code, which is removed "
            "after the job. Give an absolute one that all nodes see, for example --set output=/shared/runs."
        )


def _pretrain_on_ray(recipe: Recipe, out: Path | None) -> Path:
    from xalign_ray.data.inputs import check_inputs

    check_inputs(recipe.config)
    from xalign_ray.data.prepare import prepare as prepare_data
    from xalign_ray.train.driver import connect, run_on_ray

    connect(recipe.config.parallel)
    prepared = prepare_data(recipe.config)
    folder, facts = _open_run(recipe, prepared, out)
    if read_manifest(folder) is None:
        with _followed(recipe, folder):
            run_on_ray(recipe.config, folder, prepared.folder, facts)
            _finish_run(recipe, prepared, folder, facts)
    return folder


def _pretrain_here(recipe: Recipe, out: Path | None) -> Path:
    from xalign_ray.data.local import open_local
    from xalign_ray.data.prepare import find_prepared
    from xalign_ray.train.distributed import join
    from xalign_ray.train.loop import train
    from xalign_ray.train.progress import Progress

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    config = recipe.config
    config = config.model_copy(update={"parallel": config.parallel.model_copy(update={"workers": size})})
    recipe = replace(recipe, config=config)
    prepared = find_prepared(config)
    if prepared is None:
        raise DataError(
            "The shards of this recipe are not there yet, and --no-ray does not make them: run `xalign prepare`."
        )
    folder, facts = _open_run(recipe, prepared, out, write=rank == 0)
    if read_manifest(folder) is not None:
        return folder
    with _followed(recipe, folder, active=rank == 0):
        train(
            config,
            folder,
            prepared,
            lambda first, rank, _: open_local(prepared, config, first, rank),
            join(config.parallel),
            facts,
            progress=Progress(config.train.steps, sys.stderr) if rank == 0 else None,
        )
        if rank == 0:
            _finish_run(recipe, prepared, folder, facts)
    return folder


def _open_run(recipe: Recipe, prepared: Prepared, out: Path | None, write: bool = True) -> tuple[Path, dict[str, Any]]:
    if recipe.config.model.init_from:
        from xalign_ray.models.backbone import check_tokenizer

        check_tokenizer(recipe.config.model.init_from, prepared.tokenizer_folder)
    fingerprint = run_fingerprint(recipe.config, prepared.fingerprint)
    folder = (out or run_folder(recipe, fingerprint)).absolute()
    if (before := _read_config(folder)) and before["fingerprint"] != fingerprint:
        raise ConfigError(
            f"{folder} holds a run of {before['recipe']} with fingerprint {before['fingerprint'][:8]}; this recipe's "
            f"is {fingerprint[:8]}. Give another --out, or remove the folder to start over."
        )
    facts = {
        "recipe": recipe.name,
        "fingerprint": fingerprint,
        "seed": recipe.config.seed,
        "data": str(prepared.folder.absolute()),
        "data_fingerprint": prepared.fingerprint,
    }
    if write:
        head = {"recipe": recipe.name, "fingerprint": fingerprint}
        text = yaml.safe_dump(head | recipe.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomic(folder / CONFIG, text)
    return folder, facts


def run_folder(recipe: Recipe, fingerprint: str) -> Path:
    """Where a run goes unless told otherwise: the same recipe on the same data finds its own run again."""
    return Path(recipe.config.output) / f"{recipe.name.replace('/', '-')}-{fingerprint[:8]}"


def _read_config(folder: Path) -> dict[str, Any] | None:
    path = folder / CONFIG
    return parse_yaml(path.read_text(encoding="utf-8")) if path.is_file() else None


@contextmanager
def _followed(recipe: Recipe, folder: Path, active: bool = True) -> Iterator[None]:
    """While it lasts, the run's events go to MLflow; what MLflow missed is said once, at the end."""
    track = recipe.config.track
    if track.mlflow == "off" or not active:
        yield
        return
    from xalign_ray.track.follower import follow, resolve_uri

    follower = follow(folder, resolve_uri(track.mlflow, Path(recipe.config.output)), track.experiment)
    try:
        yield
    finally:
        if said := follower.close():
            say(said)


def _finish_run(recipe: Recipe, prepared: Prepared, folder: Path, facts: dict[str, Any]) -> None:
    from xalign_ray.report.card import write_model_card

    export_run(recipe, prepared, folder, facts)
    facts = {key: facts[key] for key in ("recipe", "fingerprint", "seed", "data_fingerprint")}
    write_manifest(folder, facts | {"steps": recipe.config.train.steps})
    write_model_card(folder)


def export_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    step: int | None = None,
    out: Path | None = None,
) -> Path:
    """Writes the weights of a run as a Hugging Face folder: of its newest checkpoint, or of a step."""
    from xalign_ray.models.export import export as write_export

    state, reached = _weights(recipe, prepared, folder, facts["fingerprint"], step)
    target = out or folder / (EXPORT if step is None else f"{EXPORT}_step_{step:06d}")
    write_export(
        state,
        recipe.config,
        prepared,
        target,
        {"recipe": recipe.name, "fingerprint": facts["fingerprint"], "step": reached},
    )
    return target


def _weights(
    recipe: Recipe, prepared: Prepared, folder: Path, fingerprint: str, step: int | None
) -> tuple[dict[str, Tensor], int]:
    """The weights and the step they are of; at step 0 those that the seed gives, as every run of it began."""
    from xalign_ray.train.checkpoint import newest
    from xalign_ray.train.consolidate import consolidate
    from xalign_ray.train.loop import build_objectives

    if step == 0:
        return build_objectives(recipe.config, prepared).state_dict(), 0
    checkpoint, _ = newest(folder, fingerprint, step)
    if checkpoint is None:
        asked = "whole checkpoint to export" if step is None else f"whole checkpoint of step {step}"
        raise DataError(f"{folder} has no {asked}; let `xalign pretrain` reach one.")
    return consolidate(checkpoint), checkpoint.step


def export(run: Path, step: int | None = None, out: Path | None = None) -> Path:
    """Exports a run folder again, finished or not.

    Args:
        step: of a checkpoint that was kept, the newest if None; 0 is the untrained encoder, the control of its run.
        out: `<run>/export` by default, for a step `<run>/export_step_<step>`.
    """
    from xalign_ray.config.schema import RunConfig
    from xalign_ray.data.prepared import Prepared
    from xalign_ray.track.events import read_events

    saved = _read_config(run)
    if saved is None:
        raise DataError(f"{run} is not a run folder: it has no {CONFIG}.")
    name, fingerprint = saved.pop("recipe"), saved.pop("fingerprint")
    recipe = Recipe(name, RunConfig.model_validate(saved), {})
    start = next(event for event in read_events(run / "events.jsonl") if event["event"] == "start")
    return export_run(recipe, Prepared.open(Path(start["data"])), run, {"fingerprint": fingerprint}, step, out)


def evaluate(
    model: str, task: str, data: Path | None, out: Path | None = None, languages: Sequence[str] | None = None
) -> list[Score]:
    """Scores an exported folder, a run folder or a hub model on a task. Never trains.

    Writes `scores.json` into `out`, by default `<run>/evaluation/<task>` for a run's own export. Scores all languages
    of the data if none are named.
    """
    from xalign_ray.tasks.registry import TASKS
    from xalign_ray.tasks.scores import SCORES, write_scores

    encoder, run = _find_encoder(model)
    target = _target(out, run, task)
    scores = TASKS[_known(task, TASKS)](encoder, data, languages)
    write_scores(target / SCORES, scores)
    _publish(run)
    return scores


def tune(
    model: str,
    task: str,
    data: Sequence[Path],
    out: Path | None = None,
    options: dict[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    train_language: str = "en",
) -> list[Score]:
    """Fine-tunes an encoder on English and scores it in every language: one trial of a grid, on Ray Tune.

    Another `train_language` is fine-tuned on and scored itself: the supervised score beside the zero-shot one.
    """
    from xalign_ray.config.schema import ParallelConfig
    from xalign_ray.tasks.fine_tune import FineTuning
    from xalign_ray.tasks.grid import Trial, tune_grid
    from xalign_ray.tasks.registry import TUNED_TASKS
    from xalign_ray.tasks.scores import SCORES, write_scores
    from xalign_ray.train.driver import connect

    encoder, run = _find_encoder(model)
    target = _target(out, run, _known(task, TUNED_TASKS))
    settings = FineTuning(**_known_options(options or {}, FineTuning))
    connect(ParallelConfig())
    folders = tuple(str(folder.absolute()) for folder in data)
    trial = Trial(task, encoder, folders, settings, tuple(languages) if languages else None, train_language)
    with _trial_logged(run, target, trial):
        outcome = tune_grid([trial], target.absolute(), max_concurrent_trials=1)
        if trial.name in outcome.failures:
            raise TrainingError(f"Fine-tuning {encoder} on {task} failed: {outcome.failures[trial.name]}")
    scores = outcome.scores[trial.name]
    write_scores(target / SCORES, scores)
    _publish(run)
    return scores


@contextmanager
def _trial_logged(run: Path | None, target: Path, trial: Trial) -> Iterator[None]:
    """Gives a fine-tuning a log and settings of its own, so that MLflow shows it as a child of its pretraining run."""
    from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, run_identity

    parent = run_identity(run) if run else None
    write_atomic(target / CONFIG, yaml.safe_dump({"task": trial.task} | asdict(trial), sort_keys=False))
    with EventLog(target / EVENT_LOG, last_attempt(target / EVENT_LOG) + 1) as log:
        log.write("start", 0, recipe=trial.task, fingerprint=trial.name, seed=trial.settings.seed, parent=parent)
        yield
        log.write("end", 0)


def _known_options(options: dict[str, Any], settings: type) -> dict[str, Any]:
    for name in options:
        _known(name, [field.name for field in fields(settings)], "option")
    return options


def _find_encoder(model: str) -> tuple[str, Path | None]:
    """The encoder to open, and the run folder it belongs to if it is one of ours."""
    folder = Path(model)
    if (folder / EXPORT / "config.json").is_file():
        return str(folder / EXPORT), folder
    run = folder.parent
    return model, run if folder.name == EXPORT and (run / CONFIG).is_file() else None


def _target(out: Path | None, run: Path | None, task: str) -> Path:
    if out is None and run is None:
        raise ConfigError("--out is needed: the model is not a run of ours, so there is no folder to write beside it.")
    target = out or run / EVALUATION / task  # type: ignore[operator]
    _check_lasting("--out", target)
    return target


def _known(word: str, known: Iterable[str], what: str = "task") -> str:
    if word not in known:
        raise ConfigError(f"unknown {what} '{word}'.{suggest(word, known)} Known: {', '.join(sorted(known))}.")
    return word


def _publish(run: Path | None) -> None:
    """Brings a run's new scores to its model card and to where its config says it is tracked."""
    saved = _read_config(run) if run else None
    if run is None or saved is None:
        return
    from xalign_ray.report.card import write_model_card
    from xalign_ray.track.follower import publish, resolve_uri

    write_model_card(run)
    if saved["track"]["mlflow"] == "off":
        return
    if said := publish(run, resolve_uri(saved["track"]["mlflow"], Path(saved["output"])), saved["track"]["experiment"]):
        say(said)


def say(text: str) -> None:
    """One line for the user, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
