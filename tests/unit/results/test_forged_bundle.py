"""Forged bundles whose hashes were written anew: what can be computed again is named where it differs."""

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
from xalign_ray.results.bundle import INDEX, RUNS_FILE, STUDIES_FILE
from xalign_ray.results.page import report
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score, average_languages
from xalign_ray.work.artifacts import hash_value


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


def forge_score_everywhere(members: Members) -> None:
    """In the cell's own file too, with its hash: only the predictions know better."""
    forge_score(members)
    (name,) = (name for name in members if "pos-mlm-0-1/scores.json" in name)

    def change(file: Any) -> None:
        (one, *_) = (one for one in file["scores"] if one["metric"] == "pos_accuracy" and one["language"] == "de")
        one["value"] += 0.1
        file["sha256"] = hash_value(file["scores"])

    change_json(members, name, change)


def forge_rate(members: Members) -> None:
    """The scores of the rates are other ones than those that chose."""

    def change(studies: Any) -> None:
        for study in studies.values():
            study["rates"]["tried"][0]["score"] = 0.9

    change_json(members, STUDIES_FILE, change)


def drop_seed(members: Members) -> None:
    """Seed 2 of mlm leaves the runs, the cells and the files of scores."""
    change_json(members, RUNS_FILE, lambda runs: runs.remove(next(r for r in runs if r["name"] == "tiny-mlm-2")))

    def change(studies: Any) -> None:
        for own in studies.values():
            own["cells"] = [cell for cell in own["cells"] if "-mlm-2" not in cell["name"] or "dict" in cell["name"]]

    change_json(members, STUDIES_FILE, change)
    for name in [name for name in members if "-mlm-2" in name and "dict" not in name]:
        del members[name]


def swap_columns(members: Members) -> None:
    """Every score is right, and the two encoders have each other's names."""
    other = {"mlm": "dict-mlm-50", "dict-mlm-50": "mlm"}
    change_json(members, RUNS_FILE, lambda runs: [run.update(label=other[run["label"]]) for run in runs])


def drop_prediction(members: Members) -> None:
    (name,) = (name for name in members if "pos-mlm-0-1/predictions/de.jsonl" in name)
    del members[name]


def change_scores(members: Members, change: Callable[[list[Any]], list[Any]]) -> None:
    """Of the fine-tuned cell of mlm's seed 0, in its file and in runs.json alike."""
    (name,) = (name for name in members if "pos-mlm-0-1/scores.json" in name)
    scores = change(json.loads(members[name])["scores"])
    members[name] = json.dumps({"scores": scores, "sha256": hash_value(scores)}).encode()

    def change_runs(runs: Any) -> None:
        (run,) = (run for run in runs if run["name"] == "tiny-mlm-0")
        run["scores"] = [one for one in run["scores"] if one["task"] != "pos"] + scores

    change_json(members, RUNS_FILE, change_runs)


def drop_tuned_seed(members: Members) -> None:
    """The fine-tuned cell of one pretraining seed."""
    for name in [name for name in members if "pos-mlm-2-1/" in name]:
        del members[name]
    (run,) = (run for run in json.loads(members[RUNS_FILE]) if run["name"] == "tiny-mlm-2")
    left = [one for one in run["scores"] if one["task"] != "pos"]
    change_json(
        members, RUNS_FILE, lambda runs: [one.update(scores=left) for one in runs if one["name"] == run["name"]]
    )


def drop_language(members: Members) -> None:
    """hi and the mean with it; its predictions stay."""

    def change(scores: list[Any]) -> list[Any]:
        own = [Score(**one) for one in scores if one["language"] not in ("hi", "all")]
        return [asdict(one) for one in [*own, *average_languages(own)]]

    change_scores(members, change)


def drop_predictions(members: Members) -> None:
    for name in [name for name in members if "pos-mlm-0-1/predictions/" in name]:
        del members[name]


def forge_choice(members: Members) -> None:
    def change(studies: Any) -> None:
        for one in studies["mine"]["choices"]:
            (_, better) = one["candidates"]
            better["development"] = dict.fromkeys(better["development"], 0.4)

    change_json(members, STUDIES_FILE, change)


def forge_recipe(members: Members) -> None:
    name = next(name for name in members if name.startswith("recipes/000"))
    assert b"mlm_probability: 0.15" in members[name]
    members[name] = members[name].replace(b"mlm_probability: 0.15", b"mlm_probability: 0.5")


def forge_gold(members: Members) -> None:
    """Whatever mlm's seed 0 said in de is what was right, by its scores too."""
    (name,) = (name for name in members if "pos-mlm-0-1/predictions/de.jsonl" in name)
    rows = [json.loads(line) for line in members[name].decode().splitlines()]
    members[name] = "".join(json.dumps(row | {"gold": row["prediction"]}) + "\n" for row in rows).encode()
    task, said = TUNED_TASKS["pos"], [row["prediction"] for row in rows]
    right = task.measure([task.from_gold("", one, "de") for one in said], said)

    def change(scores: list[Any]) -> list[Any]:
        single = [one for one in scores if one["language"] != "all"]
        own = [Score(**one | (asdict(right[one["metric"]]) if one["language"] == "de" else {})) for one in single]
        return [asdict(one) for one in [*own, *average_languages(own)]]

    change_scores(members, change)


def forge_study(change: Callable[[Any], Any]) -> Callable[[Members], None]:
    return lambda members: change_json(members, STUDIES_FILE, lambda studies: change(studies["mine"]))


def forget_the_choice(study: Any) -> None:
    """The setting that was not chosen was the better one, and nothing says that another was."""
    for one in study["choices"]:
        one["candidates"][0]["development"] = dict.fromkeys(one["candidates"][0]["development"], 0.9)
        one["chosen"] = None


def drop_setting(study: Any) -> None:
    for one in study["choices"]:
        one["candidates"], one["chosen"] = one["candidates"][1:], 0


def drop_rate(study: Any) -> None:
    study["rates"]["tried"] = study["rates"]["tried"][1:]


def drop_declared_seed(members: Members) -> None:
    """As `drop_seed`, and the study's list of seeds does not have it either."""
    drop_seed(members)
    forge_study(lambda study: study["seeds"].update(mlm=[0, 1]))(members)


def add_seed(members: Members) -> None:
    """A copy of mlm's seed 2 as seed 9, which nobody declared."""

    def renamed(scores: Any) -> list[Any]:
        return [{**one, "run": "tiny-mlm-9"} for one in scores]

    def change(runs: Any) -> None:
        (run,) = (run for run in runs if run["name"] == "tiny-mlm-2")
        runs.append(run | {"name": "tiny-mlm-9", "recipe": "recipes/9.yaml", "scores": renamed(run["scores"])})

    change_json(members, RUNS_FILE, change)
    members["recipes/9.yaml"] = members["recipes/002-tiny-mlm-2.yaml"].replace(b"seed: 2\n", b"seed: 9\n")
    for name in [name for name in members if "-mlm-2" in name and "scores/" in name and "dict" not in name]:
        members[name.replace("-mlm-2", "-mlm-9")] = members[name].replace(b"tiny-mlm-2", b"tiny-mlm-9")


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
    forge(bundle, put(RUNS_FILE, b'{"a": 1}'))
    with pytest.raises(DataError, match=r"was changed: the rest cannot be read \(TypeError"):
        open_folders([bundle.with_name("forged.zip")])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (forge_rate, "study mine: the rate 0.003 of mlm is not the best of those tried, 0.0006, or not that of its"),
        (forge_score, "runs.json: pos_accuracy in de of tiny-mlm-0, seed 0, "),
        (forge_score_everywhere, "its predictions give "),
        (forge_prediction, "pos-mlm-0-1/scores.json: pos_accuracy in de of tiny-mlm-0, seed 0 is "),
        (swap_columns, "its scores are of mlm, and runs.json has them not in that column"),
        (drop_seed, "study mine: seed 2 of mlm is declared and has no scores"),
        (drop_tuned_seed, "study mine: the scores of mlm on pos are missing"),
        (drop_tuned_seed, "study mine: seed 2 of mlm has no scores of pos"),
        (drop_language, "pos-mlm-0-1/scores.json: its predictions in hi have no score"),
        (drop_language, "pos-mlm-0-1/scores.json: hi is declared and has no score"),
        (drop_predictions, "pos-mlm-0-1/scores.json: its predictions are missing"),
        (
            lambda members: change_scores(members, lambda scores: [{**scores[0], "task": "mteb:x"}, *scores[1:]]),
            "pos-mlm-0-1/scores.json: its scores are not of pos",
        ),
        (
            lambda members: change_scores(members, lambda scores: [{**one, "chance": 0.99} for one in scores]),
            "pos-mlm-0-1/scores.json: chance of pos_accuracy in de of tiny-mlm-0, seed 0 is 0.99; its predictions give",
        ),
        (forge_choice, "study mine: the setting of mlm on pos is not the best of those tried"),
        (forge_recipe, "recipe of mlm, seed 0: masking.mlm_probability is not as the study declares it"),
        (
            forge_text("recipes/000-tiny-mlm-0.yaml", "max_steps: 900", "max_steps: 9000"),
            "recipe of mlm, seed 0: train.max_steps is not as the study declares it",
        ),
        (
            forge_gold,
            "pos-mlm-0-1/scores.json: its gold labels in de are not those of scores/0-mine/cells/pos-dict-mlm",
        ),
        (forge_study(forget_the_choice), "study mine: the setting of mlm on pos is not the best of those tried"),
        (forge_study(drop_setting), "the setting of mlm on pos is of 1 that were tried; 2 are declared"),
        (forge_study(drop_rate), "study mine: mlm was not tried at the rate 0.0006, and others were"),
        (drop_declared_seed, "study mine: seed 2 of mlm is declared and has no scores"),
        (add_seed, "study mine: seed 9 is not declared"),
        (raise_mean, "tatoeba_accuracy in all of tiny-mlm-0, seed 0 is 0.9, its languages' is 0.2"),
        (
            lambda members: members.update({"report/finding.md": b"mlm is best"}),
            "report/finding.md: it belongs to no run or table",
        ),
        (
            add_column,
            "report/comparison.csv: task, tatoeba_accuracy, test, last4, mean, all languages, mlm: certified is yes",
        ),
        (
            forge_text(RUNS_FILE, '"metric": "tatoeba_accuracy"', '"metric": "mine"'),
            "the rest cannot be read (AssertionError: mine is not a known metric)",
        ),
        (drop_prediction, "pos_accuracy in de of tiny-mlm-0, seed 0 has no predictions"),
        (forge_text("report/claims.csv", "undecided", "holds"), "verdict is holds, computed again undecided"),
        (forge_text("report/comparison.csv", ",3,", ",4,"), "report/comparison.csv: task, tatoeba_accuracy"),
        (lambda members: members.pop("report/papers.csv"), "report/papers.csv: it is missing"),
        (put("pos-mlm-0-1/predictions/de", b""), "scores.json or a prediction of it cannot be read (ZeroDivisionError"),
        (put("pos-mlm-0-1/predictions/de", b"[" * 100_000), "or a prediction of it cannot be read (RecursionError"),
        (lambda members: change_json(members, INDEX, lambda index: index.pop("versions")), "(KeyError: 'versions')"),
        (put("recipes/000", b"a: ["), "recipes/000-tiny-mlm-0.yaml cannot be read (YAMLError"),
        (put("report/scores.csv", b"a\rb\n"), "report/scores.csv cannot be read (Error: new-line character"),
        (forge_text(RUNS_FILE, '"n": 1000', f'"n": 1{"0" * 400}'), "the rest cannot be read (OverflowError"),
        (lambda members: members.pop(RUNS_FILE), "the rest cannot be read (KeyError: 'runs.json')"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_forgery_with_hashes_of_its_own_is_found(
    bundle: Path, change: Callable[[Members], None], problem: str
) -> None:
    found = forge(bundle, change)
    assert any(problem in one for one in found), found
