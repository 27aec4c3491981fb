"""The labelled sets of the embedded world: files that the tasks' readers take, labels that follow from the facts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from xalign_ray.demo.world import load_languages
from xalign_ray.demo.writer import LABELLED_ROWS as ROWS
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.text_classification import LabelledText

LANGUAGES = {language.code: language for language in load_languages()}


def read(world: Path, task: str, split: str, code: str) -> list[LabelledText]:
    known = TUNED_TASKS[task]
    return known.read(known.find([world / task])[split][code], code)


def english_words(text: str, code: str) -> Counter[str]:
    meanings = {form: word for word, form in LANGUAGES[code].words.items()}
    words = (meanings.get(word, word) for word in text.rstrip(".").split())
    return Counter(word for word in words if word != "the")


@pytest.mark.parametrize("task", ["xnli", "pawsx", "mldoc"])
def test_every_split_of_every_language_is_whole(world: Path, task: str) -> None:
    found = TUNED_TASKS[task].find([world / task])
    assert {split: set(files) for split, files in found.items()} == {split: set(LANGUAGES) for split in ROWS}
    for split, rows in ROWS.items():
        for code in LANGUAGES:
            examples = read(world, task, split, code)
            assert len(examples) == rows
            assert {example.label for example in examples} == set(TUNED_TASKS[task].classes)


def test_files_have_the_real_ones_traps(world: Path) -> None:
    train = (world / "xnli/multinli.train.en.tsv").read_bytes()
    assert train.startswith(b"premise\thypo\tlabel\n")
    assert b"\tcontradictory\n" in train
    for name in ("xnli/dev-qgr.tsv", "pawsx/train-en.tsv"):
        lines = (world / name).read_bytes().removesuffix(b"\n").split(b"\n")
        assert all(line.endswith(b"\r") and line.count(b"\t") == 2 for line in lines)


@pytest.mark.parametrize("task", ["xnli", "pawsx"])
@pytest.mark.parametrize("split", ROWS)
def test_rows_of_pairs_translate_each_other_in_all_languages(world: Path, task: str, split: str) -> None:
    english = read(world, task, split, "en")
    for code in LANGUAGES:
        other = read(world, task, split, code)
        assert [(one.key, one.label) for one in other] == [(one.key, one.label) for one in english]
        for one, own in zip(other, english, strict=True):
            assert [english_words(text, code) for text in one.texts] == [
                english_words(text, "en") for text in own.texts
            ]


def test_labels_of_inference_follow_from_the_words(world: Path) -> None:
    for example in read(world, "xnli", "train", "en"):
        premise, hypothesis = (english_words(text, "en") for text in example.texts)
        new = hypothesis - premise
        if example.label == "entailment":
            assert not new
            assert len(hypothesis) < len(premise)
        else:
            assert new
            assert any(word.isdigit() for word in new) == (example.label == "neutral")


def test_paraphrases_and_others_are_made_of_the_same_words_in_another_order(world: Path) -> None:
    labels = Counter()
    for example in read(world, "pawsx", "test", "en"):
        first, second = example.texts
        assert english_words(first, "en") == english_words(second, "en")
        assert first != second
        labels[example.label] += 1
    assert min(labels.values()) > 60


def test_a_headline_of_the_news_is_its_first_sentence(world: Path) -> None:
    known = TUNED_TASKS["mldoc_h"]
    path = known.find([world / "mldoc"])["test"]["qge"]
    whole = known.read(path, "qge")[0].texts[0], read(world, "mldoc", "test", "qge")[0].texts[0]
    assert whole[0] + " " == whole[1][: len(whole[0]) + 1]
    assert whole[0].count(".") == 1
    assert whole[1].count(".") == 3
