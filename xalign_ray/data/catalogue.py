"""Knows what can be fetched and what a recipe needs of it: the catalogue, and its downloads one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Frozen
from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.config.schema import DataConfig
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError

FILE = Path(__file__).with_name("catalogue.yaml")


def _split(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def _map(value: Any) -> Any:
    value = _split(value)
    return {code: code for code in value} if isinstance(value, list) else value


class Entry(Frozen):
    """A corpus or data set of the catalogue; catalogue.yaml says what each key means."""

    title: str
    licence: str
    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    files: tuple[str, ...] = ()
    folder: str = ""
    languages: Annotated[dict[str, str], BeforeValidator(_map), Field(default_factory=dict)]
    pairs: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    unpack: Literal["no", "members", "folder"] = "no"
    sums: dict[str, tuple[int | None, str]] = Field(default_factory=dict)
    sha1_list: str | None = None


@dataclass(frozen=True)
class Download:
    """One address, and what is there below --out when it has been fetched: `files`, or a whole `folder`."""

    url: str
    languages: frozenset[str]  # none where one archive holds many
    files: tuple[str, ...]
    folder: str
    unpack: str
    bytes: int | None
    sha256: str | None
    sha1_list: str | None


@dataclass(frozen=True)
class Needs:
    """What a recipe reads: downloads by entry, paths that no entry has, and the data root it starts from."""

    downloads: dict[str, list[Download]]
    others: list[str]
    root: str


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Entry]:
    """The entries by name."""
    return {name: Entry.model_validate(entry) for name, entry in parse_yaml(FILE.read_text(encoding="utf-8")).items()}


def downloads_of(name: str, languages: Sequence[str] = ()) -> list[Download]:
    """What an entry consists of; with `languages` only what is in these, a pair if both of its own are.

    Raises:
        ConfigError: unknown name, or nothing in these languages.
    """
    if name not in catalogue():
        raise ConfigError(f"there is no '{name}' in the catalogue.{suggest(name, catalogue())} `--list` names them.")
    entry = catalogue()[name]
    found = in_languages(_downloads(entry), languages)
    if not found:
        there = ", ".join([*entry.languages, *entry.pairs])
        raise ConfigError(f"{name} has nothing in {', '.join(languages)}; the catalogue lists {there}.")
    return found


def in_languages(downloads: Iterable[Download], languages: Sequence[str]) -> list[Download]:
    """Those that are in these languages only, archives of many included; all if no language is named."""
    return [download for download in downloads if not languages or download.languages <= set(languages)]


def needs_of(recipe: str) -> Needs:
    """What a recipe reads, looked up path by path.

    Raises:
        ConfigError: there is no such recipe.
    """
    config = load_recipe(recipe).config
    found: dict[str, dict[Download, None]] = {}
    others = []
    for path in _paths(config.data):
        matches = [(name, one) for name, one in _everything() if any(fnmatchcase(file, path) for file in one.files)]
        for name, download in matches:
            found.setdefault(name, {})[download] = None
        if not matches:
            others.append(path)
    return Needs({name: list(found[name]) for name in catalogue() if name in found}, others, config.data.root)


def describe() -> str:
    """The catalogue and what each paper recipe needs of it, as text."""
    lines = ["xalign data fetch NAME --out DIR [--languages CODES], NAME being one of"]
    for name, entry in catalogue().items():
        lines += [f"  {name:21} {entry.title}; {_extent(entry)}", f"  {'':21} licence: {entry.licence}"]
    lines += ["or a recipe, for all that it reads:"]
    for recipe in (name for name in list_recipes() if name.startswith("papers/")):
        needs = needs_of(recipe)
        listed = [f"{name} ({len(downloads)} of {_count(name)})" for name, downloads in needs.downloads.items()]
        listed += [f"{path} (made here)" for path in needs.others]
        lines.append(f"  {recipe:34} {', '.join(listed)}")
    return "\n".join(lines)


def _extent(entry: Entry) -> str:
    downloads = list(_downloads(entry))
    sizes = [one.bytes for one in downloads if one.bytes]
    size = f", {sum(sizes) / 1e6:,.0f} MB" if len(sizes) == len(downloads) else ""
    what = "language" if entry.languages else "pair" if entry.pairs else "file" if entry.unpack == "no" else "archive"
    number = len(entry.languages) or len(entry.pairs) or len(entry.urls)
    return f"{number} {what}{'s' * (number > 1)}{size}"


def _count(name: str) -> int:
    return sum(1 for one, _ in _everything() if one == name)


@lru_cache(maxsize=1)
def _everything() -> list[tuple[str, Download]]:
    return [(name, download) for name, entry in catalogue().items() for download in _downloads(entry)]


def _downloads(entry: Entry) -> Iterator[Download]:
    for codes, words in _fillings(entry):

        def fill(template: str, words: dict[str, str] = words) -> str:
            return template.format(**words)

        files = tuple(map(fill, entry.files))
        for number, url in enumerate(map(fill, entry.urls)):
            size, sha256 = entry.sums.get(url.rpartition("/")[2], (None, None))
            yield Download(
                url=url,
                languages=codes,
                files=files[number : number + 1] if entry.unpack == "no" else files,
                folder=entry.folder,
                unpack=entry.unpack,
                bytes=size,
                sha256=sha256,
                sha1_list=fill(entry.sha1_list) if entry.sha1_list else None,
            )


def _fillings(entry: Entry) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    for code, theirs in entry.languages.items():
        yield frozenset([code]), {"code": code, "theirs": theirs}
    for pair in entry.pairs:
        first, second = pair.split("-")
        yield frozenset([first, second]), {"pair": pair, "first": first, "second": second}
    if not entry.languages and not entry.pairs:
        yield frozenset(), {}


def _paths(data: DataConfig) -> list[str]:
    sources = (*data.corpora, *data.parallel, *data.tests, *data.dictionaries)
    return list(dict.fromkeys(path for source in sources for path in source.paths))
