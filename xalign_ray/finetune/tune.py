"""From an encoder to scores: fine-tuned in one language, the epoch chosen in it, then tested in every language."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from xalign_ray.artifacts import MANIFEST, TRIAL_KIND, hash_file, hash_files, share, write_json, write_manifest
from xalign_ray.errors import DataError
from xalign_ray.finetune.loop import Choice, fine_tune, repeatable
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training, TrainingSet, load_training
from xalign_ray.tasks.encoder import open_model, quiet_transformers
from xalign_ray.tasks.evaluate import ENGLISH, SCORING_BATCH, Task, choose_tested, evaluate_task
from xalign_ray.tasks.files import check_training_files, name_others
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.scores import SCORES, Score, write_scores
from xalign_ray.track.events import EVENT_LOG

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
    device: str = "cpu",
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
) -> list[Score]:
    """Fine-tunes on one language, then tests on every language found. Test files are read after the choice is on disk.

    Writes into `out_folder`: the fine-tuned model (plain Hugging Face), `choice.json`, `scores.json`, and the manifest,
    last.

    Args:
        task: from the registry.
        encoder_folder: folder or hub id.
        data_folders: where the task's files are. Several folders count as one.
        out_folder: is made if it does not exist.
        languages: those to test; all that are found if None.
        settings: learning rate, epochs, batch size, seed; the defaults of `FineTuning` if None.
        training: what is made of the training files; English as it is if None.
        train_language: English for zero-shot scores; another one to be scored on itself (`<metric>_supervised`).
        device: a torch device.
        on_epoch: told each epoch and its development score, as by `fine_tune`.

    Raises:
        DataError: files missing or malformed, or a language that the encoder has no embedding for.
        TrainingError: the loss is not finite.
    """
    folders = tuple(data_folders)
    found = task.find(folders)
    _, chosen = choose_tested(task, found, languages, train_language, folders)
    settings, training = settings or FineTuning(), training or Training()
    (out_folder / MANIFEST).unlink(missing_ok=True)
    choice = fit_task(
        task, encoder_folder, folders, out_folder, settings, training, train_language, device, chosen, on_epoch
    )
    scores = evaluate_task(task, str(out_folder), folders, chosen, SCORING_BATCH, device)
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
            "development": max(choice.development),
            "data": {str(path): hash_file(path) for path in used},
            "files": {name: digest for name, digest in hash_files(out_folder).items() if name != EVENT_LOG},
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
    device: str = "cpu",
    test_languages: Collection[str] = (),
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
) -> Choice:
    """The part of `tune_task` before the test: trains, chooses by one language's dev file, writes model and choice.

    Args:
        task: as for `tune_task`, like the other arguments.
        encoder_folder: folder or hub id.
        data_folders: test files need not be there.
        out_folder: gets the model and, after it, `choice.json`.
        settings: learning rate, epochs, batch size, seed.
        training: what is made of the training files; English as it is if None.
        train_language: whose dev file decides.
        device: a torch device.
        test_languages: checked against the encoder's before anything long begins.
        on_epoch: told each epoch and its development score.
    """
    found = task.find(data_folders)
    check_training_files(found, data_folders, train_language, task.example, "fine-tuning needs one")
    training = training or Training()
    with repeatable(settings.seed):
        examples = load_training(
            task, found["train"], train_language, training, settings.max_train_samples, settings.seed
        )
        classes = task.classes_of([example for unit in examples.units for example in unit])
        model, tokenizer = open_model(encoder_folder, task.model_class, **_head(classes))
        model.to(device)
        inputs = Inputs.of_model(tokenizer, model, str(encoder_folder))
        spoken = {name for language in test_languages for name in task.speaks(language)}
        inputs.check_languages({train_language, *training.languages, *spoken})
        dev = task.read(found["dev"][train_language], train_language)
        batches = _Batches.of(task, inputs, classes, examples)
        choice = fine_tune(
            model,
            batches.lengths,
            lambda numbers, epoch: {
                key: value.to(model.device) for key, value in batches.of_units(numbers, epoch).items()
            },
            lambda: task.score(model, inputs, dev, classes, SCORING_BATCH)[task.metric].value,
            replace(settings, train_batch_size=max(1, settings.train_batch_size // examples.unit_size)),
            on_epoch,
        )
    _save(model, tokenizer, out_folder, task, encoder_folder, settings.seed, train_language)
    write_json(out_folder / CHOICE, asdict(choice) | {"split": "dev", "language": train_language})
    return choice


@dataclass(frozen=True)
class _Batches:
    """The model's arguments for units of examples that are given by number."""

    task: Task
    inputs: Inputs
    classes: Sequence[str]
    examples: TrainingSet
    rows: Sequence[Sequence[Any]]  # of each unit

    @classmethod
    def of(cls, task: Task, inputs: Inputs, classes: Sequence[str], examples: TrainingSet) -> _Batches:
        """Makes the rows. Those of a lone example may part; those of examples that belong together stay together."""
        made = iter(task.rows(inputs, [example for unit in examples.units for example in unit], classes))
        units = [[row for _ in unit for row in next(made)] for unit in examples.units]
        if examples.switcher is None:
            units = [
                part
                for unit, rows in zip(examples.units, units, strict=True)
                for part in ([rows] if len(unit) > 1 else [[row] for row in rows])
            ]
        if not any(units):
            raise DataError(f"{task.name}: no training example fits into {inputs.max_length} pieces.")
        return cls(task, inputs, classes, examples, units)

    @property
    def lengths(self) -> list[int]:
        """Pieces of each unit's longest row."""
        return [max((len(row.ids) for row in unit), default=0) for unit in self.rows]

    def of_units(self, numbers: Sequence[int], epoch: int) -> Mapping[str, Tensor]:
        """The batch of these units; where words are switched, their rows are made anew."""
        rows = [row for number in numbers for row in self.rows[number]]
        if self.examples.switcher is not None:
            switched = [
                self.task.replace_words(example, self.examples.switcher(epoch, number))
                for number in numbers
                for example in self.examples.units[number]
            ]
            rows = [row for part in self.task.rows(self.inputs, switched, self.classes) for row in part]
        return self.task.batch(self.inputs, rows)


def _head(classes: Sequence[str]) -> dict[str, Any]:
    """What the config of a model with classes says about them."""
    if not classes:
        return {}
    return {
        "id2label": dict(enumerate(classes)),
        "label2id": {name: index for index, name in enumerate(classes)},
        "num_labels": len(classes),
    }


def _save(
    model: Any, tokenizer: Any, out_folder: Path, task: Task, encoder_folder: str, seed: int, train_language: str
) -> None:
    out_folder.mkdir(parents=True, exist_ok=True)
    model.config.xalign_task = task.name
    model.config.xalign_encoder = str(encoder_folder)
    model.config.xalign_tune_seed = seed
    model.config.xalign_tune_language = train_language
    with quiet_transformers():
        model.save_pretrained(out_folder)
        tokenizer.save_pretrained(out_folder)
    share(out_folder, "*.safetensors")
