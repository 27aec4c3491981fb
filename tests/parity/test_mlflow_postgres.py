"""The page's MLflow server for several people, on a real PostgreSQL and an S3 server: what dies comes back whole."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.pages import ROOT, command
from tests.parity.mlflow_server import Server
from tests.parity.postgres import PASSWORD, Postgres
from tests.ray.small import batches, write_world
from tests.s3_server import S3Server
from tests.unit.conftest import prepare_here
from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.track.events import EVENT_LOG, last_step, read_events
from xalign_ray.track.follower import replay
from xalign_ray.verbs.scores import evaluate

PAGE, BUCKET, PATIENCE_S = "../how-to/mlflow.md", "mlflow-files", 120
STOPPED, TOGETHER = "stopped", "together"  # experiments


@dataclass(frozen=True)
class Servers:
    """MLflow's server with what is behind it."""

    mlflow: Server
    postgres: Postgres
    files: S3Server

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.mlflow.uri)

    def runs(self, experiment: str, query: str = "") -> list[Run]:
        found = self.client.get_experiment_by_name(experiment)
        return list(self.client.search_runs([found.experiment_id], query)) if found else []


@pytest.fixture(scope="module")
def servers(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    postgres = Postgres()
    secrets = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_DEFAULT_REGION": "us-east-1"}
    secrets |= {"MLFLOW_S3_ENDPOINT_URL": s3_server.url, "PGPASSWORD": PASSWORD}  # clients have none of them
    places = postgres.uri, f"s3://{BUCKET}/mlflow"
    server = Server(tmp_path_factory.mktemp("server"), command(PAGE, "mlflow server"), places, secrets)
    try:
        bucket(s3_server).create()
        server.start()
        yield Servers(server, postgres, s3_server)
    finally:
        server.kill()
        postgres.close()


def bucket(files: S3Server):
    keys = {"aws_access_key_id": "tester", "aws_secret_access_key": PASSWORD, "region_name": "us-east-1"}
    return boto3.resource("s3", endpoint_url=files.url, **keys).Bucket(BUCKET)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of recipes over a small world, whose shards are there."""
    folder = tmp_path_factory.mktemp("world")
    settings = [*write_world(folder, sentences=300, parallel=50), *batches(8, 8, 3, 3, 3), "parallel.workers=1"]
    for name in ("tiny/align-mlm", "tiny/mlm"):
        prepare_here(load_recipe(name, settings).config)
    return settings


@pytest.fixture(scope="module")
def finished(settings: list[str]) -> list[Path]:
    """Two runs of three steps, the first with scores."""
    more = ["notes=a try"]
    folders = [
        pretraining.pretrain(load_recipe("tiny/align-mlm", [*settings, *more]), local=True),
        pretraining.pretrain(load_recipe("tiny/mlm", settings), local=True),
    ]
    root = Path(settings[0].removeprefix("data.root="))
    evaluate(str(folders[0]), "tatoeba", root / "tatoeba")
    return folders


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def check_points(servers: Servers, run: Run, folder: Path) -> None:
    """Each number of the event log is there once."""
    steps = [event for event in read_events(folder / EVENT_LOG) if event["event"] == "step"]
    for key in ("train/loss", "train/labels", "train/step_ms"):
        history = servers.client.get_metric_history(run.info.run_id, key)
        points = sorted((point.step, point.value) for point in history)
        assert points == [(event["step"], event["metrics"][key]) for event in steps]


def start(words: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command, environment = [sys.executable, "-m", "xalign_ray", *words], {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_a_followed_run_that_is_stopped_is_whole_though_the_database_died(
    servers: Servers, settings: list[str], tmp_path: Path
) -> None:
    folder, uri = tmp_path / "run", servers.mlflow.uri
    # Steps of 50 ms rather than 10: fewer of them pass while servers start.
    more = ["train.global_batch_size=48", "train.per_device_batch_size=48", "train.eval_steps=0"]
    more += ["train.max_steps=1900", "checkpoint.save_steps=1900"]
    more += [f"track.mlflow={uri}", f"track.experiment={STOPPED}"]
    words = [word for setting in [*settings, *more] for word in ("--set", setting)]
    training = start(["pretrain", "tiny/mlm", "--no-ray", *words, "--out", str(folder)])

    def step_in_mlflow() -> int:
        """The newest step that has arrived; -1 before the run is there."""
        runs = servers.runs(STOPPED)
        points = servers.client.get_metric_history(runs[0].info.run_id, "train/loss") if runs else []
        return max((point.step for point in points), default=-1)

    try:
        wait_for(lambda: step_in_mlflow() > 0)
        servers.postgres.crash()
        crashed_at = last_step(folder / EVENT_LOG)
        wait_for(lambda: step_in_mlflow() > crashed_at)
        training.send_signal(signal.SIGTERM)
        said = training.communicate(timeout=PATIENCE_S)[1]
    finally:
        training.kill()
    (run,) = servers.runs(STOPPED)
    assert run.info.status == "KILLED", said
    assert "is saved. Rerun the same " in said
    assert "track replay" not in said
    assert crashed_at < last_step(folder / EVENT_LOG) < 1900
    check_points(servers, run, folder)


@pytest.fixture(scope="module")
def run(servers: Servers, finished: list[Path]) -> Run:
    """The first of the finished runs in MLflow, where two processes have brought both at once, data set and all."""
    to = ["--to", servers.mlflow.uri, "--experiment", TOGETHER]
    patient = {"MLFLOW_HTTP_REQUEST_TIMEOUT": str(PATIENCE_S)}
    with servers.postgres.holding("datasets", writers=2):
        both = [start(["track", "replay", str(folder), *to], patient) for folder in finished]
    for one in both:
        said = one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 0, said
    (found,) = servers.runs(TOGETHER, f"tags.`xalign.run` = '{finished[0].name}'")
    return found


@pytest.mark.usefixtures("run")
def test_two_that_write_at_once_lose_nothing_and_again_add_nothing(servers: Servers, finished: list[Path]) -> None:
    ids = [replay(folder, servers.mlflow.uri, TOGETHER)[0] for folder in finished]
    found = servers.runs(TOGETHER)
    runs = {run.info.run_id: run for run in found if "mlflow.parentRunId" not in run.data.tags}
    assert sorted(runs) == sorted(ids)
    assert [run.info.run_name.partition(": ")[2] for run in found if run.info.run_id not in runs] == ["tatoeba"]
    for run_id, folder in zip(ids, finished, strict=True):
        assert runs[run_id].info.status == "FINISHED"
        check_points(servers, runs[run_id], folder)
        assert len(servers.client.get_metric_history(run_id, "run/worker_hours")) == 1


def test_the_filters_of_the_page_find_it(servers: Servers, run: Run) -> None:
    score = run.data.metrics["tatoeba_accuracy"]
    (found,) = servers.runs(TOGETHER, f"params.method = 'align-mlm' and metrics.tatoeba_accuracy > {score - 0.01}")
    assert found.info.run_id == run.info.run_id
    assert servers.runs(TOGETHER, f"params.method = 'mlm' and metrics.tatoeba_accuracy > {score - 0.01}") == []
    for scale, words in (("tiny", "%dictionary_alignment%"), ("tiny", "%no%"), ("base", "%dictionary_alignment%")):
        asked = f"params.scale = '{scale}' and params.objectives LIKE '{words}' and params.languages LIKE '%qhy%'"
        assert len(servers.runs(TOGETHER, asked)) == ((scale, words) == ("tiny", "%dictionary_alignment%"))
    page = (ROOT / "docs" / "how-to" / "mlflow.md").read_text(encoding="utf-8")
    queries = re.findall(r"^\| (`+)(.+?)\1 \|", page.partition("## Filters")[2], re.MULTILINE)
    assert len(queries) >= 6
    for _, query in queries:
        servers.runs(TOGETHER, query)  # MLflow refuses what PostgreSQL cannot be asked


def test_it_says_who_ran_what_where(run: Run, finished: list[Path]) -> None:
    tags = run.data.tags
    assert (tags["mlflow.source.name"], tags["mlflow.note.content"]) == ("tiny/align-mlm", "a try")
    assert not {"fingerprint", "notes"} & run.data.params.keys(), "a comparison begins with the first that differ"
    assert (tags["mlflow.user"], tags["xalign.version.torch"]) == (getpass.getuser(), torch.__version__)
    assert {"xalign.host", "xalign.version.python", "xalign.version.xalign-ray"} <= tags.keys()
    assert tags["xalign.export"] == str((finished[0] / "export").resolve())


def test_its_files_lie_in_the_bucket(servers: Servers, run: Run, tmp_path: Path) -> None:
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    keys = [one.key for one in bucket(servers.files).objects.all()]
    assert {key.partition(f"{run.info.run_id}/artifacts/")[2] for key in keys} >= {
        *("config.yaml", "manifest.json", "scores.csv", "data/manifest.json"),
    }
    fetched = servers.client.download_artifacts(run.info.run_id, "manifest.json", str(tmp_path))
    assert json.loads(Path(fetched).read_text())["steps"] == 3


def test_the_servers_own_name_is_let_in_and_another_is_not(servers: Servers, run: Run) -> None:
    def answer(host: str) -> int:
        asked = f"{servers.mlflow.uri}/api/2.0/mlflow/runs/get?run_id={run.info.run_id}"
        try:
            with urllib.request.urlopen(urllib.request.Request(asked, headers={"Host": host})) as got:
                return got.status
        except urllib.error.HTTPError as error:
            return error.code

    assert [answer("MLFLOW:5000"), answer("elsewhere:5000")] == [200, 403]


def test_no_secret_of_the_server_is_in_a_run_or_a_file(servers: Servers, run: Run) -> None:
    assert PASSWORD not in json.dumps(run.to_dictionary())
    assert not [one.key for one in bucket(servers.files).objects.all() if PASSWORD.encode() in one.get()["Body"].read()]
