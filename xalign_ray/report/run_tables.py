"""The tables about the runs themselves: the data they saw, what differs between their recipes, how they were run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from xalign_ray.report.run import Run, columns_of
from xalign_ray.report.tables import NONE, Entry, Table

_CELL = ("name", "label", "kind", "state", "reason")
_ENDED = ("finished", "not chosen")

Row = tuple[Entry | str, ...]


def data_tables(runs: Sequence[Run]) -> list[Table]:
    """One table a prepared data set: tokens of each language or pair, and how many words the dictionaries know."""
    users: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        if run.data is not None:
            users.setdefault(run.data["fingerprint"], {})[run.label] = run.data
    return [_data_table(own, alone=len(users) == 1) for own in users.values()]


def difference_table(runs: Sequence[Run]) -> Table | None:
    """The settings in which recipes differ, None where there is nothing to compare."""
    firsts = [own[0] for own in columns_of(runs).values()]
    if len(firsts) < 2:
        return None
    rows, counted = list[Row](), list[str]()
    for key in ("corpora", "parallel", "dictionaries"):
        # Where recipes have more or fewer of them, their paths say little.
        if len({len(run.sources(key)) for run in firsts}) > 1:
            counted.append(f"data.{key}")
            rows.append((f"data.{key}", *(_describe(run.sources(key)) for run in firsts)))
    settings = [run.settings for run in firsts]
    for key in sorted({key for own in settings for key in own}):
        values = [own.get(key) for own in settings]
        if any(value != values[0] for value in values) and not key.startswith(tuple(counted)):
            rows.append((key, *(NONE if value is None else str(value) for value in values)))
    note = "Seeds, workers, ZeRO stage, paths of output and tracking are left out."
    header = ("setting", *(run.label for run in firsts))
    return Table("What differs between the recipes", header, rows, note if rows else f"The recipes are equal. {note}")


def run_table(runs: Sequence[Run]) -> Table:
    """One row a run: where it stands, on what it ran, and what that cost."""
    rows = [_run_row(run) for run in runs if run.log.started]
    note = (
        "Seconds: from the start of an attempt to its last event, all attempts added up, start-up of the cluster not "
        "included. Tokens/s: of the last attempt. Waiting: share of step time spent waiting for rows."
    )
    names = ("recipe", "folder", "started (UTC)")
    numbers = ("seed", "steps", "workers", "ZeRO", "seconds", "tokens", "tokens/s", "waiting", "memory", "attempts")
    return Table("How it was run", (*names, *numbers), rows, note if rows else "", names=3)


def study_tables(runs: Sequence[Run]) -> list[Table]:
    """Of each study what its searches chose by development scores, and the cells that have not ended."""
    tables = []
    for name, study in {run.study["name"]: run.study for run in runs if run.study}.items():
        tried = [row for choice in study["choices"] if len(choice["candidates"]) > 1 for row in _choice_rows(choice)]
        header = ("fine-tuning", "task", "setting", "development score of each cell", "chosen")
        note = "The highest mean development score decides, before a test score is looked at."
        tables.append(Table(f"Settings tried by {name}", header, tried, note if tried else "", names=3))
        late = [cell for cell in study["cells"] if cell["state"] not in _ENDED]
        cells = [[str(cell.get(key) or "") for key in _CELL] for cell in late]
        note = f"{len(study['cells']) - len(late)} of {len(study['cells'])} cells have ended." if late else ""
        tables.append(Table(f"Cells of {name} that have not ended", _CELL, cells, note, names=len(_CELL)))
    return tables


def _choice_rows(choice: Mapping[str, Any]) -> list[Row]:
    settings = [candidate["setting"] for candidate in choice["candidates"]]
    varied = [name for name in settings[0] if any(one[name] != settings[0][name] for one in settings)]
    return [
        (
            *((choice["label"], choice["task"]) if number == 0 else ("", "")),
            ", ".join(f"{name} {settings[number][name]}" for name in varied),
            ", ".join("-" if one is None else f"{100 * one:.1f}" for one in candidate["development"].values()),
            Entry("chosen", mark="best") if number == choice["chosen"] else "",
        )
        for number, candidate in enumerate(choice["candidates"])
    ]


def _data_table(users: Mapping[str, Mapping[str, Any]], alone: bool) -> Table:
    """The manifest of one data set, by the labels of those that read it."""
    manifest, *_ = users.values()
    bad, dictionary = sum(manifest.get("bad_rows", {}).values()), manifest.get("dictionary")
    note = f"Vocabulary {manifest['vocabulary']['size']:,}. Bad input lines: {bad:,}."
    if dictionary:
        trained, held_out = dictionary["pairs_trained"], dictionary["pairs_held_out"]
        note += f" Dictionary pairs: {trained:,} trained, {held_out:,} held out."
    rows = []
    for name, pool in sorted(manifest.get("pools", {}).items()):
        kind, _, language = name.partition("/")
        counts = pool.get("counts", {})
        words, known = counts.get("words"), counts.get("words_in_dictionary")
        rows.append(
            (
                Entry(language, "" if kind == "text" else "parallel"),
                _count(counts.get("documents" if kind == "text" else "pairs")),
                _count(pool["examples"]),
                _count(pool["tokens"]),
                f"{100 * known / words:.0f} %" if words and known is not None else NONE,
            )
        )
    header = ("language", "documents or pairs", "examples", "tokens", "words in the dictionaries")
    return Table("Training data" if alone else f"Training data of {', '.join(users)}", header, rows, note)


def _describe(sources: Sequence[Mapping[str, Any]]) -> Entry:
    """Sources by language or pair."""
    names = ["-".join(source["languages"]) if "languages" in source else source["language"] for source in sources]
    return Entry(f"{len(names)}", ", ".join(dict.fromkeys(names))) if names else NONE


def _run_row(run: Run) -> Row:
    log, start = run.log, run.log.starts[-1] if run.log.starts else {}
    end = (log.end or {}).get("metrics", {})
    resumed = [str(start["step"]) for start in log.starts if start["attempt"] > 1]
    planned = start.get("steps", log.last_step)
    return (
        run.label,
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
        Entry(str(start.get("attempt", 0)), f"resumed at {', '.join(resumed)}" if resumed else ""),
    )


def _count(value: float | None) -> Entry | str:
    return NONE if value is None else f"{value:,.0f}"
