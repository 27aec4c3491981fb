"""One entry of a recipe for many languages: written once, with the languages listed and named in its paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from xalign_ray.errors import ConfigError

SIDES: tuple[str, str] = ("first", "second")


def each_written(tree: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """A recipe whose entries of many languages are written out, one for each.

    Text: `languages: [de, fr]` in place of `language`, and `{language}` in each path. Pairs and dictionaries: a list in
    place of one of the two languages, or of both, and `{first}` or `{second}` in a path; a language is not paired with
    itself. What is written out already stays as it is.

    Args:
        tree: the recipe.
        origin: what messages name as its file.

    Raises:
        ConfigError: languages are listed, but none, or the paths do not tell them apart.
    """
    data = tree.get("data")
    if not isinstance(data, Mapping):
        return dict(tree)
    written = {
        key: [one for number, entry in enumerate(data[key]) for one in each(entry, f"{origin}: data.{key}.{number}")]
        for key, each in _EACH.items()
        if isinstance(data.get(key), list)
    }
    return {**tree, "data": {**data, **written}}


def _each_text(entry: Any, place: str) -> Iterator[Any]:
    if not isinstance(entry, Mapping) or "languages" not in entry:
        yield entry
        return
    languages = entry["languages"]
    if not _is_list_of_codes(languages) or "language" in entry:
        raise ConfigError(f"{place}: write language with one code, or languages with a list of codes, and not both.")
    _check_paths(entry, {"language": languages}, place)
    rest = {key: value for key, value in entry.items() if key != "languages"}
    for language in languages:
        yield {**rest, "language": language, "paths": _named(entry["paths"], {"language": language})}


def _each_pair(entry: Any, place: str) -> Iterator[Any]:
    sides = entry.get("languages") if isinstance(entry, Mapping) else None
    if not isinstance(sides, list) or len(sides) != len(SIDES) or not any(isinstance(side, list) for side in sides):
        yield entry
        return
    for side in sides:
        if not isinstance(side, str) and not _is_list_of_codes(side):
            raise ConfigError(f"{place}: each side of languages is a code, or a list of codes; it is {side!r}.")
    listed = {name: side for name, side in zip(SIDES, sides, strict=True) if isinstance(side, list)}
    _check_paths(entry, listed, place)
    for pair in product(*([side] if isinstance(side, str) else side for side in sides)):
        if pair[0] != pair[1]:
            names = dict(zip(SIDES, pair, strict=True))
            yield {**entry, "languages": list(pair), "paths": _named(entry["paths"], names)}


_EACH = {"corpora": _each_text, "parallel": _each_pair, "dictionaries": _each_pair}


def _is_list_of_codes(languages: Any) -> bool:
    return isinstance(languages, list) and bool(languages) and all(isinstance(code, str) for code in languages)


def _check_paths(entry: Mapping[str, Any], listed: Mapping[str, Any], place: str) -> None:
    """Refuses paths that are the same for each of the languages listed."""
    paths = entry.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConfigError(f"{place}: paths is {paths!r}; write a list of paths.")
    for name in listed:
        if not any(f"{{{name}}}" in path for path in paths):
            raise ConfigError(
                f"{place} lists {len(listed[name])} languages, and no path of it holds {{{name}}}: "
                "each would read the same files."
            )


def _named(paths: list[str], names: Mapping[str, str]) -> list[str]:
    for name, language in names.items():
        paths = [path.replace(f"{{{name}}}", language) for path in paths]
    return paths
