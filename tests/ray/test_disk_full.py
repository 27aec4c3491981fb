"""A disk that is full in the middle of a run: the run ends in words, and goes on when there is room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.ray.hosts import Host, needs_hosts, network
from tests.ray.runs import calm, check_rows, curve, starts
from tests.ray.small import batches, recipe

pytestmark = [pytest.mark.ray, pytest.mark.long, needs_hosts]
STEPS, SAVED_EVERY = 60, 10


def pretrain(host: Host, settings: list[str], run: Path) -> subprocess.CompletedProcess[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    command = host.command(sys.executable, "-m", "xalign_ray", "pretrain", "tiny/align-mlm", *words, "--out", run)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_on_a_full_disk_ends_in_words_and_goes_on_when_there_is_room(
    world: list[str], two: Pool, tmp_path: Path
) -> None:
    settings = [*world, *batches(24, 12, STEPS, SAVED_EVERY), "parallel.workers=2", "checkpoint.save_total_limit=9"]
    expected = calm(two, recipe(settings), tmp_path / "calm")
    (tmp_path / "disks").mkdir()
    (tmp_path / "small").mkdir()
    with network(tmp_path / "disks", "alone") as found:
        host = found.hosts["alone"]
        host.run("mount", "-t", "tmpfs", "-o", "size=2500k", "none", tmp_path / "small")
        run = tmp_path / "small" / "run"
        seen = Path(f"/proc/{host.pid}/root{run}")  # its disk, as nobody else sees it
        full = pretrain(host, settings, run)
        assert full.returncode == 1, full.stderr
        assert "Traceback" not in full.stderr
        assert "No space left on device" in full.stderr
        assert "is whole and stays; make room and rerun the same command" in full.stderr
        host.run("mount", "-o", "remount,size=200M", tmp_path / "small")
        again = pretrain(host, settings, run)
        assert again.returncode == 0, again.stderr
        assert curve(seen, STEPS) == expected
        check_rows(seen, expected)
        assert starts(seen)[-1] >= SAVED_EVERY
