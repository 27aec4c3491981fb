"""Verbs that write into a run take its lock: each waits for another process that holds it, or is refused in words."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.results.run_folders import score, write_run
from xalign_ray import exports, pipeline
from xalign_ray.data.prepared import Prepared
from xalign_ray.errors import LockError
from xalign_ray.locks import LOCK, hold
from xalign_ray.mirror import written
from xalign_ray.results.page import report

HOLDER = """
import sys, pathlib, time
from xalign_ray.locks import hold
with hold(pathlib.Path(sys.argv[1]), "pretrain"):
    print("held", flush=True)
    sys.stdin.readline()
    (pathlib.Path(sys.argv[1]) / "written_first").touch()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "one", scores={"tatoeba": [score()]})


def start_holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    return holder


def test_report_is_refused_while_another_process_writes_its_run(run: Path, tmp_path: Path) -> None:
    holder = start_holder(run)
    try:
        with pytest.raises(LockError) as refused:
            report([str(run)])
        assert str(refused.value).startswith(f"{run} is being written by pretrain on ")
        assert str(refused.value).endswith("or stop it. Or write the report into another folder: --out FOLDER.")
        assert not (run / "report").exists()
        assert report([str(run)], tmp_path / "elsewhere").is_file()
    finally:
        holder.communicate("\n", timeout=60)
    assert report([str(run)]).is_file()
    assert not (run / LOCK).exists()


def write_scores(run: Path) -> None:
    with written(run / "evaluation" / "pos", "evaluate"):
        (run / "evaluation" / "order").write_text(order(run))


def write_export(run: Path) -> None:
    exports.export(run)


def repair(run: Path) -> None:
    pipeline._repair_run(None, None, run, {}, False)  # type: ignore[arg-type]


def order(run: Path) -> str:
    return "second" if (run / "written_first").is_file() else "first"


@pytest.mark.parametrize("verb", [write_scores, write_export, repair])
def test_a_verb_waits_until_the_other_process_has_written(
    run: Path, verb: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of it but the weights, which need a trained run."""
    monkeypatch.setattr(Prepared, "open", lambda _: None)
    monkeypatch.setattr("xalign_ray.results.card.write_model_card", lambda _: None)
    for module in (exports, pipeline):
        monkeypatch.setattr(
            module, "export_run", lambda *_, **__: (run / "evaluation" / "order").write_text(order(run))
        )
    holder = start_holder(run)
    threading.Thread(target=lambda: (time.sleep(1), holder.communicate("\n")), daemon=True).start()
    verb(run)
    assert (run / "evaluation" / "order").read_text() == "second"
    assert f"{run} is being written by pretrain on " in capfd.readouterr().err
    assert not (run / LOCK).exists()


def test_a_process_that_holds_a_run_writes_inside_it(run: Path) -> None:
    with hold(run, "study"), written(run / "report", "report", waits=False):
        assert (run / LOCK).is_file()
    assert not (run / LOCK).exists()


def test_a_folder_outside_of_runs_has_no_lock(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with written(tmp_path / "out", "evaluate"):
        assert not (tmp_path / "out" / LOCK).exists()
