"""Carries word alignments over from words by white space, as Pharaoh files number them, to the words of text/words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xalign_ray.data.word_alignment.links import read_pharaoh
from xalign_ray.text.cached_tokenizer import EncodedLines
from xalign_ray.text.rows import Index, Ints, run_index, starts, sum_runs


@dataclass(frozen=True)
class Links:
    """segment_links [S] links that each segment owns; link_from [K] its word, link_to [K] the word of its partner."""

    segment_links: Ints
    link_from: Ints
    link_to: Ints


def no_links(segments: int) -> Links:
    """Sides without a link."""
    return Links(np.zeros(segments, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32))


def number_words(encoding: EncodedLines) -> EncodedLines:
    """The lines with each word as a word by white space, for alignments that count the words of text/words."""
    line_parts = sum_runs(encoding.parts, encoding.line_words)
    within = starts(encoding.parts) - np.repeat(starts(line_parts), encoding.line_words)
    first, last = within.astype(np.int32), (within + encoding.parts - 1).astype(np.int32)
    return replace(encoding, blank_word=first, last_blank_word=last)


def find_links(
    alignments: Sequence[str], pairs: Index, encodings: Sequence[EncodedLines], segment_words: Index
) -> Links:
    """The links between words of pairs, each owned by the pair's first segment.

    A link between two words by white space links every word that begins in one with every word that begins in the
    other (`expand: all`). A dictionary entry of several words has the links of each of them. Words that were trimmed
    away lose theirs. Each link once, in order.

    Args:
        alignments: of each of `pairs`, `i-j i-j`, or empty.
        pairs: lines of the two encodings, ascending.
        encodings: the two segments, with `blank_word`.
        segment_words: [all lines, 2] how many words of each line are left.
    """
    source_segment = np.repeat(np.arange(len(pairs)), [alignment.count("-") for alignment in alignments])
    ends = np.asarray(" ".join(alignments).replace("-", " ").split(), np.int64).reshape(-1, 2)
    (first, left), (partner, right) = (
        _words_in(encoding, pairs[source_segment], ends[:, segment], segment_words[:, segment])
        for segment, encoding in enumerate(encodings)
    )
    many = left * right
    link = run_index(many)
    within = np.arange(len(link)) - starts(many)[link]
    links = np.stack(
        [source_segment[link], first[link] + within // right[link], partner[link] + within % right[link]], axis=1
    )
    links = np.unique(links, axis=0)
    segment_links = np.zeros((len(pairs), 2), np.int32)
    segment_links[:, 0] = np.bincount(links[:, 0], minlength=len(pairs))
    return Links(segment_links.ravel(), links[:, 1].astype(np.int32), links[:, 2].astype(np.int32))


def _words_in(encoding: EncodedLines, lines: Index, blank_words: Index, left: Index) -> tuple[Index, Index]:
    """The words that begin in a word by white space, and a phrase of which a word does: the first one, and how many."""
    begins = starts(encoding.line_words)
    span = int(max(encoding.last_blank_word.max(initial=0), blank_words.max(initial=0))) + 1
    line = run_index(encoding.line_words) * span  # with the numbers ascending: words stand in the order of the text
    asked = lines * span + blank_words
    first = np.searchsorted(line + encoding.last_blank_word, asked, "left") - begins[lines]
    last = np.searchsorted(line + encoding.blank_word, asked, "right") - begins[lines]
    return first, np.maximum(np.minimum(last, left[lines]) - first, 0)


def linked_share(alignments: Sequence[str | None], words: Index) -> NDArray[np.float64]:
    """Of each pair [N] the share of the words of both sides that its alignment links; nan of one that has none.

    Args:
        alignments: as Pharaoh.
        words: [N, 2], of both sides, as the alignments count them.
    """
    linked = [np.nan if one is None else _linked_words(one) for one in alignments]
    return np.asarray(linked, np.float64) / np.maximum(words.sum(axis=1), 1)


def _linked_words(alignment: str) -> int:
    links = read_pharaoh(alignment)
    return len({i for i, _ in links}) + len({j for _, j in links})
