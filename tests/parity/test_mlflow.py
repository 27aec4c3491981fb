"""A real MLflow server that is down, dies, hangs or wants a password: training never waits, no number is lost."""

from __future__ import annotations

import base64
import http.client
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.parity.mlflow_server import Server
from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import cli
from xalign_ray.config.load import load_recipe
from xalign_ray.results.report import report
from xalign_ray.track.destinations import resolve_uri
from xalign_ray.track.events import EVENT_LOG, EventLog, read_events
from xalign_ray.track.follower import Follower, publish, replay
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work import credentials

EXPERIMENT = "outage"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


class Hanging:
    """Accepts connections and never answers, as a server does whose disk or database hangs."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.uri = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def accept(self, timeout_s: float) -> socket.socket:
        """The connection of the next request; TimeoutError if none comes."""
        self._listening.settimeout(timeout_s)
        return self._listening.accept()[0]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield Hanging(listening)


def is_waited_for(request: socket.socket) -> bool:
    """Whether who asked is still waiting for an answer: what was sent is there, and the connection is open."""
    request.setblocking(False)
    with suppress(BlockingIOError):
        while request.recv(1 << 16):
            pass
        return False
    return True


def write_steps(log: EventLog, first: int, last: int, pause_s: float = 0.01) -> None:
    """Writes steps as a training loop would."""
    for step in range(first, last + 1):
        log.write("step", step, {"train/loss": 1 / step, "train/labels": step}, batch_hash=step)
        time.sleep(pause_s)


def runs_named(uri: str, name: str) -> list[Run]:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(EXPERIMENT)
    return [run for run in client.search_runs([found.experiment_id]) if run.info.run_name == name] if found else []


def wait_for_labels(uri: str, folder: Path, at_least: int) -> None:
    """Waits until the server shows a step; `train/labels` is the number of its step."""
    until = time.monotonic() + 30
    while not any(run.data.metrics.get("train/labels", 0) >= at_least for run in runs_named(uri, folder.name)):
        assert time.monotonic() < until, f"step {at_least} has not arrived"
        time.sleep(0.1)


def assert_all_there_once(uri: str, folder: Path, keys: tuple[str, ...]) -> None:
    client = MlflowClient(uri)
    runs = runs_named(uri, folder.name)
    assert len(runs) == 1
    events = read_events(folder / EVENT_LOG)
    for key in keys:
        expected = [
            (0 if event["event"] == "end" else event["step"], event["metrics"][key])
            for event in events
            if key in event.get("metrics", {})
        ]
        history = client.get_metric_history(runs[0].info.run_id, key)
        assert sorted((point.step, point.value) for point in history) == expected
    assert runs[0].info.status == "FINISHED"


def test_with_the_server_down_at_first_and_killed_in_the_middle_every_metric_arrives_once(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny-mlm-00000001"
    with EventLog(folder / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="tiny/mlm", fingerprint="00000001", steps=800)
        following = Follower(folder, server.uri, EXPERIMENT, every_s=0.2)
        write_steps(log, 1, 60)
        server.start()
        # Its death comes without a pause in the writing, so that it can hit a request on its way.
        write_steps(log, 61, 360)
        wait_for_labels(server.uri, folder, 261)
        write_steps(log, 361, 500, pause_s=0)
        server.kill()
        write_steps(log, 501, 600)
        server.start()
        write_steps(log, 601, 800, pause_s=0)
        log.write("end", 800, {"run/seconds": 9.5})
    assert following.close(timeout_s=60) is None
    assert_all_there_once(server.uri, folder, ("train/loss", "train/labels", "run/seconds"))


def test_a_server_that_was_frozen_and_answers_late_has_every_metric_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    server.start()
    folder = tmp_path / "tiny-mlm-00000005"
    with EventLog(folder / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="tiny/mlm", fingerprint="00000005", steps=400)
        following = Follower(folder, server.uri, EXPERIMENT, every_s=0.1)
        write_steps(log, 1, 100)
        wait_for_labels(server.uri, folder, 50)
        # What was asked while it stood still is carried out afterwards, when the follower has long asked again.
        server.send(signal.SIGSTOP)
        write_steps(log, 101, 300)
        time.sleep(3)
        server.send(signal.SIGCONT)
        write_steps(log, 301, 400)
        log.write("end", 400, {"run/seconds": 9.5})
    assert following.close(timeout_s=30) is None
    assert_all_there_once(server.uri, folder, ("train/loss", "train/labels", "run/seconds"))


def test_what_an_outage_at_the_end_left_out_is_caught_up_by_replay(server: Server, tmp_path: Path) -> None:
    server.start()
    folder = tmp_path / "tiny-mlm-00000002"
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "index.html").write_text("<p>a report</p>")
    following = Follower(folder, server.uri, EXPERIMENT, every_s=0.2)
    with EventLog(folder / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="tiny/mlm", fingerprint="00000002", steps=60)
        write_steps(log, 1, 30)
        wait_for_labels(server.uri, folder, 30)
        server.kill()
        write_steps(log, 31, 60)
        log.write("end", 60, {"run/seconds": 1.5})
    said = following.close(timeout_s=2)
    assert said
    assert f"`xalign track replay {folder} --to {server.uri}` brings it up to date" in said
    server.start()
    (run_id,) = replay(folder, server.uri, EXPERIMENT)
    replay(folder, server.uri, EXPERIMENT)
    assert_all_there_once(server.uri, folder, ("train/loss", "train/labels", "run/seconds"))
    with urllib.request.urlopen(f"{server.uri}/get-artifact?run_uuid={run_id}&path=report/index.html") as page:
        assert page.read() == b"<p>a report</p>"


def test_a_server_that_hangs_holds_up_neither_the_writer_nor_the_end(
    hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
    folder = tmp_path / "tiny-mlm-00000003"
    following = Follower(folder, hanging.uri, EXPERIMENT, every_s=0.2)
    with EventLog(folder / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="tiny/mlm", fingerprint="00000003", steps=500)
        request = hanging.accept(timeout_s=120)  # from here on the follower waits for an answer that never comes
        write_steps(log, 1, 500, pause_s=0)
        log.write("end", 500)
    said = following.close(timeout_s=2)
    assert is_waited_for(request), "neither writing nor closing waited until the request was given up"
    request.close()
    assert said
    assert "nothing is lost" in said
    assert f"`xalign track replay {folder} --to {hanging.uri}` brings it up to date" in said


def test_publishing_to_a_server_that_hangs_ends_with_the_sentence(
    hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    folder = tmp_path / "tiny-mlm-00000004"
    with EventLog(folder / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="tiny/mlm", fingerprint="00000004", steps=1)
    said = publish(folder, hanging.uri, EXPERIMENT)
    assert said
    assert "timed out" in said
    assert "nothing is lost" in said
    hanging.accept(timeout_s=10).close()
    with pytest.raises(TimeoutError):  # one request was given up, none was tried again
        hanging.accept(timeout_s=0.1)


USER, PASSWORD = "ann", "s3cret-pass"


class Door(BaseHTTPRequestHandler):
    """What stands before an MLflow server: who does not know the password is turned away."""

    behind: str
    turned_away = 0

    def _pass(self) -> None:
        given = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {given}":
            type(self).turned_away += 1
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self._chunks())
        inner = http.client.HTTPConnection(self.behind)
        left_out = ("authorization", "host", "transfer-encoding", "content-length")
        inner.request(
            self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in left_out}
        )
        answer = inner.getresponse()
        text = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def door(server: Server) -> Iterator[str]:
    """Host and port of an MLflow server that wants a password."""
    server.start()
    Door.behind = server.uri.removeprefix("http://")
    guard = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=guard.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{guard.server_port}"
    guard.shutdown()


def test_a_password_in_a_tracking_uri_is_used_and_written_nowhere(
    server: Server, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given, shown = f"http://{USER}:{PASSWORD}@{door}", f"http://{door}"
    settings = [*write_world(tmp_path, 300, 50), *batches(8, 8, 2, 2), f"track.mlflow={given}"]
    settings += ["track.experiment=behind a door", "parallel.workers=1"]
    prepare_here(load_recipe("tiny/mlm", settings).config)
    words = [word for text in settings for word in ("--set", text)]
    monkeypatch.setattr("sys.argv", ["xalign", "pretrain", "tiny/mlm", *words, "--no-ray"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    trained = capfd.readouterr()
    assert not ended.value.code, trained.err
    assert trained.err.count(f"The credentials in {shown} are used now and written nowhere.") == 1
    run = Path(trained.out.splitlines()[-1])
    assert f"mlflow: {shown}\n" in (run / "config.yaml").read_text()

    # A later process has them from its environment.
    monkeypatch.setattr(credentials, "_kept", {})
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    turned_away = Door.turned_away
    evaluate(str(run), "tatoeba", tmp_path / "demo" / "tatoeba")
    client = MlflowClient(shown)
    (experiment,) = (one for one in client.search_experiments() if one.name == "behind a door")
    runs = client.search_runs([experiment.experiment_id])
    (tracked,) = (one for one in runs if one.info.run_name == run.name)
    (scored,) = (one for one in runs if one.data.tags.get("mlflow.parentRunId") == tracked.info.run_id)
    assert [name for name in scored.data.metrics if "tatoeba" in name]
    assert tracked.data.params["track.mlflow"] == shown
    assert tracked.data.metrics["train/loss"] > 0
    assert [name for name in tracked.data.metrics if "tatoeba" in name]
    assert Door.turned_away == turned_away
    report([str(run)], tmp_path / "report")

    # Nor does what only `--to` says, in a message.
    monkeypatch.setattr(credentials, "_kept", {})  # as in a process of its own
    with pytest.raises(Exception, match=r"MLflow at http://127\.0\.0\.1:1 does not hold all"):
        replay(run, resolve_uri(f"http://{USER}:{PASSWORD}@127.0.0.1:1", run.parent), "behind a door")

    said = capfd.readouterr()
    assert PASSWORD not in trained.out + trained.err + said.out + said.err
    files = [path for folder in (tmp_path, server.folder) for path in folder.rglob("*") if path.is_file()]
    assert {"config.yaml", "events.jsonl", "README.md", "index.html", "mlflow.db"} <= {path.name for path in files}
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
