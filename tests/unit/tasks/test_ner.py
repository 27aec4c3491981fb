"""NER: scores from tuning to test, and kinds of names that a head lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.token_classification import Sentence

NER = TUNED_TASKS["ner"]

EXPECTED = [
    Sentence("0", ("Karl", "Ove", "#"), ("B-PER", "I-PER", "O"), "de"),
    Sentence("1", ("Oslo",), ("B-LOC",), "de"),
]


def test_a_head_has_both_tags_of_a_kind_that_occurs_with_one():
    assert NER.classes_of(EXPECTED) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=8, train_batch_size=4, seed=1)
PIECES = ["the", "anna", "bo", "cy", "oslo", "sees", ".", "monday"]


def names(sentences: int) -> str:
    """`anna`, `bo cy` and `oslo` are names wherever they stand."""
    tagged = {"anna": ["anna\tB-PER"], "bo": ["bo\tB-PER", "cy\tI-PER"], "oslo": ["oslo\tB-LOC"]}
    known = list(tagged)
    blocks = []
    for number in range(sentences):
        left, right = known[number % 3], known[(number // 3 + 1) % 3]
        blocks.append("\n".join(["the\tO", *tagged[left], "sees\tO", *tagged[right], ".\tO"]))
    return "\n\n".join(blocks) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "ner"
    folder.mkdir()
    for split, sentences in {"train": 24, "dev": 6}.items():
        (folder / f"{split}-en.tsv").write_text(names(sentences))
    return folder


def scores_of(scores: list[Score], metric: str) -> dict[str, Score]:
    return {score.language: score for score in scores if score.metric == metric}


def test_names_are_learnt_and_scored_leniently_and_strictly(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    (data / "test-en.tsv").write_text(names(6))
    (data / "test-de.tsv").write_text(names(3))
    scores = tune_task(NER, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    for metric in ("ner_f1", "ner_f1_strict"):
        found = scores_of(scores, metric)
        assert [(code, found[code].value, found[code].n) for code in ("de", "en", "all")] == [
            ("de", 1.0, 6), ("en", 1.0, 12), ("all", 1.0, 18)
        ]  # fmt: skip
        assert 0 < (found["en"].chance or 0) < 0.7
    assert NER.evaluate(str(tmp_path / "out" / "model"), data) == scores


def test_files_that_the_head_cannot_score_are_refused_with_the_fix(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    tune_task(NER, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    (data / "sw").mkdir()
    for name, content, said in (
        (
            "sw/test.txt",
            "monday B-DATE\nsees O\n",
            r"sw/test.txt has the tag B-DATE, which the head does not know; its classes are O, B-LOC, I-LOC, B-PER, "
            "I-PER. Leave that language out, or give a copy of the file with O for that tag.",
        ),
        ("test-de.tsv", "the\tO\nsees\tO\n", r"test-de\.tsv has no name at all: there is nothing to score"),
    ):
        (data / name).write_text(content)
        with pytest.raises(DataError, match=said):
            NER.evaluate(str(tmp_path / "out" / "model"), data)
        (data / name).unlink()


def test_words_are_replaced_under_their_tags():
    assert NER.replace_words(EXPECTED[0], str.upper) == Sentence("0", ("KARL", "OVE", "#"), EXPECTED[0].tags, "de")
