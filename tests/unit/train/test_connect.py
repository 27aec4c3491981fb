"""A Ray that cannot be started, or that dies under a command, is a sentence; a mistake of our own stays a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from xalign_ray import cli
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train import driver


def test_ray_that_does_not_start_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 25)))  # longer than the name of a socket may be
    assert cli._run(lambda: driver.connect(ParallelConfig())) == 1
    assert not ray.is_initialized()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("xalign: Ray did not start on this machine: ")
    assert "cannot exceed 107 bytes" in said
    assert "Give the command again" in said


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "head-node"])
def test_an_address_that_ray_cannot_read_is_a_sentence(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert cli._run(lambda: driver.connect(ParallelConfig())) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"xalign: The cluster at {address}, which RAY_ADDRESS names, cannot be joined: Invalid ")
    assert said.endswith(
        "It must be the HOST:PORT that `ray start` prints on the head node; unset it to start a cluster here."
    )


def test_a_process_of_ray_that_died_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise ray.exceptions.LocalRayletDiedError

    assert cli._run(work) == 1
    assert capsys.readouterr().err == (
        "xalign: The Ray cluster lost a process or a node under this command (LocalRayletDiedError: The task's local "
        "raylet died.) Give the same command again: it goes on from what is on disk.\n"
    )


def test_what_a_task_of_ours_raised_stays_a_traceback() -> None:
    def work() -> None:
        raise ray.exceptions.RayTaskError("task", "traceback", ValueError("a mistake")).as_instanceof_cause()

    with pytest.raises(ValueError, match="traceback"):
        cli._run(work)
