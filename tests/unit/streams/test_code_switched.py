"""The realised fractions of the code-switching streams beside DICT-MLM's; tests/parity has the streams themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tests.unit.streams.random_rows import VOCABULARY, make_lexicon, make_rows
from xalign_ray.config.choices import CodeSwitchedLabels
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.rows import NO_ENTRY, Rows
from xalign_ray.streams.collate import IGNORED
from xalign_ray.streams.prediction import StreamContext, stream_columns

ROWS = 1500
COVERAGE = 0.3415  # Wikipedia's tokens with a synonym, as DICT-MLM counts them
# By unit of mixing and the share of examples with a dictionary: the table of docs/explanation/benchmarks.md.
REALISED = {
    ("instance", 0.6): {0.5: 0.267, 0.7: 0.383, 0.9: 0.503},
    ("instance", 1.0): {0.5: 0.465, 0.7: 0.669, 0.9: 0.888},
    ("word", 1.0): {0.5: 0.171, 0.7: 0.238, 0.9: 0.302},
}


def _single_pieces(covered: float) -> tuple[StreamContext, Rows]:
    """Words of one piece, synonyms of one piece, so that everything fits and shares are plain."""
    context = StreamContext(0, MaskingConfig(), VOCABULARY, make_lexicon(longest=1), 60, global_rows=1)
    return context, make_rows(ROWS, covered=covered, lengths=(1,))


LACKING = 99  # a language without a dictionary


def _fraction(stream: CodeSwitchedLabels, with_dictionary: float) -> float:
    """The share of labels that are translations.

    Args:
        with_dictionary: share of the examples whose language has a dictionary; of their words (of one piece each)
            34.15 % have an entry.
    """
    context, rows = _single_pieces(COVERAGE)
    lacks = np.random.default_rng(1).random(len(rows.segment_words)) >= with_dictionary
    entry = np.where(np.repeat(lacks, rows.segment_words), NO_ENTRY, rows.entry).astype(np.int32)
    rows = replace(rows, entry=entry, segment_language=np.where(lacks, LACKING, rows.segment_language).astype(np.int32))
    context = replace(context, no_dictionary=frozenset({LACKING}))
    columns = stream_columns(stream, rows, np.arange(ROWS), context)
    assert columns["no_room"].sum() == 0
    return columns["cross_lingual"].sum() / (columns["labels"] != IGNORED).sum()


@pytest.mark.parametrize(("unit", "with_dictionary"), REALISED)
def test_the_share_of_translated_labels_is_the_documented_one(
    unit: Literal["word", "instance"], with_dictionary: float
) -> None:
    """Examples without a dictionary are plain MLM (footnote 5): as many labels at every t, none of them translated."""
    for t, share in REALISED[unit, with_dictionary].items():
        found = _fraction(CodeSwitchedLabels(t=t, mix_unit=unit), with_dictionary)
        assert found == pytest.approx(share, abs=0.01), t
