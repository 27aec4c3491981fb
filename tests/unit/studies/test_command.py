"""Encoders of a study that other programs make: their seeds, their costs, their failures, and what runs again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parity.cells_here import run_cells_here
from tests.ray.tagging_world import write_encoder
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.results.sources import find_runs
from xalign_ray.studies.command import paths_in
from xalign_ray.studies.study import run_study
from xalign_ray.verbs.scores import report, verify


def write_study(folder: Path, *encoders: dict[str, Any], **changes: object) -> str:
    (folder / "tatoeba").mkdir(exist_ok=True)
    for language in ("de", "en"):
        (folder / "tatoeba" / f"tatoeba.de-en.{language}").write_text("the cat\nthe dog\nsees\n.\n")
    base = {"model": str(folder / "plain"), "label": "base"}
    study = {"root": str(folder), "encoders": [base, *encoders], "mlflow": "off"}
    study |= {"evaluations": [{"task": "tatoeba", "data": "tatoeba"}], "seeds": [0, 1]}
    (folder / "tools.yaml").write_text(yaml.safe_dump(study | changes))
    return str(folder / "tools.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder in it; cells run in this process."""
    write_encoder(tmp_path / "plain")
    run_cells_here(monkeypatch, [], [])
    return tmp_path


def made(folder: Path) -> dict[Path, int]:
    cells = folder / "runs" / "studies" / "tools" / "cells"
    return {path: path.stat().st_mtime_ns for path in cells.glob("command-*/manifest.json")}


def test_a_command_makes_an_encoder_a_seed_once_and_its_scores_and_costs_are_reported_and_hold(folder: Path):
    (folder / "pairs.txt").write_text("the\tdie\n")
    copy = f"cp -r {folder}/plain {{out}} && cat {folder}/pairs.txt && echo {{seed}}"
    study = write_study(folder, {"label": "tool", "command": copy})
    page = run_study(study, folder / "runs")
    assert "CPU minutes" in page.read_text()
    first = made(folder)
    assert [path.parent.joinpath("printed.txt").read_text()[-2:] for path in sorted(first)] != ["0\n", "0\n"]
    runs = [run for run in find_runs([str(page.parents[1])]) if run.label == "tool"]
    assert [run.seed for run in runs] == [0, 1]
    assert all(len(run.scores) and run.log.metrics["run/cpu_seconds"] > 0 for run in runs)
    report(page.parents[1], out=folder / "page", bundle=folder / "bundle.zip")
    assert "2 declared seeds" in verify(folder / "bundle.zip")

    run_study(study, folder / "runs")
    assert made(folder) == first
    (folder / "pairs.txt").write_text("the\tdas\n")
    run_study(study, folder / "runs")
    assert len(made(folder)) == 4

    # The program was changed, which nobody looks at, and its encoders removed: what they are now is scored again.
    scored = {path.name for path in (folder / "runs" / "studies" / "tools" / "cells").glob("tatoeba-*")}
    for path in made(folder):
        shutil.rmtree(path.parent)
    run_study(study, folder / "runs")
    again = {path.name for path in (folder / "runs" / "studies" / "tools" / "cells").glob("tatoeba-*")}
    assert len(again - scored) == len(made(folder)) == 2


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["cp -r plain {out}"], "the command of 'tool 0' has no {seed}: give it one, or seeds: \\[0\\]"),
        (["cp -r plain {out} # {seed}"] * 2, "'tool 0' and 'tool 1' are the same encoder"),
    ],
)
def test_commands_that_would_share_a_folder_are_refused(folder: Path, commands: list[str], said: str):
    encoders = [{"label": f"tool {number}", "command": command} for number, command in enumerate(commands)]
    with pytest.raises(ConfigError, match=said):
        run_study(write_study(folder, *encoders), folder / "runs")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no data && exit 3 # {out}", "ended with 3: no data"),
        ("true # {out}", "left no folder {out}"),
        ("mkdir {out}", "made/config.json is missing"),
    ],
)
def test_a_command_that_makes_no_encoder_fails_and_is_tried_again(folder: Path, command: str, said: str):
    study = write_study(folder, {"label": "tool", "command": command, "seeds": [0]})
    for _ in range(2):
        with pytest.raises(TrainingError) as failed:
            run_study(study, folder / "runs")
        assert said in str(failed.value)


def test_costs_are_of_all_processes_also_of_one_that_is_left_behind(tmp_path: Path):
    """A shell that ends at once leaves a process in a session of its own, which burns a second and holds 100 MB."""
    mark = tmp_path / "burnt"
    burn = "import time; held = bytearray(10**8)\nwhile time.process_time() < 1: pass\n"
    burn += f'open("{mark}", "w"); time.sleep(60)'
    left = f"setsid {sys.executable} -c '{burn}' & until [ -e {mark} ]; do sleep 0.1; done; sleep 3"
    with start_measured(tmp_path, left) as running:
        assert running.wait(50) == 0
    costs = json.loads((tmp_path / "costs.json").read_text())
    assert costs["run/cpu_seconds"] > 0.9
    assert costs["run/peak_memory_mb"] > 100


def start_measured(folder: Path, command: str) -> subprocess.Popen[bytes]:
    measured = [sys.executable, "-m", "xalign_ray.studies.measured", str(folder / "costs.json"), command]
    return subprocess.Popen(measured, stdin=subprocess.PIPE)


@pytest.mark.parametrize(("is_killed", "code"), [(False, 143), (True, -9)])
def test_a_command_whose_worker_ends_leaves_no_process(tmp_path: Path, is_killed: bool, code: int):
    """Ray kills the children of a worker that it ends; the system closes their standard input, also of others."""
    mark = tmp_path / "left"
    left = f"setsid bash -c 'echo $$ > {mark}; sleep 60' & sleep 60"
    with start_measured(tmp_path, left) as running:
        while not (mark.is_file() and mark.read_text()):
            time.sleep(0.1)
        if is_killed:
            running.kill()
    assert running.returncode == code
    until = time.monotonic() + 50
    while Path("/proc", mark.read_text().strip()).exists():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_files_that_a_command_names_are_not_the_folder_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "pairs" / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAIRS", "pairs")
    for pattern in ("pairs/*.csv", "$PAIRS/*.csv"):
        assert paths_in(f"train --root . --half $((4 / 2)) --pairs={pattern} --log {tmp_path} --out {{out}}") == [
            "pairs/a.csv",
            "pairs/b.csv",
        ]
