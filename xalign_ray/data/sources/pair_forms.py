"""Finds the form of parallel text by looking at its first rows, and reads the pairs of any form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from xalign_ray.config.sources import ParallelCorpus
from xalign_ray.data.sources.files import join_path
from xalign_ray.data.sources.formats import read
from xalign_ray.data.sources.moses import BOTH_EMPTY
from xalign_ray.data.sources.records import BadRow, Pair, list_reasons
from xalign_ray.errors import DataError

MAX_BAD_FRACTION = 0.01  # of rows that are read without a recipe


def read_pairs(
    corpus: ParallelCorpus, root: str | Path = ".", max_bad_fraction: float = MAX_BAD_FRACTION
) -> Iterator[tuple[str, str]]:
    """The two sides of each good pair of a corpus, streaming, without Ray.

    Raises:
      DataError: a file is missing or is no data, no pair is good, or, at the end, more than `max_bad_fraction` of the
        rows are bad.
    """
    good, bad = 0, Counter[str]()
    paths = [join_path(str(root), path) for path in corpus.paths]
    for record in read(corpus.format, paths, corpus.languages, columns=corpus.columns):
        if isinstance(record, Pair):
            good += 1
            yield record.texts
        elif isinstance(record, BadRow) and record.reason != BOTH_EMPTY:
            bad[record.reason] += 1
    if bad.total() > max_bad_fraction * (good + bad.total()):
        raise DataError(
            f"{corpus.paths[0]}: {bad.total():,} of {good + bad.total():,} rows cannot be used ({list_reasons(bad)})."
        )
