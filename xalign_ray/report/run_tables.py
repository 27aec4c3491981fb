"""The tables about the runs themselves: the data they saw, what differs between their recipes, how they were run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from xalign_ray.report.columns import Column, differing_settings
from xalign_ray.report.run import Run
from xalign_ray.report.table import Entry, Table

_NO_DATA = Entry("-", quiet=True)
_SOURCES = ("corpora", "parallel", "dictionaries")


def data_tables(columns: Sequence[Column]) -> list[Table]:
    """One table a prepared data set: tokens of each language or pair, and how many words the dictionaries know."""
    users: dict[str, list[str]] = {}
    manifests: dict[str, Mapping[str, Any]] = {}
    for column in columns:
        for run in column.runs:
            if run.data is not None:
                manifests[run.data["fingerprint"]] = run.data
                users.setdefault(run.data["fingerprint"], []).append(column.label)
    return [
        _data_table(manifests[fingerprint], list(dict.fromkeys(labels)), alone=len(users) == 1)
        for fingerprint, labels in users.items()
    ]


def difference_table(columns: Sequence[Column]) -> Table | None:
    """The settings in which recipes differ, None where there is nothing to compare."""
    if len(columns) < 2:
        return None
    lists = [key for key in _SOURCES if len({len(_sources(column, key)) for column in columns}) > 1]
    rows = [(f"data.{key}", *(_describe(_sources(column, key)) for column in columns)) for key in lists]
    hidden = tuple(f"data.{key}" for key in lists)
    rows += [
        (key, *(_setting(value) for value in values))
        for key, values in differing_settings(columns)
        if not key.startswith(hidden)
    ]
    note = "" if rows else "The recipes are equal."
    header = ("setting", *(column.label for column in columns))
    shown = "Seeds, workers, ZeRO stage, paths of output and tracking are left out."
    return Table("What differs between the recipes", header, tuple(rows), f"{note} {shown}".strip())


def run_table(columns: Sequence[Column]) -> Table:
    """One row a run: where it stands, on what it ran, and what that cost."""
    rows = [_run_row(column, run) for column in columns for run in column.runs if run.events]
    note = (
        "Seconds: from the start of an attempt to its last event, all attempts added up, start-up of the cluster not "
        "included. Tokens/s: of the last attempt. Waiting: share of step time spent waiting for rows."
    )
    names = ("recipe", "folder", "started (UTC)")
    numbers = ("seed", "steps", "workers", "ZeRO", "seconds", "tokens", "tokens/s", "waiting", "memory", "attempts")
    return Table("How it was run", (*names, *numbers), tuple(rows), note if rows else "", names=3)


def training_seconds(run: Run) -> float:
    """Wall time of all attempts, what a restart threw away included."""
    times: dict[int, list[float]] = {}
    for event in run.every_event:
        times.setdefault(event["attempt"], []).append(event["time"])
    return sum(max(own) - min(own) for own in times.values())


def _data_table(manifest: Mapping[str, Any], labels: Sequence[str], alone: bool) -> Table:
    rows = [_pool_row(name, pool) for name, pool in sorted(manifest.get("pools", {}).items())]
    bad = sum(manifest.get("bad_rows", {}).values())
    dictionary = manifest.get("dictionary", {})
    facts = [f"Vocabulary {manifest['vocabulary']['size']:,}.", f"Bad input lines: {bad:,}."]
    if dictionary:
        facts.append(
            f"Dictionary pairs: {dictionary['pairs_trained']:,} trained, {dictionary['pairs_held_out']:,} held out."
        )
    title = "Training data" if alone else f"Training data of {', '.join(labels)}"
    header = ("language", "documents or pairs", "examples", "tokens", "words in the dictionaries")
    return Table(title, header, tuple(rows), " ".join(facts))


def _pool_row(name: str, pool: Mapping[str, Any]) -> tuple[Entry | str, ...]:
    kind, _, language = name.partition("/")
    counts = pool.get("counts", {})
    units = counts.get("documents" if kind == "text" else "pairs")
    words, known = counts.get("words"), counts.get("words_in_dictionary")
    return (
        Entry(language, "" if kind == "text" else "parallel"),
        f"{units:,}" if units is not None else _NO_DATA,
        f"{pool['examples']:,}",
        f"{pool['tokens']:,}",
        f"{100 * known / words:.0f} %" if words and known is not None else _NO_DATA,
    )


def _sources(column: Column, key: str) -> Sequence[Mapping[str, Any]]:
    return column.runs[0].config.get("data", {}).get(key, [])


def _describe(sources: Sequence[Mapping[str, Any]]) -> Entry | str:
    """Sources by language or pair: where recipes have more or fewer of them, their paths say little."""
    names = ["-".join(source["languages"]) if "languages" in source else source["language"] for source in sources]
    return Entry(f"{len(names)}", ", ".join(dict.fromkeys(names))) if names else _NO_DATA


def _setting(value: Any) -> Entry | str:
    return _NO_DATA if value is None else str(value)


def _run_row(column: Column, run: Run) -> tuple[Entry | str, ...]:
    start, end = run.start, run.events[-1].get("metrics", {}) if run.finished else {}
    steps = [event["metrics"] for event in run.events if event["event"] == "step"]
    attempts = max(event["attempt"] for event in run.events)
    resumed = [str(event["step"]) for event in run.events if event["event"] == "start" and event["attempt"] > 1]
    planned = start.get("steps", run.last_step)
    memory = max((metrics.get("train/peak_memory_mb") or 0 for metrics in steps), default=0)
    return (
        column.label,
        run.name,
        f"{datetime.fromtimestamp(run.every_event[0]['time'], UTC):%Y-%m-%d %H:%M}",
        str(run.seed),
        f"{planned:,}" if run.finished else Entry(f"{run.last_step:,} of {planned:,}", "not finished"),
        str(start.get("workers", "-")),
        str(start.get("zero_stage", "-")),
        f"{training_seconds(run):,.0f}",
        _count(end.get("run/tokens")),
        _count(end.get("run/tokens_per_s")),
        _waiting(steps),
        f"{memory:,.0f} MB" if memory else _NO_DATA,
        Entry(str(attempts), f"resumed at {', '.join(resumed)}" if resumed else ""),
    )


def _count(value: float | None) -> Entry | str:
    return _NO_DATA if value is None else f"{value:,.0f}"


def _waiting(steps: Sequence[Mapping[str, Any]]) -> Entry | str:
    shares = [m["train/data_wait_ms"] / m["train/step_ms"] for m in steps if m.get("train/step_ms")]
    return f"{100 * statistics.median(shares):.0f} %" if shares else _NO_DATA
