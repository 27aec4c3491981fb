"""A real cluster, a real MLflow server, a submitted job: the run is found in MLflow though the server was away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from mlflow import MlflowClient

from tests.pages import ROOT, command, write_files
from tests.parity.mlflow_server import Server
from tests.ray.head import PAGE, Cluster, Job, free_ports, running
from tests.ray.runs import PATIENCE_S, TRAIN_WORKER, addresses_of_this_machine, check_batches, pids, starts
from tests.ray.small import copy_demo
from tests.ray.test_cluster_scripts import HOOK, SAVES
from tests.unit.conftest import prepare_here
from xalign_ray.config.load import load_recipe
from xalign_ray.feed.batches import open_local
from xalign_ray.tasks.scores import SCORES, read_scores
from xalign_ray.tokens.prepare import prepare
from xalign_ray.track.events import EVENT_LOG, read_events
from xalign_ray.train.cluster_address import UNAUTHENTICATED

pytestmark = pytest.mark.ray
STEPS, DOWN_AT, UP_AFTER = 160, 20, 15
MODEL = [
    "data.tokenizer.vocab_size=1000",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_hidden_layers=1",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


def last_step(output: Path) -> int:
    """The newest step in the event log of the only run below a folder, 0 before there is one."""
    logs = list(output.glob(f"*/{EVENT_LOG}"))
    return max((event["step"] for event in read_events(logs[0])), default=0) if logs else 0


@contextmanager
def held(cluster: Cluster) -> Iterator[None]:
    """The run does no step meanwhile: what is done to it is slow, and the run is short."""
    (worker,) = map(psutil.Process, pids(TRAIN_WORKER, below=cluster.pid))
    worker.suspend()
    yield
    worker.resume()


@dataclass(frozen=True)
class Submitted:
    """The page's job on shared storage: stopped while MLflow's server was down, and given again.

    Attributes:
        shared: the folder that the page calls `/shared`.
        settings: of the recipe.
        run: the run's folder.
        saved: the step that it was stopped after.
        name: of the job that was stopped.
        said: by that job, by what stopped it, and by the job that ended the run.
    """

    shared: Path
    settings: list[str]
    run: Path
    saved: int
    name: str
    said: tuple[str, str, str]

    @property
    def options(self) -> list[str]:
        return [word for text in self.settings for word in ("--set", text)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), command(PAGE, "mlflow server"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def of_page(begin: str, shared: Path) -> list[str]:
    """A command line of the page, with this folder for `/shared`."""
    return [word.replace("/shared", str(shared)) for word in command(PAGE, begin)]


def of_job(begin: str, name: str) -> list[str]:
    """A command line of the page, with this name for JOB."""
    return [word.replace("JOB", name) for word in command(PAGE, begin)]


@pytest.fixture(scope="module")
def submitted(cluster: Cluster, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    shared = tmp_path_factory.mktemp("shared")
    output = shared / "runs"
    copy_demo(shared / "demo")
    settings = [*MODEL, f"data.root={shared / 'demo'}", f"track.mlflow={server.uri}", f"train.max_steps={STEPS}"]
    settings += ["train.global_batch_size=24", "train.per_device_batch_size=12", "train.eval_steps=0"]
    settings += [f"checkpoint.save_steps={STEPS}", "parallel.workers=1", "parallel.data_cpus=2"]
    options = [word for text in settings for word in ("--set", text)]
    prepare_here(load_recipe("tiny/mlm", [*settings, f"output={output}"]).config)
    job = Job([*of_page("ray job submit", shared), *options], cluster.environment, shared / "stopped.log")
    try:
        job.wait_for(lambda: last_step(output) >= DOWN_AT)
        with held(cluster):
            server.kill()
            name = re.search(r"Job '(raysubmit_\w+)' submitted", job.said())
            assert name, job.said()
            stop = Job(of_job("xalign submit stop", name[1]), cluster.environment, shared / "stop.log")
            stop.wait_for(lambda: "is told to stop; it ends its step and saves it first." in stop.said())
        job.end()
        assert stop.end() == 0, stop.said()
    finally:
        job.kill()
    (folder,) = (path.parent for path in output.glob(f"*/{EVENT_LOG}"))
    saved = int(next((folder / "checkpoints").glob("*")).name.removeprefix("step_"))
    again = Job([*of_page("xalign submit pretrain", shared), *options], cluster.environment, shared / "job.log")
    try:
        again.wait_for(lambda: last_step(output) >= saved + UP_AFTER)
        with held(cluster):
            server.start()
        assert again.end() == 0, again.said()
    finally:
        again.kill()
    return Submitted(shared, settings, folder, saved, name[1], (job.said(), stop.said(), again.said()))


def test_a_submitted_run_is_whole_in_mlflow_though_it_was_stopped_and_the_server_died(
    server: Server, submitted: Submitted
) -> None:
    folder, saved, (stopped, stop, ended) = submitted.run, submitted.saved, submitted.said
    assert "was stopped" in stopped
    assert f"\nStopped (SIGTERM): step {saved} of {STEPS} is saved. Rerun the same " in stop
    assert stop.endswith(f"\n{submitted.name}: STOPPED.\n")
    assert re.search(r"^pretrain-tiny-mlm-\d{8}-\d{6}: exec python -m xalign_ray pretrain tiny/mlm --set ", ended, re.M)
    assert ended.endswith(": SUCCEEDED, exit code 0.\n")
    assert f"\nxalign: Stopped (SIGTERM): step {saved} of {STEPS} is saved. Rerun the same " in stopped
    assert "Traceback" not in stopped
    assert starts(folder) == [0, saved]
    config = load_recipe("tiny/mlm", [*submitted.settings, f"output={folder.parent}"]).config
    rows = open_local(prepare(config), config, 0, 0)
    check_batches(folder, [int(next(rows)["row_hash"].sum(dtype=np.uint64)) for _ in range(STEPS)])
    assert (folder / "export" / "model.safetensors").is_file()

    client = MlflowClient(server.uri)
    found = client.get_experiment_by_name("xalign")
    assert found
    (run,) = client.search_runs([found.experiment_id])
    assert (run.info.run_name, run.info.status) == (folder.name, "FINISHED"), ended
    assert run.data.params["train.max_steps"] == str(STEPS)
    events = [event for event in read_events(folder / EVENT_LOG) if event["event"] == "step"]
    assert [event["step"] for event in events] == list(range(1, STEPS + 1))
    for key in ("train/loss", "train/labels"):
        history = client.get_metric_history(run.info.run_id, key)
        assert sorted((point.step, point.value) for point in history) == [
            (event["step"], event["metrics"][key]) for event in events
        ]


def test_the_log_of_a_job_is_found_again_and_its_run_is_a_cell_of_a_study(
    cluster: Cluster, server: Server, submitted: Submitted
) -> None:
    assert submitted.name in cluster.run(*command(PAGE, "ray job list"))
    followed = subprocess.run(
        of_job("xalign submit follow", submitted.name),
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert followed.returncode == 143
    assert "Stopped (SIGTERM)" in followed.stderr
    write_files(PAGE, submitted.shared)
    words = of_page("xalign submit study", submitted.shared)
    words[words.index("align.yaml")] = str(submitted.shared / "align.yaml")
    before = (submitted.run / "manifest.json").stat().st_mtime_ns
    said = cluster.run(*words, "--set", f"mlflow={server.uri}", *submitted.options)
    assert "1 of 2 cells had ended before." in said
    assert (submitted.run / "manifest.json").stat().st_mtime_ns == before
    assert (submitted.run.parent / "studies" / "align" / "report" / "index.html").is_file()
    assert read_scores(submitted.run / "evaluation" / "align" / SCORES)


def test_a_node_that_knows_the_token_joins(cluster: Cluster, tmp_path: Path) -> None:
    words = [word.replace("HEAD:6379", cluster.ray_address) for word in command(PAGE, "ray start --block --address")]
    node = Job([*words, "--num-cpus", "0"], cluster.environment, tmp_path / "node.log")
    try:
        status = [word.replace("HEAD:6379", cluster.ray_address) for word in command(PAGE, "ray status")]
        node.wait_for(lambda: "Ray runtime started" in node.said())
        time.sleep(5)  # the status is told so often, and to ask for it is to start a process
        node.wait_for(lambda: len(re.findall(r"^ 1 node_", cluster.run(*status), re.M)) == 2)
    finally:
        node.kill()


def submit(
    address: str, *words: str, environment: dict[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs `xalign submit` in a folder to its end."""
    given = [sys.executable, "-m", "xalign_ray", "submit", "--address", address, *words]
    environment = (environment or dict(os.environ)) | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(given, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


PLUGIN = """
from typing import Literal

from xalign_ray.config.choices import StreamChoice, Weight
from xalign_ray.streams.masked import masked_text


class SecondText(StreamChoice):
    kind: Literal["second_text"] = "second_text"
    weight: Weight = 1.0


def second_text(stream, batch):
    columns = masked_text(stream, batch)
    return columns | {"segment_ids": columns["segment_ids"] + 1}
"""


def test_an_own_recipe_goes_along_with_what_it_extends_and_its_plugin(
    cluster: Cluster, submitted: Submitted, tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "second.py").write_text(PLUGIN)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "base.yaml").write_text("extends: tiny/mlm\nplugins: [rows.second]\n")
    (tmp_path / "mine" / "own.yaml").write_text("extends: base\nstreams: [{kind: second_text}]\n")
    options = [*submitted.options, "--set", "train.max_steps=2", "--set", f"output={submitted.run.parent}"]
    words = ["--name", tmp_path.name, "pretrain", "mine/own.yaml", *options]
    done = submit(cluster.address, *words, environment=cluster.environment, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Goes along: mine/base.yaml, mine/own.yaml, rows/second.py.\n" in done.stderr
    assert f"\n{tmp_path.name}: exec python -m xalign_ray pretrain mine/own.yaml" in done.stderr
    (run,) = submitted.run.parent.glob("own-*")
    assert [event["step"] for event in read_events(run / EVENT_LOG) if event["event"] == "step"] == [1, 2]
    again = submit(cluster.address, *words, environment=cluster.environment, folder=tmp_path)
    assert again.returncode == 0
    assert (
        f"{tmp_path.name} has ended before (SUCCEEDED); this job takes its name, and its log is gone." in again.stderr
    )
    assert "PreemptionWatcher" not in "".join([done.stderr, *submitted.said])
    assert (
        submit(cluster.address, "--no-wait", *words, environment=cluster.environment, folder=tmp_path).returncode == 0
    )
    refused = submit(cluster.address, *words, environment=cluster.environment, folder=tmp_path)
    assert refused.returncode == 2
    assert f"The job {tmp_path.name} on {cluster.address} has not ended; give another --name" in refused.stderr
    unknown = submit(cluster.address, "follow", "no-such-job", environment=cluster.environment)
    assert unknown.returncode == 2
    assert f"The cluster at {cluster.address} has no job no-such-job. It has " in unknown.stderr


def test_a_relative_output_is_refused_before_a_job_is_made_and_in_one(cluster: Cluster) -> None:
    said = "xalign: output is 'runs': in a Ray job a relative path lies in the uploaded copy of the code"
    words = ["pretrain", "tiny/mlm", "--set", "output=runs"]
    done = submit(cluster.address, *words, environment=cluster.environment)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert "Give an absolute one that all nodes see, for example --set output=/shared/runs." in done.stderr
    job = ["ray", "job", "submit", "--working-dir", ".", "--", "python", "jobs/pretrain.py", *words[1:]]
    whole = {"cwd": ROOT, "env": cluster.environment, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    for _ in range(3):
        done = subprocess.run(job, **whole)
        # Ray's own race: two environments of one job unpack its code at once, the second removes it under the first.
        if "wrong while downloading or unpacking the working_dir" not in done.stdout + done.stderr:
            break
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
    assert "exit code 2" in done.stdout + done.stderr


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
    done = subprocess.run(
        [*of_page("xalign submit prepare", tmp_path)[:3], str(tmp_path / "mine.yaml")],
        cwd=ROOT, env=cluster.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    both = f"{tmp_path / 'a.en'} and {tmp_path / 'a.de'}"
    assert f"\nxalign: {both} do not have the same rows (from row 60,000 on), so that " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").rglob("manifest.json"))


def test_a_submitter_without_the_token_is_told_how_to_give_it(cluster: Cluster, tmp_path: Path) -> None:
    named = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"}
    without = {key: value for key, value in cluster.environment.items() if key not in named}
    without["HOME"] = str(tmp_path)  # where a token of the user's may lie
    done = submit(cluster.address, "prepare", "tiny/mlm", "--set", "output=/shared", environment=without)
    assert done.returncode == 2
    assert done.stderr == f"xalign: The cluster at {cluster.address} refuses us: {UNAUTHENTICATED}\n"


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
        assert post_job(f"http://127.0.0.1:{door}", f"touch {ours}", cluster.token) == 200
        wait_until(ours.exists)
        ours.unlink()
    assert not stranger.exists()


def answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200
    return False


def test_a_head_that_is_deleted_lets_the_driver_save_and_answers_its_probes(cluster: Cluster, tmp_path: Path) -> None:
    """As the pod of cluster/raycluster.yaml that it is."""
    head = yaml.safe_load((ROOT / "cluster" / "raycluster.yaml").read_text())["spec"]["headGroupSpec"]
    (container,) = head["template"]["spec"]["containers"]
    agent = cluster.job_doors[1].split("/")[0]  # a pod has the default port
    for probe in ("readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        urls = [f"http://{address}:{agent}{path}" for address in addresses_of_this_machine()]
        wait_until(lambda urls=urls: any(map(answers, urls)))  # without the token, which a kubelet does not have

    job = ["--runtime-env-json", '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}', "--no-wait"]
    (tmp_path / "driver").write_text(SAVES.format(folder=tmp_path))
    cluster.run("ray", "job", "submit", *job, "--", "bash", tmp_path / "driver")
    wait_until((tmp_path / "begun").exists)
    cluster.run(sys.executable, HOOK, "head")
    assert (tmp_path / "saved").exists()


def test_an_address_without_a_cluster_is_named() -> None:
    (port,) = free_ports(1)
    done = submit(f"http://127.0.0.1:{port}", "prepare", "tiny/mlm", "--set", "output=/shared")
    assert done.returncode == 2
    assert f"xalign: No Ray dashboard answers at http://127.0.0.1:{port}." in done.stderr
