"""The verbs of the group `config`: recipes are listed, shown, checked and compared."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Any

import typer
import yaml

from xalign_ray.config.explain import differences
from xalign_ray.config.load import described, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.verbs.arguments import Group, RecipeName, Settings

config_app = typer.Typer(cls=Group, no_args_is_help=True, help="Recipes: list, show, check, compare.")


@config_app.command("list")
def config_list() -> None:
    """The recipes and studies of the package, each with its description."""
    # A terminal's lines are wrapped; what is piped has a line for each, to be searched.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    for number, (kind, descriptions) in enumerate(described().items()):
        typer.echo(f"\n{kind}:" if number else f"{kind}:")
        column = max(map(len, descriptions)) + 4
        for name, description in descriptions.items():
            lines = textwrap.wrap(description, max(width - column, 20))
            typer.echo(f"  {name}".ljust(column) + f"\n{' ' * column}".join(lines))


@config_app.command("show")
def config_show(recipe: RecipeName, settings: Settings = []) -> None:  # noqa: B006
    """A recipe, resolved."""
    typer.echo(yaml.safe_dump(_tree(recipe, settings), sort_keys=False, allow_unicode=True), nl=False)


@config_app.command("check")
def config_check(recipe: RecipeName, settings: Settings = []) -> None:  # noqa: B006
    """Whether a recipe can be run here: its keys, and the files that it names; starts nothing."""
    from xalign_ray.checks import check, open_named

    loaded = load_recipe(recipe, settings)
    check(loaded)
    unseen = open_named(loaded)
    typer.echo("\n".join([f"{recipe} is valid.", *filter(None, [unseen])]))


@config_app.command("diff")
def config_diff(left: RecipeName, right: RecipeName) -> None:
    """The keys in which two recipes differ."""
    for key, a, b in differences(_tree(left), _tree(right)):
        typer.echo(f"{key}: {a!r} -> {b!r}")


@config_app.command("schema")
def config_schema() -> None:
    """JSON Schema of a recipe, for editors."""
    typer.echo(json.dumps(RunConfig.model_json_schema(), indent=1))


def _tree(recipe: str, settings: list[str] | None = None) -> dict[str, Any]:
    return load_recipe(recipe, settings or []).config.model_dump(mode="json")
