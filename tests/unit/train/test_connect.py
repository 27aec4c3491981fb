"""A Ray that cannot be started, or that dies under a command, is a sentence; a mistake of our own stays a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from ray._private import services

from tests.exits import exit_code
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, explain
from xalign_ray.train import cluster
from xalign_ray.train.cluster_address import ANSWER_S, check_address, named_cluster

PATIENCE_S = 60


@pytest.mark.parametrize("name", ["RAY_TMPDIR", "TMPDIR"])
def test_long_temporary_folder_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    folder = str(tmp_path / ("long" * 25))
    monkeypatch.setenv(name, folder)
    assert exit_code(lambda: cluster.connect(ParallelConfig())) == 2
    assert not ray.is_initialized()
    assert capsys.readouterr().err.splitlines() == [
        "Starting Ray on this machine.",
        f"xalign: {name} is too long for the sockets that Ray and Python put below it: '{folder}' has {len(folder)} "
        f"characters, and a socket's whole path at most 107. Set a shorter one, for example {name}=/tmp.",
    ]


def test_long_temporary_folder_of_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/long")
    said = explain(OSError("AF_UNIX path too long"))
    assert said is not None
    assert said.startswith("TMPDIR is too long for the sockets that Ray and Python put below it: '/long' has 5 ")


def test_an_address_that_ray_cannot_read_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert exit_code(lambda: cluster.connect(ParallelConfig())) == 2
    first, said = capsys.readouterr().err.splitlines()
    assert first == f"Joining the Ray cluster at {address}."
    assert said.startswith(f"xalign: The cluster at {address}, which RAY_ADDRESS names, cannot be joined: Invalid ")
    assert said.endswith(
        "It must be the HOST:PORT that `ray start` prints on the head node; unset it to start a cluster here."
    )


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of a server that gives each client the same answer, or none."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0]:
                pass  # whether there is a server at all
            client, _ = server.accept()
            with client:
                if answer is not None:
                    client.recv(1000)
                    client.sendall(answer)
                over.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def refusal(address: str) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(ConfigError) as refused:
        check_address(address)
    return str(refused.value), time.monotonic() - began


SAID = (
    "The cluster at {}, which RAY_ADDRESS names, cannot be joined: {}. Start it, set RAY_ADDRESS to the HOST:PORT that "
    "`ray start` prints on the head node, or unset it to start a cluster here."
)


def test_dead_address_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"localhost:{port}"):
        said, seconds = refusal(address)
        assert said == SAID.format(address, "nothing answers there (Connection refused)")
        assert seconds < ANSWER_S


def test_unknown_host_is_refused() -> None:
    said, _ = refusal("no-such-host.invalid:6379")
    assert said.startswith("The cluster at no-such-host.invalid:6379, which RAY_ADDRESS names, cannot be joined: noth")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "nothing has answered for 5 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is not Ray's head node"),
    ],
)
def test_what_is_no_head_node_is_refused(answer: bytes | None, said: str) -> None:
    with listening(answer) as address:
        refused, seconds = refusal(address)
    assert refused == SAID.format(address, said)
    assert seconds < 2 * ANSWER_S


@pytest.mark.parametrize(
    "address", ["head-node", "[::1", "host:port", "127.0.0.1:9 9", ":6379", "ray://", "ray://x", "local:"]
)
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    assert refusal(address)[0] == SAID.format(address, "it is no HOST:PORT")


def test_an_address_of_another_scheme_is_for_ray_to_judge() -> None:
    check_address("http://127.0.0.1:8265")


@pytest.mark.parametrize(
    ("written", "named"), [("", ""), (" ", ""), ("local", ""), (" 127.0.0.1:9\n", "127.0.0.1:9"), ("auto", "auto")]
)
def test_blanks_around_an_address_are_none_of_it(monkeypatch: pytest.MonkeyPatch, written: str, named: str) -> None:
    """Ray itself waits for minutes for a port with a blank behind it."""
    monkeypatch.setenv("RAY_ADDRESS", written)
    assert named_cluster() == named


def test_stale_file_of_the_last_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{port}")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr(services, "find_gcs_addresses", set)  # other clusters of this machine
    assert refusal("auto")[0] == SAID.format("auto", "nothing answers there (Connection refused)")


def test_token_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/proc/self/mem")  # root reads whatever permissions forbid, but not this
    with listening(None) as address:
        said, _ = refusal(address)
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()  # the call that was not made
    assert said == (
        "The cluster's token cannot be read from /proc/self/mem: Input/output error. "
        "Let this user read it, or set RAY_AUTH_TOKEN to the token."
    )


def test_signal_while_an_address_does_not_answer(tmp_path: Path) -> None:
    with listening(None) as address:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from xalign_ray.cli import main; main()",
                "prepare",
                "tiny/mlm",
                "--set",
                f"output={tmp_path}",
            ],
            env=os.environ | {"RAY_ADDRESS": address},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr
        assert process.stderr.readline().startswith("Preparing tiny/mlm: ")
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert time.monotonic() - began < ANSWER_S
        assert process.stderr.read() == "xalign: Interrupted (SIGTERM). Rerun the same command to resume.\n"


def test_a_process_of_ray_that_died_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise ray.exceptions.LocalRayletDiedError

    assert exit_code(work) == 1
    assert capsys.readouterr().err == (
        "xalign: The Ray cluster lost a process or a node under this command (LocalRayletDiedError: The task's local "
        "raylet died.) Rerun the same command: it resumes from the files on disk.\n"
    )


NEARLY_FULL = """2 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: \
7479) was 22.08GB used / 23.54GB limit (0.94)
OOM kill reason: Memory usage 13997932544B exceeded threshold of 1263825792B (5.0% of 25276514304B limit)
Considered workers: [
Selected to kill: (Worker with no lease granted: pid=31104, actual memory used=0.14GB, worker ID=0123)
Selected to kill: (Task: job ID=01000000, lease ID=01, task name=SynchronizationActor.__init__, required resources={}, \
pid=25712, actual memory used=0.04GB, worker ID=7844)
Selected to kill: (Actor(06be): job ID=01000000, lease ID=01, task name=TASK, required resources={CPU_group_af: 0.5}, \
pid=25714, actual memory used=9.81GB, worker ID=264c)
]
Total non-selected idle workers: 3
Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/debug-memory.html."""


@pytest.mark.parametrize(
    ("task", "process", "less"),
    [
        ("RayTrainWorker.__init__", "a training process", "train.per_device_batch_size=N with a smaller N takes less"),
        ("read_part", "the process of read_part", "parallel.data_cpus=2 runs fewer of them at once"),
    ],
)
def test_process_that_ray_killed_for_memory_is_one_sentence(task: str, process: str, less: str) -> None:
    assert explain(ray.exceptions.OutOfMemoryError(NEARLY_FULL.replace("TASK", task))) == (
        f"Out of memory: {process} (pid 25714) held 9.81 GB when 22.08 of the machine's 23.54 GB were in use, and Ray "
        f"killed it. Rerun the same command to resume; --set {less}."
    )


def test_what_a_task_of_ours_raised_stays_a_traceback() -> None:
    def work() -> None:
        raise ray.exceptions.RayTaskError("task", "traceback", ValueError("a mistake")).as_instanceof_cause()

    with pytest.raises(ValueError, match="traceback"):
        exit_code(work)
