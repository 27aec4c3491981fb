"""`xalign submit continue` over two trainers on hosts of their own, one killed on the way, against the calm job."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.parity.test_continue import write_encoder, write_pairs
from tests.ray.hosts import needs_hosts
from tests.ray.runs import TRAIN_WORKER, check_rows, curve, reached, starts
from tests.ray.site import PLACED, Site, site
from xalign_ray.work.run_folder import RunFolder

STEPS = 8


def submitted(four: Site, encoder: Path, pairs: list[Path], steps: int, name: str) -> list[str]:
    """The command that continues an encoder as a job of this name, whose run has the name too."""
    settings = [*PLACED, "checkpoint.save_steps=2", "model.hidden_dropout_prob=0.0", "track.mlflow=off"]
    options = [word for path in pairs for word in ("--pairs", path)] + ["--method", "contrast", "--steps", str(steps)]
    options += ["--out", four.shared / "runs" / name, *(word for text in settings for word in ("--set", text))]
    return four.submitted("--name", name, "continue", encoder, *options)


def check_killed_as_calm(four: Site, encoder: Path, pairs: list[Path], steps: int) -> None:
    """One job is left alone, another loses a trainer after its third step: the same rows, losses and table."""
    calm = four.start("desk", *submitted(four, encoder, pairs, steps, "calm"))
    assert calm.end() == 0, calm.said()
    killed = four.start("desk", *submitted(four, encoder, pairs, steps, "killed"))
    runs = [four.shared / "runs" / name for name in ("calm", "killed")]
    killed.wait_for(reached(runs[1], 3))
    (worker,) = four.hosts["train-2"].pids(TRAIN_WORKER)
    os.kill(worker, signal.SIGKILL)
    assert killed.end() == 0, killed.said()
    assert len(starts(runs[1])) == 2
    expected = curve(runs[0], steps)
    assert curve(runs[1], steps) == expected
    check_rows(runs[1], expected)
    rows = [json.loads(RunFolder(run).comparison.read_text())["rows"] for run in runs]
    assert rows[0] == rows[1]
    assert "Translations found: trained languages" in killed.said()


@pytest.mark.ray
@pytest.mark.long
@needs_hosts
def test_a_continued_encoder_whose_trainer_was_killed_takes_the_steps_of_the_calm_one(tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    write_pairs(tmp_path / "pairs.en-de.tsv", 0, 400)
    with site(tmp_path) as four:
        check_killed_as_calm(four, tmp_path / "encoder", [tmp_path / "pairs.en-de.tsv"], STEPS)
