"""The verbs on finished encoders as plain functions: a model and a task in, scores out. No option is born here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.explain import check_folder, suggest
from xalign_ray.config.saved import CONFIG, read_saved
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.pipeline import check_export, check_lasting, say
from xalign_ray.run_folder import EXPORT

if TYPE_CHECKING:
    from xalign_ray.tasks.scores import Score

EVALUATION = "evaluation"


def evaluate(
    model: str, task: str, data: Path | None, out: Path | None = None, languages: Sequence[str] | None = None
) -> list[Score]:
    """Scores an exported folder, a run folder or a hub model on a task. Never trains.

    Writes `scores.json` into `out`, by default `<run>/evaluation/<task>` for a run's own export. Scores all languages
    of the data if none are named.
    """
    from xalign_ray.tasks.registry import TASKS, WITHOUT_DATA
    from xalign_ray.tasks.scores import SCORES, write_scores

    encoder, run = find_encoder(model)
    target = _target(out, run, task)
    if _known(task, TASKS) not in WITHOUT_DATA and data is None:
        raise ConfigError(f"--data is needed: the files of {task}.")
    scores = TASKS[task](encoder, data, languages)
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
    from xalign_ray.finetune.settings import FineTuning
    from xalign_ray.finetune.tune import check_files
    from xalign_ray.tasks.registry import TUNED_TASKS
    from xalign_ray.tasks.scores import SCORES, write_scores

    if not data:
        raise ConfigError(f"--data is needed: the folder of {task}'s files; give it once for each folder.")
    encoder, run = find_encoder(model)
    target = _target(out, run, _known(task, TUNED_TASKS))
    settings = FineTuning(**_known_options(options or {}, FineTuning))
    if others := check_files(TUNED_TASKS[task], data, languages, train_language):
        say(others)
    from xalign_ray.config.schema import ParallelConfig
    from xalign_ray.tasks.grid import Trial, tune_grid  # Ray is not started, nor imported, before names are right
    from xalign_ray.tasks.trial_log import TrialNotes
    from xalign_ray.track.events import run_identity
    from xalign_ray.train.driver import connect

    connect(ParallelConfig())
    folders = tuple(str(folder.absolute()) for folder in data)
    tested = tuple(languages) if languages else None
    trial = Trial(task, encoder, folders, settings, languages=tested, train_language=train_language)
    notes = TrialNotes(f"{run.name if run else encoder} {task}", parent=run_identity(run) if run else None)
    outcome = tune_grid([trial], target.absolute(), max_concurrent_trials=1, notes={trial: notes})
    if trial.name in outcome.failures:
        raise TrainingError(f"Fine-tuning {encoder} on {task} failed: {outcome.failures[trial.name]}")
    scores = outcome.scores[trial.name]
    write_scores(target / SCORES, scores)
    _publish(run)
    return scores


def _known_options(options: dict[str, Any], settings: type) -> dict[str, Any]:
    for name in options:
        _known(name, [field.name for field in fields(settings)], "option")
    return options


def find_encoder(model: str) -> tuple[str, Path | None]:
    """The encoder to open, and the run folder it belongs to if it is one of ours.

    Raises:
        ConfigError: it is a path, no hub id, and there is no such folder.
        DataError: a file of our export is missing or not as it was written.
    """
    folder = Path(model)
    if not _can_be_on_the_hub(model):
        check_folder(folder)
    if (folder / EXPORT).is_dir():
        check_export(folder / EXPORT)
        return str(folder / EXPORT), folder
    if folder.is_dir():
        check_export(folder)
    run = folder.parent
    return model, run if folder.name == EXPORT and (run / CONFIG).is_file() else None


def _can_be_on_the_hub(model: str) -> bool:
    """Whether it has the form of a hub id, and does not begin with a folder that is here."""
    organisation, _, _ = model.rpartition("/")
    is_path = model.startswith((".", "/")) or "/" in organisation
    return not is_path and not (organisation and Path(organisation).is_dir())


def _target(out: Path | None, run: Path | None, task: str) -> Path:
    if out is None and run is None:
        raise ConfigError("--out is needed: the model is not a run of ours, so there is no folder to write beside it.")
    target = out or run / EVALUATION / task  # type: ignore[operator]
    check_lasting("--out", target)
    return target


def _known(word: str, known: Iterable[str], what: str = "task") -> str:
    if word not in known:
        raise ConfigError(f"unknown {what} '{word}'.{suggest(word, known)} Known: {', '.join(sorted(known))}.")
    return word


def _publish(run: Path | None) -> None:
    """Brings a run's new scores to its model card and to where its config says it is tracked."""
    saved = read_saved(run) if run else {}
    if run is None or "recipe" not in saved:
        return
    from xalign_ray.report.card import write_model_card
    from xalign_ray.track.follower import publish, resolve_uri

    write_model_card(run)
    if saved["track"]["mlflow"] == "off":
        return
    if said := publish(run, resolve_uri(saved["track"]["mlflow"], Path(saved["output"])), saved["track"]["experiment"]):
        say(said)
