"""Two writers of one run: whichever two verbs they are, one waits for the other or is refused; nothing is lost."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import score, write_run
from xalign_ray import exports
from xalign_ray.errors import LockError
from xalign_ray.evaluation import track_of_scores
from xalign_ray.results import card, report
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tasks.registry import TASKS
from xalign_ray.tasks.scores import read_scores
from xalign_ray.track.destinations import Track
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work.artifacts import LOCK, hash_files
from xalign_ray.work.job import open_job
from xalign_ray.work.locks import hold
from xalign_ray.work.run_folder import RunFolder

PATIENCE_S = 300
HOLDER = """
import sys, pathlib, time
from xalign_ray.work.job import open_job
with open_job(pathlib.Path(sys.argv[1]), "pretrain"):
    print("held", flush=True)
    sys.stdin.readline()
    (pathlib.Path(sys.argv[1]) / "written_first").touch()
"""
CONFIG = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "architectures": ["BertForMaskedLM"]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "runs" / "one", settings=['track.mlflow="off"'])
    write_export(folder)
    return folder


def write_export(run: Path) -> None:
    export = RunFolder(run).export
    export.mkdir(exist_ok=True)
    for path in export.iterdir():
        path.unlink()
    (export / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


class Gate:
    """Lets the first that comes to it wait for `opened`; counts those inside."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.inside = self.most_inside = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        is_first = not self.entered.is_set()
        self.entered.set()
        assert not is_first or self.opened.wait(PATIENCE_S)
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """What each verb does once its folder is its own goes through one gate; all of it but the weights."""
    gate = Gate()

    def gated(work: Callable[..., Any]) -> Callable[..., Any]:
        def through(*given: Any, **named: Any) -> Any:
            with gate.passed():
                return work(*given, **named)

        return through

    monkeypatch.setattr(Prepared, "open", lambda _: None)
    monkeypatch.setattr(exports, "export_run", gated(lambda _, __, folder, *___, **____: write_export(folder)))
    monkeypatch.setattr(card, "write_model_card", gated(card.write_model_card))
    monkeypatch.setattr(report, "write_report", gated(report.write_report))
    return gate


def listen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is said from now on; capfd loses what is written while it is read, and takes a fixture's stream away."""
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    return said


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


class Scored:
    """A task that needs no model."""

    needs_data, takes_prompt = False, False

    def evaluate(self, *_: object) -> list[Any]:
        return [score()]


VERBS: dict[str, Callable[[Path], Any]] = {
    "evaluate": lambda run: evaluate(run, "tatoeba"),
    "export": lambda run: exports.export(run),
    "report": lambda run: report.report([str(run)]),
}


@pytest.mark.parametrize(("first", "second"), product(VERBS, VERBS))
def test_of_two_verbs_on_one_run_the_second_waits_or_is_refused(
    run: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setitem(TASKS, "tatoeba", Scored())
    said = listen(monkeypatch)
    errors: list[BaseException] = []

    def act(name: str) -> None:
        try:
            VERBS[name](run)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=act, args=(name,), daemon=True) for name in (first, second)]
    threads[0].start()
    assert gate.entered.wait(PATIENCE_S)
    threads[1].start()
    wait_until(lambda: " is being written by " in said.getvalue() or bool(errors))
    gate.opened.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert gate.most_inside == 1, errors
    if second == "report":
        (refused,) = errors
        assert isinstance(refused, LockError)
        assert str(refused).endswith("or stop it. Or write the report into another folder: --out FOLDER.")
    else:
        assert errors == []
        assert f"{run} is being written by " in said.getvalue()
        assert "; it is waited for.\n" in said.getvalue()
    if "evaluate" in (first, second):
        assert [one.metric for one in read_scores(RunFolder(run).evaluation("tatoeba") / "scores.json")]
        assert "tatoeba_accuracy" in (RunFolder(run).export / "README.md").read_text()
    if "export" in (first, second):
        assert (RunFolder(run).export / "README.md").is_file(), "an export that is written again keeps its card"
    assert not list(run.rglob(f"{LOCK}*"))


def test_scores_outside_of_a_run_leave_the_run_alone(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "tatoeba", Scored())
    monkeypatch.setattr(card, "write_model_card", pytest.fail)
    before = hash_files(run)
    evaluate(run, "tatoeba", None, tmp_path / "scores")
    assert (tmp_path / "scores" / "scores.json").is_file()
    assert hash_files(run) == before


def test_a_run_that_was_moved_is_tracked_where_it_lies(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", settings=[f"output={tmp_path}/runs"])
    write_run(tmp_path / "apart" / "two", settings=[f"output={tmp_path}/runs"])
    (tmp_path / "apart").rename(tmp_path / "away")
    there, moved = (Track(f"sqlite:///{tmp_path}/{name}/mlflow.db", "xalign") for name in ("runs", "moved"))
    assert track_of_scores(tmp_path / "runs" / "one", False) == there
    assert track_of_scores(tmp_path / "away" / "two", False) == there
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert track_of_scores(tmp_path / "moved" / "one", False) == moved
    assert not (tmp_path / "runs").exists()


def test_of_two_evaluations_into_one_folder_the_second_waits(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    class Slow(Scored):
        def evaluate(self, *_: object) -> list[Any]:
            with gate.passed():
                return super().evaluate()

    monkeypatch.setitem(TASKS, "tatoeba", Slow())
    said = listen(monkeypatch)
    out = tmp_path / "scores"
    threads = [threading.Thread(target=evaluate, args=(run, "tatoeba", None, out), daemon=True) for _ in "12"]
    threads[0].start()
    assert gate.entered.wait(PATIENCE_S)
    threads[1].start()
    wait_until(lambda: f"{out} is being written by evaluate tatoeba on " in said.getvalue())
    gate.opened.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert gate.most_inside == 1
    assert [json.loads(line)["attempt"] for line in (out / "events.jsonl").read_text().splitlines()] == [1, 1, 2, 2]


def test_report_is_refused_while_another_process_writes_its_run(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(run)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(LockError) as refused:
            report.report([str(run)])
        assert str(refused.value).startswith(f"{run} is being written by pretrain on ")
        assert str(refused.value).endswith("or stop it. Or write the report into another folder: --out FOLDER.")
        assert not (run / "report").exists()
        assert report.report([str(run)], tmp_path / "elsewhere").is_file()
    finally:
        holder.communicate("\n", timeout=60)
    assert report.report([str(run)]).is_file()
    assert not (run / LOCK).exists()


def test_the_thread_that_holds_a_run_writes_inside_it(run: Path) -> None:
    with hold(run, "study"), open_job(run / "report", "report", waits=False, with_run=True):
        assert (run / LOCK).is_file()
    assert not (run / LOCK).exists()
