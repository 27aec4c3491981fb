"""The README does not lie: its tree is the tree, its commands and recipes exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from tests.unit.rules.readme_tree import README, read_block, render
from tests.unit.rules.tree import ROOT
from xalign_ray.cli import app
from xalign_ray.config.load import RECIPES, load_recipe

TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:bash|sh)\n(.*?)```", TEXT, flags=re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def commands(
    tree: typer.core.TyperGroup | None = None, before: tuple[str, ...] = ()
) -> dict[tuple[str, ...], set[str]]:
    """Every verb, with the options that it takes."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, command in (tree or typer.main.get_command(app)).commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            found |= commands(command, (*before, name))
        else:
            found[(*before, name)] = {option for one in command.params for option in one.opts}
    return found


VERBS = commands()


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def used_verbs() -> list[list[str]]:
    """Each `xalign ...` of the README, in blocks and in the running text, and each `python jobs/VERB.py ...`."""
    inline = [code for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", TEXT) if code.startswith("xalign ")]
    used = []
    for line in [*LINES, *inline]:
        words = words_of(line)
        if "xalign" in words:
            used.append(words[words.index("xalign") + 1 :])
        used += [[Path(words[at]).stem, *words[at + 1 :]] for at in range(len(words)) if words[at].startswith("jobs/")]
    return [words[1:] if words[0] == "submit" else words for words in used if words]


def find_verb(words: list[str]) -> tuple[str, ...] | None:
    return next((verb for verb in VERBS if tuple(words[: len(verb)]) == verb), None)


def test_the_tree_names_every_file_with_its_first_sentence() -> None:
    assert read_block() == render(), "renew it: python -m tests.unit.rules.readme_tree"


def test_the_readme_uses_the_command_line() -> None:
    assert len(used_verbs()) >= 10


@pytest.mark.parametrize("words", used_verbs(), ids=" ".join)
def test_each_command_exists_and_takes_its_options(words: list[str]) -> None:
    words = words[2:] if words[0] == "--address" else words
    groups = {verb[0] for verb in VERBS if len(verb) > 1}
    if len(words) == 1 and (words[0] in groups or words[0] == "--help"):
        return
    verb = find_verb(words)
    assert verb, f"xalign {' '.join(words)}"
    options = {word for word in words if word.startswith("--")}
    assert options <= VERBS[verb] | {"--help"}


def test_each_recipe_that_a_command_names_resolves() -> None:
    takes_a_recipe = ("prepare", "plan", "pretrain", "config check", "config show")
    named = [
        words[len(verb)]
        for words in used_verbs()
        if (verb := find_verb(words)) and " ".join(verb) in takes_a_recipe and len(words) > len(verb)
    ]
    assert named
    for name in named:
        if name not in ("RECIPE", "recipe.yaml"):
            load_recipe(name)


def test_each_recipe_in_the_text_is_one_of_the_package() -> None:
    named = set(re.findall(r"`((?:tiny|base|real|derived|papers|sweeps)/[\w-]+)`", TEXT))
    assert named
    assert [name for name in sorted(named) if not (RECIPES / f"{name}.yaml").is_file()] == []


def test_each_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", TEXT))
    assert {"quickstart", "test", "check", "bench"} <= named
    assert named <= targets


def test_each_linked_file_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
