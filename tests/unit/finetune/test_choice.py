"""No test file has a say in the choice, of any task: it is on disk while there are none, and is the same with them.

A task joins by a line in `WRITERS`: what writes a split of a language in the format of the task's own files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.work.artifacts import hash_file

SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=3, train_batch_size=4, seed=1)
WORDS = ("cats", "dogs", "see", "hear", "old", "Rome")
PIECES = [*map(str.lower, WORDS), "."]
SIZES = {"train": 12, "dev": 7, "test": 5}
FOLDERS = {"en": "eng_Latn", "de": "deu_Latn"}
NAMES = {"en": "english", "de": "german"}

Write = Callable[[Path, str, str, Sequence[Sequence[str]]], None]  # folder, split, language, sentences of words


def put(path: Path, *rows: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


def write_tagged(tags: dict[str, str], other: str) -> Write:
    def write(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
        rows = ["".join(f"{word}\t{tags.get(word, other)}\n" for word in words) for words in sentences]
        put(folder / f"{split}-{language}.tsv", *rows)

    return write


def write_pairs(labels: Sequence[str]) -> Write:
    def write(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
        rows = (
            f"{' '.join(words[:2])}\t{' '.join(words[2:])}\t{labels[number % len(labels)]}"
            for number, words in enumerate(sentences)
        )
        put(folder / f"{split}-{language}.tsv", *rows)

    return write


def write_sib(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
    rows = (
        f"{number}\t{('travel', 'sports')[number % 2]}\t{' '.join(words)}" for number, words in enumerate(sentences)
    )
    put(folder / FOLDERS[language] / f"{split}.tsv", "index_id\tcategory\ttext", *rows)


def write_topics(header: str, labels: tuple[str, str]) -> Write:
    def write(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
        rows = (f"{labels[number % 2]}\t{' '.join(words)}\t-" for number, words in enumerate(sentences))
        put(folder / language / f"{split}.tsv", header, *rows)

    return write


def write_mldoc(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
    rows = (f"{('CCAT', 'GCAT')[number % 2]}\t{' '.join(words)}" for number, words in enumerate(sentences))
    put(folder / f"{NAMES[language]}.{split}{'.1000' if split == 'train' else ''}", *rows)


def write_squad(folder: Path, split: str, language: str, sentences: Sequence[Sequence[str]]) -> None:
    asked = [
        {
            "context": " ".join(words),
            "qas": [{"id": str(number), "question": words[0], "answers": [{"text": words[0], "answer_start": 0}]}],
        }
        for number, words in enumerate(sentences)
    ]
    put(
        folder / f"{split}-{language}.json",
        json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": asked}]}),
    )


WRITERS: dict[str, Write] = {
    "pos": write_tagged({"cats": "NOUN", "dogs": "NOUN", "old": "ADJ"}, "VERB"),
    "ner": write_tagged({"Rome": "B-LOC", "cats": "B-ORG"}, "O"),
    "xnli": write_pairs(("entailment", "neutral", "contradiction")),
    "pawsx": write_pairs(("0", "1")),
    "sib": write_sib,
    "masakhanews": write_topics("category\theadline\ttext", ("health", "sports")),
    "afrisenti": write_topics("label\ttweet\tID", ("neutral", "positive")),
    "mldoc": write_mldoc,
    "mldoc_h": write_mldoc,
    "mlqa": write_squad,
    "xquad": write_squad,
    "tydiqa": write_squad,
}
every_task = pytest.mark.parametrize("name", sorted(WRITERS))


def write_splits(name: str, folder: Path, languages: Sequence[str], *splits: str) -> None:
    folder.mkdir(exist_ok=True)
    for split in splits:
        for language in languages:
            turn = len(split) + len(language)
            sentences = [
                [WORDS[(number * step + turn) % len(WORDS)] for step in range(1, 6)] for number in range(SIZES[split])
            ]
            WRITERS[name](folder, split, language, sentences)


def test_every_task_is_here() -> None:
    assert set(WRITERS) == set(TUNED_TASKS) - {"squad"}, "SQuAD has English only, and no test file"


@every_task
def test_the_choice_is_on_disk_while_no_test_file_exists_and_is_the_same_with_them(
    tmp_path: Path, make_bert: Callable[..., Path], name: str
):
    task, data, encoder = TUNED_TASKS[name], tmp_path / "data", str(make_bert(PIECES))
    write_splits(name, data, ["en"], "train", "dev")
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert {score.split for score in tune_task(task, encoder, [data], alone, settings=SETTINGS, keep_model=True)} == {
        "dev"
    }
    choice = json.loads((alone / "choice.json").read_text())
    assert (choice["split"], choice["language"], len(choice["development"])) == ("dev", "en", 3)
    assert choice["epoch"] == choice["development"].index(max(choice["development"])) + 1

    write_splits(name, data, ["en", "de"], "test")
    scores = task.evaluate(str(alone / "model"), data)
    assert {score.split for score in scores} == {"test"}
    assert {"en", "de", "all"} <= {score.language for score in scores}
    assert tune_task(task, encoder, [data], together, settings=SETTINGS, keep_model=True) == scores
    for file in ("choice.json", "model/model.safetensors"):
        assert hash_file(together / file) == hash_file(alone / file)


@every_task
def test_test_files_are_opened_after_the_choice_only(tmp_path: Path, make_bert: Callable[..., Path], name: str):
    task, data, out = TUNED_TASKS[name], tmp_path / "data", tmp_path / "out"
    write_splits(name, data, ["en"], "train", "dev")
    write_splits(name, data, ["de"], "test")
    broken = task.find([data])["test"]["de"]
    broken.write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match=broken.name):
        tune_task(task, str(make_bert(PIECES)), [data], out, settings=SETTINGS)
    assert (out / "choice.json").is_file()
    assert not (out / "scores.json").exists()
    assert not (out / "manifest.json").exists()
