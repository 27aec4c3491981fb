"""The score record and its file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.errors import DataError
from xalign_ray.evaluation import say_replaced
from xalign_ray.results.run import read_run
from xalign_ray.tasks.scores import Score, are_whole, average_languages, read_scores, show_scores, write_scores
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.artifacts import read_records, write_records

ORIGIN = {"run": "tiny-mlm-abcdef01", "encoder": "export", "objective": "mlm", "seed": 3, "step": 20}
KEYS = {
    "run", "encoder", "objective", "task", "split", "language", "layer", "pooling", "metric", "value", "chance", "n",
    "seed", "step",
}  # fmt: skip


def score(language: str, value: float, chance: float | None, n: int, layer: int | str | None = 1) -> Score:
    return Score(
        **ORIGIN,
        task="tatoeba",
        split="test",
        language=language,
        layer=layer,
        pooling="mean",
        metric="tatoeba_accuracy",
        value=value,
        chance=chance,
        n=n,
    )


def test_a_file_keeps_every_key_and_reads_back_equal(tmp_path: Path):
    scores = [score("de", 0.5, 0.001, 1000), score("fr", 0.25, None, 10, layer=None)]
    write_scores(tmp_path / "out" / "scores.json", scores)
    content = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert [set(record) for record in content["scores"]] == [KEYS, KEYS]
    assert content["scores"][1]["chance"] is None
    assert read_scores(tmp_path / "out" / "scores.json") == scores


def test_scores_of_other_encoders_tasks_sets_and_languages_that_are_replaced_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [score("de", 0.5, 0.001, 1000), score("fr", 0.25, None, 10), score("all", 0.4, None, 1010)]
    new = [score("de", 0.6, 0.001, 900)]
    say_replaced(new, tmp_path)
    write_scores(tmp_path / "scores.json", before)
    say_replaced([replace(one, value=0.9) for one in before], tmp_path)
    assert capsys.readouterr().err == ""
    for scores, said in (
        (new, "export on tatoeba (test) in fr"),
        ([replace(one, encoder="x") for one in before], "export on tatoeba (test) in de, fr"),
        ([replace(one, split="other") for one in before], "export on tatoeba (test) in de, fr"),
    ):
        say_replaced(scores, tmp_path)
        assert f"Replaced: scores of {said}. --out DIR keeps both." in capsys.readouterr().err


def test_the_mean_weighs_languages_alike_and_keeps_layers_apart():
    scores = [score("de", 1.0, 0.1, 10), score("sw", 0.5, 0.3, 2), score("de", 0.25, None, 10, layer=2)]
    first, second = average_languages(scores)
    assert (first.language, first.value, first.n, first.layer) == ("all", 0.75, 12, 1)
    assert first.chance == pytest.approx(0.2)
    assert (second.value, second.chance, second.layer) == (0.25, None, 2)


def test_a_missing_file_is_an_unfinished_evaluation(tmp_path: Path):
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}/scores.json is missing: this evaluation has not")):
        read_scores(tmp_path / "scores.json")


@pytest.mark.parametrize("content", ["", '{"scores": [{"run": ', '{"scores": []}', "[]"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str):
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(DataError, match=r"scores.json is damaged: .* Delete it and evaluate again\."):
        read_scores(tmp_path / "scores.json")


@pytest.mark.parametrize("record", [1, {"run": None}, {"metric": "pos_accuracy"}])
def test_records_with_other_fields_are_named(tmp_path: Path, record: Any):
    write_records(tmp_path / "scores.json", [record])
    with pytest.raises(DataError, match=r"scores.json is not a file of scores"):
        read_scores(tmp_path / "scores.json")


READERS = {
    "read_scores": read_scores,
    "MLflow": read_records,
    "Run.scores": lambda path: Run(path.parents[2]).scores,
    "report": lambda path: read_run(path.parents[2]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("old", "new"), [("0.5", "0.6"), ('"n": 1000', '"n": 2000'), ('"de"', '"fr"')])
def test_a_changed_score_is_refused_by_every_reader(tmp_path: Path, reader: str, old: str, new: str):
    path = tmp_path / "run" / "evaluation" / "tatoeba" / "scores.json"
    write_scores(path, [score("de", 0.5, 0.001, 1000)])
    READERS[reader](path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=re.escape(f"{path} is damaged: the SHA-256 of its scores is ")):
        READERS[reader](path)
    assert not are_whole(path), "a study evaluates it again"


def test_a_metric_outside_the_contract_is_our_mistake():
    with pytest.raises(AssertionError, match="f1 is not a known metric"):
        Score(**{**dict.fromkeys(KEYS), "task": "pos", "metric": "f1"})  # type: ignore[arg-type]


def test_scores_in_the_terminal_are_each_mean_and_its_languages():
    of_files = [replace(score("de", 0.5, 0.1, 100, layer=None), split="dev")]
    tested = [score(code, value, 0.1, 100, layer="last4") for code, value in (("de-en", 0.25), ("en", 0.75))]
    layer = [score(code, value, None, 100, layer=0) for code, value in (("de-en", 0.0), ("en", 1.0))]
    scores = [one for part in (of_files, tested, layer) for one in (*part, *average_languages(part))]
    assert list(show_scores(scores, 20)) == [
        "tatoeba_accuracy 0.500  (chance 0.100)  dev  n 100",
        "  de 0.500",
        "tatoeba_accuracy 0.500  (chance 0.100)  layer last4  test  n 200",
        "  de-en 0.250",
        "  en 0.750",
    ]
    assert list(show_scores(scores, 1)) == list(show_scores(scores, 20)), "as COLUMNS=1 asks for"
