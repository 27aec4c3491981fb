"""A report on what MLflow (a real one, on SQLite) holds of runs: the same as on their folders."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.unit.results.run_folders import choice, held_out, score, start, step, write_run
from xalign_ray.cli import app
from xalign_ray.errors import TrackingError
from xalign_ray.results.sources import find_runs
from xalign_ray.tasks.scores import write_scores
from xalign_ray.track.events import EventLog
from xalign_ray.track.follower import replay
from xalign_ray.work.artifacts import write_json


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two seeds of one recipe and one of another, with two tasks and the log of a training."""
    found = []
    for recipe, seed, value in (("tiny/mlm", 0, 0.2), ("tiny/mlm", 1, 0.3), ("tiny/align-mlm", 0, 0.6)):
        name = f"{recipe.replace('/', '-')}-{seed}"
        tatoeba = [score(value=value + gain, language=code, run=name) for code, gain in (("de", 0.1), ("hi", 0.0))]
        pos = [score("pos_accuracy", value, language="de", layer=None, pooling=None, run=name)]
        whole = [
            start(data=tmp_path / "data", time=1000.0 + len(found)),
            *(step(number, 6.0 - value - number) for number in (1, 2, 3, 4)),
            held_out(4, {"en": 4.0, "qgr": 4.2}),
            {"event": "end", "attempt": 1, "time": 1009.0, "step": 4, "metrics": {"run/tokens": 10}},
        ]
        folder = write_run(tmp_path / name, recipe, seed=seed, scores={"tatoeba": tatoeba, "pos": pos}, events=whole)
        found.append(folder)
    return found


def run_report(out: Path, *arguments: str) -> dict[str, str]:
    """The text of every file of a report, by name, as the verb writes it."""
    app(["report", *arguments, "--out", str(out)], standalone_mode=False)
    return {
        path.name: path.read_text(encoding="utf-8") for path in out.iterdir() if path.suffix not in (".png", ".svg")
    }


def test_a_report_from_mlflow_is_that_from_the_folders(
    uri: str, experiment: str, folders: list[Path], tmp_path: Path
) -> None:
    for folder in folders:
        replay(folder, uri, experiment)
    own = run_report(tmp_path / "own", *map(str, folders))
    found = run_report(tmp_path / "mlflow", f"mlflow:{experiment}", "--tracking", uri)
    assert sorted(own) == ["comparison.csv", "comparison.md", "index.html", "layers.csv", "losses.csv", "scores.csv"]
    for name in ("comparison.csv", "comparison.md", "scores.csv", "layers.csv"):
        assert found[name] == own[name]
    assert sorted(found["losses.csv"].splitlines()) == sorted(own["losses.csv"].splitlines())
    assert "Dictionary pairs: 966 trained, 289 held out." in found["index.html"]
    assert "Not finished yet" not in found["index.html"]
    charts = [re.findall(r'aria-label="([^"]*)', files["index.html"]) for files in (own, found)]
    assert charts[0] == charts[1] != []


def test_one_run_is_named_by_its_id_and_stands_beside_a_folder(
    uri: str, experiment: str, folders: list[Path], tmp_path: Path
) -> None:
    (run_id,) = replay(folders[0], uri, experiment)
    found = run_report(
        tmp_path / "out",
        f"mlflow:{run_id}",
        str(folders[2]),
        "--tracking",
        uri,
        "--by",
        "family",
        "--baseline",
        "tiny/mlm",
    )
    rows = [row for row in csv.DictReader(found["comparison.csv"].splitlines()) if row["metric"] == "tatoeba_accuracy"]
    assert [(row["group"], row["label"], row["mean"], row["difference"][:5]) for row in rows] == [
        ("Germanic", "tiny/mlm", "0.30000000000000004", ""),
        ("Germanic", "tiny/align-mlm", "0.7", "0.399"),
        ("Indo-Aryan", "tiny/mlm", "0.2", ""),
        ("Indo-Aryan", "tiny/align-mlm", "0.6", "0.399"),
    ]


def test_a_fine_tuned_child_adds_its_scores_to_the_run_that_it_began_from(
    uri: str, experiment: str, folders: list[Path]
) -> None:
    trial = folders[0].parent / "trial"
    with EventLog(trial / "events.jsonl", 1) as log:
        log.write("start", 0, recipe="pos", fingerprint="trial")
        log.write("end", 0)
    write_scores(trial / "scores.json", [score("pos_accuracy", 0.9, run="tiny-mlm-0", seed=5)])
    for folder in (folders[0], trial):
        replay(folder, uri, experiment)
    runs = find_runs([f"mlflow:{experiment}"], uri)
    assert [(run.name, len(run.scores)) for run in runs] == [("tiny-mlm-0", 4)]


def test_of_a_study_in_mlflow_the_cells_that_were_not_chosen_are_left_out(
    uri: str, experiment: str, tmp_path: Path
) -> None:
    def begin(folder: Path) -> Path:
        with EventLog(folder / "events.jsonl", 1) as log:
            log.write("start", 0, recipe="pos", fingerprint=folder.name)
            log.write("end", 0)
        return folder

    for name, value in (("kept", 0.4), ("dropped", 0.9)):
        own = score("pos_accuracy", value, layer=None, pooling=None, run="tiny-mlm-0")
        write_scores(begin(tmp_path / name) / "scores.json", [own])
        replay(tmp_path / name, uri, experiment)
    choices = [choice("mlm", 0, {"kept": 0.5}, {"dropped": 0.4})]
    write_json(begin(tmp_path / "study") / "choices.json", choices)
    replay(tmp_path / "study", uri, experiment)
    (run,) = find_runs([f"mlflow:{experiment}"], uri)
    assert [one.value for one in run.scores] == [0.4]


def test_runs_without_scores_are_passed_over_and_an_experiment_of_them_refused(
    uri: str, experiment: str, folders: list[Path], tmp_path: Path
) -> None:
    replay(write_run(tmp_path / "bare" / "run", events=[start(time=1.0), step(1, 6.0)]), uri, experiment)
    with pytest.raises(TrackingError, match=f"'{experiment}' at sqlite:///.* holds no scores; evaluate the runs"):
        find_runs([f"mlflow:{experiment}"], uri)
    replay(folders[0], uri, experiment)
    assert [run.name for run in find_runs([f"mlflow:{experiment}"], uri)] == ["tiny-mlm-0"]


def test_what_mlflow_does_not_have_is_refused_with_what_it_has(uri: str, experiment: str) -> None:
    MlflowClient(uri).create_experiment(experiment)
    with pytest.raises(TrackingError, match=f"neither a run nor an experiment 'nothing'.* {experiment}"):
        find_runs(["mlflow:nothing"], uri)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with pytest.raises(TrackingError, match=f"{path} is missing: give --tracking, where MLflow keeps the runs"):
        find_runs(["mlflow:xalign"], f"sqlite:///{path}")
    assert not path.exists()


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(TrackingError, match=r"MLflow at http://127\.0\.0\.1:9 does not answer: .*refused"):
        find_runs(["mlflow:xalign"], "http://127.0.0.1:9")


def test_events_of_a_run_come_back_as_they_were_written(uri: str, experiment: str, tmp_path: Path) -> None:
    """Every step of two attempts, with hashes: what MLflow draws is thinned, and has no second point of a step."""
    steps = [step(number, 6.0 - number / 5000) for number in range(1, 4001)]
    first, second = ({**start(at, attempt), "steps": 4000} for at, attempt in ((0, 1), (3000, 2)))
    again = [second, *(one | {"attempt": 2} for one in steps[3000:])]
    folder = write_run(tmp_path / "run", scores={"tatoeba": [score()]}, events=[first, *steps[:3500], *again])
    (run_id,) = replay(folder, uri, experiment)
    client = MlflowClient(uri)
    assert len(client.get_metric_history(run_id, "train/loss")) < 2100
    events = client.download_artifacts(run_id, "events.jsonl", str(tmp_path))
    assert Path(events).read_bytes() == (folder / "events.jsonl").read_bytes()
    (here,), (there,) = find_runs([str(folder)], uri), find_runs([f"mlflow:{run_id}"], uri)
    assert there.log.points.equals(here.log.points)
    assert (len(there.log.starts), there.log.last_step, there.log.seconds) == (2, 4000, here.log.seconds)


def test_a_run_that_an_earlier_version_logged_is_to_be_replayed(uri: str, experiment: str, folders: list[Path]) -> None:
    (run_id,) = replay(folders[0], uri, experiment)
    path = Path(MlflowClient(uri).get_run(run_id).info.artifact_uri.removeprefix("file://")) / "events.jsonl"
    path.unlink()
    with pytest.raises(
        TrackingError, match=rf"run tiny-mlm-0 \({run_id}\).* lacks events.jsonl: .*xalign track replay"
    ):
        find_runs([f"mlflow:{run_id}"], uri)
