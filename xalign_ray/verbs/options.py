"""Options and arguments of the command line: help, parsers, completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, get_args

import typer

from xalign_ray.config.explain import flatten
from xalign_ray.config.load import list_recipes, list_studies, load_recipe
from xalign_ray.config.sources import DictionaryFormat, PairFormat, TextFormat
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FROM, FineTuning
from xalign_ray.tasks import TASK_NAMES, TUNED_TASK_NAMES
from xalign_ray.verbs.arguments import filled_path, output_folder

PAIR_FORMATS = get_args(PairFormat)
SCALES = ("tiny", "small", "two-cores", "one-h100", "paper")  # of the studies in folders
TUNE_SETTINGS = [FROM, *FineTuning.model_fields]
FORMATS = tuple(dict.fromkeys((*get_args(TextFormat), *PAIR_FORMATS, *get_args(DictionaryFormat))))

ANY_RECIPE = "tiny/mlm"  # completes keys before a recipe is typed

Complete = Callable[[str], list[str]]


def path_option(metavar: str, help_text: str, *flags: str) -> Any:
    """An option that is a path; the empty one is refused."""
    return typer.Option(*flags, metavar=metavar, help=help_text, parser=filled_path)


def one_of(names: Iterable[str]) -> Complete:
    """Completes to the names that begin with the typed text."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _recipes(incomplete: str) -> list[str]:
    return one_of(list_recipes())(incomplete)


def _studies(incomplete: str) -> list[str]:
    return one_of(list_studies())(incomplete)


def _fetched(incomplete: str) -> list[str]:
    from xalign_ray.sources.fetch import catalogue

    return one_of([*catalogue(), *list_recipes()])(incomplete)


def _languages(incomplete: str) -> list[tuple[str, str]]:
    """The last of the codes that are separated by commas, with the language's name."""
    from xalign_ray.config.language_codes import NAMES

    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{code}", name) for name, code in NAMES.items() if code.startswith(last)]


def _keys(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The keys of the recipe that is written already, with their values; of another one where there is none yet."""
    written = ctx.args[:1]  # the parser stops at an option without its value
    with suppress(ConfigError, OSError):
        return _keys_of(written[0] if written else ANY_RECIPE, incomplete)
    return _keys_of(ANY_RECIPE, incomplete)


def _keys_of(recipe: str, incomplete: str) -> list[tuple[str, str]]:
    tree = flatten(load_recipe(recipe).config.model_dump(mode="json"))
    # typer wraps longer ones, and fish would offer each line
    return [(f"{key}=", shorten(str(value), 60)) for key, value in tree.items() if key.startswith(incomplete)]


def _recipe(metavar: str, help_text: str) -> Any:
    return typer.Argument(metavar=metavar, help=help_text, autocompletion=_recipes)


def _codes(help_text: str, metavar: str = "CODES") -> Any:
    return typer.Option(metavar=metavar, help=help_text, autocompletion=_languages)


def _listed(names: Sequence[str], metavar: str, *flags: str, prefix: str = "") -> Any:
    help_text = f"{prefix}{', '.join(names)}"
    return typer.Option(*flags, metavar=metavar, help=help_text, autocompletion=one_of(names))


def set_keys(help_text: str, complete: Callable[..., Any] = _keys) -> Any:
    """The option `--set`."""
    return typer.Option("--set", metavar="KEY=VALUE", help=help_text, autocompletion=complete)


RecipeName = Annotated[str, _recipe("RECIPE", "a name (`xalign config list`) or a YAML file")]
RecipeOrFolder = Annotated[str, _recipe("RECIPE|FOLDER", "a recipe, a run, or prepared data")]
StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="a name (`xalign config list`) or a YAML file", autocompletion=_studies)
]
Fetched = Annotated[
    str, typer.Argument(metavar="NAME", help="of a corpus or a recipe (--list)", autocompletion=_fetched)
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="a run, an exported folder or a hub id")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run", parser=filled_path)]
Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="files of the format, or what globs name")]
Settings = Annotated[list[str], set_keys("override a key of the recipe")]
Task = Annotated[str, _listed((*TASK_NAMES, "mteb:NAME"), "TASK", prefix="one of ")]
TunedTask = Annotated[str, _listed(TUNED_TASK_NAMES, "TASK", prefix="one of ")]
Languages = Annotated[str, _codes("languages to score, separated by commas")]
TrainLanguage = Annotated[str, _codes("another than English is scored on itself: supervised", "CODE")]
SourceLanguages = Annotated[str, _codes("separated by commas")]
Format = Annotated[str, _listed(FORMATS, "NAME", "--format")]
ParallelFormat = Annotated[str, _listed(PAIR_FORMATS, "NAME", "--format")]
Local = Annotated[bool, typer.Option("--no-ray", help="train without Ray, in this process or under torchrun")]
Trust = Annotated[
    bool, typer.Option("--trust", help="load checkpoint files that can run code: only those of people you trust")
]
Rehash = Annotated[bool, typer.Option("--rehash", help="read all inputs again instead of trusting cached hashes")]
Prices = Annotated[
    list[str], typer.Option("--price", metavar="DEVICE=NUMBER", help="of an hour of a device, such as H100=2.5")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="where to write instead of the default", parser=output_folder),
]
OutDir = Annotated[Path, typer.Option("--out", metavar="DIR", help="where to write", parser=output_folder)]
