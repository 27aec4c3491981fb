"""A password in a tracking URI is used and found nowhere: not in the run, in MLflow, in the report, on the screen."""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.parity.mlflow_server import Server
from tests.ray.small import batches, write_world
from xalign_ray.results.page import report
from xalign_ray.track.destinations import resolve_uri
from xalign_ray.track.follower import replay
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work import credentials

USER, PASSWORD = "ann", "s3cret-pass"
PROGRAM = """
import sys
from xalign_ray import cli, pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.tokens import prepare
from xalign_ray.sources import stage
stage._run_tasks = lambda tasks, work, *_: [work(task) for task in tasks]
prepare.prepare(load_recipe("tiny/mlm", sys.argv[4::2]).config)
cli.main()
"""


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
def door(tmp_path: Path) -> Iterator[str]:
    """Host and port of an MLflow server that wants a password."""
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    Door.behind = server.uri.removeprefix("http://")
    guard = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=guard.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{guard.server_port}"
    finally:
        guard.shutdown()
        server.kill()


def test_a_password_is_used_and_written_nowhere(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, shown = f"http://{USER}:{PASSWORD}@{door}", f"http://{door}"
    settings = [*write_world(tmp_path, 300, 50), *batches(8, 8, 2, 2), f"track.mlflow={given}"]
    words = [word for text in settings for word in ("--set", text)]
    command = [sys.executable, "-c", PROGRAM, "pretrain", "tiny/mlm", *words, "--set", "parallel.workers=1", "--no-ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"The credentials in {shown} are used now and written nowhere.") == 1
    run = Path(done.stdout.strip())
    assert f"mlflow: {shown}\n" in (run / "config.yaml").read_text()

    # A later process has them from its environment.
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    turned_away = Door.turned_away
    evaluate(str(run), "tatoeba", tmp_path / "demo" / "tatoeba")
    client = MlflowClient(shown)
    (experiment,) = (one for one in client.search_experiments() if one.name == "xalign")
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
        replay(run, resolve_uri(f"http://{USER}:{PASSWORD}@127.0.0.1:1", run.parent), "xalign")

    said = capsys.readouterr()
    assert PASSWORD not in done.stdout + done.stderr + said.out + said.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"config.yaml", "events.jsonl", "README.md", "index.html", "mlflow.db"} <= {path.name for path in files}
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
