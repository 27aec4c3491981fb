"""Run folders in the formats of the contracts, with numbers that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xalign_ray.config.derive import report_column
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.results.compare import Comparison, compare_runs, score_frame
from xalign_ray.results.report import write_report
from xalign_ray.results.run import Run, as_published, label_runs
from xalign_ray.results.sources import find_runs
from xalign_ray.results.tables import Entry
from xalign_ray.tasks.scores import Score, write_scores
from xalign_ray.work.artifacts import write_json, write_manifest

LANGUAGES = ("en", "qgr", "qdv")
DATA_MANIFEST: dict[str, Any] = {
    "fingerprint": "d00d",
    "languages": list(LANGUAGES),
    "vocabulary": {"size": 3698},
    "bad_rows": {"not utf-8": 3},
    "dictionary": {"pairs_trained": 966, "pairs_held_out": 289},
    "pools": {
        f"text/{language}": {
            "tokens": 52402,
            "examples": 5894,
            "counts": {"documents": 931, "words": 50000, "words_in_dictionary": 20000},
        }
        for language in LANGUAGES
    },
}
INPUTS = {"data": "d00d", "start": None, "precision": "fp32", "code": {"xalign_ray": "c0de"}}
HOST, USER = "anns-laptop", "ann.other"  # who ran them and where


def score(metric: str = "tatoeba_accuracy", value: float = 0.5, **fields: Any) -> Score:
    """A score with everything that a test does not care about filled in."""
    known: dict[str, Any] = {
        "run": "run",
        "encoder": "export",
        "objective": "mlm",
        "task": "tatoeba",
        "split": "test",
        "language": "all",
        "layer": "last4",
        "pooling": "mean",
        "chance": 0.002,
        "n": 1000,
        "seed": 0,
        "step": 4,
    }
    return Score(**known | {"metric": metric, "value": value} | fields)


def write_run(
    folder: Path,
    recipe: str = "tiny/mlm",
    settings: Sequence[str] = (),
    seed: int = 0,
    scores: Mapping[str, Sequence[Score]] | None = None,
    events: Sequence[Mapping[str, Any]] | None = None,
    given: Sequence[str] | None = None,
) -> Path:
    """A run: config.yaml, events.jsonl, evaluation/<task>/scores.json, a manifest if it ended; data lies beside it.

    Its column is that of the settings as they were `given`, before `pretrain` resolved them.
    """
    resolved = load_recipe(recipe, [*settings, f"seed={seed}"])
    folder.mkdir(parents=True)
    write_manifest(folder.parent / "data", DATA_MANIFEST)
    as_given = load_recipe(recipe, [*(settings if given is None else given), f"seed={seed}"])
    saved = describe_saved(replace(resolved, name=recipe), INPUTS) | report_column(replace(as_given, name=recipe))
    write_saved(folder, saved)
    lines = list(whole_run(folder.parent / "data") if events is None else events)
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for task, records in (scores or {}).items():
        write_scores(folder / "evaluation" / task / "scores.json", records)
    if lines and lines[-1]["event"] == "end":
        write_manifest(folder, {"recipe": recipe, "fingerprint": saved["fingerprint"], "steps": lines[-1]["step"]})
    return folder


def write_study(folder: Path, cells: Sequence[Mapping[str, Any]]) -> Path:
    """A study's folder; a cell with `scores` gets a folder of them, one without lies where its `folder` says."""
    listed = []
    for number, cell in enumerate(cells):
        name = cell.get("name", f"{cell['kind']}-{number}")
        known = {"name": name, "folder": f"cells/{name}", "state": "finished", "reason": None, "seconds": 1.0}
        known |= {"chosen": True}
        known |= {"encoder": cell["label"], "task": None, "training": None, "setting": None, "seed": 0}
        if "scores" in cell:
            write_scores(folder / "cells" / name / "scores.json", cell["scores"])
        listed.append(known | {key: value for key, value in cell.items() if key != "scores"})
    labels = list(dict.fromkeys(cell["label"] for cell in cells))
    study = {"name": folder.name, "notes": "Why.", "baseline": labels[0], "labels": labels, "cells": listed}
    write_json(folder / "study.json", study)
    return folder


def entries(*cells: Entry | str) -> tuple[Entry, ...]:
    """A row of a table."""
    return tuple(Entry(cell) if isinstance(cell, str) else cell for cell in cells)


def open_folders(folders: Sequence[Path]) -> list[Run]:
    """The labelled runs of run and study folders."""
    return label_runs(find_runs([str(folder) for folder in folders]))


def compare_folders(folders: Sequence[Path], **chosen: Any) -> Comparison:
    """The comparison that a report on these folders shows; `chosen` are arguments of `compare_runs`."""
    runs = open_folders(folders)
    return compare_runs(runs, score_frame(runs), **chosen)


def report_on(folders: Sequence[Path], out: Path, **chosen: Any) -> Path:
    """The page on run and study folders; `chosen` are arguments of `write_report`."""
    write_report(as_published(open_folders(folders)), out, **chosen)
    return out / "index.html"


def start(step: int = 0, attempt: int = 1, time: float = 1000.0, data: Path | None = None) -> dict[str, Any]:
    """The event of an attempt's beginning."""
    facts = {"recipe": "tiny/mlm", "workers": 2, "zero_stage": 2, "steps": 4, "notes": [], "data": str(data)}
    facts["values"] = {"start": "from scratch (bert)", "learning rate": "0.003", "dropout": "0"}
    facts |= {"hosts": [HOST] * 2, "origin": {"host": HOST, "user": USER, "python": "3.11.7"}}
    return {"event": "start", "attempt": attempt, "time": time, "step": step, **facts}


def step(number: int, loss: float, attempt: int = 1, time: float = 0.0, **metrics: float) -> dict[str, Any]:
    """The event of a finished step; the masked-LM loss is the whole loss."""
    values = {"train/loss": loss, "train/loss_masked_lm": loss, "train/step_ms": 100.0, "train/data_wait_ms": 5.0}
    named = {f"train/{name}": value for name, value in metrics.items()}
    head = {"event": "step", "attempt": attempt, "time": time or 1000.0 + number, "step": number}
    return head | {"batch_hash": number, "metrics": values | named}


def delivered(number: int, tokens: Mapping[str, int]) -> dict[str, Any]:
    """What the feed has given so far."""
    head = {"event": "data", "attempt": 1, "time": 1000.0 + number, "step": number}
    metrics = {"data/rows": 10 * number, "data/tokens": sum(tokens.values())}
    return head | {"metrics": metrics, "language_tokens": dict(tokens), "data_wait_ms": [0.1, 0.2]}


def held_out(number: int, losses: Mapping[str, float], time: float = 0.0) -> dict[str, Any]:
    """The event of scored held-out rows."""
    mean = sum(losses.values()) / len(losses)
    head = {"event": "held_out", "attempt": 1, "time": time or 1000.0 + number, "step": number}
    return head | {"metrics": {"held_out/loss": mean}, "languages": dict(losses)}


def whole_run(data: Path) -> list[dict[str, Any]]:
    """Four steps with two held-out losses, to the end."""
    speeds = {"run/seconds": 6.0, "run/tokens": 4000, "run/tokens_per_s": 666.7}
    return [
        start(data=data),
        step(1, 6.0),
        step(2, 5.0),
        held_out(2, {"en": 5.5, "qgr": 5.7, "qdv": 5.9}),
        step(3, 4.5),
        step(4, 4.0),
        held_out(4, {"en": 4.0, "qgr": 4.2, "qdv": 4.4}),
        delivered(4, {"en": 2000, "qgr": 1500, "qdv": 500}),
        {"event": "end", "attempt": 1, "time": 1006.0, "step": 4, "metrics": speeds},
    ]
