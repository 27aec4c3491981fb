"""From an encoder to scores: fine-tuned in one language, the epoch chosen in it, then tested in every language."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from xalign_ray.artifacts import MANIFEST, TRIAL_KIND, hash_file, hash_files, share, write_json, write_manifest
from xalign_ray.errors import DataError
from xalign_ray.finetune.length_pools import LengthPools
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training, TrainingSet
from xalign_ray.models.families import FAMILIES
from xalign_ray.run_folder import EVENT_LOG
from xalign_ray.tasks.hf_encoder import Encoder, open_model, pick_device, quiet_transformers
from xalign_ray.tasks.scores import ALL_LANGUAGES, SCORES, Score, average_languages, write_scores
from xalign_ray.tasks.task import ENGLISH, Files, TunedTask
from xalign_ray.tasks.task_files import name_others
from xalign_ray.tasks.tokenized import Inputs

if TYPE_CHECKING:
    from xalign_ray.finetune.trainer import Trained

MODEL = "model"
CHOICE = "choice.json"
PREDICTIONS = "predictions"
DROPOUTS = ("classifier_dropout", *dict.fromkeys(key for family in FAMILIES.values() for key in family.dropouts))


def tune_task(
    task: TunedTask[Any],
    encoder_folder: str,
    data_folders: Sequence[Path],
    out_folder: Path,
    languages: Sequence[str] | None = None,
    settings: FineTuning | None = None,
    training: Training | None = None,
    train_language: str = ENGLISH,
    device: str = "auto",
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
    cache: Path | None = None,
    keep_model: bool = False,
) -> list[Score]:
    """Fine-tunes on one language, then tests on every language found. Test files are read after the choice is on disk.

    Writes into `out_folder`: `choice.json`, `scores.json`, `predictions/`, the manifest last; before them the
    fine-tuned model (plain Hugging Face) in `model/`, if it is kept. Where languages have epochs of their own, that is
    the model of the language that is trained on, or of the first if that is not tested.

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
    # Here, because it costs its importer two seconds, and Tune's driver trains nothing.
    from xalign_ray.finetune.trainer import repeatable

    found, split, chosen = task.find_all(data_folders, languages, train_language)
    settings, training = settings or FineTuning(), training or Training()
    dev_files = _dev_files(found, split, chosen, train_language, settings.dev_language)
    training_set = TrainingSet(
        task, found["train"], train_language, training, settings.max_train_samples, settings.seed
    )
    (out_folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(out_folder / PREDICTIONS, ignore_errors=True)
    with repeatable(settings.seed), tempfile.TemporaryDirectory() as alone:
        tuned = _open(training_set, encoder_folder, settings, device)
        spoken = {name for language in chosen for name in task.speaks(language)}
        tuned.inputs.check_languages({train_language, *training.languages, *spoken})
        trained = _train(training_set, tuned, dev_files, settings, on_epoch, cache or Path(alone))
    choices = dict(zip(dev_files, trained.choices, strict=True))
    first = next(iter(choices.values()))
    if keep_model:
        trained.load(tuned.model, first.epoch)
        _save(tuned, out_folder / MODEL)
    own = {"choices": {language: asdict(one) for language, one in choices.items()}} if len(choices) > 1 else {}
    write_json(out_folder / CHOICE, asdict(first) | {"split": "dev", "language": next(iter(choices))} | own)
    scores: list[Score] = []
    for epoch in sorted({one.epoch for one in choices.values()}):
        trained.load(tuned.model, epoch)
        files = {one: found[split][one] for one in chosen if choices.get(one, first).epoch == epoch}
        scored = task.score(tuned, split, files, out_folder / PREDICTIONS)
        scores += [score for score in scored if score.language != ALL_LANGUAGES]
    scores.sort(key=lambda score: chosen.index(score.language))
    scores += average_languages(scores)
    write_scores(out_folder / SCORES, scores)
    used = [*training_set.files, *map(Path, training.dictionaries), *dev_files.values()]
    write_manifest(
        out_folder,
        {
            "kind": TRIAL_KIND,
            "task": task.name,
            "encoder": str(encoder_folder),
            "train_language": train_language,
            "languages": chosen,
            "settings": settings.model_dump(),
            "training": training.model_dump(),
            "development": fmean(one.development[one.epoch - 1] for one in choices.values()),
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
    task: TunedTask[Any],
    folders: Sequence[Path],
    languages: Sequence[str] | None,
    train_language: str = ENGLISH,
    dev_language: str = "source",
) -> str:
    """Refuses missing files before anything is started; says which are not read, as a sentence that may be empty."""
    found, split, chosen = task.find_all(folders, languages, train_language)
    _dev_files(found, split, chosen, train_language, dev_language)
    return name_others(found, folders).lstrip()


def _open(training_set: TrainingSet, folder: str, settings: FineTuning, device: str) -> Encoder:
    """The encoder with a new head, which is drawn now."""
    task = training_set.task
    names = dict(enumerate(task.classes_of(training_set.examples())))
    head = {"id2label": names, "label2id": {name: index for index, name in names.items()}, "num_labels": len(names)}
    rate = settings.hidden_dropout_prob
    dropout = {} if rate is None else dict.fromkeys(DROPOUTS, rate)  # transformers leaves out what a config lacks
    model, tokenizer = open_model(folder, task.model_class, **(head if names else {}), **dropout)
    model.config.update(
        {
            "xalign_task": task.name,
            "xalign_encoder": str(folder),
            "xalign_tune_seed": settings.seed,
            "xalign_tune_language": training_set.english,
            "xalign_max_seq_length": settings.max_seq_length,
        }
    )
    if settings.torch_compile:
        model.base_model.compile(dynamic=True)  # in place: weights keep their names
    return Encoder(model.to(pick_device(device)), Inputs.of_model(tokenizer, model, str(folder)))


def _dev_files(
    found: Files, split: str, chosen: Sequence[str], train_language: str, dev_language: str
) -> dict[str, Path]:
    """The development files that choose epochs, by language; that of the language that is trained on is the first."""
    if dev_language == "source":
        return {train_language: found["dev"][train_language]}
    if split == "dev":
        raise DataError(
            "dev_language target chooses by the dev files, and without test files they are the ones scored."
        )
    if missing := sorted(set(chosen) - set(found["dev"])):
        raise DataError(f"dev_language target needs a dev file in {', '.join(missing)}; name languages that have one.")
    return {language: found["dev"][language] for language in sorted(chosen, key=lambda one: one != train_language)}


def _train(
    training_set: TrainingSet,
    tuned: Encoder,
    dev_files: Mapping[str, Path],
    settings: FineTuning,
    on_epoch: Callable[[int, float], None],
    cache: Path,
) -> Trained:
    """Trains the model, and chooses an epoch by each of the development files."""
    from xalign_ray.finetune.features import SwitchedWords, column, tokenize_once
    from xalign_ray.finetune.trainer import train

    task, inputs, classes = training_set.task, tuned.inputs, tuned.classes
    metric = settings.metric_for_best_model or task.metric
    dev_sets = [(path, task.read(path, language)) for language, path in dev_files.items()]
    asked = [(path, dev, task.features(inputs, dev, classes)) for path, dev in dev_sets]
    rows = tokenize_once(training_set, inputs, classes, cache)

    def development() -> list[float]:
        scores = []
        for path, dev, features in asked:
            measured = task.measure(dev, task.predict(tuned, features))
            if metric not in measured:
                raise DataError(f"{path} has no {metric}; metric_for_best_model can be {' or '.join(measured)}.")
            scores.append(measured[metric].value)
        return scores

    unit_size = training_set.unit_size
    batches = LengthPools(
        column(rows, "unit"),
        column(rows, "length"),
        max(1, settings.train_batch_size // unit_size),
        max(1, (settings.per_device_train_batch_size or settings.train_batch_size) // unit_size),
        settings.seed,
    )
    return train(
        tuned.model,
        SwitchedWords(training_set, inputs, classes, rows) if training_set.lexicon else rows,
        inputs.collate,
        batches,
        development,
        settings,
        tuned.model.device,
        on_epoch,
    )


def _save(tuned: Encoder, folder: Path) -> None:
    """A Hugging Face folder with a manifest of its own, so that it can go without the trial's becoming untrue."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    with quiet_transformers():
        tuned.model.save_pretrained(folder)
        tuned.inputs.tokenizer.save_pretrained(folder)
    share(folder, "*.safetensors")
    write_manifest(folder, {"kind": TRIAL_KIND, "files": hash_files(folder)})
