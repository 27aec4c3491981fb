"""Reads what a report needs of a run folder: recipe, events, scores, and the manifest of the data it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_manifest, whole_manifest
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import DataError
from xalign_ray.run_folder import RunFolder
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.track.events import EVENT_LOG, Event, check_whole, read_events


@dataclass(frozen=True)
class Run:
    """One run folder, or a folder that holds only scores of an encoder made elsewhere.

    Attributes:
        folder: where it is.
        config: the resolved recipe with its `recipe` and `fingerprint`; empty for an encoder made elsewhere.
        events: the surviving lineage; empty for an encoder made elsewhere.
        every_event: also what a resume superseded: what the run cost.
        scores: all scores of all evaluations.
        data: manifest of the prepared data, None where its folder is gone.
    """

    folder: Path
    config: Mapping[str, Any]
    events: tuple[Event, ...]
    every_event: tuple[Event, ...]
    scores: tuple[Score, ...]
    data: Mapping[str, Any] | None

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

    @cached_property
    def start(self) -> Event:
        """The newest start event, empty for an encoder made elsewhere."""
        return next((event for event in reversed(self.events) if event["event"] == "start"), {})

    @property
    def last_step(self) -> int:
        """The newest step that was finished."""
        return max((event["step"] for event in self.events), default=0)

    @property
    def finished(self) -> bool:
        """Whether the last step was reached; an encoder made elsewhere is taken as it is."""
        return not self.events or self.events[-1]["event"] == "end"

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
    log = folder / EVENT_LOG
    check_whole(log)
    scores = tuple(score for path in RunFolder(folder).score_files for score in read_scores(path))
    if not log.is_file() and not scores:
        raise DataError(
            f"{folder} is not a run: it holds neither {EVENT_LOG} nor a scores.json. Give run folders, such as those "
            "below runs/."
        )
    config = read_saved(folder)
    every = tuple(read_events(log, surviving=False)) if log.is_file() else ()
    data = next((event["data"] for event in reversed(every) if event["event"] == "start" and "data" in event), None)
    return Run(
        folder=folder,
        config=config,
        events=tuple(read_events(log)) if log.is_file() else (),
        every_event=every,
        scores=scores,
        data=read_manifest(Path(data)) if data else None,
    )
