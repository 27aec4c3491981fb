"""Names of files by which each benchmark is found, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.tasks.registry import TUNED_TASKS

XNLI = ["ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"]
FLORES = {  # a script is in the code where it is not the usual one
    "eng_Latn": "en", "arb_Arab": "ar", "arb_Latn": "ar-Latn", "zho_Hans": "zh", "zho_Hant": "zh-Hant",
    "swh_Latn": "sw", "kas_Deva": "ks-Deva", "prs_Arab": "fa-AF", "pes_Arab": "fa", "twi_Latn": "tw", "aka_Latn": "ak",
}  # fmt: skip
FILES: dict[str, list[tuple[str, str, str]]] = {
    "ner": [
        ("de/val.conllu", "dev", "de"),
        ("de/dev", "dev", "de"),
        ("de-dev", "dev", "de"),
        ("dev-de.tsv", "dev", "de"),
        ("deu/dev.txt", "dev", "de"),
        ("masakhaner2_deu/dev.txt", "dev", "de"),
        ("de_pud-ud-dev.iob2", "dev", "de"),
    ],
    "pos": [
        ("qgr.test.conllu", "test", "qgr"),
        ("de_pud-ud-test.conllu", "test", "de"),
        ("train-en.tsv", "train", "en"),
        ("swa/dev.txt", "dev", "sw"),
    ],
    "xnli": [
        ("multinli.train.en.tsv", "train", "en"),
        ("dev-en.tsv", "dev", "en"),
        ("test-deu.tsv", "test", "de"),
        ("xnli.test.tsv", "test", " ".join(XNLI)),
    ],
    "pawsx": [
        ("dev-de.tsv", "dev", "de"),
        ("en/train.tsv", "train", "en"),
        ("en/dev_2k.tsv", "dev", "en"),
        ("zh/translated_train.tsv", "train", "zh"),
        ("zh/test_2k.tsv", "test", "zh"),
    ],
    "sib": [(f"{code}/test.tsv", "test", language) for code, language in FLORES.items()],
    "mldoc": [
        ("english.train.1000", "train", "en"),
        ("spanish.dev", "dev", "es"),
        ("spanish-latam.dev", "dev", "es-419"),
        ("mldoc.test.de", "test", "de"),
        ("mldoc.train1000.de", "train", "de"),
    ],
    "masakhanews": [("eng/dev.tsv", "dev", "en")],
    "afrisenti": [
        ("hau/train.tsv", "train", "ha"),
        ("kr_dev.tsv", "dev", "rw"),
        ("test/ma_test.tsv", "test", "ary"),
    ],
}


@pytest.mark.parametrize(
    ("task", "name", "split", "languages"), [(task, *row) for task in FILES for row in FILES[task]]
)
def test_files_are_found_by_their_published_names(
    tmp_path: Path, task: str, name: str, split: str, languages: str
) -> None:
    others = (
        "README.md",
        "README/test.tsv",
        "notes.tsv",
        "en.train.conllu.bak",
        "english.train.10000",
    )
    for file in (name, *others):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = {split: dict.fromkeys(languages.split(), tmp_path / name)}
    assert TUNED_TASKS[task].find([tmp_path]) == {"train": {}, "dev": {}, "test": {}} | found


@pytest.mark.parametrize(
    ("task", "called"),
    [
        ("ner", "train-en.tsv, en/train.conllu"),
        ("pos", "en.train.conllu, en_"),
        ("xnli", "train-en.tsv, multinli.train.en.tsv, xnli.train.tsv"),
        ("mlqa", "train-v1.1.json, squad.translate.train.en-en"),
    ],
)
def test_a_folder_without_files_says_how_they_are_called(tmp_path: Path, task: str, called: str) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: no {task} files; they are called {called}"):
        TUNED_TASKS[task].find([tmp_path])
    with pytest.raises(
        DataError, match=f"nowhere is not a folder; give the folder of {task} files such as {called[:5]}"
    ):
        TUNED_TASKS[task].find([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("task", "one", "other", "both"),
    [
        ("ner", "dev-de.tsv", "de/val.conllu", "dev of de"),
        ("pos", "de_gsd-ud-test.conllu", "de_pud-ud-test.conllu", "test of de"),
        ("xnli", "multinli.train.en.tsv", "train-en.tsv", "train of en"),
        ("mlqa", "dev-v1.1.json", "dev-context-en-question-en.json", "dev of en"),
    ],
)
def test_two_files_of_one_split_and_language_are_named(
    tmp_path: Path, task: str, one: str, other: str, both: str
) -> None:
    for name in (one, other):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=rf"\S+ and \S+ are both {both}; keep one\."):
        TUNED_TASKS[task].find([tmp_path])
