"""Finds the files of Hugging Face data sets: local snapshots, folders of `save_to_disk`, and data sets of the hub.

`datasets` says which files make a split of a configuration; they are read as any others of their form, so that those of
the hub are streamed and kept nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.language_id import language_of_name, same_language
from xalign_ray.sources.records import list_some

SPLITS = {
    "train": "train", "training": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev",
    "devel": "dev", "test": "test", "testing": "test", "devtest": "test",
}  # fmt: skip
HUB_TIMEOUT_S = 10.0
MAX_LISTED = 12  # configurations that a message names
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_KINDS = ("parquet", "json", "csv", "arrow", "text")  # of datasets' builders: those whose files hold text


@dataclass(frozen=True)
class FoundFiles:
    """The files of one split, and their form: parquet, json, csv, arrow or text."""

    kind: str
    files: list[str]


def is_hub_id(name: str) -> bool:
    """Whether a name has the shape of a data set's on the hub: org/name."""
    return bool(_HUB_ID.fullmatch(name))


def find_split(name: str, languages: Sequence[str], config: str | None, split: str, revision: str | None) -> FoundFiles:
    """The files of a data set's split.

    Args:
        name: a folder (a snapshot of a data set, or what `save_to_disk` wrote), or the id of a data set of the hub.
        languages: of the text; without `config` the configuration is taken that is called by them: `yor_Latn`,
            `20231101.yo`, `en-yo`.
        revision: a branch, tag or commit of the hub.

    Raises:
        ConfigError: there is no such configuration or split, or several are possible; names those that there are.
        DataError: there is no such data set, or it cannot be reached, or its files are of a form that is not read.
    """
    folder = cached_snapshot(Path(name))
    name = str(folder) if folder.is_dir() else name
    if folder.is_dir() and (saved := find_saved(folder, split)):
        return saved
    if not folder.is_dir() and not is_hub_id(name):
        raise DataError(f"{name} is no folder here, and no id of a data set of the Hugging Face hub (org/name).")
    if not folder.is_dir() and _is_offline():
        files = fetch_dataset(name, config, split)
        held = Path(files[0]).parent.name  # `datasets` calls the folder by the commit
        if revision not in (None, held):
            raise DataError(
                f"{name}: HF_HUB_OFFLINE is set, and the cache holds the commit {held}, which may not be the revision "
                f"{revision}. Unset it once, or name that commit."
            )
        return FoundFiles("arrow", files)
    chosen = config or choose_config(name, config_names(name, revision), languages)
    kind, by_split = data_files(name, chosen, revision)
    if kind not in _KINDS:
        raise DataError(f"{name}: its files are of the form '{kind}'; read here are {', '.join(_KINDS)}.")
    return FoundFiles(kind, by_split[choose_split(name, list(by_split), split)])


def find_split_of_each(name: str, languages: Sequence[str], split: str, revision: str | None) -> list[FoundFiles]:
    """The files of a split of each language, where it has a configuration of its own and the languages together have
    none, as FLORES+ has (`eng_Latn`, `yor_Latn`); else nothing.

    Raises:
        ConfigError, DataError: as find_split; a split lies in several files.
    """
    folder = cached_snapshot(Path(name))
    name = str(folder) if folder.is_dir() else name
    if saved_splits(folder) or saved_files(folder) or (not folder.is_dir() and (not is_hub_id(name) or _is_offline())):
        return []
    names = config_names(name, revision)
    of_each = [any(means_languages(entry, [code]) for entry in names) for code in languages]
    if not all(of_each) or any(means_languages(entry, languages) for entry in names):
        return []
    splits = [find_split(name, [code], None, split, revision) for code in languages]
    if several := next((entry for entry in splits if len(entry.files) > 1), None):
        raise DataError(f"{name}: the split {split} of a language lies in {len(several.files)} files; pairs need one.")
    return splits


def fetch_snapshot(name: str) -> Path:
    """The folder of a data set of the hub in the hub's cache, fetched if it is not there.

    Raises:
        DataError: it is not there and cannot be fetched; with the reason.
    """
    from huggingface_hub import snapshot_download

    with _explained(name):
        return Path(snapshot_download(name, repo_type="dataset", local_files_only=_is_offline()))


def cached_snapshot(folder: Path) -> Path:
    """The files of a data set in a folder of the hub's cache (`datasets--ORG--NAME`); any other folder itself."""
    reference = folder / "refs" / "main"
    if reference.is_file() and (folder / "snapshots").is_dir():
        return folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
    return folder


def saved_splits(folder: Path) -> dict[str, Path]:
    """The folders of the splits that `save_to_disk` wrote of a DatasetDict, by their names; empty if it is none."""
    record = folder / "dataset_dict.json"
    splits = json.loads(record.read_text(encoding="utf-8")).get("splits", []) if record.is_file() else []
    return {split: folder / split for split in splits}


def saved_files(folder: Path) -> list[str]:
    """The Arrow files of one data set that `save_to_disk` wrote; none if the folder is no such.

    Raises:
        DataError: it was saved without data, or with an index of its rows.
    """
    if not (folder / "state.json").is_file():
        return []
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    files = [str(folder / entry["filename"]) for entry in state.get("_data_files", [])]
    if not files:
        raise DataError(f"{folder} is a saved data set without data files. Save it again.")
    if state.get("_indices_data_files"):
        raise DataError(
            f"{folder} was saved with an index of its rows, by an old version of `datasets`. Save it again."
        )
    return files


def find_saved(folder: Path, split: str) -> FoundFiles | None:
    """The files of a split in a folder that `save_to_disk` wrote, of one data set or of several splits, or None."""
    if splits := saved_splits(folder):
        folder = splits[choose_split(str(folder), list(splits), split)]
    files = saved_files(folder)
    return FoundFiles("arrow", files) if files else None


def choose_split(name: str, splits: Sequence[str], wanted: str) -> str:
    """The split that is wanted, by its name or another of the same meaning (`validation` for dev), or the only one.

    Raises:
        ConfigError: there are others only.
    """
    standard = SPLITS.get(wanted.lower(), wanted)
    fitting = [candidate for candidate in splits if candidate == wanted] or [
        candidate for candidate in splits if SPLITS.get(candidate.lower(), candidate) == standard
    ]
    fitting = fitting or list(splits) * (len(splits) == 1 and wanted == "train")
    if not fitting:
        raise ConfigError(f"{name} has the splits {', '.join(splits)}, none of which is '{wanted}'. Name one of them.")
    return fitting[0]


def choose_config(name: str, names: Sequence[str], languages: Sequence[str]) -> str | None:
    """The only configuration, the one that is called by the languages, or None for the data set's default.

    Raises:
        ConfigError: several are called by the languages, or none is and there is no default.
    """
    if len(names) == 1:
        return names[0]
    fitting = [config_name for config_name in names if means_languages(config_name, languages)]
    if not fitting and "default" in names:
        return "default"
    if len(fitting) != 1:
        what = "several configurations" if fitting else "no configuration"
        raise ConfigError(
            f"{name} has {what} of {' and '.join(languages)} by name: {list_some(fitting or names, MAX_LISTED)}. Name "
            "one with config."
        )
    return fitting[0]


def means_languages(config: str, languages: Sequence[str]) -> bool:
    """Whether a configuration's name is its languages, in any order: `yor_Latn`, `PAN-X.yo`, `eng-yor`, `en_yo`."""
    name = config.rsplit(".", 1)[-1]
    if len(languages) == 1:
        code = language_of_name(name)
        return bool(code) and same_language(code, languages[0])
    pairs = (re.split(mark, name) for mark in ("-", "_", "_to_|-to-"))
    written = [[*map(language_of_name, pair)] for pair in pairs if len(pair) == len(languages)]
    orders = languages, languages[::-1]
    return any(all(codes) and any(all(map(same_language, codes, order)) for order in orders) for codes in written)


@lru_cache(maxsize=64)
def config_names(name: str, revision: str | None = None) -> tuple[str, ...]:
    """The configurations of a data set."""
    import datasets

    with _explained(name, revision):
        return tuple(datasets.get_dataset_config_names(name, revision=revision))


@lru_cache(maxsize=4096)
def data_files(name: str, config: str | None, revision: str | None = None) -> tuple[str, Mapping[str, list[str]]]:
    """The form of a configuration's files as `datasets` calls it, and its files by split: paths or URLs."""
    import datasets

    with _explained(name, revision):
        builder = datasets.load_dataset_builder(name, config, revision=revision)
        files: Mapping[Any, Sequence[Any]] = builder.config.data_files or {}  # type: ignore[assignment]
        return builder.name, {str(split): list(map(str, several)) for split, several in files.items()}


def fetch_dataset(repository: str, configuration: str | None, split: str) -> list[str]:
    """The Arrow files of a data set's split in the cache of `datasets`, loaded if they are not there.

    Raises:
        DataError: it cannot be loaded; with the reason.
    """
    import datasets

    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with _explained(repository):
            loaded: Mapping[str, Any] = datasets.load_dataset(repository, configuration)  # type: ignore[assignment]
        data = loaded[choose_split(repository, list(loaded), split)]
    finally:
        if not bars:
            datasets.enable_progress_bars()
    return [str(cached["filename"]) for cached in data.cache_files]


def _is_offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


@contextmanager
def _explained(name: str, revision: str | None = None) -> Any:
    """Asks whether the hub has a data set, where it is none of a folder; what `datasets` raises becomes a sentence."""
    from huggingface_hub import HfApi

    try:
        if not _is_offline() and not Path(name).is_dir():
            HfApi().dataset_info(name, revision=revision, timeout=HUB_TIMEOUT_S)  # datasets tries for half a minute
        yield
    except (ConfigError, DataError):
        raise
    except Exception as error:  # of the hub, its client and its readers: their errors have no common class
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if Path(name).is_dir():
            raise DataError(f"{name} cannot be read as a snapshot of a Hugging Face data set: {reason}") from None
        raise DataError(
            f"{name} is no file or folder here, and cannot be loaded as a data set of the Hugging Face hub: "
            f"{reason.rstrip('.')}. Check the name (org/name or org/name:config) and the connection; with "
            "HF_HUB_OFFLINE=1 what was loaded before is read."
        ) from None
