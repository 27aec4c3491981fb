"""The bundle of a report, verified without its runs: each kind of damage is named; studies that ran apart are one."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.unit.results.run_folders import HOST, USER, open_folders, score, write_run, write_study
from tests.unit.results.whole_study import (
    LANGUAGES,
    Members,
    forge,
    forge_prediction,
    forge_score,
    write_bundle_of,
    write_whole_study,
)
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.bundle import FORMAT, INDEX, read_bundle, verify_bundle
from xalign_ray.results.compare import compare_runs, score_frame
from xalign_ray.results.report import report
from xalign_ray.results.run import NO_SCORES, Log, Run
from xalign_ray.results.sources import join_sources
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import average_languages, read_scores, write_scores
from xalign_ray.tasks.task import TunedTask
from xalign_ray.verbs.scores import verify
from xalign_ray.work.artifacts import seal_archive, write_json


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
    write_study(folder, cells)
    report([str(folder)], folder / "page", bundle=folder / "mine.zip")
    return folder / "mine.zip"


def test_the_headline_of_retrieval_is_computed_again(tmp_path: Path) -> None:
    bundle = retrieval_study(tmp_path)
    found = verify_bundle(bundle)
    assert found.problems == []
    assert "as they were measured: CPU seconds" in next(
        fact for fact in found.facts if fact.startswith("Taken on trust")
    )
    headline = len(LANGUAGES) + 1
    assert (
        f"{headline} of {2 * headline} scores computed again from {len(LANGUAGES)} files of predictions." in found.facts
    )

    def change(members: Members) -> None:
        (name,) = (name for name in members if name.endswith(f"predictions/{LANGUAGES[0]}.jsonl"))
        (row,) = (json.loads(line) for line in members[name].decode().splitlines())
        row["prediction"][0][0] = 9
        members[name] = json.dumps(row).encode()

    said = "tatoeba_accuracy in de of tiny-mlm-0, seed 0 is 0.55 of 10, chance 0.1; its predictions give 0.5 of 10"
    assert any(said in one for one in forge(bundle, change))

    def raise_chance(members: Members) -> None:
        for name in (name for name in members if name.endswith("scores.json")):
            members[name] = members[name].replace(b'"chance": 0.1', b'"chance": 0.9')

    assert any("chance 0.9; its predictions give 0.55 of 10, chance 0.1" in one for one in forge(bundle, raise_chance))

    def drop(members: Members) -> None:
        del members[next(name for name in members if name.endswith(f"predictions/{LANGUAGES[0]}.jsonl"))]

    assert any("seed 0 is 0.55 and has no predictions" in one for one in forge(bundle, drop))


def test_a_bundle_holds_without_its_runs(bundle: Path) -> None:
    said = verify(bundle)
    assert "\nMade with " in said
    assert ", xalign-ray " in said
    assert "72 of 90 scores computed again from 18 files of predictions." in said
    assert "18 scores have no predictions: they are held to the hash of the whole alone." in said
    assert "6 declared seeds of pretraining looked for." in said
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
    assert sum(name.endswith("/config.yaml") for name in names) == 6


def test_a_bundle_and_a_page_do_not_tell_who_ran_it_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With an encoder that was given, labels that are paths, and start events that say a host and a user."""
    monkeypatch.chdir(tmp_path)
    study = write_whole_study(tmp_path, base=0.5, settings=[f"data.root={tmp_path}/texts"])
    label, given = f"tiny/mlm data.root={tmp_path}/texts", f"{tmp_path}/e5-small"
    told = (study / "study.json").read_text().replace('"mlm"', f'"{label}"').replace('"base"', f'"{given}"')
    (study / "study.json").write_text(told)
    rates = (study / "rates.json").read_text().replace('"mlm"', f'"{label}"')
    (study / "rates.json").write_text(rates)
    report([str(study)], tmp_path / "page", baseline=label, bundle=tmp_path / "mine.zip")
    bundle = read_bundle(tmp_path / "mine.zip")
    pages = {path.name: path.read_bytes() for path in (tmp_path / "page").iterdir()}
    for name, content in {**bundle.members, **pages}.items():
        for secret in (str(tmp_path), HOST, USER):
            assert secret.encode() not in content, (name, secret)
    assert {encoder for run in bundle.runs if run.label == "./e5-small" for encoder in run.scores.encoder} == {
        "./e5-small"
    }
    assert "points above tiny/mlm data.root=./texts" in (tmp_path / "page/index.html").read_text()
    assert verify_bundle(tmp_path / "mine.zip").problems == []
    assert "outside" not in capfd.readouterr().err
    monkeypatch.chdir("page")
    report([str(study)], tmp_path / "page", bundle=tmp_path / "mine.zip")
    said = " ".join(capfd.readouterr().err.split())
    assert f"names places outside this folder and your home: {given}, {tmp_path}/texts." in said


def test_a_bundle_and_the_folder_that_it_was_made_of_are_one_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though their paths are told otherwise, of recipes, of the encoder that was given and of the declared data."""
    study = write_whole_study(tmp_path, base=0.5, settings=[f"data.root={tmp_path}/texts"])
    monkeypatch.chdir(tmp_path)
    told = json.loads((study / "study.json").read_text())
    told["study"]["evaluations"][0]["data"] = f"{tmp_path}/tests/tatoeba"
    write_json(study / "study.json", told)
    bundle, expected = write_bundle_of(study), open_folders([study])
    assert "./texts" in {run.config["data"]["root"] for run in read_bundle(bundle).runs if run.config}
    for sources in ([bundle, study], [study, bundle]):
        assert [(run.label, run.seed) for run in open_folders(sources)] == [(run.label, run.seed) for run in expected]


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
    assert "embedded world" in page  # the demo, which lay on the other machine


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"settings": ["train.max_steps=7"]}, "are of one study, and its mlm has other settings in each"),
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
        report(names, tmp_path / "page", bundle=tmp_path / "x.zip")
        assert "72 of 93 scores computed again from 18 files of predictions." in verify_bundle(tmp_path / "x.zip").facts
        assert set(pd.read_csv(tmp_path / "page/scores.csv").query("label == 'mlm'").seed) == {0, 1, 2}


@pytest.mark.parametrize(
    ("command", "is_joined"),
    [("train.py --pairs=/b/pairs.csv --steps 6", True), ("train.py --pairs=/a/pairs.csv --steps 7", False)],
)
def test_seeds_of_another_command_are_not_joined(command: str, is_joined: bool) -> None:
    parts = {}
    for source, text in (("a.zip", "train.py --pairs=/a/pairs.csv --steps 6"), ("b.zip", command)):
        declared = {"encoders": [{"label": "tool", "command": text}], "evaluations": [], "finetunings": []}
        study = {"name": "mine", "labels": ["tool"], "cells": [], "seeds": {"tool": [len(parts)]}, "study": declared}
        parts[source] = [Run(Path(source), {}, Log(), NO_SCORES, label="tool", study=study, given_seed=len(parts))]
    if is_joined:
        assert [run.study["seeds"] for run in join_sources(parts) if run.study] == [{"tool": [0, 1]}] * 2
    else:
        with pytest.raises(
            DataError, match="its study mine declares other `command` of tool than the sources before it"
        ):
            join_sources(parts)


def test_parts_of_a_study_whose_texts_lie_in_other_folders_are_joined(tmp_path: Path) -> None:
    parts = {name: {"seeds": (seed,), "settings": [f"data.root=/{name}/texts"]} for seed, name in enumerate("ab")}
    report([str(bundle_of(tmp_path / name, base=0.5, **part)) for name, part in parts.items()], tmp_path / "page")
    assert set(pd.read_csv(tmp_path / "page/scores.csv").query("label == 'mlm'").seed) == {0, 1}


def test_a_seed_with_other_scores_and_a_changed_bundle_are_refused(tmp_path: Path) -> None:
    first, second = bundle_of(tmp_path / "a", seeds=(0, 1)), bundle_of(tmp_path / "b", seeds=(1, 2))
    content = second.read_bytes()
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"b/mine\.zip was changed: the archive: its SHA-256 is not the one"):
        report([str(first), str(second)], tmp_path / "page")
    second.write_bytes(content)
    forge(second, forge_score)  # with a hash of its own
    second = second.with_name("forged.zip")
    with pytest.raises(DataError, match=r"both have seed 1 of mlm, with other scores\. Give one of them"):
        report([str(first), str(second)], tmp_path / "page")


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("recipe_beside", [False, True])
def test_an_encoder_that_was_given_is_compared_with_all_seeds(tmp_path: Path, seed: int, recipe_beside: bool) -> None:
    """Whatever made it: its own seed 0 is not the seed 0 of an arm that begins from it."""
    study = write_whole_study(tmp_path, base=0.5)
    expected = compared_on_translations(study)
    scores = study / "cells" / f"tatoeba-base-{tmp_path.name}" / "scores.json"
    export = write_run(tmp_path / "other", seed=seed) / "export" if recipe_beside else tmp_path / "e5"
    write_scores(scores, [replace(one, run="other", encoder=str(export), seed=seed) for one in read_scores(scores)])
    assert compared_on_translations(study) == expected
    bundle = write_bundle_of(study)
    assert compared_on_translations(bundle) == expected
    assert verify_bundle(bundle).problems == []


def compared_on_translations(source: Path) -> dict[str, list[float]]:
    """Difference and interval of each arm from the encoder that was given; three seeds of each."""
    runs = open_folders([source])
    found = compare_runs(runs, score_frame(runs), baseline="base").shown
    rows = found[(found.by == "task") & (found.metric == "tatoeba_accuracy") & (found.label != "base")]
    assert list(rows.seeds) == [3, 3]
    assert list(rows.difference_seeds) == [0, 0]  # none in common
    return {row.label: [row.difference, row.low_95, row.high_95] for row in rows.itertuples()}


def test_a_bundle_that_was_zipped_again_is_named(bundle: Path) -> None:
    """As `zip -r` does it, with an entry for each folder."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(bundle, "w") as archive:
        for folder in {parent for name in members for parent in Path(name).parents}:
            archive.mkdir(str(folder))
        for name, content in members.items():
            archive.writestr(name, content)
    (problem,) = verify_bundle(bundle).problems
    assert problem.startswith("the archive: its SHA-256 is not the one that it ends with")
    forge_prediction(members)
    bundle.write_bytes(seal_archive(members))
    with pytest.raises(DataError, match=r"(?s)does not hold: \d+ differences?\..*its predictions give"):
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
        (seal_archive({"": b""}), "is no whole bundle: bundle.json is missing or damaged"),
        (seal_archive({INDEX: b"[" * 100_000}), "is no whole bundle: bundle.json is missing or damaged"),
        (seal_archive({INDEX: b'{"versions": 3}'}), "is no whole bundle: bundle.json is missing or damaged"),
        (seal_archive({INDEX: b'{"format": 99}'}), "is a bundle of format 99; this xalign reads format 6"),
    ],
)
def test_what_is_no_bundle_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(DataError, match=problem):
        verify(tmp_path / "x.zip")


def test_a_pipe_in_the_place_of_a_bundle_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(DataError, match="is a named pipe, not a plain file"):
        verify_bundle(tmp_path / "pipe.zip")


@pytest.mark.parametrize(
    ("name", "out", "bundle", "said"),
    [
        (
            "scores.csv",
            ".",
            None,
            r"^scores\.csv is read, and the report would be written in its place\. Name ",
        ),
        ("link.csv", ".", None, r"^link\.csv is read, and the report would be written in its place\."),
        ("scores.csv", "page", "scores.csv", r"^--bundle scores\.csv is there, and is no bundle\. Name another file\."),
        ("scores.csv", "page", "notes.txt", r"^--bundle notes\.txt is there, and is no bundle\. Name another file\."),
    ],
)
def test_a_report_that_would_replace_what_it_did_not_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, out: str, bundle: str | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("scores.csv", "notes.txt"):
        Path(file).write_text("encoder,seed,language,metric,value\na,0,de,f1,0.5\n")
    Path("link.csv").symlink_to("scores.csv")
    with pytest.raises(ConfigError, match=said):
        report([name], tmp_path / out, bundle=tmp_path / bundle if bundle else None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "notes.txt", "scores.csv"]


def test_values_of_tasks_follow_from_their_predictions() -> None:
    """Without the text: classes, tags, answers in one language and across two."""
    assert [name for name, task in TUNED_TASKS.items() if type(task).from_gold is TunedTask.from_gold] == []
    rows: Mapping[str, tuple[str, Any, Any, Mapping[str, float]]] = {
        "xnli": ("de", "neutral", "neutral", {"xnli_accuracy": 1.0}),
        "ner": ("de", ["B-PER", "O"], ["B-PER", "O"], {"ner_f1": 1.0, "ner_f1_strict": 1.0}),
        "mlqa": ("en-de", ["the red house"], "a red house", {"mlqa_f1_gxlt": 1.0, "mlqa_em_gxlt": 1.0}),
        "xquad": ("de", ["rotes Haus"], "Haus", {"xquad_f1": 2 / 3, "xquad_em": 0.0}),
    }
    for name, (language, gold, said, expected) in rows.items():
        task = TUNED_TASKS[name]
        found = task.measure([task.from_gold("0", gold, language)], [said])
        assert {metric: one.value for metric, one in found.items()} == pytest.approx(expected)


def test_bundles_of_runs_are_columns_as_their_folders_are(tmp_path: Path) -> None:
    def write(folder: str, name: str, value: float, **run: Any) -> Path:
        return write_run(tmp_path / folder / name, scores={"tatoeba": [score(value=value, run=name)]}, **run)

    folders = [
        write("a", "tiny-mlm-0", 0.5),
        write("a", "tiny-mlm-1", 0.5, seed=1),
        write("a", "long", 0.5, settings=["train.max_steps=7"]),
    ]
    bundles = [write_bundle_of(folder) for folder in folders]
    labels = [run.label for run in open_folders(folders)]
    assert [run.label for run in open_folders(bundles)] == labels == ["tiny/mlm", "tiny/mlm", "tiny/mlm (max_steps=7)"]
    assert [verify_bundle(bundle).problems for bundle in bundles] == [[], [], []]
