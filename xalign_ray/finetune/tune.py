"""From an encoder to scores: fine-tuned in one language, the epoch chosen in it, then tested in every language."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import Choice, FineTuning
from xalign_ray.finetune.training_set import Training, TrainingSet, TuningFiles, head_pooling
from xalign_ray.models.families import FAMILIES, find_family
from xalign_ray.models.inference import Encoder, pick_device
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import open_model, quiet_transformers
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify, make_portable
from xalign_ray.models.tokenized import Inputs
from xalign_ray.tasks.scores import SCORES, Score, write_scores
from xalign_ray.tasks.task import ENGLISH, TunedTask
from xalign_ray.work.artifacts import MANIFEST, TRIAL_KIND, hash_file, hash_files, share, write_json, write_manifest
from xalign_ray.work.run_folder import EVENT_LOG, PREDICTIONS

MODEL = "model"
CHOICE = "choice.json"
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
    fine-tuned model (plain Hugging Face) in `model/`, if it is kept.

    Args:
        task: from the registry.
        encoder_folder: folder or hub id.
        data_folders: where the task's files are. Several folders count as one.
        out_folder: is made if it does not exist.
        languages: those to test; all that are found if None.
        settings: learning rate, epochs, batch size, seed; the defaults of `FineTuning` if None.
        training: how the training files are used; plain English if None.
        train_language: English for zero-shot scores; another one to be scored on itself (`<metric>_supervised`).
        device: a torch device; "auto" is the GPU where there is one.
        on_epoch: called with each epoch (from 1) and its development score; it may end everything by raising.
        cache: folder of tokenised training sets that trials share; each tokenises for itself if None.
        keep_model: whether the model is written.

    Raises:
        DataError: files missing or malformed, or a language that the encoder has no embedding for.
        TrainingError: the loss is not finite.
    """
    # Here, because it costs its importer two seconds, and Tune's driver trains nothing.
    from xalign_ray.finetune.trainer import repeatable

    settings, training = settings or FineTuning(), training or Training()
    files = TuningFiles.find(task, data_folders, languages, train_language)
    training_set = files.training_set(training, settings.max_train_samples, settings.seed)
    (out_folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(out_folder / PREDICTIONS, ignore_errors=True)
    with repeatable(settings.seed), tempfile.TemporaryDirectory() as alone:
        tuned = _open(training_set, encoder_folder, settings, device)
        tuned.inputs.check_languages(files.spoken(training))
        choice = _train(training_set, tuned, files.dev, settings, on_epoch, cache or Path(alone))
    if keep_model:
        _save(tuned, task.longest, out_folder / MODEL)
    write_json(out_folder / CHOICE, asdict(choice) | {"split": "dev", "language": train_language})
    scores = task.score(tuned, files.found, files.tested, out_folder / PREDICTIONS)
    write_scores(out_folder / SCORES, scores)
    used = [*training_set.files, *map(Path, training.dictionaries), files.dev]
    write_manifest(
        out_folder,
        {
            "kind": TRIAL_KIND,
            "task": task.name,
            "encoder": str(encoder_folder),
            "train_language": train_language,
            "languages": list(files.tested),
            "settings": settings.model_dump(),
            "training": training.model_dump(),
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


def _open(training_set: TrainingSet, folder: str, settings: FineTuning, device: str) -> Encoder:
    """The encoder with a new head, which is drawn now."""
    task = training_set.task
    names = dict(enumerate(task.classes_of(training_set.examples())))
    head = {"id2label": names, "label2id": {name: index for index, name in names.items()}, "num_labels": len(names)}
    rate = settings.hidden_dropout_prob
    dropout: dict[str, Any] = (
        {} if rate is None else dict.fromkeys(DROPOUTS, rate)
    )  # transformers leaves out keys that a config lacks
    opened = open_encoder(folder)
    pooling = head_pooling(opened)
    pooled: dict[str, Any] = {"classifier_pooling": pooling} if pooling else {}
    model, tokenizer = open_model(opened, task.model_class, **(head if names else {}), **dropout, **pooled)
    inputs = replace(Inputs.of_model(tokenizer, model, str(folder)), max_seq_length=settings.max_seq_length)
    shorter = inputs.max_length
    model.config.update(
        {
            "xalign_task": task.name,
            "xalign_encoder": str(folder),
            "xalign_tune_seed": settings.seed,
            "xalign_tune_language": training_set.english,
            "xalign_max_seq_length": settings.max_seq_length or (shorter if shorter < task.longest else None),
        }
    )
    if settings.torch_compile:
        model.base_model.compile(dynamic=True)  # in place: weights keep their names
    return Encoder(model.to(pick_device(device)), inputs)


def _train(
    training_set: TrainingSet,
    tuned: Encoder,
    dev_file: Path,
    settings: FineTuning,
    on_epoch: Callable[[int, float], None],
    cache: Path,
) -> Choice:
    """Trains the model, and chooses an epoch by the development file."""
    from xalign_ray.finetune.features import LengthPools, SwitchedWords, column, tokenize_once
    from xalign_ray.finetune.trainer import train

    task, inputs, classes = training_set.task, tuned.inputs, tuned.classes
    metric = settings.metric_for_best_model or task.metric
    dev = task.read(dev_file, training_set.english)
    task.check(dev, classes, dev_file)
    features = task.features(inputs, dev, classes)
    rows = tokenize_once(training_set, inputs, classes, cache)

    def development() -> float:
        measured = task.measure(dev, task.predict(tuned, features))
        if metric not in measured:
            raise DataError(f"{dev_file} has no {metric}; metric_for_best_model can be {' or '.join(measured)}.")
        return measured[metric].value

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


def _save(tuned: Encoder, longest: int, folder: Path) -> None:
    """A Hugging Face folder with a manifest apart from the trial's, which stays true when the folder is deleted.

    Its tokenizer cuts where the task does, whose own length is `longest`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    with quiet_transformers():
        tuned.inputs.tokenizer.save_pretrained(folder)
        make_portable(folder, tuned.inputs.limit(longest), tuned.inputs.segments)
        config = tuned.model.config
        config.update({TOKENIZER_KEY: identify(folder)})
        if family := find_family(config.model_type):
            config.update(family.older_keys(config))
        tuned.model.save_pretrained(folder)
    share(folder, "*.safetensors")
    write_manifest(folder, {"kind": TRIAL_KIND, "files": hash_files(folder)})
