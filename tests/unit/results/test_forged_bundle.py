"""Forged bundles whose hash was written anew: what can be computed again is named where it differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import open_folders
from tests.unit.results.whole_study import (
    Members,
    change_json,
    forge,
    forge_prediction,
    forge_score,
    write_whole_study,
)
from xalign_ray.errors import DataError
from xalign_ray.results.bundle import INDEX, RUN_FILE, STUDIES_FILE
from xalign_ray.results.report import report
from xalign_ray.tasks.scores import Score, average_languages
from xalign_ray.work.artifacts import hash_value

FIRST, SCORES_OF_FIRST = "runs/0000-tiny-mlm-0/run.json", "runs/0000-tiny-mlm-0/0000/tatoeba-mlm-0/scores.json"


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a study."""
    folder = tmp_path_factory.mktemp("forged")
    report([str(write_whole_study(folder))], folder / "page", bundle=folder / "mine.zip")
    return folder / "mine.zip"


@pytest.fixture
def bundle(bundled: Path, tmp_path: Path) -> Path:
    """A copy, which a test may damage."""
    return shutil.copy(bundled, tmp_path / "mine.zip")


def shorten(members: Members) -> None:
    """A training took a tenth of its time, in the table of costs too."""

    def change(run: Any) -> None:
        run["log"]["seconds"] /= 10

    change_json(members, FIRST, change)
    lines = members["report/costs.csv"].decode().splitlines()
    cells = lines[1].split(",")
    cells[3:5] = (repr(float(cell) / 10) for cell in cells[3:5])
    members["report/costs.csv"] = "\n".join([lines[0], ",".join(cells), *lines[2:], ""]).encode()


def drop_seed(members: Members) -> None:
    """Seed 2 of mlm leaves the runs, the cells and the files of scores."""

    def change(studies: Any) -> None:
        for own in studies.values():
            own["cells"] = [cell for cell in own["cells"] if "-mlm-2" not in cell["name"] or "dict" in cell["name"]]

    change_json(members, STUDIES_FILE, change)
    for name in [name for name in members if "-mlm-2" in name and "dict" not in name]:
        del members[name]


def swap_columns(members: Members) -> None:
    """Every score is right, and the two encoders have each other's names."""
    other = {"mlm": "dict-mlm-50", "dict-mlm-50": "mlm"}
    for name in [name for name in members if name.endswith(RUN_FILE)]:
        change_json(members, name, lambda run: run.update(label=other[run["label"]]))


def drop_prediction(members: Members) -> None:
    (name,) = (name for name in members if "pos-mlm-0-1/predictions/de.jsonl" in name)
    del members[name]


def change_scores(members: Members, change: Callable[[list[Any]], list[Any]]) -> None:
    """Of the fine-tuned cell of mlm's seed 0."""
    (name,) = (name for name in members if "pos-mlm-0-1/scores.json" in name)
    scores = change(json.loads(members[name])["scores"])
    members[name] = json.dumps({"scores": scores, "sha256": hash_value(scores)}).encode()


def drop_predictions(members: Members) -> None:
    for name in [name for name in members if "pos-mlm-0-1/predictions/" in name]:
        del members[name]


def add_seed(members: Members) -> None:
    """A copy of mlm's seed 2 as seed 9, which nobody declared."""
    for name in [name for name in members if "tiny-mlm-2" in name]:
        copy = members[name].replace(b"tiny-mlm-2", b"tiny-mlm-9").replace(b"\nseed: 2\n", b"\nseed: 9\n")
        members[name.replace("tiny-mlm-2", "tiny-mlm-9")] = copy


def raise_mean(members: Members) -> None:
    """Of a cell without predictions."""

    def change(scores: list[Any]) -> list[Any]:
        whole = average_languages([Score(**one) for one in scores])
        return [*scores, *(asdict(replace(one, value=0.9)) for one in whole)]

    (name,) = (name for name in members if "tatoeba-mlm-0/scores.json" in name)
    change_json(members, name, lambda file: file.update(scores=change(file["scores"])))


def add_column(members: Members) -> None:
    head, *rows = members["report/comparison.csv"].decode().splitlines()
    members["report/comparison.csv"] = "\n".join([f"{head},certified", *(f"{row},yes" for row in rows)]).encode()


def forge_text(name: str, old: str, new: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        assert old.encode() in members[name]
        members[name] = members[name].replace(old.encode(), new.encode())

    return change


def put(part: str, content: bytes) -> Callable[[Members], None]:
    """Replaces the one file with this in its name."""

    def change(members: Members) -> None:
        (name,) = (name for name in members if part in name)
        members[name] = content

    return change


def test_a_report_on_a_bundle_that_cannot_be_read_is_refused(bundle: Path) -> None:
    forge(bundle, put("0000-tiny-mlm-0/run.json", b'{"a": 1}'))
    with pytest.raises(DataError, match=r"was changed: the rest cannot be read \(KeyError"):
        open_folders([bundle.with_name("forged.zip")])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (forge_score, "its predictions give "),
        (forge_score, "report/scores.csv line "),
        (forge_prediction, "pos-mlm-0-1/scores.json: pos_accuracy in de of tiny-mlm-0, seed 0 is "),
        (swap_columns, "the scores of pos-mlm-0-1 are of mlm, and stand in the column dict-mlm-50"),
        (shorten, "run.json: tiny-mlm-0 took "),
        (forge_text(FIRST, '"run/tokens": ', '"run/tokens": 9'), "report/costs.csv line 2: tokens is "),
        (drop_seed, "study mine: seed 2 of mlm is declared and has no scores"),
        (drop_predictions, "pos_accuracy in de of tiny-mlm-0, seed 0 is 0.62 and has no predictions"),
        (
            lambda members: change_scores(members, lambda scores: [{**one, "chance": 0.99} for one in scores]),
            "chance 0.99; its predictions give",
        ),
        (add_seed, "study mine: seed 9 of mlm is not declared"),
        (
            raise_mean,
            "tatoeba_accuracy in all of tiny-mlm-0, seed 0 is 0.9 of",
        ),
        (
            add_column,
            "report/comparison.csv: its columns or its",
        ),
        (
            forge_text(SCORES_OF_FIRST, '"metric": "tatoeba_accuracy"', '"metric": "mine"'),
            "the rest cannot be read (AssertionError: mine is not a known metric)",
        ),
        (drop_prediction, "and has no predictions"),
        (forge_text("report/claims.csv", "undecided", "holds"), "verdict is holds, computed again undecided"),
        (
            forge_text("report/comparison.csv", ",3,", ",4,"),
            "report/comparison.csv line 2: seeds is 4",
        ),
        (lambda members: members.pop("report/papers.csv"), "report/papers.csv: it is missing"),
        (put("pos-mlm-0-1/predictions/de", b""), "scores.json or a prediction of it cannot be read (ZeroDivisionError"),
        (put("pos-mlm-0-1/predictions/de", b"[" * 100_000), "or a prediction of it cannot be read (RecursionError"),
        (lambda members: change_json(members, INDEX, lambda index: index.pop("versions")), "(KeyError: 'versions')"),
        (put("0000-tiny-mlm-0/config", b"a: ["), "0000-tiny-mlm-0/config.yaml cannot be read (YAMLError"),
        (put("report/scores.csv", b"a\rb\n"), "report/scores.csv"),
        (forge_text(SCORES_OF_FIRST, '"n": 1000', f'"n": 1{"0" * 400}'), "the rest cannot be read (OverflowError"),
        (lambda members: members.pop(STUDIES_FILE), "the rest cannot be read (KeyError: 'studies.json')"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_forgery_with_a_hash_of_its_own_is_found(
    bundle: Path, change: Callable[[Members], None], problem: str
) -> None:
    found = forge(bundle, change)
    assert any(problem in one for one in found), found
