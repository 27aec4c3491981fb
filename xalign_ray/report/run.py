"""Reads what a report needs of a run folder: recipe, history, scores, the manifest of its training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_manifest, whole_manifest
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import DataError
from xalign_ray.report.log import Log, read_log
from xalign_ray.report.study_folder import Study
from xalign_ray.run_folder import RunFolder
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.track.events import check_whole


@dataclass(frozen=True)
class Run:
    """One run folder, or a folder that holds only scores of an encoder made elsewhere.

    Attributes:
        folder: where it is.
        config: the resolved recipe with its `recipe` and `fingerprint`; empty for an encoder made elsewhere.
        log: its history; empty for an encoder made elsewhere.
        scores: all scores of all evaluations.
        data: manifest of the prepared data, None where its folder is gone.
        label: of its column, None where the report has to find one.
        study: that it is a cell of.
    """

    folder: Path
    config: Mapping[str, Any]
    log: Log
    scores: tuple[Score, ...]
    data: Mapping[str, Any] | None = None
    label: str | None = None
    study: Study | None = None

    @property
    def recipe(self) -> str:
        """The recipe's name, or the folder's where there was no recipe."""
        return self.config.get("recipe") or self.name

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    @property
    def seed(self) -> int | None:
        """Seed of pretraining."""
        return self.config.get("seed")

    @property
    def dictionary_languages(self) -> frozenset[str]:
        """The languages that the recipe's dictionaries cover; none for an encoder made elsewhere."""
        return frozenset(
            code for source in self.config.get("data", {}).get("dictionaries", []) for code in source["languages"]
        )

    @property
    def finished(self) -> bool:
        """Whether the last step was reached; an encoder made elsewhere is taken as it is."""
        return not self.log.started or self.log.end is not None

    @property
    def on_demo(self) -> bool:
        """Whether the data is the embedded world, which is no source of claims."""
        root = self.config.get("data", {}).get("root")
        return root == "demo" or bool(root and (whole_manifest(Path(root)) or {}).get("kind") == "demo")


def read_run(folder: Path) -> Run:
    """Reads a run folder, finished or not, or a folder with scores.json alone.

    Raises:
        DataError: there is neither an event log nor a score in it, or a file of it is damaged.
    """
    path = RunFolder(folder).events
    check_whole(path)
    scores = tuple(score for file in RunFolder(folder).score_files for score in read_scores(file))
    if not path.is_file() and not scores:
        raise DataError(
            f"{folder} is not a run: it holds neither {path.name} nor a scores.json. Give run folders, such as those "
            "below runs/."
        )
    log = read_log(path) if path.is_file() else Log()
    return Run(folder, read_saved(folder), log, scores, read_manifest(Path(log.data)) if log.data else None)
