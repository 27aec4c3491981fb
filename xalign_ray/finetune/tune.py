"""From an encoder to scores: fine-tuned in one language, the epoch chosen in it, then tested in every language."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import (
    MANIFEST,
    TRIAL_KIND,
    hash_file,
    hash_files,
    share,
    write_json,
    write_manifest,
)
from xalign_ray.finetune.length_pools import LengthPools
from xalign_ray.finetune.settings import Choice, FineTuning
from xalign_ray.finetune.training_set import Training, load_training
from xalign_ray.tasks.evaluate import ENGLISH, PREDICTIONS, Task, choose_tested, evaluate_task, score_languages
from xalign_ray.tasks.hf_encoder import AUTO, open_model, pick_device, quiet_transformers
from xalign_ray.tasks.scores import SCORES, Score, write_scores
from xalign_ray.tasks.task import Tuned
from xalign_ray.tasks.task_files import check_training_files, name_others
from xalign_ray.tasks.tokenized import Inputs
from xalign_ray.track.events import EVENT_LOG

__all__ = ["CHOICE", "MODEL", "check_files", "evaluate_task", "fit_task", "tune_task"]

MODEL = "model"
CHOICE = "choice.json"


def tune_task(
    task: Task,
    encoder_folder: str,
    data_folders: Sequence[Path],
    out_folder: Path,
    languages: Sequence[str] | None = None,
    settings: FineTuning | None = None,
    training: Training | None = None,
    train_language: str = ENGLISH,
    device: str = AUTO,
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
    cache: Path | None = None,
    keep_model: bool = False,
) -> list[Score]:
    """Fine-tunes on one language, then tests on every language found. Test files are read after the choice is on disk.

    Writes into `out_folder`: `choice.json`, `scores.json`, `predictions/`, the manifest last; before them the
    fine-tuned model (plain Hugging Face) in `model/`, if it is kept.

    Args:
        task: from the registry.
        encoder_folder: folder or hub id.
        data_folders: where the task's files are. Several folders count as one.
        out_folder: is made if it does not exist.
        languages: those to test; all that are found if None.
        settings: learning rate, epochs, batch size, seed; the defaults of `FineTuning` if None.
        training: what is made of the training files; English as it is if None.
        train_language: English for zero-shot scores; another one to be scored on itself (`<metric>_supervised`).
        device: a torch device; "auto" is the GPU where there is one.
        on_epoch: told each epoch (from 1) and its development score; it may end everything by raising.
        cache: folder of tokenised training sets that trials share; each tokenises for itself if None.
        keep_model: whether the model is written.

    Raises:
        DataError: files missing or malformed, or a language that the encoder has no embedding for.
        TrainingError: the loss is not finite.
    """
    folders = tuple(data_folders)
    found = task.find(folders)
    split, chosen = choose_tested(task, found, languages, train_language, folders)
    settings, training = settings or FineTuning(), training or Training()
    (out_folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(out_folder / PREDICTIONS, ignore_errors=True)
    tuned, choice = fit_task(
        task, encoder_folder, folders, out_folder, settings, training, train_language, device, chosen, on_epoch, cache,
        keep_model,
    )  # fmt: skip
    files = {language: found[split][language] for language in chosen}
    scores = score_languages(task, tuned, split, files, out_folder / PREDICTIONS)
    write_scores(out_folder / SCORES, scores)
    used = [found[split][train_language] for split in ("train", "dev")]
    write_manifest(
        out_folder,
        {
            "kind": TRIAL_KIND,
            "task": task.name,
            "encoder": str(encoder_folder),
            "train_language": train_language,
            "languages": chosen,
            "settings": asdict(settings),
            "training": asdict(training),
            "development": choice.development[choice.epoch - 1],
            "data": {str(path): hash_file(path) for path in used},
            "files": {
                name: digest
                for name, digest in hash_files(out_folder).items()
                if name != EVENT_LOG and not name.startswith(f"{MODEL}/")
            },
        },
    )
    return scores


def check_files(
    task: Task, folders: Sequence[Path], languages: Sequence[str] | None, train_language: str = ENGLISH
) -> str:
    """Whether `tune_task` will find its files, by their names alone: in moments, and before anything is started.

    Returns:
        The files of the folders that are not read, as a sentence; empty if there are none.

    Raises:
        DataError: training, development or test files are missing.
    """
    found = task.find(folders)
    check_training_files(found, folders, train_language, task.example, f"{task.name} needs it")
    choose_tested(task, found, languages, train_language, tuple(folders))
    return name_others(found, folders).lstrip()


def fit_task(
    task: Task,
    encoder_folder: str,
    data_folders: tuple[Path, ...],
    out_folder: Path,
    settings: FineTuning,
    training: Training | None = None,
    train_language: str = ENGLISH,
    device: str = AUTO,
    test_languages: Collection[str] = (),
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
    cache: Path | None = None,
    keep_model: bool = False,
) -> tuple[Tuned, Choice]:
    """The part of `tune_task` before the test: trains, and chooses the epoch by one language's dev file.

    Args:
        task: as for `tune_task`, like the other arguments.
        encoder_folder: folder or hub id.
        data_folders: test files need not be there.
        out_folder: gets `choice.json`, and `model/` before it if asked to.
        settings: of the fine-tuning.
        training: what is made of the training files; English as it is if None.
        train_language: whose dev file decides.
        device: a torch device, or "auto".
        test_languages: checked against the encoder's before anything long begins.
        on_epoch: told each epoch and its development score.
        cache: of tokenised training sets.
        keep_model: whether the model is written.
    """
    from xalign_ray.finetune.features import (  # here, because they cost their importer
        SwitchedWords,
        column,
        tokenize_once,
    )
    from xalign_ray.finetune.trainer import repeatable, train  # two seconds, and Ray Tune's driver trains nothing

    found = task.find(data_folders)
    check_training_files(found, data_folders, train_language, task.example, "fine-tuning needs one")
    training = training or Training()
    place = pick_device(device)
    with repeatable(settings.seed), tempfile.TemporaryDirectory() as alone:
        most = settings.max_train_samples
        training_set = load_training(task, found["train"], train_language, training, most, settings.seed)
        classes = task.classes_of(training_set.examples())
        model, tokenizer = open_model(encoder_folder, task.model_class, **_head(classes))
        model.config.update(
            {
                "xalign_task": task.name,
                "xalign_encoder": str(encoder_folder),
                "xalign_tune_seed": settings.seed,
                "xalign_tune_language": train_language,
                "xalign_max_seq_length": settings.max_seq_length,
            }
        )
        inputs = Inputs.of_model(tokenizer, model, str(encoder_folder))
        spoken = {name for language in test_languages for name in task.speaks(language)}
        inputs.check_languages({train_language, *training.languages, *spoken})
        tuned = Tuned(model.to(place), inputs, classes)
        dev = task.read(found["dev"][train_language], train_language)
        dev_features = task.features(inputs, dev, classes)
        what = {"training": asdict(training), "train_language": train_language, "most": most}
        rows = tokenize_once(task, inputs, classes, training_set, cache or Path(alone), **what)
        unit_size = training_set.unit_size
        batches = LengthPools(
            column(rows, "unit"),
            column(rows, "length"),
            max(1, settings.train_batch_size // unit_size),
            max(1, (settings.per_device_train_batch_size or settings.train_batch_size) // unit_size),
            settings.seed,
        )
        choice = train(
            model,
            rows if training_set.switcher is None else SwitchedWords(task, inputs, classes, training_set, rows),
            inputs.collate,
            batches,
            lambda: task.measure(dev, task.predict(tuned, dev_features))[task.metric].value,
            settings,
            place,
            on_epoch,
        )
    if keep_model:
        _save(model, tokenizer, out_folder / MODEL)
    write_json(out_folder / CHOICE, asdict(choice) | {"split": "dev", "language": train_language})
    return tuned, choice


def _head(classes: Sequence[str]) -> dict[str, Any]:
    """What the config of a model with classes says about them."""
    if not classes:
        return {}
    return {
        "id2label": dict(enumerate(classes)),
        "label2id": {name: index for index, name in enumerate(classes)},
        "num_labels": len(classes),
    }


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    """A Hugging Face folder with a manifest of its own, so that it can go without the trial's becoming untrue."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    share(folder, "*.safetensors")
    write_manifest(folder, {"kind": TRIAL_KIND, "files": hash_files(folder)})
