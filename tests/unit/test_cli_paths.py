"""A path that is not there is said in a sentence, with the nearest that is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.cli import main

Say = Callable[..., str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    """What a verb says where two runs and a recipe lie, having found a mistake in its arguments."""
    for name in ("tiny-mlm-0a1b2c3d", "tiny-align-mlm-9f8e7d6c"):
        (tmp_path / "runs" / name / "export").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "first.yaml").write_text("extends: tiny/mlm\n")
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["xalign", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, "")
        assert len(said.err.splitlines()) == 1
        return said.err.removeprefix("xalign: ").rstrip()

    return call


VERBS = [
    ["evaluate", "{}", "--task", "alignment"],
    ["tune", "{}", "--task", "pos", "--data", "."],
    ["export", "{}"],
    ["report", "{}"],
    ["report", "runs/tiny-align-mlm-9f8e7d6c", "{}"],
    ["track", "replay", "{}", "--to", "sqlite"],
]
PATHS = {
    "runs/tiny-mlm": "runs/tiny-mlm-0a1b2c3d",
    "runs/tiny-aling-mlm-9f8e7d6c": "runs/tiny-align-mlm-9f8e7d6c",
    "./rums/tiny-mlm-0a1b2c3d/export": "runs/tiny-mlm-0a1b2c3d/export",
}


@pytest.mark.parametrize("written", PATHS)
@pytest.mark.parametrize("verb", VERBS, ids=lambda words: "-".join(words[:2]).replace("/", "-"))
def test_a_mistyped_run_is_named_with_the_nearest_there_is(say: Say, verb: list[str], written: str) -> None:
    said = say(*[word.format(written) for word in verb])
    assert said == f"There is no folder '{Path(written)}'. Did you mean '{PATHS[written]}'?"


@pytest.mark.parametrize("verb", VERBS, ids=lambda words: "-".join(words[:2]).replace("/", "-"))
def test_what_is_no_folder_is_said(say: Say, tmp_path: Path, verb: list[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert say(*[word.format("loop") for word in verb]) == "There is no folder 'loop'."
    if verb[0] != "report":  # which takes files of scores
        said = say(*[word.format("mine/first.yaml") for word in verb])
        assert said == "There is no folder 'mine/first.yaml'. It is a file; name the folder that it lies in, mine."


OPTIONS = [["export", "mine", "--out", "{}"], ["evaluate", "mine", "--task", "x", "--data={}"]]


@pytest.mark.parametrize("verb", [*VERBS, *OPTIONS], ids=lambda words: "-".join(words).replace("/", "-"))
def test_an_empty_path_is_not_the_current_folder(say: Say, verb: list[str]) -> None:
    said = say(*[word.format("") for word in verb])
    assert said == "A path is empty, as of a variable that is not set; `.` is the current folder."


@pytest.mark.parametrize("written", ["my.csv", "mine/first.yaml"])
@pytest.mark.parametrize("verb", [["evaluate", "mine", "--task", "pos"], ["report", "mine"], ["continue", "mine"]])
def test_out_is_a_folder(say: Say, verb: list[str], written: str) -> None:
    assert say(*verb, "--out", written) == f"--out {written} is a file; name a folder to write in."


def test_a_teacher_that_is_not_there_is_refused_before_anything_is_read(say: Say) -> None:
    assert say("continue", "mine", "--method", "distill", "--teacher", "./nope/x") == "There is no folder 'nope/x'."


def test_where_nothing_is_near_nothing_is_suggested(say: Say, tmp_path: Path) -> None:
    assert say("export", "elsewhere/x") == "There is no folder 'elsewhere/x'."
    assert say("report", f"{tmp_path}/x/y/z") == "There is no folder 'x/y/z'."


@pytest.mark.parametrize("verb", [["plan"], ["pretrain"], ["config", "show"], ["data", "stats"]], ids="-".join)
def test_a_mistyped_recipe_file_is_named_with_the_nearest_file(say: Say, verb: list[str]) -> None:
    assert say(*verb, "mine/frist.yaml").startswith("There is no recipe 'mine/frist.yaml', neither a file nor a name ")
    assert "Did you mean 'mine/first.yaml'?" in say(*verb, "mine/frist.yaml")


def test_a_mistyped_study_file_is_named_with_the_nearest_file(say: Say) -> None:
    assert "Did you mean 'mine/first.yaml'?" in say("study", "mine/frist.yaml")


def test_a_name_that_a_hub_may_have_is_not_taken_for_a_path(say: Say) -> None:
    assert say("evaluate", "some/model", "--task", "tatoeba", "--out", "scores").startswith("--data is needed")
    assert say("evaluate", "bert-base-cased", "--task", "tatoeba", "--out", "scores").startswith("--data is needed")
