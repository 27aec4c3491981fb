"""The commands of the group `config`: recipes are listed, shown, checked and compared."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Any

import yaml

from xalign_ray.config.explain import differences
from xalign_ray.config.load import described, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.verbs.command import group
from xalign_ray.verbs.options import RecipeName, Settings

app = group("Recipes: list, show, check, compare.")


@app.command("list")
def config_list() -> list[str]:
    """The recipes and studies of the package, each with its description."""
    # Lines are wrapped in a terminal; piped output has one line a recipe, for grep.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    shown = []
    for kind, descriptions in described().items():
        shown += [f"\n{kind}:" if shown else f"{kind}:"]
        column = max(map(len, descriptions)) + 4
        for name, description in descriptions.items():
            lines = textwrap.wrap(description, max(width - column, 20))
            shown += [f"  {name}".ljust(column) + f"\n{' ' * column}".join(lines)]
    return shown


@app.command("show")
def config_show(recipe: RecipeName, settings: Settings = []) -> str:
    """A recipe, resolved."""
    return yaml.safe_dump(_tree(recipe, settings), sort_keys=False, allow_unicode=True).rstrip("\n")


@app.command("check")
def config_check(recipe: RecipeName, settings: Settings = []) -> list[str]:
    """Whether a recipe can be run here: its keys, and the files that it names; starts nothing."""
    from xalign_ray.checks import check_named_files, check_recipe

    loaded = load_recipe(recipe, settings)
    check_recipe(loaded)
    unseen = check_named_files(loaded)
    return [f"{recipe} is valid.", *filter(None, [unseen])]


@app.command("diff")
def config_diff(left: RecipeName, right: RecipeName) -> list[str]:
    """The keys in which two recipes differ."""
    return [f"{key}: {a!r} -> {b!r}" for key, a, b in differences(_tree(left), _tree(right))]


@app.command("schema")
def config_schema() -> str:
    """JSON Schema of a recipe, for editors."""
    return json.dumps(RunConfig.model_json_schema(), indent=1)


def _tree(recipe: str, settings: list[str] = []) -> dict[str, Any]:
    return load_recipe(recipe, settings).config.model_dump(mode="json")
