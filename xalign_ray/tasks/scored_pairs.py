"""Scored pairs of sentences (STS): how well the cosine of an encoder's vectors orders them as people do."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.nearest import unit_rows
from xalign_ray.sources.columns import FirstRows, number_of
from xalign_ray.sources.formats import open_table
from xalign_ray.sources.language_id import codes_in_name, identify
from xalign_ray.sources.pair_forms import (
    BESIDE_DATA,
    IDENTIFIED,
    MAX_BAD_FRACTION,
    choose_scored_columns,
    find_first_rows,
)
from xalign_ray.sources.tables import one_line
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task import CORRELATION, Measure, Metric, SentenceTask
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.vectors import SentenceVectors

ScoredRow = tuple[int, str, str, float]  # number in the file, both sentences, and the score


def read_scored_rows(table: FirstRows, columns: Sequence[str], code: str = "") -> tuple[str, list[ScoredRow]]:
    """The language and the rows of a table with two texts and a score.

    Args:
        columns: of `choose_scored_columns`.
        code: the language, where it is known.

    Raises:
        ConfigError: the language is not clear.
        DataError: more than a few rows lack one of the three, or all scores are equal.
    """
    rows, number, title = list[ScoredRow](), 0, f"scored pairs (columns {', '.join(columns)})"
    for path in table.paths:
        for row in open_table(table.format, path).read(columns):
            if row.skipped:
                continue
            first, second, score = [*row.cells, "", "", ""][:3]
            value, number = number_of(score), number + 1
            if first and second and value is not None and math.isfinite(value):
                rows.append((number, one_line(str(first)), one_line(str(second)), value))
    if number - len(rows) > MAX_BAD_FRACTION * number:
        raise DataError(f"{table.title}: {number - len(rows):,} of {number:,} rows are no {title}.")
    if len({score for *_, score in rows}) < 2:
        raise DataError(f"{table.title}: {title} whose scores are all equal.")
    language = language_of_texts(table.title, code, [first for _, first, *_ in rows], title)
    say(f"{table.title}: {table.form}, {len(rows):,} {title} in {language}")
    return language, rows


def language_of_texts(path: str, code: str, texts: Sequence[str], what: str) -> str:
    """The language that is written before a file, or that its name or its texts show.

    Raises:
        ConfigError: none of these shows it.
    """
    named = [code] if code else codes_in_name(path)
    if language := named[0] if len(named) == 1 else identify(texts[:IDENTIFIED]):
        return check_language(language)
    raise ConfigError(
        f"{path}: {what}, in a language that is not clear. Call it by a code (sts-de.csv), or write de=FILE for --keep."
    )


_Test = tuple[str, dict[str, list[ScoredRow]]]  # the split, and the rows of each language


class ScoredPairsTask(SentenceTask):
    """Spearman's correlation of cosine and human score, in each language and as a mean over them.

    Its data is a file or a folder of tables with two columns of text and one of numbers, with or without a header; a
    file's name has its language (`sts-de.csv`, `stsb-de-dev.csv`), or its texts show it.
    """

    name = "sts"
    metrics = (
        Metric(
            "sts_spearman", "Semantic similarity (STS)",
            "Spearman's correlation of the cosine of two sentences and the score that people gave them", CORRELATION,
        ),
    )  # fmt: skip

    def read(self, data: Path, languages: Sequence[str] | None) -> tuple[Collection[str], _Test]:
        rows = _read(data, languages)
        return rows, (data.resolve().name, rows)

    def score_all(self, vectors: SentenceVectors, test: _Test) -> Iterator[Score]:
        from scipy.stats import spearmanr  # half a second

        split, rows_of = test
        for language, rows in rows_of.items():
            _, *sides, scores = zip(*rows, strict=True)
            first, second = (unit_rows(vectors.encode(side, language)).astype(np.float64) for side in sides)
            correlation: Any = spearmanr((first * second).sum(axis=1), scores)
            value = float(np.nan_to_num(correlation.statistic))  # of equal cosines there is no correlation
            measure = Measure(value, None, len(rows))
            test_set = hash_value([list(row) for row in rows])
            yield from self.scores_of(vectors, split, language, test_set, {"sts_spearman": measure})


def _read(data: Path, languages: Sequence[str] | None) -> dict[str, list[ScoredRow]]:
    """The rows of each language.

    Raises:
        DataError: there are none, none of a language that was asked for, or two files of one.
    """
    rows: dict[str, list[ScoredRow]] = {}
    files = [path for path in sorted(data.iterdir()) if not BESIDE_DATA.match(path.name)] if data.is_dir() else [data]
    for table in find_first_rows([*map(str, files)]):
        if columns := choose_scored_columns(table, in_one_language=True):
            language, some = read_scored_rows(table, columns)
            if language in rows:
                raise DataError(
                    f"{table.title}: a second file in {language}, whose scores may have another scale. Put each in "
                    "a separate folder."
                )
            rows[language] = some
    if absent := [code for code in languages or () if code not in rows]:
        raise DataError(f"{data} has no scored pairs in {absent[0]}; it has {', '.join(rows) or 'none at all'}.")
    if not rows:
        raise DataError(f"{data} has no table with two columns of text and one of numbers.")
    return {code: rows[code] for code in languages or rows}


SCORED_PAIRS = ScoredPairsTask()
