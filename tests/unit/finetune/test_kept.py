"""What a finished fine-tuning leaves: scores, predictions, and its model only if it was asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work.artifacts import check_files, hash_files

POS = TUNED_TASKS["pos"]

SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=2, train_batch_size=4, seed=1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "pos"
    folder.mkdir()
    for split, language in (("train", "en"), ("dev", "en"), ("test", "en"), ("test", "de")):
        (folder / f"{split}-{language}.tsv").write_text("cats\tNOUN\nsee\tVERB\n\ndogs\tNOUN\n\n" * 4)
    return folder


@pytest.fixture
def tune(tmp_path: Path, data: Path, make_bert: Callable[..., Path]) -> Callable[..., list[Score]]:
    encoder = make_bert(["cats", "see", "dogs"])
    return lambda **options: tune_task(POS, str(encoder), [data], tmp_path / "out", **{"settings": SETTINGS} | options)


def test_a_prediction_stands_beside_what_is_right_for_each_example(tmp_path: Path, tune: Callable[..., Any]):
    scores = {score.language: score for score in tune() if score.metric == "pos_accuracy"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "choice.json", "manifest.json", "predictions", "scores.json"
    ]  # fmt: skip
    for language in ("de", "en"):
        rows = list(map(json.loads, (tmp_path / "out" / "predictions" / f"{language}.jsonl").read_text().splitlines()))
        assert [row["key"] for row in rows] == [str(number) for number in range(8)]
        assert [row["gold"] for row in rows] == [["NOUN", "VERB"], ["NOUN"]] * 4
        right = [one == other for row in rows for one, other in zip(row["prediction"], row["gold"], strict=True)]
        assert sum(right) / len(right) == scores[language].value


def test_a_kept_model_goes_without_the_trial_becoming_untrue(tmp_path: Path, tune: Callable[..., Any]):
    tune(keep_model=True)
    shutil.rmtree(tmp_path / "out" / "model")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    check_files(tmp_path / "out", manifest["files"], "")
    assert set(manifest["files"]) == hash_files(tmp_path / "out").keys()


def test_a_kept_model_is_scored_again_with_its_own_length(tmp_path: Path, data: Path, tune: Callable[..., Any]):
    (data / "test-de.tsv").write_text("cats\tNOUN\n" * 20)  # several inputs of 8 pieces, one of 128
    scores = tune(keep_model=True, settings=SETTINGS.model_copy(update={"max_seq_length": 8}))
    model = tmp_path / "out" / "model"
    assert json.loads((model / "config.json").read_text())["xalign_max_seq_length"] == 8
    evaluate(model, "pos", data, tmp_path / "again")
    assert read_scores(tmp_path / "again" / "scores.json") == scores


def test_a_damaged_file_of_a_kept_model_is_named(tmp_path: Path, data: Path, tune: Callable[..., Any]):
    tune(keep_model=True)
    model = tmp_path / "out" / "model"
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert hash_files(model).keys() == names
    for name in names:
        content = (model / name).read_bytes()
        (model / name).write_bytes(content[:-1] + b"\x00")
        with pytest.raises(DataError, match=rf"{name} is damaged"):
            evaluate(model, "pos", data, tmp_path / "again")
        (model / name).write_bytes(content)
