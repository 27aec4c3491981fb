"""`xalign continue` as it is typed: several files after an option, mistakes before anything starts, jobs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from xalign_ray.cli import app, main
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.verbs.continue_encoder import five_lines_of

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    """Calls the command line in an empty folder: exit code and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["xalign", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return call


def test_several_files_may_follow_one_option() -> None:
    command = typer.main.get_command(app).commands["continue"]  # type: ignore[attr-defined]
    words = [
        "e5",
        "--pairs",
        "a.csv",
        "b.csv",
        "--steps",
        "3",
        "--keep",
        "c.csv",
        "--pairs",
        "d.csv",
        "--set",
        "seed=1",
    ]
    lines = five_lines_of(command.make_context("continue", words).params)
    assert (lines.pairs, lines.keep, lines.steps) == (("a.csv", "b.csv", "d.csv"), ("c.csv",), 3)
    assert (lines.model, lines.set) == ("e5", ("seed=1",))


@pytest.mark.parametrize(
    "given",
    [
        {"pairs": ["a.csv", "b c.csv"], "languages": ["en", "de"], "where": "score>=0.8"},
        {"pairs": ["a.csv"], "allow_unknown": 0.5, "keep_best": False},
        {"text": ["de=a.txt"], "hours": 0.12345678, "price": ["H100=2.5"], "set": ["seed=1"]},
    ],
)
def test_the_command_of_lines_is_read_as_the_same_lines(given: dict[str, Any]) -> None:
    lines = read_five_lines("e5", given)
    command = typer.main.get_command(app).commands["continue"]  # type: ignore[attr-defined]
    assert five_lines_of(command.make_context("continue", shlex.split(lines.command)[2:]).params) == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["./gone", "--pairs", "a.csv"], "there is no folder './gone'"),
        (["mine.yaml"], "There is no file mine.yaml"),
        (["e5", "--method", "contrst"], "Did you mean 'contrast'?"),
        (["e5", "--budget", "3"], "budget needs the price of an hour of the device"),
        (["e5", "--languages", "en"], "give two, as in languages en,de"),
    ],
)
def test_mistakes_are_said_in_a_sentence_with_exit_code_2(say: Say, words: list[str], said: str) -> None:
    code, text = say("continue", *words)
    assert code == 2
    assert said in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["e5", "--pairs", "my.csv", "--out", "/shared/runs/x"], "--pairs my.csv: the cluster's nodes do not see it."),
        (
            ["e5", "--pairs", "/shared/my.csv"],
            "--out is 'runs': in a Ray job a relative path lies in the uploaded copy",
        ),
        (["e5", "--text", "de=de.txt", "--out", "/shared/x"], "--text de=de.txt: the cluster's nodes do not see it."),
        (["e5", "--method", "contrst"], "Did you mean 'contrast'?"),
    ],
)
def test_what_cannot_run_in_a_job_is_refused_before_a_machine_is_asked(say: Say, words: list[str], said: str) -> None:
    code, text = say("submit", "--address", "http://127.0.0.1:1", "continue", *words)
    assert code == 2
    assert said in text


def test_first_line_comes_within_a_second_of_quiet_cpu(tmp_path: Path) -> None:
    """The line comes before the imports that take seconds: in CPU time, as tests share this machine."""
    script = (
        "import sys, time\n"
        "from xalign_ray.cli import main\n"
        "class First:\n"
        "    def write(self, text):\n"
        "        sys.__stdout__.write(f'{time.process_time():.2f} {text}'); sys.__stdout__.flush(); sys.exit(0)\n"
        "    def flush(self): pass\n"
        "    def isatty(self): return False\n"
        "sys.stderr = First()\n"
        "sys.argv = ['xalign', 'continue', './gone', '--pairs', 'a.csv']\n"
        "main()\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    seconds, _, line = done.stdout.partition(" ")
    assert line.startswith("Continuing ./gone: looking at the encoder and the data."), (done, time.monotonic() - began)
    assert float(seconds) < 1
