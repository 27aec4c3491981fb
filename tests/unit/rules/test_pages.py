"""The README and docs/ do not lie: the tree is the tree, commands, recipes and linked files exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import typer
from pydantic import BaseModel

from tests.unit.rules.file_tree import read_block, render
from tests.unit.rules.tree import PACKAGE, ROOT, UNTRACKED, markdown_pages
from xalign_ray.cli import app
from xalign_ray.config.load import RECIPES, arms, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.track.events import METRICS

README_LINES = 150  # what one reads before trying it; the rest is in docs/
HISTORY = ROOT / "CHANGELOG.md"  # names what there was
PAGES = {path: path.read_text(encoding="utf-8") for path in markdown_pages() if path != HISTORY}
README = ROOT / "README.md"
TEXT = "\n".join(PAGES.values())
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
WRITTEN = {
    name
    for text in PAGES.values()
    for name in re.findall(r"^# (?:xalign_ray/recipes/(?=\S+/\S))?(\S+\.yaml)$", text, re.M)
}
WRITTEN |= {name.removesuffix(".yaml") for name in WRITTEN}


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def used_verbs() -> list[list[str]]:
    """Each `xalign ...` of the pages, in blocks and in the running text, and each `python jobs/VERB.py ...`."""
    inline = [code for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", TEXT) if code.startswith("xalign ")]
    used = []
    for line in [*LINES, *inline]:
        words = words_of(line)
        if words[:1] == ["xalign"]:
            used.append(words[1:])
        used += [[Path(words[at]).stem, *words[at + 1 :]] for at in range(len(words)) if words[at].startswith("jobs/")]
    return [own for words in used if words and (own := submitted(words))]


def submitted(words: list[str]) -> list[str]:
    """The verb that is submitted to a cluster, after the options of `submit`; itself where none is."""
    own = words[1:] if words[0] == "submit" else words
    while own[:1] in (["--address"], ["--name"]):
        own = own[2:]
    return words[:1] if own[:1] in ([], ["VERB"], ["follow"], ["stop"]) else own


def find_verb(words: list[str]) -> tuple[str, ...] | None:
    return next((verb for verb in VERBS if tuple(words[: len(verb)]) == verb), None)


def test_the_tree_names_every_file_with_its_first_sentence() -> None:
    assert read_block() == render(), "renew it: python -m tests.unit.rules.file_tree"


def test_the_readme_is_short_and_the_pages_of_the_site_are_looked_at() -> None:
    assert len(PAGES[README].splitlines()) <= README_LINES
    assert {ROOT / "docs" / "index.md", ROOT / "docs" / "reference" / "recipe.md"} <= set(PAGES)


def test_the_pages_use_the_command_line() -> None:
    assert len(used_verbs()) >= 30


@pytest.mark.parametrize("words", used_verbs(), ids=" ".join)
def test_each_command_exists_and_takes_its_options(words: list[str]) -> None:
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
        if not name.isupper() and name not in WRITTEN:  # a name that stands for any; one that a tutorial writes
            load_recipe(name)


def keys_of(block: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key of a recipe, dotted; entries of lists by a star."""
    for name, field in block.model_fields.items():
        yield before + name
        inner, star = blocks_of(field.annotation), ".*" * (get_origin(field.annotation) is tuple)
        for one in inner:
            yield from keys_of(one, f"{before}{name}{star}.")


def blocks_of(annotation: Any) -> list[type[BaseModel]]:
    own = [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
    return [*own, *chain.from_iterable(map(blocks_of, get_args(annotation)))]


KEYS = set(keys_of(RunConfig))


def test_each_key_in_the_text_is_one_of_a_recipe() -> None:
    blocks = "|".join(key for key in RunConfig.model_fields if f"{key}." in "".join(sorted(KEYS)))
    named = set(re.findall(rf"(?:`|--set )((?:{blocks})(?:\.\w+)+)(?=[`:= ])", TEXT))
    assert len(named) > 30
    assert [key for key in sorted(named) if re.sub(r"\.\d+", ".*", key) not in KEYS] == []


def test_each_recipe_in_the_text_is_one_of_the_package() -> None:
    named = set(re.findall(r"`((?:tiny|base|real|small|derived|papers|studies)/[\w-]+)`", TEXT))
    assert named
    assert [name for name in sorted(named) if name not in arms() and not (RECIPES / f"{name}.yaml").is_file()] == []


def test_each_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)\b", TEXT, flags=re.MULTILINE))
    assert {"quickstart", "test", "check", "bench"} <= named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_linked_file_exists(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page]) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_line_is_a_comment_by_chance(page: Path) -> None:
    """MyST leaves out a line that begins with a percent sign, such as one that was wrapped behind "25"."""
    assert [line for line in PAGES[page].splitlines() if line.lstrip().startswith("%")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_file_and_metric_that_is_named_exists(page: Path) -> None:
    """Files of code and tests, from the repository's root or from the package."""
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)(?:\*)?`", PAGES[page])
    folders = {path.name for top in (ROOT, PACKAGE) for path in top.iterdir() if path.is_dir()}
    tracked = {name for name in named if not UNTRACKED & set(name.split("/"))}
    ours = {name for name in tracked if name.partition("/")[0] in folders} - set(METRICS)
    places = (ROOT, PACKAGE, PACKAGE / "recipes")
    assert [name for name in sorted(ours) if not any((place / name).exists() for place in places)] == []
