"""Loads a recipe: `extends`, then the file itself, then `--set`; remembers the file of each key"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import langcodes
import yaml
from langcodes.tag_parser import LanguageTagError
from pydantic import BaseModel, ValidationError

from xalign_ray.config.explain import explain_validation, suggest_file, types_in
from xalign_ray.config.language_codes import check_language, is_language, script_and_region
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import HF
from xalign_ray.config.training import AdamW
from xalign_ray.config.yaml_text import parse_value, parse_yaml
from xalign_ray.errors import ConfigError
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import expand_home

_QUOTES = ('"', "'")


def read_setting(schema: type[BaseModel], key: str, text: str) -> Any:
    """The value of a key.

    A text key takes `my #1`, `[v2]`, `2020` and `~/runs` literally; quotes around the whole text are YAML's, and `null`
    or nothing unsets a key that may be unset.

    Args:
        schema: of the tree that the key is in.
        key: dotted, such as `data.corpora.0.language`.
        text: what follows the equals sign.

    Raises:
        yaml.YAMLError: another key than a text key has a value that is not YAML, or has a comment.
    """
    kinds: list[Any] = [schema]
    for part in key.split("."):
        kinds = [inside for kind in kinds for inside in types_in(kind, part)]
    if str not in kinds or set(kinds) - {str, types.NoneType}:
        return parse_value(text)
    if text[:1] in _QUOTES and text[-1:] == text[:1] and len(text) > 1:
        try:
            return parse_value(text)
        except yaml.YAMLError:
            return text
    return None if types.NoneType in kinds and text in ("", "null") else text


OF_TEXT, OF_PAIRS = ("language",), ("first", "second")  # what `{...}` in a path stands for


def each_written(tree: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """A recipe whose entries of many languages are written out, one for each.

    Text: `languages: [de, fr]` in place of `language`, and `{language}` in each path. Pairs and dictionaries: a list in
    place of one of the two languages, or of both, and `{first}` or `{second}` in a path; a language is not paired with
    itself. `{language3}` is the code of three letters, hau for ha. A Hugging Face data set (format hf) finds each by
    name. A list that is written out already stays.

    Args:
        tree: the recipe.
        origin: what messages name as its file.

    Raises:
        ConfigError: languages are listed, but none, or the paths do not differ by language.
    """
    data = tree.get("data")
    if not isinstance(data, Mapping):
        return dict(tree)
    written = {
        key: [
            item
            for number, entry in enumerate(data[key])
            for item in _each_language(entry, names, f"{origin}: data.{key}.{number}")
        ]
        for key, names in _LISTED.items()
        if isinstance(data.get(key), list)
    }
    return {**tree, "data": {**data, **written}}


_LISTED = {"corpora": OF_TEXT, **dict.fromkeys(("parallel", "tests", "dev", "dictionaries"), OF_PAIRS)}


def _each_language(entry: Any, names: Sequence[str], place: str) -> Iterator[Any]:
    """An entry for each language, or each pair of two different ones, that an entry lists."""
    languages = entry.get("languages") if isinstance(entry, Mapping) else None
    sides: list[Any] = []
    if names == OF_TEXT:
        sides = [] if languages is None else [languages]
    elif isinstance(languages, list) and len(languages) == len(names):
        sides = languages if any(isinstance(side, list) for side in languages) else []
    if not sides:
        yield entry
        return
    for side in sides:
        is_list = isinstance(side, list) and bool(side) and all(isinstance(code, str) for code in side)
        if names == OF_TEXT and (not is_list or "language" in entry):
            raise ConfigError(f"{place}: write language with one code, or languages with a list of codes; not both.")
        if not is_list and not isinstance(side, str):
            raise ConfigError(f"{place}: each side of languages is a code, or a list of codes; it is {side!r}.")
    paths = entry.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConfigError(f"{place}: paths is {paths!r}; write a list of paths.")
    for name, side in zip(names, sides, strict=True):
        if (
            isinstance(side, list)
            and entry.get("format") != HF  # whose configurations are called by languages
            and not any(f"{{{name}}}" in path or f"{{{name}3}}" in path for path in paths)
        ):
            raise ConfigError(
                f"{place} lists {len(side)} languages, and no path of it holds {{{name}}}: each would read the same "
                "files."
            )
    for codes in product(*([side] if isinstance(side, str) else side for side in sides)):
        filled = paths
        for name, code in zip(names, codes, strict=True):
            three = _three_letters(code)
            filled = [path.replace(f"{{{name}}}", code).replace(f"{{{name}3}}", three) for path in filled]
        rest = {key: value for key, value in entry.items() if key != "languages"} | {"paths": filled}
        if names == OF_TEXT:
            yield rest | {"language": codes[0]}
        elif codes[0] != codes[1]:
            yield rest | {"languages": list(codes)}


def _three_letters(code: str) -> str:
    """A language's code in ISO 639-3, as Masakhane's folders are called (ha is hau); the code itself if it has none."""
    try:
        return langcodes.Language.get(code).to_alpha3()
    except (LookupError, LanguageTagError):
        return code


OPTIMIZER, ADAMW = "optimizer", {"kind": AdamW().kind}
RECIPES = Path(__file__).resolve().parent.parent / "recipes"
STUDIES = RECIPES / "studies"
COMMAND_LINE = "--set"
# Of a run's config.yaml, besides a recipe's keys.
RUN_KEYS = frozenset(("recipe", "fingerprint", "inputs", "column", "label", "sha256"))
_OF_LANGUAGES = ("language", "languages")  # keys whose values are codes


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe: its name (for run folders), the tree, and the file that set each dotted key."""

    name: str
    config: RunConfig
    origins: Mapping[str, str]


def list_recipes() -> list[str]:
    """Names of the recipes in the package that can be run; `base/` and `methods/` are only extended."""
    return [name for name in _names() if not name.startswith(("base/", "methods/", "studies/"))]


def _names() -> list[str]:
    """Names of all that is in the folder of recipes."""
    return sorted([*arms(), *(recipe_name(path) for path in RECIPES.rglob("*.yaml") if not _is_table(path))])


def _is_table(path: Path) -> bool:
    return path.name.endswith(".arms.yaml")


@cache
def arms() -> dict[str, dict[str, Any]]:
    """The recipes that are rows of tables (`*.arms.yaml`), by name.

    Where a row holds `{key}`, it stands for a recipe for each entry of `over: {key: {name: value}}`: `{key}` is the
    name, `{key.value}` the value.
    """
    tables: dict[str, dict[str, Any]] = {}
    for path in filter(_is_table, RECIPES.rglob("*.yaml")):
        table = read_mapping(path)
        for name, row in table["arms"].items():
            template = json.dumps([name, row])
            over = {key: entries for key, entries in table.get("over", {}).items() if f"{{{key}}}" in template}
            for chosen in product(*(entries.items() for entries in over.values())):
                text = template
                for key, (short, value) in zip(over, chosen, strict=True):
                    text = text.replace(f'"{{{key}.value}}"', json.dumps(value))
                    text = text.replace(f"{{{key}.value}}", str(value)).replace(f"{{{key}}}", str(short))
                written, tree = json.loads(text)
                tables[recipe_name(path.with_name(f"{written}.yaml"))] = tree
    return tables


def list_studies() -> list[str]:
    """Names of the package's studies, with the scale where there are several."""
    return sorted(path.relative_to(STUDIES).with_suffix("").as_posix() for path in STUDIES.rglob("*.yaml"))


def described() -> dict[str, dict[str, str]]:
    """What can be run by name, by the verb that runs it: name and description, the first comment line of its file."""
    return {
        "Recipes (xalign pretrain NAME)": {name: _describe(name) for name in list_recipes()},
        "Studies (xalign study NAME)": {name: _describe(f"studies/{name}") for name in list_studies()},
    }


def _describe(name: str) -> str:
    if name in arms():
        return arms()[name]["about"]
    with (RECIPES / f"{name}.yaml").open(encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()


def load_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """Resolves a recipe by name or path. The config.yaml of a run is one, of the name that the run's recipe has.

    Precedence: schema default < `extends` left to right < the recipe < `settings` (`a.b=c`).
    Mappings merge, lists replace.

    Raises:
        ConfigError: naming file, key and nearest valid key, for anything invalid.
    """
    path = find_recipe(name)
    saved = _saved_identity(read_mapping(path))
    return _resolve(*_read(path, seen=()), str(path), str(saved.get("recipe", recipe_name(path))), settings)


def resolve_tree(own: Mapping[str, Any], origin: str, name: str, settings: Sequence[str] = ()) -> Recipe:
    """Resolves a recipe that is not in a file, its `extends` included, as `load_recipe` does one that is.

    Args:
        own: the content of the recipe's file.
        origin: what messages name in place of the file.
        name: of the recipe.

    Raises:
        ConfigError: as `load_recipe`.
    """
    return _resolve(*_extended(dict(own), origin, None, seen=()), origin, name, settings)


def _resolve(tree: dict[str, Any], origins: dict[str, str], origin: str, name: str, settings: Sequence[str]) -> Recipe:
    for setting in sorted(settings, key=lambda one: f".{OPTIMIZER}.kind=" not in one):  # which empties its block
        apply_setting(tree, origins, setting, RunConfig)
    try:
        config = RunConfig.model_validate(_one_code_a_language(each_written(tree, origin)))
    except ValidationError as error:
        raise ConfigError(explain_validation(error, RunConfig, origins, default_origin=origin)) from None
    return Recipe(name, config, origins)


_say_once = cache(say)


def _one_code_a_language(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe in which a language has the code of its first source; changes are reported."""
    first: dict[tuple[str, str], str] = {}

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: renamed(inner, name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [renamed(inner, key) for inner in value]
        if key not in _OF_LANGUAGES or not isinstance(value, str) or not is_language(value):
            return value
        code = check_language(value)
        if (earlier := first.setdefault(script_and_region(code), code)) != code:
            _say_once(f"{code} is read as {earlier}: both are in this recipe, and are one language in one script.")
        return earlier

    data = tree.get("data")
    if isinstance(data, Mapping):
        renamed([data.get(key) for key in ("corpora", "parallel", "dictionaries")])
    return renamed(tree)


def recipe_name(path: Path) -> str:
    """`tiny/mlm` for a recipe of the package, the file's stem for any other."""
    if path.is_relative_to(RECIPES):
        return path.relative_to(RECIPES).with_suffix("").as_posix()
    return path.stem


def find_recipe(name: str, extended_by: Path | None = None) -> Path:
    """The file of a recipe given by path or by name; `extended_by` is the file that extends it."""
    written = Path(expand_home(name))
    candidates = [written, RECIPES / f"{name}.yaml"]
    if extended_by is not None:
        candidates = [extended_by.parent / name, extended_by.parent / f"{name}.yaml", *candidates]
    for candidate in candidates:
        if candidate.is_file() or recipe_name(candidate) in arms():
            return candidate.resolve()
    said_by = f"{extended_by} extends" if extended_by else "There is no recipe"
    raise ConfigError(
        f"{said_by} '{name}', neither a file nor a name in the package.{suggest_file(name, _names())} "
        "`xalign config list` names the recipes."
    )


def find_study(name: str) -> Path:
    """The file of a study given by path or by name; ConfigError if there is none, or it is there at several scales."""
    path = next((path for path in (Path(expand_home(name)), STUDIES / f"{name}.yaml") if path.is_file()), None)
    if path is not None:
        return path
    studies = list_studies()
    if scales := [study.removeprefix(f"{name}/") for study in studies if study.startswith(f"{name}/")]:
        named = ", ".join(scales)
        raise ConfigError(f"The study '{name}' is there at several scales; add --scale with one of {named}.")
    raise ConfigError(
        f"There is no study '{name}', neither a file nor a name in the package.{suggest_file(name, studies)} "
        f"The package has {', '.join(studies)}."
    )


def _read(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    if path in seen:
        raise ConfigError(f"{path} extends itself: {' -> '.join(p.name for p in (*seen, path))}.")
    tree = read_mapping(path)
    tree = {key: value for key, value in tree.items() if key not in _saved_identity(tree)}
    return _extended(tree, str(path), path, (*seen, path))


def _saved_identity(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run's config.yaml that identify the run; empty of a recipe that a person wrote."""
    return {key: tree[key] for key in tree if key in RUN_KEYS} if "fingerprint" in tree else {}


def read_mapping(path: Path) -> dict[str, Any]:
    """The keys of a YAML file, or of the row of a table that the package has in its place.

    Raises:
        ConfigError: it is not YAML, or no mapping.
    """
    if not path.is_file() and (row := arms().get(recipe_name(path))):
        return deepcopy({key: value for key, value in row.items() if key != "about"})  # --set writes into it
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not YAML: its byte {error.start} is not UTF-8.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must be a mapping of keys to values; it is a {type(tree).__name__}.")
    return tree


def _extended(
    child: dict[str, Any], origin: str, path: Path | None, seen: tuple[Path, ...]
) -> tuple[dict[str, Any], dict[str, str]]:
    child = each_written(child, origin)
    extends = child.pop("extends", [])
    extends = [extends] if isinstance(extends, str) else extends
    if not isinstance(extends, list) or not all(isinstance(name, str) for name in extends):
        raise ConfigError(f"{origin}: extends is {extends!r}; write the name of a recipe, or a list of names.")
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in extends:
        base, base_origins = _read(find_recipe(name, extended_by=path), seen)
        tree = merge(tree, base)
        origins |= base_origins
    origins |= dict.fromkeys(_dotted(child), origin)
    return merge(tree, child), origins


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge: mappings merge key by key, lists and values are replaced, and so is a block of another `kind`."""
    if "kind" in over and "kind" in under and over["kind"] != under["kind"]:
        return dict(over)
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if key == OPTIMIZER and isinstance(below, Mapping) and isinstance(value, Mapping) and "kind" in value:
            below = {**ADAMW, **below}  # which a recipe need not write
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")


def apply_setting(tree: dict[str, Any], origins: dict[str, str], setting: str, schema: type[BaseModel]) -> None:
    """Puts the value of a `key=value` of the command line into a tree of the schema, and notes where it came from."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting}: write it as key=value, for example --set train.max_steps=100.")
    try:
        value = read_setting(schema, key, text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {setting}: the value is not YAML; quote it.") from None
    at: Any = tree
    keys = key.split(".")
    for depth, name in enumerate(keys):
        path = ".".join(keys[:depth])
        if isinstance(at, list):
            if not (name.isascii() and name.isdigit()) or int(name) >= len(at):
                raise ConfigError(f"--set {setting}: the list has entries 0 to {len(at) - 1}, not '{name}'.")
        elif not isinstance(at, dict):
            raise ConfigError(f"--set {setting}: {path} is a value ({at!r}), not a block.")
        elif name.isdigit() and path and not at:
            raise ConfigError(
                f"--set {setting}: the recipe leaves {path} at its default; write the whole list instead."
            )
        part: Any = int(name) if isinstance(at, list) else name
        if depth < len(keys) - 1:
            if isinstance(at, dict) and at.get(part) is None:
                at[part] = {}
            at = at[part]
    if keys[-2:] == [OPTIMIZER, "kind"] and isinstance(at, dict) and value != at.get("kind", ADAMW["kind"]):
        at.clear()  # the rate of one optimizer is not that of another
    at[part] = value
    origins[key] = COMMAND_LINE
