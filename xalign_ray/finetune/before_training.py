"""Checks before a fine-tuning starts: files and languages are there, and what is scored can be scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training, TrainingSet
from xalign_ray.models.sentence_modules import own_pooling, own_prompt
from xalign_ray.models.weight_files import CONFIG, read_config
from xalign_ray.tasks.task import Files, TunedTask
from xalign_ray.tasks.task_files import name_others

TOLD_POOLING = ("modernbert", "xalign-modernbert")  # model types


def check_files(
    task: TunedTask[Any],
    folders: Sequence[Path],
    languages: Sequence[str] | None,
    train_language: str,
    dev_language: str,
    trainings: Iterable[Training],
) -> tuple[set[str], str]:
    """Refuses missing files before anything is started.

    Returns:
        The languages that an encoder with language embeddings must have one for, and a sentence on the files that are
        not read; empty if all are.
    """
    found, tested = task.find_all(folders, languages, train_language)
    dev_files_of(found, tested, train_language, dev_language)
    spoken = {name for one in trainings for name in spoken_languages(task, found, tested, train_language, one)}
    return spoken, name_others(found, folders).lstrip()


def check_contents(
    task: TunedTask[Any],
    folders: Sequence[Path],
    languages: Sequence[str] | None,
    train_language: str,
    settings: FineTuning,
    training: Training,
) -> str:
    """Reads what a fine-tuning reads, so that a file that cannot be scored is refused before anything is trained.

    Returns:
        A sentence on training examples that are left out for want of an answer; empty if there are none.

    Raises:
        DataError: a file is malformed, or cannot be scored by the head that is trained.
    """
    found, tested = task.find_all(folders, languages, train_language)
    dev_files = dev_files_of(found, tested, train_language, settings.dev_language)
    training_set = TrainingSet(task, found["train"], train_language, training, settings.max_train_samples, 0)
    read = list(training_set.examples())
    classes, lost = task.classes_of(read), sum(not example.gold for example in read)
    scored = {path: language for language, path in dev_files.items()}
    scored |= {found[split][language]: language for language, split in tested.items()}
    for path, language in scored.items():
        task.check(task.read(path, language), classes, path)
    return f"{task.name}: {lost} of {len(read)} training examples have no answer and are left out." if lost else ""


def head_pooling(encoder: str) -> str | None:
    """How a head of transformers shall pool an encoder's folder as its own files say; None if it cannot, or they don't.

    Only ModernBERT's heads can be told: of texts and of answers, by `classifier_pooling`.
    """
    if not (Path(encoder) / CONFIG).is_file() or read_config(encoder).get("model_type") not in TOLD_POOLING:
        return None
    return own_pooling(encoder)


def note_pooling(encoder: str, name: str) -> str:
    """What a fine-tuning does with the pooling and prompt of a local Sentence Transformers folder; empty if of others.

    Args:
        name: of the encoder, for the reader.
    """
    if not Path(encoder).is_dir() or not (pooling := own_pooling(encoder)):
        return ""
    prompt = own_prompt(encoder)
    behind = f" behind the prompt {prompt!r}" if prompt else ""
    made = f"{name} makes sentence vectors by {pooling} pooling{behind}."
    if head_pooling(encoder):
        return f"{made} Heads for texts pool in the same way{', without the prompt' if prompt else ''}."
    return f"{made} Fine-tuning uses neither: a head of transformers is put on the encoder, as its model class does it."


def spoken_languages(
    task: TunedTask[Any], found: Files, tested: Iterable[str], train_language: str, training: Training
) -> set[str]:
    """The languages that an encoder with language embeddings must have one for."""
    translations = (training.languages or found["train"]) if training.has_translations else ()
    return {train_language, *translations, *(name for language in tested for name in task.speaks(language))}


def dev_files_of(found: Files, tested: Mapping[str, str], train_language: str, dev_language: str) -> dict[str, Path]:
    """The development files that choose epochs, by language; that of the language that is trained on is the first."""
    if dev_language == "source":
        return {train_language: found["dev"][train_language]}
    if untested := sorted(language for language, split in tested.items() if split == "dev"):
        raise DataError(
            f"dev_language target chooses by the dev files, and {', '.join(untested)} would be scored on the same file "
            "for want of a test file; name languages that have both."
        )
    if missing := sorted(set(tested) - set(found["dev"])):
        raise DataError(f"dev_language target needs a dev file in {', '.join(missing)}; name languages that have one.")
    return {language: found["dev"][language] for language in sorted(tested, key=lambda one: one != train_language)}
