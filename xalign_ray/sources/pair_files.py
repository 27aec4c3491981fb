"""Files of pairs below the paths that a user names: folders, saved `datasets`, splits, and data sets of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.column_languages import language_of_file
from xalign_ray.sources.first_rows import ROWS, FirstRows, look_at_arrow, look_at_file, look_at_texts
from xalign_ray.sources.hub import SPLITS, choose_split, fetch_dataset, find_saved
from xalign_ray.sources.open import expand
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import is_url

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")
_FILE_SUFFIX = re.compile(
    r"\.(csv|tsv|txt|tab|jsonl?|parquet|arrow|tmx|xlf|xliff|sdlxliff|po|pot|xlsx|zip|tar|tgz|gz|bz2|zst|[a-z]{2,3})$",
    re.IGNORECASE,
)
_NOTES = re.compile(
    r"\.|(readme|licen[sc]e|copying|changelog|citation|notice|authors|manifest|checksums?|sha256sums?|md5sums?)\b"
    r"|.*\.(md|rst|ya?ml|html?|py|sh|pdf|lock|ids|xml|bib|log|toml)$|(dataset_infos?|dataset_dict|state)\.json$"
    r"|.*\.(mo|pot)$|__MACOSX$",
    re.IGNORECASE,
)
_SHARD = re.compile(r"\d{3,}(-of-\d{3,})?")


def find_first_rows(paths: Sequence[str], split: str = "train") -> list[FirstRows]:
    """Looks at each source below the paths.

    Args:
        paths: files, glob patterns, URLs, folders, saved `datasets` folders, or ids of data sets of the hub.
        split: the one that is taken of folders and data sets that have several.

    Raises:
        ConfigError: it is not clear which files belong together.
        DataError: a path is not there, or is no data.
    """
    found: list[FirstRows] = []
    files: list[str] = []
    for path in paths:
        if is_url(path) or Path(path).is_file():
            files += expand(path)
        elif Path(path).is_dir():
            saved = find_saved(Path(path), split)
            found += [look_at_arrow(saved.files, "saved data set")] if saved else []
            files += [] if saved else _files_below(Path(path), split)
        elif _HUB_ID.fullmatch(path) and not _FILE_SUFFIX.search(path):
            found.append(_of_hub(path, split))
        else:
            files += expand(path)
    texts: list[str] = []
    for together in _shards(files):
        first = look_at_file(together[0])
        if first is None:
            texts += together
        else:
            found.append(replace(first, paths=tuple(together)))
    return [*_catalogues(found), *_text_groups(texts)]


def _catalogues(found: Sequence[FirstRows]) -> list[FirstRows]:
    """The same sources; files of translation programs that are in the same languages are one.

    Catalogues without a translation, or from English into English, are left out where there are others.

    Raises:
        DataError: a catalogue holds no translation, and is the only source.
    """
    idle = [one for one in found if one.format == "po" and (not one.rows or one.names[0] == one.names[1])]
    if idle and len(idle) == len(found):
        raise DataError(f"{idle[0].title} holds no translation into another language: its entries are empty or fuzzy.")
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        say(f"{idle[0].title}{more}: left out, without a translation into another language")
    groups: dict[object, FirstRows] = {}
    for place, one in enumerate(found):
        key = (one.format, one.names) if one.format in ("po", "xliff") else place
        if one not in idle:
            groups[key] = _joined(groups[key], one) if key in groups else one
    return list(groups.values())


def _joined(first: FirstRows, other: FirstRows) -> FirstRows:
    rows = first.rows + other.rows
    is_whole = first.is_whole and other.is_whole and len(rows) <= ROWS
    return replace(first, paths=first.paths + other.paths, rows=rows[:ROWS], is_whole=is_whole)


def _shards(files: Sequence[str]) -> list[list[str]]:
    """Files whose names differ in a long number only, as `train-00000-of-00002.parquet`, together."""
    groups: dict[str, list[str]] = {}
    for path in dict.fromkeys(files):
        folder, _, name = path.rpartition("/")
        groups.setdefault(f"{folder}/{_SHARD.sub('#', name)}", []).append(path)
    return list(groups.values())


def _files_below(folder: Path, split: str) -> list[str]:
    """The files of a folder that may hold pairs, of one split where their names say which they are of."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(map(_NOTES.match, path.relative_to(folder).parts))
    ]
    if not files:
        raise DataError(f"{folder} is a folder without files of pairs. Check the path.")
    splits = {path: _split_of(path, folder) for path in files}
    named = list(dict.fromkeys(one for one in splits.values() if one))
    if not named:
        return list(map(str, files))
    chosen = choose_split(str(folder), named, split)
    return [str(path) for path in files if splits[path] == chosen]


def _split_of(path: Path, folder: Path) -> str:
    """Of a file, by a word of its name or of the folders above: nothing if none is the name of a split."""
    words = [word.lower() for part in path.relative_to(folder).parts for word in re.split(r"[._\-]", part)]
    return next((SPLITS[word] for word in words if word in SPLITS), "")


def _text_groups(texts: Sequence[str]) -> Iterator[FirstRows]:
    """Files of plain text by what their names share: those of one text in several languages together.

    Raises:
        ConfigError: it is not clear which of them translate each other.
    """
    groups: dict[str, dict[str, str]] = {}
    for path in texts:
        code, before = language_of_file(path)
        folder = os.path.dirname(path)
        group = groups.setdefault(f"{folder}/{before}" if code else path, {})
        if code in group:
            raise ConfigError(f"{group[code]} and {path} are both '{code}' by their names. Give one of them.")
        group[code or Path(path).name] = path
    alone = [name for name, group in groups.items() if len(group) == 1]
    if len(alone) == 2 and len(texts) == 2:
        first, second = (next(iter(groups[name].items())) for name in alone)
        names = (first[0], second[0]) if first[0] != second[0] else (first[1], second[1])
        yield look_at_texts({names[0]: first[1], names[1]: second[1]})
        return
    if alone:
        raise ConfigError(_explain_alone([next(iter(groups[name].values())) for name in alone], len(texts)))
    yield from (look_at_texts(group) for group in groups.values())


def _explain_alone(paths: Sequence[str], count: int) -> str:
    if count == 1:
        return (
            f"{paths[0]} is plain text. Give the file of its translations too, line by line, or a table with a column "
            "for each language."
        )
    named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return (
        f"{named}: which files of plain text translate each other cannot be seen from their names. Call them alike but "
        "for the language (x.en, x.de), or give two files."
    )


def _of_hub(name: str, split: str) -> FirstRows:
    """A data set of the Hugging Face hub, brought into its cache by `datasets`.

    Raises:
        DataError: there is none of this name, or the hub cannot be reached.
    """
    repository, _, configuration = name.partition(":")
    return look_at_arrow(fetch_dataset(repository, configuration or None, split), "data set of the hub")
