"""Which epoch is scored: the last, or the best on the development file of English."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.token_classification import TaggingTask
from xalign_ray.work.artifacts import read_manifest

LANGUAGES = ("de", "en", "sw")
SETTINGS = FineTuning(learning_rate=1e-3, num_train_epochs=3, train_batch_size=4, seed=1)
DEVELOPMENT = (0.1, 0.9, 0.3)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "pos"
    folder.mkdir()
    for split, codes in (("train", ("en",)), ("dev", LANGUAGES), ("test", LANGUAGES)):
        for code in codes:
            (folder / f"{split}-{code}.tsv").write_text("cats\tNOUN\nsee\tVERB\n\ndogs\tNOUN\n\n" * 3)
    return folder


@pytest.fixture
def tune(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
) -> Callable[..., tuple[dict[str, Score], list[list[float]]]]:
    """`tune(**settings)`: scores by language, and for each tested file in turn the bias of the head that predicts it.

    Development scores are the given ones, so that neither the first nor the last epoch is the best.
    """
    encoder, tested = str(make_bert(["cats", "see", "dogs"])), []

    class Watched(TaggingTask):
        def __init__(self) -> None:
            super().__init__(**vars(TUNED_TASKS["pos"]))
            self.scores = iter(DEVELOPMENT)

        def read(self, path: Path, language: str) -> Any:
            self.split, examples = path.name.partition("-")[0], super().read(path, language)
            return examples

        def predict(self, tuned: Any, features: Any) -> Any:
            if self.split == "test":
                tested.append(tuned.model.classifier.bias.tolist())
            return super().predict(tuned, features)

        def measure(self, examples: Any, predicted: Any) -> Any:
            measured = super().measure(examples, predicted)
            if self.split != "test":
                name = next(iter(measured))
                assert examples[0].language == "en"
                measured[name] = type(measured[name])(next(self.scores), None, 1)
            return measured

    def run(out: str = "out", languages: Any = None, **settings: Any) -> Any:
        tested.clear()
        scores = tune_task(
            Watched(), encoder, [data], tmp_path / out, languages, SETTINGS.model_copy(update=settings), keep_model=True
        )
        return {score.language: score for score in scores if score.metric == "pos_accuracy"}, list(tested)

    return run


def choice(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "choice.json").read_text())


def test_each_language_is_scored_at_the_epoch_that_is_best_on_the_english_development_file(
    tmp_path: Path, tune: Callable[..., Any]
):
    # The weights of each epoch, by runs that end there: the schedule is constant, so that they are the same.
    at = [tune(f"{last}", num_train_epochs=last, lr_scheduler_type="constant", load_best_model_at_end=False)[1][0]
          for last in (1, 2, 3)]  # fmt: skip
    scores, tested = tune(lr_scheduler_type="constant")
    assert tested == [at[1]] * 3
    assert list(scores) == ["de", "en", "sw", "all"]
    assert choice(tmp_path / "out") == {
        "epoch": 2, "development": list(DEVELOPMENT), "split": "dev", "language": "en"
    }  # fmt: skip
    assert choice(tmp_path / "3")["epoch"] == 3
    manifest = read_manifest(tmp_path / "out") or {}
    assert manifest["development"] == 0.9
    assert sorted(Path(path).name for path in manifest["data"]) == ["dev-en.tsv", "train-en.tsv"]
    kept = load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert kept["classifier.bias"].tolist() == at[1]
