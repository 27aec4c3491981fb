"""What arrives in MLflow (a real one, on SQLite) from a run folder, followed or replayed."""

from __future__ import annotations

import csv
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from xalign_ray.errors import ConfigError, TrackingError
from xalign_ray.track import follower
from xalign_ray.track.destinations import check_uri, open_command, resolve_uri, runs_page, say_unread
from xalign_ray.track.events import EVENT_LOG, EventLog, run_identity
from xalign_ray.track.follower import Follower, publish, replay
from xalign_ray.work.artifacts import write_records

Points = list[tuple[int, float]]
NOBODY = "http://127.0.0.1:9"  # the discard port: refused at once


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "tiny-mlm-f00dfeed"


def start_run(folder: Path, steps: int = 10, **fields: Any) -> EventLog:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {
        "seed": 0,
        "train": {"max_steps": steps},
        "objectives": [{"kind": "masked_lm"}],
        "parallel": {"workers": 2},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(recipe))
    log = EventLog(folder / EVENT_LOG, 1)
    log.write("start", 0, recipe="tiny/mlm", fingerprint="f00dfeed", workers=2, zero_stage=2, steps=steps, **fields)
    return log


def write_steps(log: EventLog, first: int, last: int, tokens_per_s: float = 100.0) -> None:
    for step in range(first, last + 1):
        log.write("step", step, {"train/loss": 1 / step, "train/tokens_per_s": tokens_per_s}, batch_hash=step)


def finished_run(folder: Path, steps: int = 10, **fields: Any) -> None:
    with start_run(folder, steps, **fields) as log:
        write_steps(log, 1, steps)
        log.write("held_out", steps, {"held_out/loss": 5.0}, languages={"en": 4.5, "de": 5.5})
        log.write("end", steps, {"run/seconds": 3.5})


def points(uri: str, run_id: str, key: str) -> Points:
    return [(metric.step, metric.value) for metric in MlflowClient(uri).get_metric_history(run_id, key)]


def runs_of(uri: str, experiment: str) -> list[Run]:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id]) if found else []


def wait_until(true: Callable[[], object], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.1)


def test_a_replayed_run_has_every_point_at_its_own_time(uri: str, experiment: str, folder: Path) -> None:
    finished_run(folder)
    (run_id,) = replay(folder, uri, experiment)
    assert points(uri, run_id, "train/loss") == [(step, 1 / step) for step in range(1, 11)]
    assert points(uri, run_id, "held_out/loss") == [(10, 5.0)]
    assert points(uri, run_id, "run/seconds") == [(0, 3.5)]
    written = json.loads((folder / EVENT_LOG).read_text().splitlines()[1])["time"]
    assert MlflowClient(uri).get_metric_history(run_id, "train/loss")[0].timestamp == int(written * 1000)


def test_the_run_carries_name_recipe_and_end(uri: str, experiment: str, folder: Path) -> None:
    finished_run(folder)
    (run_id,) = replay(folder, uri, experiment)
    run = MlflowClient(uri).get_run(run_id)
    assert run.info.run_name == "tiny-mlm-f00dfeed"
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "seed": "0",
        "train.max_steps": "10",
        "objectives.0.kind": "masked_lm",
        "parallel.workers": "2",
        "objectives": "masked_lm",
        "scale": "tiny",
    }
    tags = {key: value for key, value in run.data.tags.items() if key.startswith("xalign.")}
    assert tags.pop("xalign.started") == (run_identity(folder) or {})["started"]
    assert tags == {
        "xalign.run": "tiny-mlm-f00dfeed",
        "xalign.fingerprint": "f00dfeed",
        "xalign.recipe": "tiny/mlm",
        "xalign.workers": "2",
        "xalign.zero_stage": "2",
        "xalign.attempts": "1",
        "xalign.resumed_at_steps": "",
    }


def test_replaying_again_adds_nothing(uri: str, experiment: str, folder: Path) -> None:
    finished_run(folder)
    first = replay(folder, uri, experiment)
    assert replay(folder, uri, experiment) == first
    assert len(runs_of(uri, experiment)) == 1
    assert len(points(uri, first[0], "train/loss")) == 10


def test_the_same_recipe_run_afresh_is_another_run(uri: str, experiment: str, tmp_path: Path) -> None:
    for parent in ("one", "two"):
        finished_run(tmp_path / parent / "tiny-mlm-f00dfeed")
    first = replay(tmp_path / "one" / "tiny-mlm-f00dfeed", uri, experiment)
    second = replay(tmp_path / "two" / "tiny-mlm-f00dfeed", uri, experiment)
    assert first != second
    assert len(points(uri, second[0], "train/loss")) == 10


def test_a_followed_run_is_seen_while_it_runs_and_ends_with_it(uri: str, experiment: str, folder: Path) -> None:
    following = Follower(folder, uri, experiment, every_s=0.1)
    log = start_run(folder)
    write_steps(log, 1, 5)
    wait_until(lambda: runs_of(uri, experiment) and "train/loss" in runs_of(uri, experiment)[0].data.metrics)
    (run,) = runs_of(uri, experiment)
    assert run.info.status == "RUNNING"
    write_steps(log, 6, 10)
    log.write("end", 10, {"run/seconds": 1.0})
    log.close()
    assert following.close() is None
    assert points(uri, run.info.run_id, "train/loss") == [(step, 1 / step) for step in range(1, 11)]
    assert MlflowClient(uri).get_run(run.info.run_id).info.status == "FINISHED"


def test_a_resumed_run_goes_on_in_its_mlflow_run_with_one_point_a_step(uri: str, experiment: str, folder: Path) -> None:
    log = start_run(folder)
    write_steps(log, 1, 7)
    log.close()
    assert Follower(folder, uri, experiment).close() is None
    (run,) = runs_of(uri, experiment)
    assert run.info.status == "FAILED"
    recipe = (folder / "config.yaml").read_text().replace("workers: 2", "workers: 1")
    (folder / "config.yaml").write_text(recipe)
    with EventLog(folder / EVENT_LOG, 2) as resumed:
        resumed.write("start", 5, fingerprint="f00dfeed", steps=10)
        write_steps(resumed, 6, 10, tokens_per_s=50.0)
        resumed.write("end", 10)
    assert Follower(folder, uri, experiment).close() is None
    (run,) = runs_of(uri, experiment)
    assert points(uri, run.info.run_id, "train/loss") == [(step, 1 / step) for step in range(1, 11)]
    assert [value for _, value in points(uri, run.info.run_id, "train/tokens_per_s")] == [100.0] * 7 + [50.0] * 3
    assert run.info.status == "FINISHED"
    assert run.data.tags["xalign.attempts"] == "2"
    assert run.data.tags["xalign.resumed_at_steps"] == "5"
    assert run.data.params["parallel.workers"] == "2"


def test_a_run_of_many_steps_is_thinned_the_same_live_and_replayed(uri: str, experiment: str, folder: Path) -> None:
    log = start_run(folder, steps=5000)
    write_steps(log, 1, 2345)
    assert Follower(folder, uri, experiment).close() is None
    write_steps(log, 2346, 5000)
    log.close()
    (live,) = replay(folder, uri, experiment)
    (fresh,) = replay(folder, uri, experiment + "_fresh")
    kept = points(uri, live, "train/loss")
    assert kept == points(uri, fresh, "train/loss")
    assert 1000 < len(kept) <= 2000
    assert kept[-1] == (5000, 1 / 5000)


def test_scores_become_metrics_and_a_table_and_change_only_when_they_change(
    uri: str, experiment: str, folder: Path
) -> None:
    finished_run(folder)
    scores = folder / "evaluation" / "tatoeba" / "scores.json"
    scores.parent.mkdir(parents=True)

    def evaluate(value: float) -> None:
        common = {"metric": "tatoeba_accuracy", "seed": 0, "step": 10}
        records = [{**common, "language": "de", "layer": layer, "value": 0.1} for layer in range(3)]
        records += [{**common, "language": name, "layer": "last4", "value": value} for name in ("de", "all")]
        write_records(scores, records)

    evaluate(0.25)
    (run_id,) = replay(folder, uri, experiment)
    replay(folder, uri, experiment)
    assert points(uri, run_id, "tatoeba_accuracy_de") == points(uri, run_id, "tatoeba_accuracy") == [(0, 0.25)]
    evaluate(0.5)
    replay(folder, uri, experiment)
    assert MlflowClient(uri).get_run(run_id).data.metrics["tatoeba_accuracy"] == 0.5
    table = Path(MlflowClient(uri).download_artifacts(run_id, "scores.csv")).read_text()
    assert [row["value"] for row in csv.DictReader(table.splitlines())] == ["0.1", "0.1", "0.1", "0.5", "0.5"]


def test_files_of_the_run_lie_beside_the_database_not_in_the_current_directory(
    uri: str, experiment: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(folder)
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_text("<p>a report</p>")
    (run_id,) = replay(folder, uri, experiment)
    client = MlflowClient(uri)
    names = {artifact.path for artifact in client.list_artifacts(run_id)}
    assert names == {"config.yaml", "events.jsonl", "report"}
    assert Path(client.download_artifacts(run_id, "report/index.html")).read_text() == "<p>a report</p>"
    root = Path(uri.removeprefix("sqlite:///")).parent
    assert client.get_run(run_id).info.artifact_uri.startswith((root / "mlflow-artifacts").as_uri())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_the_prepared_data_is_the_runs_data_set(uri: str, experiment: str, folder: Path, tmp_path: Path) -> None:
    shards = tmp_path / "data-1234abcd"
    shards.mkdir()
    manifest = {"languages": ["en", "de"], "pools": {"text/en": {"rows": 960}}, "counts": {"tokens": 7}}
    (shards / "manifest.json").write_text(json.dumps(manifest))
    finished_run(folder, data=str(shards), data_fingerprint="1234abcd" * 8)
    (run_id,) = replay(folder, uri, experiment)
    replay(folder, uri, experiment)
    (used,) = MlflowClient(uri).get_run(run_id).inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("en-de", ("1234abcd" * 8)[:36])
    assert json.loads(used.dataset.source) == {"uri": str(shards)}
    assert json.loads(used.dataset.profile or "") == {"languages": "en, de", "rows": 960, "tokens": 7}
    assert "data/manifest.json" in {item.path for item in MlflowClient(uri).list_artifacts(run_id, "data")}


def test_a_fine_tuning_run_is_the_child_of_its_pretraining_run(uri: str, experiment: str, folder: Path) -> None:
    finished_run(folder)
    child = folder / "tune" / "pos"
    with EventLog(child / EVENT_LOG, 1) as log:
        log.write("start", 0, fingerprint="c0ffee", steps=2, parent=run_identity(folder))
        log.write("step", 1, {"fine_tune/loss": 1.0})
        log.write("end", 2)
    parent_id, child_id = replay(folder, uri, experiment)
    run = MlflowClient(uri).get_run(child_id)
    assert run.data.tags["mlflow.parentRunId"] == parent_id
    assert run.info.run_name == "pos"
    assert points(uri, child_id, "fine_tune/loss") == [(1, 1.0)]


def test_a_number_that_was_not_finite_leaves_a_gap(uri: str, experiment: str, folder: Path) -> None:
    with start_run(folder) as log:
        for step, norm in enumerate([1.0, float("nan"), 3.0], start=1):
            log.write("step", step, {"train/gradient_norm": norm})
    (run_id,) = replay(folder, uri, experiment)
    assert points(uri, run_id, "train/gradient_norm") == [(1, 1.0), (3, 3.0)]


def test_a_run_that_never_started_closes_silently(uri: str, experiment: str, folder: Path) -> None:
    assert Follower(folder, uri, experiment).close() is None
    assert runs_of(uri, experiment) == []


def test_an_unreachable_server_costs_a_warning_and_a_sentence(
    experiment: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=follower.__name__):
        following = Follower(folder, NOBODY, experiment, every_s=0.1)
        finished_run(folder)
        wait_until(lambda: caplog.messages)
        said = following.close(timeout_s=2)
    assert said == (
        f"MLflow at {NOBODY} does not hold all of {folder} ([Errno 111] Connection refused); nothing is lost, "
        f"`xalign track replay {folder} --to {NOBODY}` brings it up to date."
    )
    assert caplog.messages == [
        f"MLflow at {NOBODY} does not answer for {folder} ([Errno 111] Connection refused). "
        "The run goes on, its numbers are in events.jsonl; trying again."
    ]


def test_a_database_that_cannot_be_written_is_an_outage_too(experiment: str, folder: Path, tmp_path: Path) -> None:
    finished_run(folder)
    (tmp_path / "file").write_text("not a folder")
    target = resolve_uri("sqlite", tmp_path / "file")
    said = Follower(folder, target, experiment).close(timeout_s=3)
    assert said
    assert "File exists" in said or "Not a directory" in said
    assert f"`xalign track replay {folder} --to {target}`" in said


def test_full_disk_under_the_database_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    finished_run(folder)
    database = tmp_path / "mlflow.db"
    assert publish(folder, f"sqlite:///{database}", "first") is None
    program = (
        "import resource, signal, sys; from pathlib import Path; from xalign_ray.track.follower import publish; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); size = Path(sys.argv[2]).stat().st_size // 2; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); "
        "print(publish(Path(sys.argv[1]), f'sqlite:///{sys.argv[2]}', 'second'))"
    )
    done = subprocess.run([sys.executable, "-c", program, folder, database], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    (said,) = done.stdout.splitlines()
    assert said.startswith(f"MLflow at sqlite:///{database} does not hold all of {folder} (")


def test_processes_that_make_the_database_at_once_all_find_it_whole(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from mlflow import MlflowClient
        from xalign_ray.track.destinations import connecting
        print("ready", flush=True)
        sys.stdin.readline()
        with connecting(sys.argv[1]):
            print(len(MlflowClient(sys.argv[1]).search_experiments()))
    """
    target = resolve_uri("sqlite", tmp_path / "runs")
    some = [
        subprocess.Popen([sys.executable, "-c", code, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in some:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    assert [one.communicate("go\n", timeout=120)[0] for one in some] == ["1\n"] * 3


def test_replay_of_a_folder_without_a_run_names_it(uri: str, experiment: str, tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"holds no run that has started: events\.jsonl is missing or empty"):
        replay(tmp_path, uri, experiment)


def test_sqlite_addresses_never_depend_on_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_uri("sqlite", Path("runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert resolve_uri("sqlite:///a.db", Path("runs")) == f"sqlite:///{tmp_path}/a.db"
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    assert resolve_uri("sqlite:///~/a.db", Path("runs")) == f"sqlite:///{tmp_path}/ann/a.db"
    with pytest.raises(ConfigError, match=r"'\$RUNS/a\.db' is not there, and variables are not replaced in paths"):
        resolve_uri("sqlite:///$RUNS/a.db", Path("runs"))
    assert resolve_uri("http://host:5000", Path("runs")) == "http://host:5000"


def test_database_that_mlflow_would_look_for_elsewhere_is_refused() -> None:
    for letter in "?%":
        with pytest.raises(ConfigError) as refused:
            check_uri(resolve_uri("sqlite", Path(f"/a{letter}b")))
        said = f"track.mlflow: MLflow cannot open a database whose path has {letter} in it: /a{letter}b/mlflow.db. Set "
        assert str(refused.value).startswith(said)
    check_uri(resolve_uri("sqlite", Path("/a b #1 [v2]")))
    check_uri("http://host:5000/?a=%20")


@pytest.mark.parametrize(
    ("asked", "own", "shown"),
    [
        ("", "sqlite", ""),
        ("http://mlflow:5000/", "http://mlflow:5000", ""),
        ("http://ann:secret@mlflow:5000", "http://mlflow:5000", ""),
        ("http://mlflow:5000", "sqlite", "track.mlflow is sqlite: --set track.mlflow=http://mlflow:5000 shows"),
        ("http://ann:secret@other", "off", "track.mlflow is off: --set track.mlflow=http://other shows"),
    ],
)
def test_an_address_of_the_environment_that_is_not_read_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: str, own: str, shown: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", asked)
    say_unread(own)
    said = capsys.readouterr().err
    assert said == (f"MLFLOW_TRACKING_URI is not read, and {shown} the run there.\n" if shown else "")


def test_the_command_that_opens_mlflow_names_the_database() -> None:
    assert open_command("sqlite:////a/mlflow.db") == (
        "mlflow server --backend-store-uri sqlite:////a/mlflow.db --workers 1 --port 5000, then http://127.0.0.1:5000"
    )
    assert open_command("sqlite:////a b/mlflow.db").startswith(
        "mlflow server --backend-store-uri 'sqlite:////a b/mlflow.db' --"
    )
    assert open_command("https://host") == "https://host"
    assert open_command("https://host/", "/#/page") == "https://host/#/page"
    assert runs_page(NOBODY, "xalign") == ""


def test_the_page_of_runs_is_not_that_of_traces(uri: str, experiment: str, folder: Path) -> None:
    finished_run(folder)
    replay(folder, uri, experiment)
    found = MlflowClient(uri).get_experiment_by_name(experiment)
    page = f"/#/experiments/{found.experiment_id}/runs?workflowType=machine_learning"
    assert runs_page(uri, experiment) == page
    assert runs_page(uri, "another") == ""


def test_a_run_that_was_told_to_stop_is_killed_until_it_goes_on(uri: str, experiment: str, folder: Path) -> None:
    with start_run(folder) as log:
        write_steps(log, 1, 4)
        log.write("stopped", 4, signal="SIGTERM")
    (run_id,) = replay(folder, uri, experiment)
    assert MlflowClient(uri).get_run(run_id).info.status == "KILLED"
    with EventLog(folder / EVENT_LOG, 2) as log:
        log.write("start", 4, recipe="tiny/mlm", fingerprint="f00dfeed", steps=10)
        write_steps(log, 5, 10)
        log.write("end", 10)
    assert replay(folder, uri, experiment) == [run_id]
    assert MlflowClient(uri).get_run(run_id).info.status == "FINISHED"
