"""The commands and the Python API have the same parameters; a command shows its result, and then what to do next."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import xalign_ray as xa
from xalign_ray import pretraining
from xalign_ray.align import corpus
from xalign_ray.cli import app
from xalign_ray.derive import corpus as derived_corpus
from xalign_ray.errors import ConfigError
from xalign_ray.sources import fetch
from xalign_ray.train import cluster, distributed
from xalign_ray.verbs.data import data_align, data_derive, data_fetch
from xalign_ray.work.artifacts import LOCK
from xalign_ray.work.status_line import forget_next, say_next, show

COMMANDS: Any = typer.main.get_command(app)
VERBS = ["continue_encoder", "evaluate", "export", "plan", "prepare", "pretrain", "report", "study", "tune", "verify"]


@pytest.mark.parametrize("name", VERBS)
def test_command_and_python_call_have_the_same_parameters(name: str) -> None:
    command = COMMANDS.commands["continue" if name == "continue_encoder" else name]
    assert [one.name for one in command.params] == list(inspect.signature(getattr(xa, name)).parameters)


def test_recipe_is_loaded_or_named_with_settings() -> None:
    named = xa.plan("tiny/mlm", "train.max_steps=7")
    assert named == xa.plan(xa.load_recipe("tiny/mlm", "train.max_steps=7")) != xa.plan("tiny/mlm")
    with pytest.raises(ConfigError, match=r"^seed=1: tiny/mlm is loaded already; give settings to load_recipe\.$"):
        xa.plan(xa.load_recipe("tiny/mlm"), "seed=1")


def test_prices_are_a_mapping_or_as_on_the_command_line() -> None:
    by_name, as_typed = (xa.plan("tiny/mlm", on="8xH100", prices=prices) for prices in ({"H100": 2.5}, ["H100=2.5"]))
    assert by_name == as_typed != xa.plan("tiny/mlm", on="8xH100")


def test_result_is_on_stdout_and_what_to_do_next_is_said_last(capsys: pytest.CaptureFixture[str]) -> None:
    own = typer.Typer(callback=forget_next, result_callback=show)

    @own.command("verb")
    def verb(folder: Path) -> list[Any]:
        say_next("this")
        return [folder, "text"]

    own.command("quiet")(lambda: None)
    with pytest.raises(SystemExit):
        own(["verb", "x"])
    assert tuple(capsys.readouterr()) == ("x\ntext\n", "Next: this\n")
    say_next("that")
    with pytest.raises(SystemExit):
        own(["quiet"])
    assert tuple(capsys.readouterr()) == ("", ""), "what a program was not told, no later command says"


def test_only_a_command_keeps_the_memory_that_a_step_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(distributed, "keep_freed_memory", lambda: kept.append("memory"))
    monkeypatch.setattr(pretraining, "pretrain", lambda *_: Path("run"))
    xa.pretrain("tiny/mlm", local=True)
    assert kept == []
    with pytest.raises(SystemExit):
        app(["pretrain", "tiny/mlm", "--no-ray"])
    assert kept == ["memory"]


def align(out: Path) -> None:
    data_align([str(out / "a.en"), str(out / "a.de")], "en,de", out)


@pytest.mark.parametrize(
    "verb",
    [lambda out: data_derive(["text:x"], out), lambda out: data_fetch("muse", out), align],
    ids=["derive", "fetch", "align"],
)
def test_folder_of_data_is_locked_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Path], object]
) -> None:
    locked: list[bool] = []
    for module, name in ((derived_corpus, "write_derived"), (fetch, "fetch"), (corpus, "align_corpus")):
        monkeypatch.setattr(module, name, lambda *_, **__: locked.append((tmp_path / LOCK).is_file()) or [])
    monkeypatch.setattr(corpus, "write_words", lambda *_: None)
    monkeypatch.setattr(cluster, "connect", lambda _: None)
    verb(tmp_path)
    assert locked == [True]
    assert not (tmp_path / LOCK).exists()
