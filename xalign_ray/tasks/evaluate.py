"""A fine-tuned folder scored on its task's test files, in every language asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.tasks.encoder import open_model, origin_of
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.scores import Score, average_languages, score_by
from xalign_ray.tasks.task import Files, TunedTask

ENGLISH = "en"
SCORING_BATCH = 64

Task = TunedTask[Any, Any]


def evaluate_task(
    task: Task,
    folder: str,
    data_folders: tuple[Path, ...],
    languages: Sequence[str] | None = None,
    batch_size: int = SCORING_BATCH,
    device: str = "cpu",
) -> list[Score]:
    """The metrics of a fine-tuned folder in every language found, and their mean over languages.

    Test files are scored; dev files only where the data has no test file at all, as `split` in the score says.

    Raises:
        DataError: the folder was not fine-tuned for the task, or files are missing or malformed.
    """
    model, tokenizer = open_model(folder, task.model_class)
    classes = _tuned_classes(task, model.config, folder)
    model.to(device).eval()
    inputs = Inputs.of_model(tokenizer, model, folder)
    tuned_on = getattr(model.config, "xalign_tune_language", ENGLISH)
    found = task.find(data_folders)
    split, chosen = choose_tested(task, found, languages, tuned_on, data_folders)
    inputs.check_languages({name for language in chosen for name in task.speaks(language)})
    origin = origin_of(model.config, folder)
    scores = []
    for language in chosen:
        measures = task.score(model, inputs, task.read(found[split][language], language), classes, batch_size)
        scores += [
            score_by(
                origin,
                task=task.name,
                split=split,
                language=language,
                layer=None,
                pooling=None,
                metric=metric if tuned_on == ENGLISH else f"{metric}_supervised",
                **asdict(measure),
            )
            for metric, measure in measures.items()
        ]
    return scores + average_languages(scores)


def as_evaluation(task: Task) -> Callable[..., list[Score]]:
    """The task as `xalign evaluate` calls one: a fine-tuned folder, one folder of data, languages."""

    def evaluate(
        encoder_folder: str,
        data: Path,
        languages: Sequence[str] | None = None,
        batch_size: int = SCORING_BATCH,
        device: str = "cpu",
    ) -> list[Score]:
        return evaluate_task(task, encoder_folder, (data,), languages, batch_size, device)

    return evaluate


def choose_tested(
    task: Task, found: Files, asked: Sequence[str] | None, tuned_on: str, data: tuple[Path, ...]
) -> tuple[str, list[str]]:
    """The split and the languages that are scored: all from English, else only the language tuned on itself."""
    split = "test" if found["test"] else "dev"
    if tuned_on == ENGLISH:
        return split, task.choose(found[split], asked, _join(data))
    if others := sorted(set(asked or ()) - {tuned_on}):
        raise DataError(
            f"A model fine-tuned on {tuned_on} is scored on {tuned_on} only, not on {', '.join(others)}; zero-shot "
            "scores are those of a model fine-tuned on English."
        )
    return split, task.choose(found[split], [tuned_on], _join(data))


def _tuned_classes(task: Task, config: Any, folder: str) -> tuple[str, ...]:
    """The classes of a fine-tuned folder's head, in the order of their ids.

    A folder made elsewhere will do where its head has exactly the task's classes.
    """
    named = tuple(config.id2label[index] for index in range(len(config.id2label)))
    ours = getattr(config, "xalign_task", None) == task.name
    if not ours and (not task.classes or set(named) != set(task.classes)):
        raise DataError(f"{folder} has no head for {task.title}; fine-tune it first (xalign tune).")
    return named if task.classes or ours else ()


def _join(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
