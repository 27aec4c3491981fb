"""A real MLflow server that is down, dies, comes back or hangs: training never waits and no number is lost."""

from __future__ import annotations

import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.parity.mlflow_server import Server
from xalign_ray.track.events import EVENT_LOG, EventLog, read_events
from xalign_ray.track.follower import Follower, publish, replay

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
        write_steps(log, 61, 160)
        wait_for_labels(server.uri, folder, 60)
        server.kill()
        write_steps(log, 161, 260)
        server.start()
        # The second death comes without a pause in the writing, so that it can hit a request on its way.
        write_steps(log, 261, 360)
        wait_for_labels(server.uri, folder, 261)
        write_steps(log, 361, 500, pause_s=0)
        server.kill()
        server.start()
        write_steps(log, 501, 800, pause_s=0)
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
