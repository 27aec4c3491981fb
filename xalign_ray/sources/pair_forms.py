"""Finds the form of parallel text by looking at its first rows, and reads the pairs of any form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from xalign_ray.config.sources import WITH_COLUMNS, ParallelCorpus
from xalign_ray.errors import DataError
from xalign_ray.sources.first_rows import FirstRows
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.moses import BOTH_EMPTY
from xalign_ray.sources.pair_columns import Chosen, choose_columns
from xalign_ray.sources.pair_files import find_first_rows
from xalign_ray.sources.records import BadRow, Pair, list_reasons
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import absolute_path, is_url

MAX_BAD_FRACTION = 0.01  # of rows that are read without a recipe
PIVOT = "en"  # among languages that have as many texts


def look_at_pairs(
    paths: Sequence[str], languages: Sequence[str] = (), columns: Sequence[str] = (), split: str = "train"
) -> list[ParallelCorpus]:
    """The sources of pairs below the paths, by their first rows; says in a line what each was taken for.

    Of several languages in one source each is paired with the one that has the most texts.

    Args:
        paths: CSV, TSV, Parquet, TMX, JSON (lines or an array), a zip of OPUS, line-aligned files, folders of these, a
            saved `datasets` folder, or a data set of the hub as org/name or org/name:config; packed or not.
        languages: codes, where neither names nor texts show them, or those that are wanted of several.
        columns: names of the columns that translate each other, where there are others.
        split: the one that is taken of folders and data sets that have several.

    Raises:
        ConfigError: something is ambiguous; names the key that settles it.
        DataError: a path is missing, or is no data.
    """
    found = []
    for table in find_first_rows(paths, split):
        chosen = choose_columns(table, languages, columns)
        say(_describe(table, chosen))
        found += _corpora(table, chosen)
    if not found:
        raise DataError("No pairs are given. Name a file, a folder or a data set.")
    return found


def _corpora(table: FirstRows, chosen: Chosen) -> Iterator[ParallelCorpus]:
    """A source for each two languages; of several, all with the one that has the most texts."""
    several = len(chosen.columns) > 2
    order = list(range(len(chosen.columns)))
    if several:
        order.sort(key=lambda n: (-_filled(table, chosen.columns[n]), chosen.languages[n] != PIVOT))
    pivot, *others = order
    for other in sorted(others):
        both = (pivot, other)
        places = [chosen.columns[n] for n in both]
        names = (table.names[places[0]], table.names[places[1]])
        files = [table.paths[n] for n in places] if table.format == "moses" else table.paths
        yield ParallelCorpus(
            format=table.format,
            languages=(chosen.languages[both[0]], chosen.languages[both[1]]),
            paths=tuple(path if is_url(path) else absolute_path(path) for path in files),
            columns=names if table.format in WITH_COLUMNS else None,
            skip_empty=several and table.format != "tmx",
        )


def _filled(table: FirstRows, place: int) -> int:
    return sum(bool(row[place]) for row in table.rows)


def _describe(table: FirstRows, chosen: Chosen) -> str:
    """The line that says what a source was taken for."""
    named = [(table.names[n], code) for n, code in zip(chosen.columns, chosen.languages, strict=True)]
    listed = [name if name == code else f"{name} ({code})" for name, code in named]
    what = "languages" if table.by_language else "columns"
    left = [name for n, name in enumerate(table.names) if n not in chosen.columns and name]
    title = table.title + (f" and {len(table.paths) - 1} more" if len(table.paths) > 1 else "")
    full = sum(all(row[n] for n in chosen.columns) for row in table.rows)
    count = f"{full:,} pair{'s' * (full != 1)}" if len(chosen.columns) == 2 else f"{len(table.rows):,} rows"
    pairs = f", {count}{'' if table.is_whole else ' or more'}" if table.rows else ""
    aside = f"; left out: {', '.join(left)}" if left else ""
    return f"{title}: {table.form}, {what} {', '.join(listed[:-1])} and {listed[-1]}{pairs}{aside}"


def read_pairs(
    corpus: ParallelCorpus, root: str | Path = ".", max_bad_fraction: float = MAX_BAD_FRACTION
) -> Iterator[tuple[str, str]]:
    """The two sides of each good pair of a corpus, streaming, without Ray.

    Raises:
      DataError: a file is missing or is no data, no pair is good, or, at the end, more than `max_bad_fraction` of the
        rows are bad.
    """
    good, bad = 0, Counter[str]()
    reader, paths = find_source(corpus, root)
    for record in read(reader, paths, corpus.languages, columns=corpus.columns, skip_empty=corpus.skip_empty):
        if isinstance(record, Pair):
            good += 1
            yield record.texts
        elif isinstance(record, BadRow) and record.reason != BOTH_EMPTY:
            bad[record.reason] += 1
    if bad.total() > max_bad_fraction * (good + bad.total()):
        raise DataError(
            f"{corpus.paths[0]}: {bad.total():,} of {good + bad.total():,} rows cannot be used ({list_reasons(bad)})."
        )
