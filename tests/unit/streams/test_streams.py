"""Streams on many rows: a row looks the same in any company, and edges that tests/parity has not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.streams.random_rows import make_context, make_rows
from xalign_ray.config.choices import (
    AlignedPairs,
    CodeSwitchedCopy,
    CodeSwitchedLabels,
    ContrastedPairs,
    MaskedPairs,
    MaskedText,
    MaskedTranslations,
    Stream,
)
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.rows import take
from xalign_ray.streams.prediction import SLICE, StreamContext, stream_columns
from xalign_ray.vocabulary.dictionary import Lexicon

# A stream, the sides of its examples, and the tokens that prepare would leave to it in a row of 60.
STREAMS: list[tuple[Stream, int, int]] = [
    (MaskedText(), 1, 60),
    (MaskedPairs(), 2, 60),
    (MaskedPairs(positions="running", segments=True, random_order=True), 2, 60),
    (CodeSwitchedLabels(t=0.9), 1, 60),
    (CodeSwitchedLabels(t=0.9, mix_unit="instance"), 1, 60),
    (CodeSwitchedLabels(t=0.9, mix_unit="instance", refill=True), 1, 60),
    (CodeSwitchedLabels(t=0.9, variant="input_swap"), 1, 60),
    (CodeSwitchedCopy(codeswitch_rate=0.5), 1, 30),
    (AlignedPairs(expand="diagonal"), 2, 60),
    (MaskedTranslations(), 2, 60),
    (ContrastedPairs(), 2, 60),
    (ContrastedPairs(text="apart"), 2, 49),
]


@pytest.mark.parametrize(("stream", "segments", "filled"), STREAMS)
def test_a_row_looks_the_same_in_any_company(stream: Stream, segments: int, filled: int) -> None:
    count = 2 * SLICE + 100
    rows, positions = make_rows(count, segments, filled=filled), np.random.default_rng(0).permutation(count)
    together = stream_columns(stream, rows, positions, make_context())
    order = np.random.default_rng(1).permutation(count)
    for chosen in np.array_split(order, 3):
        apart = stream_columns(stream, take(rows, chosen), positions[chosen], make_context())
        for name, values in apart.items():
            np.testing.assert_array_equal(values, together[name][chosen], err_msg=name)


@pytest.mark.parametrize(("positions", "restarts"), [("reset", 2), ("running", 1)])
def test_contrasted_pairs_restart_positions_at_the_second_sentence_where_asked(positions: str, restarts: int) -> None:
    stream = ContrastedPairs(positions=positions, random_order=False)
    columns = stream_columns(stream, make_rows(4, 2), np.arange(4), make_context())
    examples, begins = columns["example_ids"], columns["position_ids"] == 1  # behind [CLS]
    for row in range(4):
        for example in range(1, examples[row].max() + 1):
            assert begins[row][examples[row] == example].sum() == restarts
    assert (
        stream_columns(MaskedPairs(positions=positions), make_rows(4, 2), np.arange(4), make_context())[
            "position_ids"
        ].tolist()
        == columns["position_ids"].tolist()
    )


def test_a_lexicon_without_entries_gives_plain_masked_text() -> None:
    empty = Lexicon(*(np.zeros(0, np.int32) for _ in range(5)))
    rows = make_rows(50, covered=0.0)
    context = StreamContext(0, MaskingConfig(), make_context().vocabulary, empty, 60, global_rows=1)
    switched = stream_columns(CodeSwitchedLabels(t=1), rows, np.arange(50), context)
    plain = stream_columns(MaskedText(), rows, np.arange(50), context)
    for name, values in plain.items():
        np.testing.assert_array_equal(values, switched[name])
