"""The features of a training set: tokenised once for all who share a folder, whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForTokenClassification

from xalign_ray.errors import DataError
from xalign_ray.finetune.features import column, tokenize_once
from xalign_ray.finetune.training_set import Training, TrainingSet
from xalign_ray.models.inference import open_model
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import Inputs
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import TaggingTask

PIECES = ["cats", "see"]
POS = TUNED_TASKS["pos"]


class Counted(TaggingTask):
    """Counts how often it is asked for features."""

    asked: int = 0

    def features(self, *arguments: Any) -> Any:
        self.asked += 1
        return super().features(*arguments)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "pos").mkdir()
    write(tmp_path / "pos", 3)
    return tmp_path / "pos"


def write(folder: Path, sentences: int, last: str = "") -> None:
    (folder / "train-en.tsv").write_text("cats\tNOUN\nsee\tVERB\n\n" * sentences + last)


@pytest.fixture
def inputs(make_bert: Callable[..., Path]) -> Inputs:
    model, tokenizer = open_model(open_encoder(make_bert(PIECES)), AutoModelForTokenClassification)
    return Inputs.of_model(tokenizer, model, "tiny")


@pytest.fixture
def tokenize(tmp_path: Path, data: Path, inputs: Inputs) -> Callable[..., Any]:
    def run(task: TaggingTask, inputs: Inputs = inputs, most: int | None = None) -> Any:
        training_set = TrainingSet(task, task.find([data])["train"], "en", Training(), most, 1)
        return tokenize_once(training_set, inputs, POS.classes, tmp_path / "cache")

    return run


def task() -> Counted:
    return Counted(**vars(POS))


def stored(tmp_path: Path) -> Sequence[str]:
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_a_row_has_the_arguments_of_a_model_its_unit_and_its_length(tokenize: Callable[..., Any], inputs: Inputs):
    rows = tokenize(task())
    assert column(rows, "unit").tolist() == [0, 1, 2]
    assert column(rows, "length").tolist() == [4, 4, 4]
    batch = inputs.collate([rows[0], rows[2]])
    assert batch["labels"].tolist() == [[-100, POS.classes.index("NOUN"), POS.classes.index("VERB"), -100]] * 2
    assert rows.cache_files, "memory-mapped"


def test_who_comes_later_tokenises_nothing_and_other_content_is_another_file(
    tmp_path: Path, data: Path, tokenize: Callable[..., Any], inputs: Inputs
):
    first, second = task(), task()
    tokenize(first)
    rows = tokenize(second)
    assert (first.asked, second.asked, len(rows)) == (1, 0, 3)
    for number, change in enumerate([{"inputs": replace(inputs, max_seq_length=8)}, {"most": 2}], 2):
        tokenize(second, **change)
        assert len(stored(tmp_path)) == number
    write(data, 4)
    assert len(tokenize(second)) == 4
    assert second.asked == 3


def test_two_at_the_same_time_are_served_by_one(tmp_path: Path, tokenize: Callable[..., Any]):
    tasks = [task() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert [len(rows) for rows in pool.map(tokenize, tasks)] == [3] * 4
    assert sum(one.asked for one in tasks) == 1
    assert stored(tmp_path) == ["features.arrow"]


def test_who_fails_half_way_leaves_nothing_that_another_would_read(
    tmp_path: Path, data: Path, tokenize: Callable[..., Any]
):
    class Dies(TaggingTask):
        def features(self, inputs: Inputs, examples: Any, classes: Any) -> Any:
            if len(examples) < 1000:
                raise DataError("the second thousand is broken")
            return super().features(inputs, examples, classes)

    write(data, 1500)
    with pytest.raises(DataError, match="the second thousand"):
        tokenize(Dies(**vars(POS)))
    assert stored(tmp_path) == []
    assert len(tokenize(task())) == 1500
