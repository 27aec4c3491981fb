"""The bundle of a report, verified without its runs: each kind of damage and forgery is named."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.unit.results.run_folders import choice, score, write_run, write_study
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.bundle import FORMAT, INDEX, RUNS_FILE, STUDIES_FILE, read_bundle, verify_bundle
from xalign_ray.results.page import report
from xalign_ray.results.run import Log, Run, keys_as_declared
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score, average_languages, write_scores
from xalign_ray.tasks.task import TunedTask
from xalign_ray.verbs.scores import verify
from xalign_ray.work.artifacts import hash_value, seal_archive, write_json

LANGUAGES, SEEDS = ("de", "es", "hi"), (0, 1, 2)
TAGS = ("NOUN", "VERB", "ADJ")
Members = dict[str, bytes]


def write_predictions(folder: Path, run: str, right: float) -> list[Score]:
    """A fine-tuned cell: drawn predictions, of which about the share `right` is right, and their scores."""
    task, rng = TUNED_TASKS["pos"], random.Random(f"{run} {right}")
    scores = []
    for language in LANGUAGES:
        test = random.Random(language)  # one for all encoders
        gold = [[test.choice(TAGS) for _ in range(5)] for _ in range(40)]
        said = [[tag if rng.random() < right else rng.choice(TAGS) for tag in tags] for tags in gold]
        rows = [{"key": str(n), "prediction": p, "gold": g} for n, (p, g) in enumerate(zip(said, gold, strict=True))]
        (folder / "predictions").mkdir(parents=True, exist_ok=True)
        (folder / f"predictions/{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        examples = [task.from_gold(row["key"], row["gold"], language) for row in rows]
        where = {"task": "pos", "layer": None, "pooling": None, "language": language, "run": run, "seed": 0}
        where["test_set"] = f"hash of {language}"
        scores += [score(name, **asdict(one), **where) for name, one in task.measure(examples, said).items()]
    scores += average_languages(scores)
    write_scores(folder / "scores.json", scores)
    return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the study, its bundles and nothing else."""
    return tmp_path_factory.mktemp("bundle")


@pytest.fixture(scope="module")
def bundled(folder: Path) -> Path:
    """The bundle of a study whose runs are gone; written twice to compare the bytes."""
    study = write_whole_study(folder)
    for name in ("mine.zip", "again.zip"):
        report([str(study)], folder / "page", bundle=folder / name)
    shutil.rmtree(folder / "runs")
    return folder / "mine.zip"


@pytest.fixture
def bundle(bundled: Path, tmp_path: Path) -> Path:
    """A copy, which a test may damage."""
    return shutil.copy(bundled, tmp_path / "mine.zip")


def write_whole_study(
    tmp_path: Path, seeds: Sequence[int] = SEEDS, base: float | None = None, settings: Sequence[str] = ()
) -> Path:
    """Two encoders with seeds: retrieval, and POS with predictions and a setting that was not chosen.

    `base` is the retrieval of an encoder that was given, which lies somewhere else on every machine.
    """
    cells: list[dict[str, Any]] = []
    folder = tmp_path / "runs/studies/mine"
    if base is not None:
        own = {"run": None, "encoder": str(tmp_path / "e5-small"), "seed": None, "step": None}
        found = [score(value=base, language=language, **own) for language in LANGUAGES]
        what = {"label": "base", "seed": None, "task": "tatoeba", "kind": "evaluation"}
        cells.append({**what, "name": f"tatoeba-base-{tmp_path.name}", "scores": found})
    for label, right in (("mlm", 0.3), ("dict-mlm-50", 0.6)):
        for seed in seeds:
            name = f"tiny-{label}-{seed}"
            run = write_run(tmp_path / "runs" / name, seed=seed, settings=settings)
            cells.append({"kind": "pretraining", "label": label, "name": name, "folder": str(run), "seed": seed})
            found = [
                score(value=right / 2 + seed / 50 + n / 20, language=language, run=name, seed=seed)
                for n, language in enumerate(LANGUAGES)
            ]
            what = {"label": label, "seed": seed, "task": "tatoeba", "kind": "evaluation"}
            cells.append({**what, "name": f"tatoeba-{label}-{seed}", "scores": found})
            for number, better in enumerate((right, right + 0.1)):
                cell = f"pos-{label}-{seed}-{number}"
                own = write_predictions(folder / "cells" / cell, name, better)
                tuned = {"label": label, "task": "pos", "kind": "finetuning", "name": cell, "train_language": "en"}
                cells.append({**tuned, "scores": own, "training": "english", "seed": 0})
    chosen = [
        choice(label, 1, *({f"pos-{label}-{seed}-{n}": 0.5 for seed in seeds} for n in (0, 1)))
        for label in ("mlm", "dict-mlm-50")
    ]
    write_study(folder, cells, chosen)
    told = json.loads((folder / "study.json").read_text())
    told |= {"seeds": {"mlm": seeds, "dict-mlm-50": seeds}}
    encoder = {"recipe": "tiny/mlm", "model": "", "settings": ["masking.mlm_probability=0.15"], "languages": []}
    told |= {
        "study": {
            "encoders": [{"label": label} | encoder for label in ("mlm", "dict-mlm-50")],
            "evaluations": [{"task": "tatoeba", "languages": []}],
            "finetunings": [
                {"task": "pos", "train_language": "en", "seeds": [0], "languages": [*LANGUAGES]}
                | {"settings": {"learning_rate": [0.1, 0.2], "weight_decay": None}}
            ],
            "search": {"kind": "grid"},
            "seeds": seeds,
        }
    }
    write_json(folder / "study.json", told)
    rate = load_recipe("tiny/mlm").config.train.optimizer.learning_rate
    tried = [
        {"encoder": label, "learning_rate": one, "score": better}
        for label in ("mlm", "dict-mlm-50")
        for one, better in ((rate / 5, 0.1), (rate, 0.2))
    ]
    chosen_rates = {"mlm": rate, "dict-mlm-50": rate}
    how = {"metric": "tatoeba_accuracy", "languages": ["tr"]}
    write_json(folder / "rates.json", how | {"tried": tried, "chosen": chosen_rates})
    return folder


def found_by(right: int, layers: int) -> dict[str, list[list[int]]]:
    """Of ten sentences `right` find their own translation at the first layer, one more at each layer above."""
    return {"tatoeba_accuracy": [[*range(right + layer), *[0] * (10 - right - layer)] for layer in range(layers)]}


def retrieval_study(tmp_path: Path) -> Path:
    """One encoder, retrieval in three languages: a headline of two layers, and a layer without neighbours."""
    name, folder = "tiny-mlm-0", tmp_path / "runs/studies/mine"
    run = write_run(tmp_path / "runs" / name, seed=0)
    cell = folder / "cells" / "tatoeba-mlm"
    (cell / "predictions").mkdir(parents=True)
    scores = []
    for number, language in enumerate(LANGUAGES):
        rows = found_by(5 + number, 2).items()
        lines = [json.dumps({"key": key, "prediction": found}) for key, found in rows]
        (cell / "predictions" / f"{language}.jsonl").write_text("\n".join(lines) + "\n")
        for layer, value in (("last4", 0.55 + number / 10), (0, 0.1)):
            scores.append(replace(score(value=value, language=language, run=name), layer=layer, n=10, chance=0.1))
    cells: list[dict[str, Any]] = [
        {"kind": "pretraining", "label": "mlm", "name": name, "folder": str(run), "seed": 0},
        {"kind": "evaluation", "label": "mlm", "seed": 0, "task": "tatoeba", "name": "tatoeba-mlm"}
        | {"scores": [*scores, *average_languages(scores)]},
    ]
    write_study(folder, cells, [])
    report([str(folder)], folder / "page", bundle=folder / "mine.zip")
    return folder / "mine.zip"


def test_the_headline_of_retrieval_is_computed_again(tmp_path: Path) -> None:
    bundle = retrieval_study(tmp_path)
    found = verify_bundle(bundle)
    assert found.problems == []
    headline = len(LANGUAGES) + 1
    assert (
        f"{headline} of {2 * headline} scores computed again from {len(LANGUAGES)} files of predictions." in found.facts
    )

    def change(members: Members) -> None:
        (name,) = (name for name in members if name.endswith(f"predictions/{LANGUAGES[0]}.jsonl"))
        (row,) = (json.loads(line) for line in members[name].decode().splitlines())
        row["prediction"][0][0] = 9
        members[name] = json.dumps(row).encode()

    said = "tatoeba_accuracy in de of tiny-mlm-0, seed 0 is 0.55 of 10; its predictions give 0.5 of 10"
    assert any(said in one for one in forge(bundle, change))

    def raise_chance(members: Members) -> None:
        for name in (name for name in members if name.endswith("scores.json")):
            members[name] = members[name].replace(b'"chance": 0.1', b'"chance": 0.9')

    assert any("is 0.9; its predictions give 0.1" in one for one in forge(bundle, raise_chance))

    def drop(members: Members) -> None:
        del members[next(name for name in members if name.endswith(f"predictions/{LANGUAGES[0]}.jsonl"))]

    assert any("seed 0 is 0.55 of 10; its predictions give nothing" in one for one in forge(bundle, drop))


def forge(bundle: Path, change: Callable[[Members], None]) -> list[str]:
    """The problems of a bundle of which files were changed and all hashes written anew."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    index = json.loads(members.pop(INDEX))
    index["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    forged = bundle.with_name("forged.zip")
    forged.write_bytes(seal_archive({INDEX: json.dumps(index).encode(), **members}))
    return verify_bundle(forged).problems


def change_json(members: Members, name: str, change: Callable[[Any], Any]) -> None:
    value = json.loads(members[name])
    change(value)
    members[name] = json.dumps(value).encode()


def test_a_bundle_holds_without_its_runs(bundle: Path) -> None:
    said = verify(bundle)
    assert "72 of 90 scores computed again from 18 files of predictions." in said
    assert "18 scores have no predictions: they are held to their hashes alone." in said
    assert "6 declared seeds of pretraining looked for." in said
    assert "2 learning rates follow from the development scores of those that were tried." in said
    assert "claims.csv" in said
    assert verify_bundle(bundle).problems == []


def test_a_bundle_has_equal_bytes_and_chosen_cells_alone(bundled: Path) -> None:
    assert bundled.read_bytes() == bundled.with_name("again.zip").read_bytes()
    with zipfile.ZipFile(bundled) as archive:
        names = archive.namelist()
        assert {archive.getinfo(name).date_time[0] for name in names} == {1980}
    assert sorted(names) == names
    assert sum(name.endswith("-1/predictions/de.jsonl") for name in names) == 6
    assert not [name for name in names if "-0/predictions" in name]  # of a setting that was not chosen
    assert sum(name.startswith("recipes/") for name in names) == 6


def test_any_altered_byte_is_found(bundle: Path) -> None:
    content = bundle.read_bytes()
    rng = random.Random(0)
    places = {0, 1, len(content) - 1, len(content) - 64, len(content) - 65, *rng.sample(range(len(content)), 60)}
    altered = bundle.with_name("altered.zip")
    unseen = []
    for place in places:
        altered.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            unseen += [] if read_bundle(altered).problems else [place]
        except DataError:
            continue
    assert unseen == []


def forge_score(members: Members) -> None:
    def change(runs: Any) -> None:
        (one, *_) = (one for one in runs[0]["scores"] if one["metric"] == "pos_accuracy" and one["language"] == "de")
        one["value"] += 0.1

    change_json(members, RUNS_FILE, change)


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


def forge_prediction(members: Members) -> None:
    (name,) = (name for name in members if "pos-mlm-0-1/predictions/de.jsonl" in name)
    rows = [json.loads(line) for line in members[name].decode().splitlines()]
    rows[0]["prediction"] = ["X"] * 5
    members[name] = "".join(json.dumps(row) + "\n" for row in rows).encode()


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


def bundle_of(folder: Path, **study: Any) -> Path:
    """A bundle whose runs are gone, as another machine sends it."""
    written = write_whole_study(folder, **study)
    report([str(written)], folder / "page", bundle=folder / "mine.zip")
    shutil.rmtree(folder / "runs")
    return folder / "mine.zip"


def test_seeds_of_a_study_that_ran_apart_are_one_study(tmp_path: Path) -> None:
    """Two nights, the second of which still lies on the disk, give the report and bundle of one that ran at once."""
    whole = write_whole_study(tmp_path / "whole", base=0.501)
    report([str(whole)], tmp_path / "one")
    first = bundle_of(tmp_path / "first", seeds=(0, 2), base=0.501)
    second = write_whole_study(tmp_path / "second", seeds=(1,), base=0.5)
    joined = tmp_path / "joined.zip"
    report([str(first), str(second)], tmp_path / "two", bundle=joined)
    one, two = (pd.read_csv(tmp_path / name / "comparison.csv") for name in ("one", "two"))
    rows = ["by", "metric", "group", "label", "split"]
    one, two = (table.sort_values(rows, ignore_index=True) for table in (one, two))
    pd.testing.assert_frame_equal(one, two)  # the base once, as the first source has it
    shutil.rmtree(tmp_path / "second/runs")
    found = verify_bundle(joined)
    assert (found.problems, found.index["format"]) == ([], FORMAT)
    assert "6 declared seeds of pretraining looked for." in found.facts
    report([str(joined)], tmp_path / "three", bundle=tmp_path / "again.zip")
    assert verify_bundle(tmp_path / "again.zip").problems == []
    page = (tmp_path / "three/index.html").read_text()
    assert "What it cost" in page
    assert "Time of mine" in page
    assert "embedded world" in page  # the demo, which lay on the other machine


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"settings": ["train.max_steps=7"]}, r"its mlm has train\.max_steps 900 in the first and 7 in the second"),
        ({"seeds": (1, 2)}, ""),
        ({"base": 0.6}, r"a/mine\.zip and .*b/mine\.zip both have base, with other scores\. Give one of them"),
    ],
)
def test_what_is_not_of_one_study_is_not_joined(other: dict[str, Any], problem: str, tmp_path: Path) -> None:
    names = [str(bundle_of(tmp_path / "a", seeds=(0, 1), base=0.5))]
    names.append(str(bundle_of(tmp_path / "b", **{"seeds": (2,), "base": 0.5} | other)))
    if problem:
        with pytest.raises(DataError, match=problem):
            report(names, tmp_path / "page")
    else:  # seed 1 is in both, with equal scores, and counts once
        report(names, tmp_path / "page")
        assert set(pd.read_csv(tmp_path / "page/scores.csv").query("label == 'mlm'").seed) == {0, 1, 2}


def test_a_seed_with_other_scores_and_a_changed_bundle_are_refused(tmp_path: Path) -> None:
    first, second = bundle_of(tmp_path / "a", seeds=(0, 1)), bundle_of(tmp_path / "b", seeds=(1, 2))
    with zipfile.ZipFile(second) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    forge_score(members)
    second.write_bytes(seal_archive(members))
    with pytest.raises(DataError, match=r"b/mine\.zip was changed: runs\.json: its bytes are not those that were"):
        report([str(first), str(second)], tmp_path / "page")
    forge(second, forge_score)  # with hashes of its own
    second = second.with_name("forged.zip")
    with pytest.raises(DataError, match=r"both have seed 1 of mlm, with other scores\. Give one of them"):
        report([str(first), str(second)], tmp_path / "page")


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
        (lambda members: members.pop(RUNS_FILE), "the rest cannot be read (KeyError: 'runs.json')"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_forgery_with_hashes_of_its_own_is_found(
    bundle: Path, change: Callable[[Members], None], problem: str
) -> None:
    found = forge(bundle, change)
    assert any(problem in one for one in found), found


def test_a_folder_that_another_machine_has_somewhere_else_is_as_declared() -> None:
    """A teacher that the study names by a relative path, as --encoder gives it."""
    settings = ["objectives=[{kind: distillation}]", "streams=[{kind: contrasted_pairs, text: none}]"]

    def trained(path: str, distance: str) -> Run:
        own = [*settings, f"data.teacher={{path: {path}, language: en}}", f"objectives.0.distance={distance}"]
        own.append("train.per_device_batch_size=2")  # which that machine has room for
        config = load_recipe("align/two-cores", own).config.model_dump(mode="json")
        return Run(Path("x"), config, Log(), (), label="distill")

    declared: dict[str, Any] = {"label": "distill", "recipe": "align/two-cores"}
    declared["settings"] = [*settings, "data.teacher={path: models/e5, language: en}"]
    study = {"name": "mine", "study": {"encoders": [declared]}}
    differing = [key for key, right in keys_as_declared(trained("/their/models/e5", "mse"), study).items() if not right]
    assert differing == []
    differing = [key for key, right in keys_as_declared(trained("/x", "cosine"), study).items() if not right]
    assert differing == ["objectives.0.distance"]


def test_the_command_names_what_differs(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    forge_prediction(members)
    bundle.write_bytes(seal_archive(members))
    with pytest.raises(DataError, match=r"(?s)does not hold: \d+ differences\..*its bytes are not those that were wri"):
        verify(bundle)


def of_a_later_zip() -> bytes:
    """An archive that says it needs version 9.9 of the format to be read, which zipfile answers in its own way."""
    content = bytearray(seal_archive({INDEX: b"{}"}))
    at = content.index(b"PK\x01\x02") + 6
    content[at : at + 2] = (99).to_bytes(2, "little")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no bundle, or it is damaged: it is not a zip archive"),
        (of_a_later_zip(), "is no bundle, or it is damaged: it is not a zip archive"),
        (seal_archive({"other.txt": b"x"}), "is no whole bundle: bundle.json is missing or damaged"),
        (seal_archive({INDEX: b'{"format": 99, "files": {}}'}), "is a bundle of format 99; this xalign reads format 3"),
    ],
)
def test_what_is_no_bundle_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(DataError, match=problem):
        verify(tmp_path / "x.zip")


def test_a_bundle_of_what_mlflow_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--bundle: mlflow:x is in MLflow, which holds no predictions"):
        report(["mlflow:x"], tmp_path / "page", bundle=tmp_path / "x.zip")


def test_values_of_tasks_follow_from_their_predictions() -> None:
    """Without the text: classes, tags, choices, answers in one language and across two."""
    assert [name for name, task in TUNED_TASKS.items() if type(task).from_gold is TunedTask.from_gold] == []
    rows: Mapping[str, tuple[str, Any, Any, Mapping[str, float]]] = {
        "xnli": ("de", "neutral", "neutral", {"xnli_accuracy": 1.0}),
        "ner": ("de", ["B-PER", "O"], ["B-PER", "O"], {"ner_f1": 1.0, "ner_f1_strict": 1.0}),
        "xcopa": ("et", "2", "2", {"xcopa_accuracy": 1.0}),
        "mlqa": ("en-de", ["the red house"], "a red house", {"mlqa_f1_gxlt": 1.0, "mlqa_em_gxlt": 1.0}),
        "xquad": ("de", ["rotes Haus"], "Haus", {"xquad_f1": 2 / 3, "xquad_em": 0.0}),
    }
    for name, (language, gold, said, expected) in rows.items():
        task = TUNED_TASKS[name]
        found = task.measure([task.from_gold("0", gold, language)], [said])
        assert {metric: one.value for metric, one in found.items()} == pytest.approx(expected)


def test_runs_alone_are_bundled_too(tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / f"tiny-mlm-{seed}", seed=seed, scores={"tatoeba": [replace(score(), run=f"tiny-mlm-{seed}")]}
        )
        for seed in SEEDS
    ]
    report([str(run) for run in runs], tmp_path / "page", bundle=tmp_path / "x.zip")
    shutil.rmtree(runs[0])
    assert verify_bundle(tmp_path / "x.zip").problems == []
