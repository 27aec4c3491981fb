"""Reads scored pairs (STS) and retrieval sets in BEIR's layout, as sets that two encoders are compared on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.config.language_codes import check_language
from xalign_ray.continuing.sentence_sets import QuerySet, ScoredPairs
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.nearest import thin
from xalign_ray.sources.columns import number_of
from xalign_ray.sources.first_rows import FirstRows
from xalign_ray.sources.formats import open_table
from xalign_ray.sources.hub import SPLITS, choose_split
from xalign_ray.sources.language_id import codes_in_name, identify
from xalign_ray.sources.pair_forms import IDENTIFIED, MAX_BAD_FRACTION
from xalign_ray.sources.tables import one_line
from xalign_ray.tasks.task_files import read_table
from xalign_ray.work.status_line import say

MAX_PASSAGES = 10_000  # of a retrieval set
CORPUS = "corpus.jsonl"  # of BEIR's layout
_NO_LANGUAGES = {*SPLITS, "sts"}  # words in names of files that are codes too, such as dev


def read_scored_pairs(table: FirstRows, columns: Sequence[str], code: str = "") -> ScoredPairs:
    """The rows of a table with two texts and a score.

    Raises:
        ConfigError: the language is not clear.
        DataError: more than a few rows lack one of the three, or all scores are equal.
    """
    rows, number, title = list[tuple[int, str, str, float]](), 0, f"scored pairs (columns {', '.join(columns)})"
    for path in table.paths:
        for row in open_table(table.format, path).read(columns):
            if row.skipped:
                continue
            first, second, score = [*row.cells, "", "", ""][:3]
            value, number = number_of(score), number + 1
            if first and second and value is not None and math.isfinite(value):
                rows.append((number, one_line(str(first)), one_line(str(second)), value))
    if number - len(rows) > MAX_BAD_FRACTION * number:
        raise DataError(f"--keep {table.title}: {number - len(rows):,} of {number:,} rows are no {title}.")
    if len({score for *_, score in rows}) < 2:
        raise DataError(f"--keep {table.title}: {title} whose scores are all equal.")
    language = _language_of(table.title, code, [first for _, first, *_ in rows], title)
    say(f"{table.title}: {table.form}, {len(rows):,} {title} in {language}")
    return ScoredPairs(language, rows, Path(table.title).name)


def read_query_set(folder: Path, code: str = "") -> QuerySet:
    """A folder in BEIR's layout: corpus.jsonl, queries.jsonl, and qrels/SPLIT.tsv; the split is test.

    Queries without a relevant passage are left out. Of many passages the judged ones and others, evenly spaced, are
    searched, MAX_PASSAGES in all.

    Raises:
        ConfigError: there is no split test, or the language is not clear.
        DataError: a file is missing or damaged, or judges a query or a passage that no file has.
    """
    files = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not files:
        raise DataError(f"--keep {folder}: it has no qrels/*.tsv beside {CORPUS}.")
    split = choose_split(f"{folder}/qrels", [*files], "test") if len(files) > 1 else next(iter(files))
    passages, queries = (
        {
            str(row["_id"]): " ".join(filter(None, (row.get("title"), row["text"])))
            for _, row in read_table(folder / name, ("_id", "text"), ("title",))
        }
        for name in (CORPUS, "queries.jsonl")
    )
    judged = dict[str, dict[str, float]]()
    for where, row in read_table(files[split], ("query-id", "corpus-id", "score")):
        query, passage, gain = str(row["query-id"]), str(row["corpus-id"]), number_of(row["score"])
        if query not in queries or passage not in passages or gain is None:
            raise DataError(f"{where}: its query or its passage is not in queries.jsonl and {CORPUS}.")
        judged.setdefault(query, {})[passage] = gain
    asked = {query: text for query, text in queries.items() if max(judged.get(query, {}).values(), default=0) > 0}
    if not asked:
        raise DataError(f"{files[split]}: no query has a relevant passage.")
    if len(passages) > MAX_PASSAGES:
        needed = {passage for query in asked for passage in judged[query]}
        rest = [passage for passage in passages if passage not in needed]
        needed.update(rest[index] for index in thin(len(rest), max(0, MAX_PASSAGES - len(needed))))
        say(f"{folder}: {len(needed):,} of {len(passages):,} passages are searched, all that are judged among them.")
        passages = {name: text for name, text in passages.items() if name in needed}
    language = _language_of(str(folder), code, [*asked.values()], "queries with passages")
    say(f"{folder}: {len(asked):,} queries ({split}), {len(passages):,} passages in {language}")
    return QuerySet(language, asked, passages, judged, folder.resolve().name)


def _language_of(path: str, code: str, texts: Sequence[str], what: str) -> str:
    """The language that is written before a file, or that its name or its texts show."""
    named = [code] if code else [code for code in codes_in_name(path) if code not in _NO_LANGUAGES]
    if language := named[0] if len(named) == 1 else identify(texts[:IDENTIFIED]):
        return check_language(language)
    raise ConfigError(f"--keep {path}: {what}, in a language that is not clear. Write LANGUAGE={path}, such as de=.")
