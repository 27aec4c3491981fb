"""POS from tuning to scores: learns what can be learnt, and says what it was given and what it was not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForTokenClassification, AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score, read_scores

POS = TUNED_TASKS["pos"]

ENGLISH = {"the": "DET", "cat": "NOUN", "dog": "NOUN", "sees": "VERB", "hears": "VERB", ".": "PUNCT"}
GERMAN = {"die": "DET", "katze": "NOUN", "hund": "NOUN", "sieht": "VERB", "hört": "VERB", ".": "PUNCT"}
METRICS = ("pos_accuracy", "pos_f1_seqeval0", "pos_f1_seqeval1")
PIECES = list(dict.fromkeys([*ENGLISH, *GERMAN]))
SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=6, train_batch_size=4, seed=1)


def conllu(words: dict[str, str], sentences: int) -> str:
    known = list(words)
    orders = [
        [known[0], known[1 + i % 2], known[3 + i // 2 % 2], known[0], known[2 - i % 2], "."] for i in range(sentences)
    ]
    blocks = [
        "".join(f"{place}\t{word}\t_\t{words[word]}" + "\t_" * 6 + "\n" for place, word in enumerate(order, 1))
        for order in orders
    ]
    return "\n".join(blocks)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """English train and dev; no test file."""
    folder = tmp_path / "pos"
    folder.mkdir()
    (folder / "en.train.conllu").write_text(conllu(ENGLISH, 24), encoding="utf-8")
    (folder / "en.dev.conllu").write_text(conllu(ENGLISH, 4), encoding="utf-8")
    return folder


def add_tests(folder: Path) -> None:
    (folder / "en.test.conllu").write_text(conllu(ENGLISH, 5), encoding="utf-8")
    (folder / "de.test.conllu").write_text(conllu(GERMAN, 4), encoding="utf-8")


def by_language(scores: list[Score]) -> dict[str, Score]:
    return {score.language: score for score in scores if score.metric.startswith("pos_accuracy")}


def test_english_is_learnt_and_words_with_equal_rows_carry_it_to_german(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    pairs = zip(ENGLISH, GERMAN, strict=True)
    rows = {word: [float(place == at) * 3 for place in range(6)] for at, pair in enumerate(pairs) for word in pair}
    folder = make_bert(PIECES, vectors=rows, xalign_objective="align-mlm", xalign_seed=9, xalign_step=50)
    add_tests(data)
    scores = tune_task(POS, str(folder), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    found = by_language(scores)
    assert (found["en"].value, found["en"].n, found["en"].chance) == (1.0, 30, pytest.approx(1 / 3))
    assert (found["de"].value, found["de"].n) == (1.0, 24)
    assert found["all"].n == 54
    assert {(s.task, s.split, s.metric, s.encoder, s.objective, s.seed, s.step) for s in scores} == {
        ("pos", "test", metric, str(folder), "align-mlm", 1, 50) for metric in METRICS
    }
    assert read_scores(tmp_path / "out" / "scores.json") == scores
    assert POS.evaluate(str(tmp_path / "out" / "model"), data) == scores
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["languages"], manifest["development"]) == (["de", "en"], 1.0)


def test_the_same_seed_gives_the_same_model_to_the_bit(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    folder = make_bert(PIECES)
    weights = []
    for name in ("first", "second"):
        tune_task(POS, str(folder), [data], tmp_path / name, settings=SETTINGS, keep_model=True)
        weights.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_rerun_that_dies_leaves_no_finished_folder_behind(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    add_tests(data)
    folder, out = make_bert(PIECES), tmp_path / "out"
    tune_task(POS, str(folder), [data], out, settings=SETTINGS)
    (data / "en.train.conllu").write_text("1\tbroken\n")
    with pytest.raises(DataError, match=r"en.train.conllu, line 1"):
        tune_task(POS, str(folder), [data], out, settings=SETTINGS)
    assert not (out / "manifest.json").exists()


def test_the_tuned_folder_is_plain_hugging_face(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    tune_task(POS, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out" / "model").eval()
    inputs = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")("the cat sees the dog .", return_tensors="pt")
    labels = [model.config.id2label[label] for label in model(**inputs).logits[0].argmax(dim=-1).tolist()]
    assert labels[1:7] == ["DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]


def test_a_language_without_a_test_file_is_scored_on_its_dev_file_beside_others(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    """As of nl and pl beside ru: each score has its split, and a mean is over one split."""
    add_tests(data)
    (data / "nl.dev.conllu").write_text(conllu(GERMAN, 3), encoding="utf-8")
    tune = partial(tune_task, POS, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    scores = tune()
    assert {(score.language, score.split) for score in scores} == {
        ("de", "test"), ("en", "test"), ("nl", "dev"), ("all", "test"), ("all", "dev")
    }  # fmt: skip
    assert POS.evaluate(str(tmp_path / "out" / "model"), data) == scores
    assert {score.language for score in tune(languages=["nl"])} == {"nl", "all"}


def test_tuning_on_another_language_is_scored_on_itself_under_another_name(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    add_tests(data)
    for split in ("train", "dev"):
        (data / f"de.{split}.conllu").write_text(conllu(GERMAN, 12), encoding="utf-8")
    folder, out = str(make_bert(PIECES)), tmp_path / "out"
    scores = tune_task(POS, folder, [data], out, settings=SETTINGS, train_language="de", keep_model=True)
    assert {(score.language, score.metric) for score in scores} == {
        (language, f"{metric}_supervised") for language in ("de", "all") for metric in METRICS
    }
    assert by_language(scores)["de"].value == 1.0
    with pytest.raises(DataError, match="A model fine-tuned on de is scored on de only, not on en; zero-shot scores"):
        POS.evaluate(str(out / "model"), data, languages=["en"])


def test_each_language_is_told_to_a_model_that_has_embeddings_for_it(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    add_tests(data)
    (data / "de.test.conllu").write_text((data / "en.test.conllu").read_text())
    out = tmp_path / "out"
    folder = str(make_bert(PIECES, languages=["en", "de"]))
    found = by_language(tune_task(POS, folder, [data], out, settings=SETTINGS, keep_model=True))
    assert found["en"].value == 1.0
    weights = load_file(out / "model" / "model.safetensors")
    weights["bert.embeddings.token_type_embeddings.weight"][2, 0] = 1e6  # drowns every word
    save_file(weights, out / "model" / "model.safetensors", metadata={"format": "pt"})
    broken = by_language(POS.evaluate(str(out / "model"), data))
    assert broken["en"].value == 1.0
    assert broken["de"].value < 1.0


def test_an_unknown_language_is_refused_before_anything_is_trained(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    add_tests(data)
    with pytest.raises(DataError, match="has language embeddings for en, fr, none for de"):
        tune_task(POS, str(make_bert(PIECES, languages=["en", "fr"])), [data], tmp_path / "out", settings=SETTINGS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_missing_training_file_is_named(tmp_path: Path, data: Path, make_bert: Callable[..., Path], split: str):
    add_tests(data)
    (data / f"en.{split}.conllu").unlink()
    with pytest.raises(DataError, match=rf"pos: no {split} file in en, such as en.{split}.conllu; pos needs it"):
        tune_task(POS, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS)


def test_a_folder_that_was_not_tuned_is_not_scored(data: Path, make_bert: Callable[..., Path]):
    add_tests(data)
    folder = make_bert(PIECES)
    with pytest.raises(DataError, match=rf"{folder} has no head of its own .*; fine-tune it first \(xalign tune\)"):
        POS.evaluate(str(folder), data)
