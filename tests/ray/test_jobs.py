"""A real cluster, a real MLflow server, a submitted job: the run is found in MLflow though the server was away."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from mlflow import MlflowClient

from tests.parity.mlflow_server import Server
from tests.ray.runs import PATIENCE_S, TRAIN_WORKER, addresses_of_this_machine, check_batches, pids, starts
from tests.unit.data.conftest import prepare_here
from xalign_ray.config.load import load_recipe
from xalign_ray.data.local import open_local
from xalign_ray.data.prepare import prepare
from xalign_ray.demo.writer import write_demo
from xalign_ray.track.events import EVENT_LOG, read_events

pytestmark = pytest.mark.ray
ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
STEPS, DOWN_AT, UP_AFTER = 500, 60, 30
STOP_GRACE = {"RAY_JOB_STOP_WAIT_TIME_S": "120"}  # Ray kills after 3 s
UNWATCHED = {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}  # an actor less: nobody takes this machine away
MODEL = [
    "data.tokenizer.vocab_size=1000",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_hidden_layers=1",
]


class Cluster:
    """`ray start --head` in a folder and on ports of its own; nothing of it is left after `kill`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xa-"))  # short: a socket's path has at most 107 characters
        port, dashboard, client, agent, agent_grpc = _free_ports(5)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.job_doors = [f"{dashboard}/api/jobs/", f"{agent}/api/job_agent/jobs/"]  # each by port and path
        settings = {"RAY_AUTH_MODE": "token", "RAY_DISABLE_MEMORY_MONITOR": "1", "OMP_NUM_THREADS": "1"}
        left_out = {"RAY_ADDRESS", "PYTHONPATH"}
        self.environment = {key: value for key, value in os.environ.items() if key not in left_out} | settings
        self.environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
        self._log = self.folder / "head.log"
        with self._log.open("wb") as log:
            self._head = subprocess.Popen(
                [
                    *(BIN / "ray", "start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "4"),
                    *("--port", str(port), "--temp-dir", self.folder / "ray"),
                    *("--include-dashboard", "true", "--dashboard-port", str(dashboard)),
                    *("--ray-client-server-port", str(client), "--dashboard-agent-listen-port", str(agent)),
                    *("--dashboard-agent-grpc-port", str(agent_grpc), "--min-worker-port", "0"),
                    *("--max-worker-port", "0", "--object-store-memory", "200000000"),
                ],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._head.pid

    def wait_until_up(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < until, self._log.read_text()
            assert self._head.poll() is None, self._log.read_text()
            time.sleep(0.3)

    def _answers(self) -> bool:
        """Whether the dashboard takes jobs: its agent, which runs them, is up later than its first page."""
        token = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{self.address}/api/jobs/", headers=token)
        with suppress(OSError), urllib.request.urlopen(request, timeout=2) as answer:
            return answer.status == 200
        return False

    def kill(self) -> None:
        """Kills hard and by process: `ray stop` would end every cluster of the machine, SIGTERM leaves gcs_server."""
        with suppress(psutil.NoSuchProcess):
            head = psutil.Process(self._head.pid)
            everything = [*head.children(recursive=True), head]
            for process in everything:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._head.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.wait_until_up()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Job:
    """A command whose output is kept in a file, so that a failure can show how far it came."""

    def __init__(self, command: list[str | Path], environment: dict[str, str], said: Path) -> None:
        self._said = said
        with said.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Until something has happened while the job runs."""
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < until, self.said()
            assert self._process.poll() is None, self.said()
            time.sleep(0.2)

    def end(self) -> int:
        """Its exit code."""
        return self._process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def last_step(output: Path) -> int:
    """The newest step in the event log of the only run below a folder, 0 before there is one."""
    logs = list(output.glob(f"*/{EVENT_LOG}"))
    return max((event["step"] for event in read_events(logs[0])), default=0) if logs else 0


def stop(cluster: Cluster, job: Job) -> None:
    """`ray job stop` on the job that was submitted, which does no step until it is asked for: the command is slow."""
    name = re.search(r"Job '(raysubmit_\w+)' submitted", job.said())
    assert name, job.said()
    command = [BIN / "ray", "job", "stop", "--no-wait", "--address", cluster.address, name[1]]
    (worker,) = pids(TRAIN_WORKER, below=cluster.pid)
    psutil.Process(worker).suspend()
    subprocess.run(command, env=cluster.environment, capture_output=True, check=True, timeout=PATIENCE_S)
    psutil.Process(worker).resume()
    job.end()
    assert "was stopped" in job.said()


def test_a_submitted_run_is_whole_in_mlflow_though_it_was_stopped_and_the_server_died(
    cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    output = tmp_path / "runs"
    write_demo(tmp_path / "demo", sentences=600, parallel_sentences=100, retrieval_pairs=20)
    settings = [*MODEL, f"data.root={tmp_path / 'demo'}", f"output={output}"]
    settings += [f"track.mlflow={server.uri}", f"train.max_steps={STEPS}"]
    settings += ["train.global_batch_size=24", "train.per_device_batch_size=12", "train.eval_steps=0"]
    settings += [f"checkpoint.save_steps={STEPS}", "parallel.workers=1", "parallel.data_cpus=2"]
    prepare_here(load_recipe("tiny/mlm", settings).config)
    command = [BIN / "ray", "job", "submit", "--address", cluster.address, "--working-dir", ROOT]
    command += ["--runtime-env-json", json.dumps({"env_vars": STOP_GRACE | UNWATCHED}), "--"]
    entry = ["python", "jobs/pretrain.py", "tiny/mlm", *(word for text in settings for word in ("--set", text))]
    job = Job([*command, *entry], cluster.environment, tmp_path / "stopped.log")
    try:
        job.wait_for(lambda: last_step(output) >= DOWN_AT)
        server.kill()
        stop(cluster, job)
    finally:
        job.kill()
    (folder,) = (path.parent for path in output.glob(f"*/{EVENT_LOG}"))
    saved = int(next((folder / "checkpoints").glob("*")).name.removeprefix("step_"))
    assert f"\nxalign: Told to stop (SIGTERM): step {saved} of {STEPS} is saved. Give the same " in job.said()
    assert "Traceback" not in job.said()
    job = Job([*command, *entry], cluster.environment, tmp_path / "job.log")
    try:
        job.wait_for(lambda: last_step(output) >= saved + UP_AFTER)
        server.start()
        code = job.end()
    finally:
        job.kill()
    assert code == 0, job.said()
    assert starts(folder) == [0, saved]
    config = load_recipe("tiny/mlm", settings).config
    rows = open_local(prepare(config), config, 0, 0)
    check_batches(folder, [int(next(rows)["row_hash"].sum(dtype=np.uint64)) for _ in range(STEPS)])
    assert (folder / "export" / "model.safetensors").is_file()

    client = MlflowClient(server.uri)
    found = client.get_experiment_by_name("xalign")
    assert found
    (run,) = client.search_runs([found.experiment_id])
    assert (run.info.run_name, run.info.status) == (folder.name, "FINISHED"), job.said()
    assert run.data.params["train.max_steps"] == str(STEPS)
    events = [event for event in read_events(folder / EVENT_LOG) if event["event"] == "step"]
    assert [event["step"] for event in events] == list(range(1, STEPS + 1))
    for key in ("train/loss", "train/labels"):
        history = client.get_metric_history(run.info.run_id, key)
        assert sorted((point.step, point.value) for point in history) == [
            (event["step"], event["metrics"][key]) for event in events
        ]


def submit(address: str, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs jobs/submit.py to its end."""
    command = [sys.executable, "jobs/submit.py", "--address", address, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_relative_output_is_refused_and_the_submitter_says_so(cluster: Cluster) -> None:
    done = submit(cluster.address, "pretrain", "tiny/mlm", "--set", "output=runs", environment=cluster.environment)
    assert done.returncode == 1
    assert "xalign: output is 'runs': in a Ray job a relative path lies in the uploaded copy of the code" in done.stderr
    assert "Give an absolute one that all nodes see, for example --set output=/shared/runs." in done.stderr
    assert "exit code 2" in done.stderr


def test_wrong_input_that_a_worker_finds_is_told_in_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    # Longer than the sample that trains the tokenizer: the driver does not come to the end of the files.
    (tmp_path / "a.en").write_text("the house is old\n" * 60_000)
    (tmp_path / "a.de").write_text("das Haus ist alt\n" * 59_999)
    recipe = {
        "output": str(tmp_path / "runs"),
        "data": {
            "root": str(tmp_path),
            "corpora": [{"format": "text", "language": "en", "paths": ["a.en"]}],
            "parallel": [{"format": "moses", "languages": ["en", "de"], "paths": ["a.en", "a.de"]}],
            "tokenizer": {"kind": "bpe", "vocab_size": 200, "sample_mib": 1},
        },
        "train": {"max_steps": 1, "global_batch_size": 2},
    }
    (tmp_path / "mine.yaml").write_text(json.dumps(recipe))
    done = submit(cluster.address, "prepare", str(tmp_path / "mine.yaml"), environment=cluster.environment)
    assert done.returncode == 1
    assert "\nxalign: Moses files must have the same number of lines, but " in done.stderr
    assert f"{tmp_path / 'a.en'} has 60,000 lines, {tmp_path / 'a.de'} has 59,999 lines." in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").rglob("manifest.json"))


def test_a_submitter_without_the_token_is_told_how_to_give_it(cluster: Cluster) -> None:
    named = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
    without = {key: value for key, value in cluster.environment.items() if key not in named}
    done = submit(cluster.address, "prepare", "tiny/mlm", environment=without)
    assert done.returncode == 2
    assert done.stderr == (
        f"submit: The cluster at {cluster.address} wants its token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the "
        "token or RAY_AUTH_TOKEN_PATH to a file that holds it.\n"
    )


def wait_until(happened: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.2)


def post_job(url: str, entrypoint: str, token: str = "") -> int | None:
    """The status of the answer to a job that is posted as it is; None where nothing listens."""
    bearer = {"Authorization": f"Bearer {token}"} if token else {}
    job = json.dumps({"entrypoint": entrypoint}).encode()
    request = urllib.request.Request(url, job, {"Content-Type": "application/json", **bearer})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_who_posts_a_job_without_the_token_is_refused_at_every_address(cluster: Cluster, tmp_path: Path) -> None:
    stranger, ours = tmp_path / "stranger", tmp_path / "ours"
    wait_until(lambda: post_job(f"http://127.0.0.1:{cluster.job_doors[1]}", "true"))  # the agent is up last
    answers = {}
    for address in addresses_of_this_machine():
        host = f"[{address}]" if ":" in address else address
        for door in cluster.job_doors:
            for token in ("", "0" * 64):
                answers[host, door, token] = post_job(f"http://{host}:{door}", f"touch {stranger}", token)
    assert {key: answer for key, answer in answers.items() if answer not in (None, 401, 403)} == {}
    assert {door for (_, door, _), answer in answers.items() if answer is not None} == set(cluster.job_doors)
    for door in cluster.job_doors:  # the same with the token: the job runs
        assert post_job(f"http://127.0.0.1:{door}", f"touch {ours}", os.environ["RAY_AUTH_TOKEN"]) == 200
        wait_until(ours.exists)
        ours.unlink()
    assert not stranger.exists()


def test_an_address_without_a_cluster_is_named() -> None:
    (port,) = _free_ports(1)
    done = submit(f"http://127.0.0.1:{port}", "prepare", "tiny/mlm")
    assert done.returncode == 2
    assert f"submit: No Ray dashboard answers at http://127.0.0.1:{port}." in done.stderr
