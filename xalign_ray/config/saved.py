"""The config.yaml of a run folder, and whether the other files of the folder have the fingerprint that it gives."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xalign_ray.config.explain import check_folder, differences, explain_validation
from xalign_ray.config.identity import INPUTS, deciding_keys, saved_fingerprint
from xalign_ray.config.load import RUN_KEYS, Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.work.artifacts import finished_run, whole_json, write_atomic
from xalign_ray.work.credentials import hide_credentials
from xalign_ray.work.file_checks import read_plain
from xalign_ray.work.run_folder import CONFIG, EVALUATION, EXPORT, SCORES, RunFolder

HINT = "Give the `xalign pretrain` of this run again: it writes the file anew."
_SEAL = "sha256: "  # of all lines before it
_SHOWN = 4  # keys in which two runs differ


def describe_saved(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the config.yaml of a run.

    Args:
        inputs: as `inputs_of` gives them.
    """
    tree = {**recipe.config.model_dump(mode="json"), INPUTS: dict(inputs)}
    return {"recipe": recipe.name, "fingerprint": saved_fingerprint(tree), **tree}


def write_saved(folder: Path, saved: Mapping[str, Any]) -> None:
    """Writes the config.yaml of a run."""
    text = yaml.safe_dump(dict(saved), sort_keys=False, allow_unicode=True)
    write_atomic(RunFolder(folder).config, f"{text}{_SEAL}{_hash(text)}\n")


def read_saved(folder: Path) -> dict[str, Any]:
    """The keys of a run's config.yaml; empty if there is none.

    Raises:
        DataError: it is torn, empty or changed, or missing though the run has finished; or another file in the folder
            is of another run.
    """
    saved = _read_config(folder)
    if "fingerprint" in saved:
        check_files_of_run(folder, saved["fingerprint"])
    return saved


def _read_config(folder: Path) -> dict[str, Any]:
    path = RunFolder(folder).config
    try:
        text = read_plain(path)
        saved = parse_yaml(hide_credentials(text))
    except FileNotFoundError:
        if finished_run(folder):
            raise DataError(f"{path} is missing. {HINT}") from None
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}. {HINT}") from None
    if not isinstance(saved, dict) or not saved:
        raise DataError(f"{path} is damaged: it is no whole tree of keys. {HINT}")
    if not saved.keys() & RUN_KEYS:
        return saved
    body, _, seal = text.rpartition(_SEAL)
    if seal != f"{_hash(body)}\n":
        raise DataError(f"{path} is damaged: it was torn or changed after it was written. {HINT}")
    del saved[_SEAL.rstrip(": ")]
    if (computed := saved_fingerprint(saved)) != saved["fingerprint"]:
        raise DataError(
            f"{path} has the fingerprint {saved['fingerprint'][:8]}, and its keys give {computed[:8]}: it was changed, "
            "or written by another version of xalign. Restore it from a copy, or use that version."
        )
    return saved


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def run_folders(output: Path, name: str) -> list[Path]:
    """The default folders of the runs of a recipe's name, newest first."""
    return sorted(output.glob(f"{name}-{'[0-9a-f]' * 8}"), key=lambda run: run.stat().st_mtime, reverse=True)


def open_saved(folder: Path) -> tuple[Recipe, str]:
    """The recipe of a run folder, and the run's fingerprint.

    Raises:
        ConfigError: there is no such folder.
        DataError: it has no config.yaml, or one that is damaged or of another version, or a file of another run.
    """
    check_folder(folder)
    saved = read_saved(folder)
    if "recipe" not in saved:
        raise DataError(f"{folder} is not a run folder: it has no {CONFIG} of a run.")
    try:
        config = RunConfig.model_validate({key: saved[key] for key in saved if key not in RUN_KEYS})
    except ValidationError as error:
        first, *_ = explain_validation(error, RunConfig).splitlines()
        raise DataError(f"{RunFolder(folder).config} is damaged: {first} {HINT}") from None
    return Recipe(saved["recipe"], config, {}), saved["fingerprint"]


def check_files_of_run(folder: Path, fingerprint: str) -> None:
    """Refuses a run folder in which a whole and valid file is of another run.

    Raises:
        DataError: names the file and both fingerprints.
    """
    for path, other in _fingerprints_in(RunFolder(folder)):
        if not fingerprint.startswith(str(other)):
            raise DataError(
                f"{path} is of another run: its fingerprint is {str(other)[:8]}, that of {folder / CONFIG} is "
                f"{fingerprint[:8]}. Restore it from a copy, or remove it and give the command that made it again."
            )


def _fingerprints_in(run: RunFolder) -> Iterator[tuple[Path, str]]:
    """Files that name their run, with its fingerprint or the begin of that; damaged files are left out."""
    if manifest := finished_run(run.path):
        yield run.manifest, manifest["fingerprint"]
    with suppress(OSError, ValueError, AttributeError), run.events.open(encoding="utf-8") as log:
        yield run.events, json.loads(log.readline()).get("fingerprint", "")
    for export in (run.export, *run.path.glob(f"{EXPORT}_step_*")):
        file = export / "config.json"
        yield file, (whole_json(file) or {}).get("xalign_fingerprint", "")
    for file in run.path.glob(f"{EVALUATION}/*/{SCORES}"):
        with suppress(AttributeError, TypeError):
            for run_name in {score.get("run") for score in (whole_json(file) or {}).get("scores", ())}:
                named = re.fullmatch(r".*-([0-9a-f]{8})", run_name or "")
                yield file, named[1] if named else ""


def check_identity(folder: Path, saved: Mapping[str, Any]) -> None:
    """Refuses a folder that holds another run; a damaged config.yaml is written anew, since the manifest has it too.

    Args:
        saved: the keys of the config.yaml that the run is to have.

    Raises:
        ConfigError: the run in the folder has another fingerprint, or its config.yaml is of no run.
        DataError: another file in the folder is of another run.
    """
    before: dict[str, Any] = {}
    with suppress(DataError):
        before = _read_config(folder)
    before = before or finished_run(folder) or {}
    run, fingerprint = RunFolder(folder), saved["fingerprint"]
    if run.config.exists() and "fingerprint" not in before and not run.events.exists():
        raise ConfigError(f"{run.config} is there, and is of no run. Give another --out.")
    if before and (other := str(before.get("fingerprint"))) != fingerprint:
        where = f" They differ in {_differences(before, saved)}." if INPUTS in before else ""
        raise ConfigError(
            f"{folder} holds a run of {before.get('recipe')} with fingerprint {other[:8]}; this recipe's is "
            f"{fingerprint[:8]}.{where} Give another --out, or remove the folder to start over."
        )
    check_files_of_run(folder, fingerprint)


def _differences(saved: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The keys in which two runs differ; keys of `inputs` are hashes of data, start, and code by package."""
    keys = [key for key, _, _ in differences(deciding_keys(saved), deciding_keys(other))]
    return ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")


def interrupted_commits(config: RunConfig, folders: Iterable[Path]) -> dict[str, str]:
    """The hub models, NAME@COMMIT by NAME, of an interrupted run of the same losses and seed: its resume takes them.

    Args:
        config: the recipe, with names in place of commits, whose steps need not be counted.
        folders: where the run may be.
    """
    keys = ("seed", "streams", "objectives", "sampling", "masking")
    ours = config.model_dump(mode="json")
    for folder in folders:
        with suppress(DataError):
            saved = _read_config(folder)
            if INPUTS in saved and not finished_run(folder) and all(saved[key] == ours[key] for key in keys):
                data = saved["data"]
                models = [saved["model"], data["tokenizer"], data["teacher"] or {}]
                names = [model.get("init_from") or model.get("path") or "" for model in models]
                return {name.rpartition("@")[0]: name for name in names if "@" in name}
    return {}


def earlier_runs(folder: Path, saved: Mapping[str, Any]) -> str:
    """Runs beside a default run folder that have the same settings and other inputs, and in which; empty if none."""
    if RunFolder(folder).config.is_file():
        return ""
    others = []
    for other in run_folders(folder.parent, folder.name.rpartition("-")[0]):
        with suppress(DataError):
            before = _read_config(other)
            if INPUTS in before and deciding_keys(before) | {INPUTS: 0} == deciding_keys(saved) | {INPUTS: 0}:
                state = "finished" if finished_run(other) else "unfinished"
                others.append(f"{other.name} ({state}) in {_differences(before, saved)}")
    return "; ".join(others)
