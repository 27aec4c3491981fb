"""The arguments and options that verbs share: their help, and what the shell is offered to complete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from xalign_ray.config.explain import flatten
from xalign_ray.config.load import list_recipes, list_studies, load_recipe
from xalign_ray.config.sources import PairFormat, TextFormat
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.papers import FROM
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.tasks import TASK_NAMES, TUNED_TASK_NAMES
from xalign_ray.work.local_paths import absolute_model, absolute_path

PAIR_FORMATS = get_args(PairFormat)
SCALES = ("tiny", "small", "paper")  # of the studies in folders
TUNE_SETTINGS = [FROM, *FineTuning.model_fields]
DICTIONARY_FORMATS = ("muse", "tsv_terms", "csv_terms", "tbx", "tei", "dix", "kaikki", "panlex")
FORMATS = (*get_args(TextFormat), *PAIR_FORMATS, *DICTIONARY_FORMATS)

ANY_RECIPE = "tiny/mlm"  # whose keys stand for those of a recipe that is not known yet

Complete = Callable[[str], list[str]]


class Group(TyperGroup):
    """Lists its verbs with their whole help, where typer cuts it at the end of the line."""

    def format_commands(self, _: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])


class ManyFiles(TyperCommand):
    """Takes several values after one option: `--pairs a.tsv b.tsv` is `--pairs a.tsv --pairs b.tsv`, as of a glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        many = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        option, is_first = "", True
        for word in args:
            if word.startswith("-") and word != "-":
                option, is_first = word if word in many else "", True
            elif option:
                spread += [] if is_first else [option]
                is_first = False
            spread.append(word)
        return super().parse_args(ctx, spread)


def as_local(value: Any) -> Any:
    """A callback of arguments and options: their local paths, absolute."""
    if isinstance(value, list):
        return [absolute_path(path) for path in value]
    return None if value is None else absolute_path(value)


def as_model(value: Any) -> Any:
    """A callback of models: folders as absolute paths, hub ids as they are."""
    if isinstance(value, list):
        return [absolute_model(name) for name in value]
    return None if value is None else absolute_model(value)


def codes(languages: str) -> list[str]:
    """The words of an option that separates them by commas."""
    return [code for code in languages.split(",") if code]


def one_of(names: Iterable[str]) -> Complete:
    """Completes to those of the names that begin as what is written."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _recipes(incomplete: str) -> list[str]:
    return one_of(list_recipes())(incomplete)


def _studies(incomplete: str) -> list[str]:
    return one_of(list_studies())(incomplete)


def _fetched(incomplete: str) -> list[str]:
    from xalign_ray.data.catalogue import catalogue

    return one_of([*catalogue(), *list_recipes()])(incomplete)


def _languages(incomplete: str) -> list[tuple[str, str]]:
    """The last of the codes that are separated by commas, with the language's name."""
    from xalign_ray.text.language_codes import NAMES

    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{code}", name) for name, code in NAMES.items() if code.startswith(last)]


def _keys(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The keys of the recipe that is written already, with their values; of another one where there is none yet."""
    written = ctx.args[:1]  # what the parser leaves when it meets an option without its value
    with suppress(ConfigError, OSError):
        return _keys_of(written[0] if written else ANY_RECIPE, incomplete)
    return _keys_of(ANY_RECIPE, incomplete)


def _keys_of(recipe: str, incomplete: str) -> list[tuple[str, str]]:
    tree = flatten(load_recipe(recipe).config.model_dump(mode="json"))
    # typer breaks what is longer into lines, which fish takes for words to offer
    return [(f"{key}=", shorten(str(value), 60)) for key, value in tree.items() if key.startswith(incomplete)]


RecipeName = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="a name (`xalign config list`) or a YAML file", autocompletion=_recipes),
]
StudyName = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="a name (`xalign config list`) or a YAML file", autocompletion=_studies),
]
RecipeOrFolder = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FOLDER", callback=as_model, help="a recipe, a run, or prepared data", autocompletion=_recipes
    ),
]
Fetched = Annotated[
    str, typer.Argument(metavar="NAME", help="of a corpus or a recipe (--list)", autocompletion=_fetched)
]
Model = Annotated[str, typer.Argument(metavar="MODEL", callback=as_model, help="a run, an exported folder or a hub id")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", callback=as_local, help="the folder of a run")]
Paths = Annotated[
    list[str], typer.Argument(metavar="PATH", callback=as_local, help="files of the format, or what globs name")
]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="override a key of the recipe", autocompletion=_keys)
]
StudySettings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="a key of the study, or of each recipe in it", autocompletion=_keys
    ),
]
TuneSettings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help=f"a value or a list to search: {', '.join(TUNE_SETTINGS)}",
        autocompletion=one_of([f"{name}=" for name in TUNE_SETTINGS]),
    ),
]
Task = Annotated[
    str, typer.Option(metavar="TASK", help=f"one of {', '.join(TASK_NAMES)}", autocompletion=one_of(TASK_NAMES))
]
TunedTask = Annotated[
    str,
    typer.Option(
        metavar="TASK",
        help=f"one of {', '.join(TUNED_TASK_NAMES)}",
        autocompletion=one_of(TUNED_TASK_NAMES),
    ),
]
Languages = Annotated[
    str,
    typer.Option(metavar="CODES", help="languages to score, separated by commas", autocompletion=_languages),
]
TrainLanguage = Annotated[
    str,
    typer.Option(
        metavar="CODE", help="another than English is scored on itself: supervised", autocompletion=_languages
    ),
]
SourceLanguages = Annotated[str, typer.Option(metavar="CODES", help="separated by commas", autocompletion=_languages)]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help=", ".join(FORMATS), autocompletion=one_of(FORMATS))
]
ParallelFormat = Annotated[
    str, typer.Option("--format", metavar="NAME", help=", ".join(PAIR_FORMATS), autocompletion=one_of(PAIR_FORMATS))
]
Trust = Annotated[
    bool, typer.Option("--trust", help="load checkpoint files that can run code: only those of people you trust")
]
Rehash = Annotated[bool, typer.Option("--rehash", help="read all inputs again, whatever is remembered of them")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", callback=as_local, help="where to write instead of the default")
]
OutDir = Annotated[Path, typer.Option("--out", metavar="DIR", callback=as_local, help="where to write")]
