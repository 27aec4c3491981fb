"""A fine-tuned model scored on its task's test files, in every language asked for, with what it predicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import write_atomic
from xalign_ray.errors import DataError
from xalign_ray.tasks.hf_encoder import AUTO, open_model, origin_of, pick_device
from xalign_ray.tasks.scores import Score, average_languages, score_by
from xalign_ray.tasks.task import SCORING_BATCH, Files, Tuned, TunedTask
from xalign_ray.tasks.tokenized import Inputs

ENGLISH = "en"
PREDICTIONS = "predictions"

Task = TunedTask[Any]


def evaluate_task(
    task: Task,
    folder: str,
    data_folders: tuple[Path, ...],
    languages: Sequence[str] | None = None,
    batch_size: int = SCORING_BATCH,
    device: str = AUTO,
) -> list[Score]:
    """The metrics of a fine-tuned folder in every language found, and their mean over languages.

    Test files are scored; dev files only where the data has no test file at all, as `split` in the score says.

    Raises:
        DataError: the folder was not fine-tuned for the task, or files are missing or malformed.
    """
    model, tokenizer = open_model(folder, task.model_class)
    classes = _tuned_classes(task, model.config, folder)
    model.to(pick_device(device)).eval()
    tuned = Tuned(model, Inputs.of_model(tokenizer, model, folder), classes, batch_size)
    found = task.find(data_folders)
    split, chosen = choose_tested(task, found, languages, _tuned_on(tuned), data_folders)
    tuned.inputs.check_languages({name for language in chosen for name in task.speaks(language)})
    return score_languages(task, tuned, split, {language: found[split][language] for language in chosen})


def score_languages(
    task: Task, tuned: Tuned, split: str, files: dict[str, Path], predictions: Path | None = None
) -> list[Score]:
    """The metrics of a fine-tuned model on a file a language, and their mean over languages.

    Args:
        task: that the model was tuned for.
        tuned: whose config says what it comes from.
        split: of the files.
        files: by language.
        predictions: a folder for `<language>.jsonl`: a line an example, with its key, the prediction and what is right.
    """
    origin, tuned_on = origin_of(tuned.model.config, tuned.inputs.encoder), _tuned_on(tuned)
    scores = []
    for language, path in files.items():
        examples = task.read(path, language)
        predicted = task.predict(tuned, task.features(tuned.inputs, examples, tuned.classes))
        measures = task.measure(examples, predicted)
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
        if predictions:
            rows = (
                {"key": example.key, "prediction": said, "gold": example.gold}
                for example, said in zip(examples, predicted, strict=True)
            )
            lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            write_atomic(predictions / f"{language}.jsonl", lines)
    return scores + average_languages(scores)


def as_evaluation(task: Task) -> Callable[..., list[Score]]:
    """The task as `xalign evaluate` calls one: a fine-tuned folder, one folder of data, languages."""

    def evaluate(
        encoder_folder: str,
        data: Path,
        languages: Sequence[str] | None = None,
        batch_size: int = SCORING_BATCH,
        device: str = AUTO,
    ) -> list[Score]:
        return evaluate_task(task, encoder_folder, (data,), languages, batch_size, device)

    return evaluate


def choose_tested(
    task: Task, found: Files, asked: Sequence[str] | None, tuned_on: str, data: tuple[Path, ...]
) -> tuple[str, list[str]]:
    """The split and the languages that are scored: all from English, else only the language tuned on itself."""
    split, where = "test" if found["test"] else "dev", ", ".join(map(str, data))
    if tuned_on == ENGLISH:
        return split, task.choose(found[split], asked, where)
    if others := sorted(set(asked or ()) - {tuned_on}):
        raise DataError(
            f"A model fine-tuned on {tuned_on} is scored on {tuned_on} only, not on {', '.join(others)}; zero-shot "
            "scores are those of a model fine-tuned on English."
        )
    return split, task.choose(found[split], [tuned_on], where)


def _tuned_on(tuned: Tuned) -> str:
    return getattr(tuned.model.config, "xalign_tune_language", ENGLISH)


def _tuned_classes(task: Task, config: Any, folder: str) -> tuple[str, ...]:
    """The classes of a fine-tuned folder's head, in the order of their ids.

    A folder made elsewhere will do where its head has exactly the task's classes.
    """
    named = tuple(config.id2label[index] for index in range(len(config.id2label)))
    ours = getattr(config, "xalign_task", None) == task.name
    if not ours and (not task.classes or set(named) != set(task.classes)):
        raise DataError(f"{folder} has no head for {task.title}; fine-tune it first (xalign tune).")
    return named if task.classes or ours else ()
