"""Which epoch is scored: the last, the best on the development file of English, or of each tested language."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.token_classification import TaggingTask
from xalign_ray.work.artifacts import read_manifest

LANGUAGES = ("de", "en", "sw")
SETTINGS = FineTuning(learning_rate=1e-3, num_train_epochs=3, train_batch_size=4, seed=1)
DEVELOPMENT = {"en": (0.1, 0.9, 0.3), "de": (0.8, 0.2, 0.1), "sw": (0.1, 0.2, 0.7)}
EPOCHS = {"en": 2, "de": 1, "sw": 3}


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

    Development scores are the given ones, so that each language has another best epoch.
    """
    encoder, tested = str(make_bert(["cats", "see", "dogs"])), []

    class Watched(TaggingTask):
        def __init__(self) -> None:
            super().__init__(**vars(TUNED_TASKS["pos"]))
            self.asked = {code: iter(scores) for code, scores in DEVELOPMENT.items()}

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
                score = next(self.asked[examples[0].language])
                measured[name] = type(measured[name])(score, None, 1)
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


def test_each_tested_language_is_scored_at_the_epoch_that_is_best_on_its_own_development_file(
    tmp_path: Path, tune: Callable[..., Any]
):
    # The weights of each epoch, by runs that end there: the schedule is constant, so that they are the same.
    at = [tune(f"{last}", num_train_epochs=last, lr_scheduler_type="constant", load_best_model_at_end=False)[1][0]
          for last in (1, 2, 3)]  # fmt: skip
    scores, tested = tune(lr_scheduler_type="constant", dev_language="target")
    assert tested == [at[EPOCHS[code] - 1] for code in ("de", "en", "sw")]
    assert list(scores) == ["de", "en", "sw", "all"]
    found = choice(tmp_path / "out")
    assert (found["language"], found["epoch"], found["development"]) == ("en", 2, list(DEVELOPMENT["en"]))
    assert {code: one["epoch"] for code, one in found["choices"].items()} == EPOCHS
    manifest = read_manifest(tmp_path / "out") or {}
    assert manifest["development"] == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert sorted(Path(path).name for path in manifest["data"]) == [
        "dev-de.tsv", "dev-en.tsv", "dev-sw.tsv", "train-en.tsv"
    ]  # fmt: skip

    scores, tested = tune(lr_scheduler_type="constant")
    assert tested == [at[1]] * 3
    assert choice(tmp_path / "out") == {
        "epoch": 2, "development": list(DEVELOPMENT["en"]), "split": "dev", "language": "en"
    }  # fmt: skip


def test_a_development_file_of_each_language_is_needed_that_is_not_the_one_scored(data: Path, tune: Callable[..., Any]):
    (data / "dev-sw.tsv").unlink()
    with pytest.raises(DataError, match="dev_language target needs a dev file in sw; name languages that have one"):
        tune(dev_language="target")
    assert set(tune(languages=["de"], dev_language="target")[0]) == {"de", "all"}
    for code in LANGUAGES:
        (data / f"test-{code}.tsv").unlink()
    with pytest.raises(DataError, match="de, en would be scored on the same file for want of a test file"):
        tune(dev_language="target")


def test_the_last_epoch_is_no_language_s_own():
    with pytest.raises(ValidationError, match="dev_language target needs load_best_model_at_end"):
        FineTuning(dev_language="target", load_best_model_at_end=False)
