"""Word alignments as links between pieces.

Formulas, and how the papers were read: docs/explanation/methods.md, WEAM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from xalign_ray.text.rows import NO_ENTRY, Index, Ints, Rows, run_index, starts, sum_runs

Expand = Literal["all", "first", "diagonal"]


def split_words(rows: Rows, expand: Expand = "all") -> Rows:
    """Every piece a word of its own; a multi-piece word then has no dictionary entry, and its links are its pieces'.

    Args:
        expand: a link of two words becomes links of `all` pieces of one with all of the other, of their `first`
            pieces only, or of the i-th with the i-th as far as both have one (`diagonal`).
    """
    entry = np.where(rows.word_length == 1, rows.entry, NO_ENTRY).astype(np.int32)
    segment_links, link_from, link_to = _expand(rows, expand)
    return replace(
        rows,
        word_length=np.ones(len(rows.pieces), np.int32),
        entry=np.repeat(entry, rows.word_length),
        segment_words=sum_runs(rows.word_length, rows.segment_words).astype(np.int32),
        segment_links=segment_links,
        link_from=link_from,
        link_to=link_to,
    )


def ends_of_links(rows: Rows) -> tuple[Index, Index]:
    """The two words of each link, both [K], as numbers among all words."""
    source_segment = run_index(rows.segment_links)
    first_word = starts(rows.segment_words)
    other = source_segment ^ 1  # rows that have links consist of pairs
    assert (rows.link_from < rows.segment_words[source_segment]).all()
    assert (rows.link_to < rows.segment_words[other]).all()
    return first_word[source_segment] + rows.link_from, first_word[other] + rows.link_to


def _expand(rows: Rows, expand: Expand) -> tuple[Ints, Ints, Ints]:
    if not len(rows.link_from):
        return rows.segment_links, rows.link_from, rows.link_to
    words = ends_of_links(rows)
    left, right = (rows.word_length[word].astype(np.int64) for word in words)
    count = {"all": left * right, "first": np.ones_like(left), "diagonal": np.minimum(left, right)}[expand]
    link = run_index(count)
    number = np.arange(len(link)) - starts(count)[link]
    across = np.divmod(number, right[link]) if expand == "all" else (number, number)
    source_segment = run_index(rows.segment_links)
    first_piece = starts(rows.word_length)
    first_of_segment = starts(sum_runs(rows.word_length, rows.segment_words))
    ends = [
        (first_piece[word] - first_of_segment[segment])[link] + step
        for word, segment, step in zip(words, (source_segment, source_segment ^ 1), across, strict=True)
    ]
    return sum_runs(count, rows.segment_links).astype(np.int32), ends[0].astype(np.int32), ends[1].astype(np.int32)
