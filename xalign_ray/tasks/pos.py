"""Part-of-speech tagging: fine-tuned in one language, the epoch chosen in that language, tested in every language."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import AutoModelForTokenClassification

from xalign_ray.artifacts import MANIFEST, hash_file, write_json, write_manifest
from xalign_ray.errors import DataError
from xalign_ray.tasks.encoder import open_model, origin_of, quiet_transformers
from xalign_ray.tasks.files import choose_languages
from xalign_ray.tasks.fine_tune import Choice, FineTuning, fine_tune, repeatable
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.scores import SCORES, Score, average_languages, score_by, write_scores
from xalign_ray.tasks.tagged import UPOS, find_tagged_files, read_tagged
from xalign_ray.tasks.tagging import (
    batch_rows,
    gold_labels,
    majority_share,
    make_rows,
    predict_labels,
    token_accuracy,
)

TASK = "pos"
CHOICE = "choice.json"
ENGLISH = "en"
SCORING_BATCH = 64


def tune_pos(
    encoder_folder: str,
    data_folders: Sequence[Path],
    out_folder: Path,
    languages: Sequence[str] | None = None,
    settings: FineTuning | None = None,
    train_language: str = ENGLISH,
    device: str = "cpu",
) -> list[Score]:
    """Fine-tunes on one language, then tests on every language found. Test files are read after the choice is on disk.

    Writes into `out_folder`: the fine-tuned model (plain `AutoModelForTokenClassification`), `choice.json`,
    `scores.json`, and the manifest, last.

    Args:
        encoder_folder: folder or hub id.
        data_folders: where the tagged files are: `en.train.conllu`, `en_ewt-ud-train.conllu` or `train-en.tsv`, and
            the same for dev and test. Several folders count as one.
        out_folder: is made if it does not exist.
        languages: those to test; all that are found if None.
        settings: learning rate, epochs, batch size, seed; the defaults of `FineTuning` if None.
        train_language: English for zero-shot scores (`pos_accuracy`); another one to be scored on itself
            (`pos_accuracy_supervised`).
        device: a torch device.

    Raises:
        DataError: files missing or malformed, or a language that the encoder has no embedding for.
        TrainingError: the loss is not finite.
    """
    folders = tuple(data_folders)
    found = find_tagged_files(folders)
    _, chosen = _tested(found, languages, train_language, folders)
    settings = settings or FineTuning()
    (out_folder / MANIFEST).unlink(missing_ok=True)
    choice = fit_pos(encoder_folder, folders, out_folder, settings, train_language, device, test_languages=chosen)
    scores = _score_folder(str(out_folder), folders, chosen, SCORING_BATCH, device)
    write_scores(out_folder / SCORES, scores)
    used = [*(found[split][train_language] for split in ("train", "dev"))]
    write_manifest(
        out_folder,
        {
            "kind": "tuned",
            "task": TASK,
            "encoder": str(encoder_folder),
            "train_language": train_language,
            "languages": chosen,
            "settings": asdict(settings),
            "development": max(choice.development),
            "data": {str(path): hash_file(path) for path in used},
        },
    )
    return scores


def fit_pos(
    encoder_folder: str,
    data_folders: tuple[Path, ...],
    out_folder: Path,
    settings: FineTuning,
    train_language: str = ENGLISH,
    device: str = "cpu",
    test_languages: Collection[str] = (),
) -> Choice:
    """The part of `tune_pos` before the test: reads train and dev of one language, writes the model and the choice.

    Args:
        encoder_folder: as for `tune_pos`, like the other arguments.
        data_folders: test files need not be there.
        out_folder: gets the model and, after it, `choice.json`.
        settings: learning rate, epochs, batch size, seed.
        train_language: whose dev file decides.
        device: a torch device.
        test_languages: checked against the encoder's before anything long begins.
    """
    found = find_tagged_files(data_folders)
    for split in ("train", "dev"):
        if train_language not in found[split]:
            raise DataError(f"{_join(data_folders)}: no {split} file in {train_language}, such as "
                            f"{train_language}.{split}.conllu; fine-tuning needs one.")  # fmt: skip
    label_ids = {tag: index for index, tag in enumerate(UPOS)}
    with repeatable(settings.seed):
        model, tokenizer = open_model(
            encoder_folder,
            AutoModelForTokenClassification,
            id2label={index: tag for tag, index in label_ids.items()},
            label2id=label_ids,
            num_labels=len(UPOS),
        )
        model.to(device)
        inputs = Inputs.of_model(tokenizer, model, str(encoder_folder))
        inputs.check_languages({train_language, *test_languages})
        train, dev = (
            make_rows(inputs, read_tagged(found[split][train_language]), train_language, label_ids)
            for split in ("train", "dev")
        )
        choice = fine_tune(
            model,
            [len(row.ids) for row in train],
            lambda indices: batch_rows(inputs, [train[index] for index in indices], model.device),
            lambda: token_accuracy(gold_labels(dev), predict_labels(model, inputs, dev, SCORING_BATCH)),
            settings,
        )
    _save(model, tokenizer, out_folder, encoder_folder, settings.seed, train_language)
    write_json(out_folder / CHOICE, asdict(choice) | {"split": "dev", "language": train_language})
    return choice


def evaluate_pos(
    encoder_folder: str,
    data: Path,
    languages: Sequence[str] | None = None,
    batch_size: int = SCORING_BATCH,
    device: str = "cpu",
) -> list[Score]:
    """Token accuracy of a fine-tuned folder in every language found, and the mean over languages.

    Test files are scored; dev files only where the data has no test file at all, as `split` in the score says. Chance
    is the share of the most frequent tag in the scored file.

    Args:
        encoder_folder: a folder that `tune_pos` wrote, or any token-classification folder with the 17 universal tags.
        data: folder of tagged files.
        languages: those to score; all that are found if None.
        batch_size: rows at a time.
        device: a torch device.

    Raises:
        DataError: the folder was not fine-tuned, or files are missing or malformed.
    """
    return _score_folder(encoder_folder, (data,), languages, batch_size, device)


def _score_folder(
    folder: str, data: tuple[Path, ...], languages: Sequence[str] | None, batch_size: int, device: str
) -> list[Score]:
    model, tokenizer = open_model(folder, AutoModelForTokenClassification)
    label_ids: dict[str, int] = model.config.label2id
    if set(label_ids) != set(UPOS):
        raise DataError(f"{folder} has no head for parts of speech; fine-tune it first (xalign tune).")
    model.to(device).eval()
    inputs = Inputs.of_model(tokenizer, model, folder)
    tuned_on = getattr(model.config, "xalign_tune_language", ENGLISH)
    found = find_tagged_files(data)
    split, chosen = _tested(found, languages, tuned_on, data)
    inputs.check_languages(chosen)
    scores = []
    for language in chosen:
        rows = make_rows(inputs, read_tagged(found[split][language]), language, label_ids)
        gold = gold_labels(rows)
        scores.append(
            score_by(
                origin_of(model.config, folder),
                task=TASK,
                split=split,
                language=language,
                layer=None,
                pooling=None,
                metric="pos_accuracy" if tuned_on == ENGLISH else "pos_accuracy_supervised",
                value=token_accuracy(gold, predict_labels(model, inputs, rows, batch_size)),
                chance=majority_share(gold),
                n=len(gold),
            )
        )
    return scores + average_languages(scores)


def _tested(
    found: Mapping[str, Mapping[str, Path]], asked: Sequence[str] | None, tuned_on: str, data: tuple[Path, ...]
) -> tuple[str, list[str]]:
    """The split and the languages that are scored: all from English, else only the language tuned on itself."""
    split = "test" if found["test"] else "dev"
    if tuned_on == ENGLISH:
        return split, choose_languages(found[split], asked, _join(data))
    if others := sorted(set(asked or ()) - {tuned_on}):
        raise DataError(
            f"A model fine-tuned on {tuned_on} is scored on {tuned_on} only, not on {', '.join(others)}; zero-shot "
            "scores are those of a model fine-tuned on English."
        )
    return split, choose_languages(found[split], [tuned_on], _join(data))


def _save(model: Any, tokenizer: Any, out_folder: Path, encoder_folder: str, seed: int, train_language: str) -> None:
    out_folder.mkdir(parents=True, exist_ok=True)
    model.config.xalign_encoder = str(encoder_folder)
    model.config.xalign_tune_seed = seed
    model.config.xalign_tune_language = train_language
    with quiet_transformers():
        model.save_pretrained(out_folder)
        tokenizer.save_pretrained(out_folder)


def _join(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
