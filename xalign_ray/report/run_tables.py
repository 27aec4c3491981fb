"""The tables about the runs themselves: the data they saw, what differs between their recipes, how they were run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from xalign_ray.report.columns import Column, differing_settings
from xalign_ray.report.run import Run
from xalign_ray.report.table import NONE, Entry, Table

_CELL = ("name", "label", "kind", "state", "reason")
_SOURCES = ("corpora", "parallel", "dictionaries")


def data_tables(columns: Sequence[Column]) -> list[Table]:
    """One table a prepared data set: tokens of each language or pair, and how many words the dictionaries know."""
    used = [(column.label, run.data) for column in columns for run in column.runs if run.data is not None]
    users: dict[str, dict[str, None]] = {}
    for label, data in used:
        users.setdefault(data["fingerprint"], {})[label] = None
    manifests = {data["fingerprint"]: data for _, data in used}
    return [_data_table(manifests[name], list(labels), alone=len(users) == 1) for name, labels in users.items()]


def difference_table(columns: Sequence[Column]) -> Table | None:
    """The settings in which recipes differ, None where there is nothing to compare."""
    if len(columns) < 2:
        return None
    lists = [key for key in _SOURCES if len({len(_sources(column, key)) for column in columns}) > 1]
    rows = [(f"data.{key}", *(_describe(_sources(column, key)) for column in columns)) for key in lists]
    hidden = tuple(f"data.{key}" for key in lists)
    differing = [(key, values) for key, values in differing_settings(columns) if not key.startswith(hidden)]
    rows += [(key, *(NONE if value is None else str(value) for value in values)) for key, values in differing]
    note = "" if rows else "The recipes are equal."
    header = ("setting", *(column.label for column in columns))
    shown = "Seeds, workers, ZeRO stage, paths of output and tracking are left out."
    return Table("What differs between the recipes", header, rows, f"{note} {shown}".strip())


def run_table(columns: Sequence[Column]) -> Table:
    """One row a run: where it stands, on what it ran, and what that cost."""
    rows = [_run_row(column, run) for column in columns for run in column.runs if run.log.started]
    note = (
        "Seconds: from the start of an attempt to its last event, all attempts added up, start-up of the cluster not "
        "included. Tokens/s: of the last attempt. Waiting: share of step time spent waiting for rows."
    )
    names = ("recipe", "folder", "started (UTC)")
    numbers = ("seed", "steps", "workers", "ZeRO", "seconds", "tokens", "tokens/s", "waiting", "memory", "attempts")
    return Table("How it was run", (*names, *numbers), rows, note if rows else "", names=3)


def study_tables(columns: Sequence[Column]) -> list[Table]:
    """Of each study what its searches chose by development scores, and the cells that have not ended."""
    studies = {run.study.name: run.study for column in columns for run in column.runs if run.study}
    tables = []
    for name, study in studies.items():
        tried = [row for choice in study.choices if len(choice["candidates"]) > 1 for row in _choice_rows(choice)]
        header = ("fine-tuning", "task", "setting", "development score of each cell", "chosen")
        note = "The highest mean development score decides, before a test score is looked at."
        tables.append(Table(f"Settings tried by {name}", header, tried, note if tried else "", names=3))
        late = [cell for cell in study.cells if cell["state"] not in ("finished", "not chosen")]
        cells = [[str(cell.get(key) or "") for key in _CELL] for cell in late]
        note = f"{len(study.cells) - len(late)} of {len(study.cells)} cells have ended." if late else ""
        tables.append(Table(f"Cells of {name} that have not ended", _CELL, cells, note, names=len(_CELL)))
    return tables


def _choice_rows(choice: Mapping[str, Any]) -> list[tuple[Entry | str, ...]]:
    settings = [candidate["setting"] for candidate in choice["candidates"]]
    varied = [name for name in settings[0] if any(one[name] != settings[0][name] for one in settings)]
    return [
        (
            *((choice["label"], choice["task"]) if number == 0 else ("", "")),
            ", ".join(f"{name} {settings[number][name]}" for name in varied),
            ", ".join("-" if one is None else f"{100 * one:.1f}" for one in candidate["development"].values()),
            Entry("chosen", best=True) if number == choice["chosen"] else "",
        )
        for number, candidate in enumerate(choice["candidates"])
    ]


def _data_table(manifest: Mapping[str, Any], labels: Sequence[str], alone: bool) -> Table:
    rows = [_pool_row(name, pool) for name, pool in sorted(manifest.get("pools", {}).items())]
    bad = sum(manifest.get("bad_rows", {}).values())
    dictionary = manifest.get("dictionary", {})
    note = f"Vocabulary {manifest['vocabulary']['size']:,}. Bad input lines: {bad:,}."
    if dictionary:
        trained, held_out = dictionary["pairs_trained"], dictionary["pairs_held_out"]
        note += f" Dictionary pairs: {trained:,} trained, {held_out:,} held out."
    title = "Training data" if alone else f"Training data of {', '.join(labels)}"
    header = ("language", "documents or pairs", "examples", "tokens", "words in the dictionaries")
    return Table(title, header, rows, note)


def _pool_row(name: str, pool: Mapping[str, Any]) -> tuple[Entry | str, ...]:
    kind, _, language = name.partition("/")
    counts = pool.get("counts", {})
    units = counts.get("documents" if kind == "text" else "pairs")
    words, known = counts.get("words"), counts.get("words_in_dictionary")
    return (
        Entry(language, "" if kind == "text" else "parallel"),
        f"{units:,}" if units is not None else NONE,
        f"{pool['examples']:,}",
        f"{pool['tokens']:,}",
        f"{100 * known / words:.0f} %" if words and known is not None else NONE,
    )


def _sources(column: Column, key: str) -> Sequence[Mapping[str, Any]]:
    return column.runs[0].config.get("data", {}).get(key, [])


def _describe(sources: Sequence[Mapping[str, Any]]) -> Entry | str:
    """Sources by language or pair: where recipes have more or fewer of them, their paths say little."""
    names = ["-".join(source["languages"]) if "languages" in source else source["language"] for source in sources]
    return Entry(f"{len(names)}", ", ".join(dict.fromkeys(names))) if names else NONE


def _run_row(column: Column, run: Run) -> tuple[Entry | str, ...]:
    log, start = run.log, run.log.starts[-1] if run.log.starts else {}
    end = (log.end or {}).get("metrics", {})
    resumed = [str(start["step"]) for start in log.starts if start["attempt"] > 1]
    planned = start.get("steps", log.last_step)
    return (
        column.label,
        run.name,
        f"{datetime.fromtimestamp(log.started, UTC):%Y-%m-%d %H:%M}",
        str(run.seed),
        f"{planned:,}" if run.finished else Entry(f"{log.last_step:,} of {planned:,}", "not finished"),
        str(start.get("workers", "-")),
        str(start.get("zero_stage", "-")),
        f"{log.seconds:,.0f}",
        _count(end.get("run/tokens")),
        _count(end.get("run/tokens_per_s")),
        NONE if log.waiting is None else f"{100 * log.waiting:.0f} %",
        f"{log.memory:,.0f} MB" if log.memory else NONE,
        Entry(str(log.attempts), f"resumed at {', '.join(resumed)}" if resumed else ""),
    )


def _count(value: float | None) -> Entry | str:
    return NONE if value is None else f"{value:,.0f}"
