"""Tables as values: scores for a page or a terminal, data, recipes and runs."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import rich.box
import rich.table
from rich.text import Text

from xalign_ray.results.aggregate import KEY
from xalign_ray.results.compare import Comparison, Record, is_share
from xalign_ray.results.run import Run
from xalign_ray.tasks.scores import ALL_LANGUAGES
from xalign_ray.vocabulary.exchange import show_fertility

AT_CHANCE = "at chance"
PLUS_MINUS = "\u00b1"
_MAX_NAMED = 12  # languages that a group is followed by
SUBJECTS = {
    "task": "Scores",
    "language": "Languages",
    "family": "Families",
    "dictionary": "Dictionaries",
    "training": "Training data",
}
TITLES = {
    "task": "Scores, mean over languages",
    "language": "Scores by language",
    "family": "Scores by language family",
    "dictionary": "Scores of languages with and without a dictionary",
    "training": "Scores by how much of a language the training data hold",
}
_NOTES = {
    "dictionary": "A language has a dictionary where the recipe names one that it is a side of.",
    "training": "Tokens in the data of the encoder that has most of a language; half of a pair's count for each.",
}
# `_` inside a word, and brackets that no link follows, are text: names of metrics and intervals stay readable.
_MARKDOWN = re.compile(r"[\\`*|$~]|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])")


class Entry(NamedTuple):
    """The content of one cell: its text, a small note on it, and a mark: "quiet" (no information) or "best"."""

    text: str
    note: str = ""
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


NONE = Entry("-", mark="quiet")


Row = tuple[Entry | str, ...]


@dataclass(frozen=True)
class Table:
    """A table; the first `names` columns hold words, all others numbers; `link` is a file with the same numbers.

    A row has a cell a column, or a single one that is a heading of those below it; a string becomes an entry.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry | str]]
    note: str = ""
    names: int = 1
    link: str = ""

    def __post_init__(self) -> None:
        rows = (tuple(Entry(cell) if isinstance(cell, str) else cell for cell in row) for row in self.rows)
        object.__setattr__(self, "rows", tuple(rows))


def score_table(comparison: Comparison, by: str) -> Table:
    """One row a metric and group of languages, one column an encoder, with the difference as a note on each score."""
    grouped, rows, last = by != "task", [], ""
    for cells in comparison.rows(by):
        first, by_label, best = cells[0], {cell["label"]: cell for cell in cells}, _best(cells)
        name = Entry(first["title"], first["metric"])
        rows += [(name,)] if grouped and name.text != last else []
        last = name.text
        languages = sorted({language for cell in cells for language in cell["languages"].split()} - {ALL_LANGUAGES})
        named = ", ".join(languages) if len(languages) <= _MAX_NAMED else f"{len(languages)} languages"
        count = f"{len(languages)} language{'s' * (len(languages) > 1)}" if languages else ""
        count += ", with en" if "en" in languages else ""
        seeds = [str(cell["seeds"]) for cell in cells]
        rows.append(
            (
                Entry(first["group"], "" if by == "language" else named) if grouped else name,
                *(_entry(by_label[label], label in best) if label in by_label else NONE for label in comparison.labels),
                show_chance(cells) or "-",
                Entry(show_span(cells, "n", "{:,.0f}".format) or "-", "" if grouped else count),
                seeds[0] if len(set(seeds)) == 1 else ", ".join(seeds),
            )
        )
    header = (by if grouped else "", *comparison.labels, "chance", "n", "seeds")
    note = " ".join(["Percent; cosines and pieces as they are.", *_explain(comparison, by), _NOTES.get(by, "")])
    return Table(TITLES[by], header, rows, note.strip() if rows else "", link="comparison.csv")


def plain_grid(table: Table) -> rich.table.Table:
    """A table for the terminal, notes on cells in brackets; columns without a digit stand left, numbers right.

    Words of users are `Text`: rich reads brackets in plain strings as markup.
    """
    drawn = rich.table.Table(title=Text(table.title), box=rich.box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for number, heading in enumerate(table.header):
        cells = (str(row[number]) for row in table.rows if len(row) > number)
        are_words = not number or not any(map(str.isdigit, chain.from_iterable(cells)))
        drawn.add_column(Text(heading), justify="left" if are_words else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    return drawn


def as_markdown(table: Table) -> str:
    """A table of Markdown below its heading, with its note."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    width = len(table.header)
    lines = [f"### {escape_markdown(table.title)}", "", line(map(escape_markdown, table.header))]
    lines.append(line("---" if column < table.names else "---:" for column in range(width)))
    for row in table.rows:
        first, *others = (escape_markdown(str(cell)) for cell in row)
        lines.append(line([first, *others] if others or width == 1 else [f"**{first}**", *[""] * (width - 1)]))
    lines += ["", escape_markdown(table.note)] if table.note else []
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Text of users on one line, with the markup of Markdown and HTML escaped."""
    return _MARKDOWN.sub(r"\\\g<0>", html.escape(re.sub(r"[\r\n]+", " ", text), quote=False))


def data_tables(runs: Sequence[Run]) -> list[Table]:
    """One table a prepared data set: tokens of each language or pair, and how many words the dictionaries know."""
    users: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        if run.data is not None:
            users.setdefault(run.data["fingerprint"], {})[run.label] = run.data
    tables = []
    for readers in users.values():
        manifest, *_ = readers.values()
        bad, dictionary = sum(manifest.get("bad_rows", {}).values()), manifest.get("dictionary")
        note = f"Vocabulary {manifest['vocabulary']['size']:,}. Bad input lines: {bad:,}."
        if pieces := manifest.get("pieces"):
            note += f" Pieces a word: {show_fertility(pieces)}."
        if dictionary:
            trained, held_out = dictionary["pairs_trained"], dictionary["pairs_held_out"]
            note += f" Dictionary pairs: {trained:,} trained, {held_out:,} held out."
        rows = []
        for name, pool in sorted(manifest.get("pools", {}).items()):
            kind, _, language = name.partition("/")
            counts = pool.get("counts", {})
            words, translated = counts.get("words"), counts.get("words_in_dictionary")
            texts = counts.get("documents" if kind == "text" else "pairs")
            share = f"{100 * translated / words:.0f} %" if words and translated is not None else NONE
            named = Entry(language, "" if kind == "text" else "parallel")
            rows.append((named, *map(_count, (texts, pool["examples"], pool["tokens"])), share))
        header = ("language", "documents or pairs", "examples", "tokens", "words in the dictionaries")
        shown = len(header) - (not dictionary)
        title = "Training data" if len(users) == 1 else f"Training data of {', '.join(readers)}"
        tables.append(Table(title, header[:shown], [row[:shown] for row in rows], note))
    return tables


def values_table(runs: Sequence[Run]) -> Table:
    """One row a label: the deciding values of a run, from its start event."""
    label_values = [(run.label, run.log.starts[-1].get("values")) for run in reversed(runs) if run.log.starts]
    firsts = {label: values for label, values in label_values if values}
    names = list(dict.fromkeys(name for values in firsts.values() for name in values))
    rows = [(label, *(values.get(name, NONE) for name in names)) for label, values in reversed(firsts.items())]
    return Table("What was trained", ("encoder", *names), rows, names=1 + len(names))


def run_table(runs: Sequence[Run]) -> Table:
    """One row a run: its state, its machine, and its cost."""
    rows = []
    for run in (run for run in runs if run.log.started):
        log, metrics, start = run.log, run.log.metrics, run.log.starts[-1] if run.log.starts else {}
        resumed = [str(start["step"]) for start in log.starts if start["attempt"] > 1]
        planned = start.get("steps", log.last_step)
        rows.append(
            (
                run.label,
                run.name,
                f"{datetime.fromtimestamp(log.started, UTC):%Y-%m-%d %H:%M}",
                str(run.seed),
                f"{planned:,}" if run.finished else Entry(f"{log.last_step:,} of {planned:,}", "not finished"),
                str(start.get("workers", "-")),
                str(start.get("zero_stage", "-")),
                f"{log.seconds:,.0f}",
                _count(metrics.get("run/tokens")),
                _count(metrics.get("run/tokens_per_s")),
                NONE if log.waiting is None else f"{100 * log.waiting:.0f} %",
                f"{log.memory:,.0f} MB" if log.memory else NONE,
                Entry(str(start.get("attempt", 0)), f"resumed at {', '.join(resumed)}" if resumed else ""),
            )
        )
    note = (
        "Seconds: from the start of an attempt to its last event, all attempts added up, start-up of the cluster not "
        "included. Tokens/s: of the last attempt. Waiting: share of step time spent waiting for rows."
    )
    names = ("recipe", "folder", "started (UTC)")
    numbers = ("seed", "steps", "workers", "ZeRO", "seconds", "tokens", "tokens/s", "waiting", "memory", "attempts")
    return Table("How it was run", (*names, *numbers), rows, note if rows else "", names=3)


def percent(metric: str, value: float) -> str:
    """A score as tables print it."""
    return f"{100 * value:z.1f}" if is_share(metric) else f"{value:z.2f}"


def points(gap: float) -> str:
    """A difference in points of percent, with its sign."""
    return f"{100 * gap:+z.1f}"


def with_deviation(show: Callable[[float], str], mean: float, deviation: float | None) -> str:
    """A mean and, where it is known, its deviation over seeds."""
    return show(mean) if deviation is None else f"{show(mean)} {PLUS_MINUS} {show(deviation)}"


def with_interval(show: Callable[[float], str], value: float | None, low: float | None, high: float | None) -> str:
    """A number with its sign and, where it is known, its 95 % interval; empty where there is no number."""
    if value is None or low is None or high is None:
        return "" if value is None else show(value)
    return f"{show(value)} [{show(low).lstrip('+')}, {show(high).lstrip('+')}]"


def _entry(cell: Record, best: bool) -> Entry:
    if cell["at_chance"]:
        return Entry(show_mean(cell), AT_CHANCE, "quiet")
    return Entry(show_mean(cell), show_difference(cell), "best" if best else "")


def _best(cells: Sequence[Record]) -> set[str]:
    """The labels of the highest score, none if there is nothing to choose from or means are over other languages."""
    if len(cells) < 2 or not is_share(cells[0]["metric"]) or len({cell["languages"] for cell in cells}) > 1:
        return set()
    shown = {cell["label"]: float(percent(cell["metric"], cell["mean"])) for cell in cells}
    return {label for label, value in shown.items() if value == max(shown.values())}


def show_mean(cell: Record) -> str:
    return with_deviation(partial(percent, cell["metric"]), cell["mean"], cell["standard_deviation"])


def show_difference(cell: Record) -> str:
    """The difference in points of percent with its 95 % interval, empty where there is none."""
    return with_interval(points, cell["difference"], cell["low_95"], cell["high_95"])


def _explain(comparison: Comparison, by: str) -> Iterator[str]:
    """The meaning of the notation that the table uses."""
    frame = comparison.frame.loc[comparison.frame.by == by]
    if frame.standard_deviation.notna().any():
        yield f"{PLUS_MINUS} is the sample standard deviation over seeds."
    if frame.difference.notna().any():
        several = ", which allows for all differences of its row (Holm)" if frame.comparisons.max() > 1 else ""
        ends = f", with its 95 % interval{several}" if frame.low_95.notna().any() else ""
        yield f"Below: the difference from {comparison.baseline} in points{ends}."
    if (frame.groupby([*KEY, "group"]).languages.nunique() > 1).any():
        yield "Not every score of a row is a mean over the same languages; differences are over common ones."
    if frame.split.str.contains(", n |, content ").any():
        yield "Rows that name n or content are of test sets that differ; they are not compared with each other."


def show_span(cells: Sequence[Record], name: str, show: Callable[..., str]) -> str:
    """The values that the cells of a row have: one, or from the lowest to the highest."""
    ends = list(dict.fromkeys(map(show, sorted({cell[name] for cell in cells if cell[name] is not None}))))
    return " to ".join(ends if len(ends) < 2 else (ends[0], ends[-1]))


def show_chance(cells: Sequence[Record]) -> str:
    return show_span(cells, "chance", lambda value: f"{100 * value:.2g}")


def _count(value: float | None) -> Entry | str:
    return NONE if value is None else f"{value:,.0f}"
