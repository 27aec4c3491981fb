"""Task files that are Hugging Face data sets: a folder or configuration a language, a Parquet or Arrow file a split."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import langcodes
from huggingface_hub.constants import REPOCARD_NAME

from xalign_ray.data.sources.column_languages import language_of_name
from xalign_ray.data.sources.columnar import open_arrow, open_parquet
from xalign_ray.data.sources.hub import SPLITS, config_names, data_files, saved_files, saved_splits
from xalign_ray.errors import DataError

SUFFIXES = (".parquet", ".arrow", ".jsonl")
DOWNLOAD = "Download one of the hub first: hf download ORG/NAME --repo-type dataset --local-dir DIR"


def find_tables(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Language, split (train, dev or test) and file of the data sets in a folder; none if there are none.

    A folder that `save_to_disk` wrote is called by its language; so are folders of these below `folder`, and the
    configurations that the README of a copy from the hub lists.

    Raises:
        DataError: a split has several files.
    """
    for saved in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for split, path in saved_splits(saved).items():
            yield from _table(saved.name, split, saved_files(path), str(saved))
    readme = folder / REPOCARD_NAME
    if readme.is_file() and "\nconfigs:" in readme.read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0]:
        for name in config_names(str(folder)):
            kind, by_split = data_files(str(folder), name)
            if kind in ("parquet", "arrow", "json"):
                for split, files in by_split.items():
                    yield from _table(name.rsplit(".", 1)[-1], split, files, f"{folder}, configuration {name}")


def _table(name: str, split: str, files: Sequence[str], what: str) -> Iterator[tuple[str, str, Path]]:
    language = plain_language(name)
    if not language or split.lower() not in SPLITS:
        return
    if len(files) > 1:
        raise DataError(f"{what}: the split {split} lies in {len(files)} files. Save it again as one (num_shards=1).")
    if Path(files[0]).suffix in SUFFIXES:
        yield language, SPLITS[split.lower()], Path(files[0])


def plain_language(name: str) -> str:
    """The language that a name means, without the script that it usually has: `yor_Latn` is yo; empty if none."""
    code = language_of_name(name)
    if code.count("-") != 1:
        return code
    language, script = code.split("-")
    usual = langcodes.Language.get(language).maximize().script
    return language if script == usual else code


def is_table(path: Path) -> bool:
    """Whether a task file is one of a data set."""
    return path.suffix in SUFFIXES


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, with the names of labels in place of their numbers where the file has these.

    Raises:
        DataError: it cannot be read.
    """
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if path.suffix == ".parquet":
        with open_parquet(str(path)) as file:
            table, schema = file.read().to_pylist(), file.schema_arrow
    else:
        with open_arrow(str(path)) as (schema, batches):
            table = [row for batch in batches for row in batch.to_pylist()]
    named = {name: _names(feature) for name, feature in _features(schema).items()}
    return [{key: _named(value, named.get(key)) for key, value in row.items()} for row in table]


def _features(schema: Any) -> dict[str, Any]:
    """What `datasets` wrote of the columns into the file."""
    written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return written.get("info", {}).get("features") or {}


def _names(feature: Any) -> list[str] | None:
    """The names of a ClassLabel, or of those in a list."""
    if not isinstance(feature, dict):
        return None
    return feature["names"] if feature.get("_type") == "ClassLabel" else _names(feature.get("feature"))


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def column_in(path: Path, rows: Sequence[dict[str, Any]], wanted: Sequence[str]) -> str:
    """The first of some columns that is there.

    Raises:
        DataError: none is; names those that there are.
    """
    there = list(rows[0]) if rows else []
    found = next((name for name in wanted if name in there), "")
    if not found:
        raise DataError(f"{path} has no column {' or '.join(wanted)}; it has {', '.join(there) or 'no rows'}.")
    return found
