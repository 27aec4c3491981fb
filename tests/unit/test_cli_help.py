"""What the command line says of itself: help without a cut sentence, the version, what the package holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from xalign_ray import __version__
from xalign_ray.cli import app
from xalign_ray.config.load import RECIPES, list_recipes, list_studies


def commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


def call(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        app(words, prog_name="xalign")
    assert not ended.value.code


def squeezed(text: str) -> str:
    """Without blanks and line ends: lines are wrapped at blanks and hyphens."""
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words) or "xalign")
def test_help_shows_every_sentence_whole(
    words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    call(*words, "--help")
    shown = capsys.readouterr().out
    command = COMMANDS[words]
    inner = [one.help for one in getattr(command, "commands", {}).values()]
    sentences = [command.help, *inner, *(one.help for one in command.params)]
    assert [sentence for sentence in sentences if squeezed(sentence) not in squeezed(shown)] == []
    assert "..." not in re.sub(r"(\[ARGS\]|\[ARGUMENTS\]|\})\.\.\.", "", shown)
    assert max(map(len, shown.splitlines())) <= columns


def test_every_verb_argument_and_option_is_explained() -> None:
    explained = [
        (words, one) for words, command in COMMANDS.items() for one in [command, *command.params] if not one.help
    ]
    assert explained == []


def test_version_is_said_without_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    call("--version")
    assert capsys.readouterr().out == f"xalign {__version__}\n"
    assert f'version = "{__version__}"' in (RECIPES.parents[1] / "pyproject.toml").read_text()


def test_config_list_describes_every_recipe_and_study(capsys: pytest.CaptureFixture[str]) -> None:
    call("config", "list")
    said = capsys.readouterr().out
    heads = [line for line in said.splitlines() if line and not line.startswith(" ")]
    assert heads == [
        "Recipes (xalign pretrain NAME):",
        "Studies (xalign study NAME):",
    ]
    rows = dict(re.findall(r"^  (\S+) +(\S.*)$", said, re.MULTILINE))
    assert {"tiny/mlm", "quickstart", "methods", "demo-pos", *list_recipes()} <= set(rows)
    assert "base/tiny" not in rows
    assert rows["tiny/mlm"] == "Masked language modelling on the embedded world: the baseline of every comparison."
    assert len(re.findall("^  ", said, re.MULTILINE)) == len(list_recipes()) + len(list_studies()), "piped, each a line"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_first_line_of_a_recipe_file_describes_it(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(r"# [A-Za-z].*[.?]", first), first
    assert "METHODS" not in first
