"""What holds for every stream of every row, and the shares of translated labels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.streams.random_rows import SPECIAL, SYNONYMS_FROM, make_context, make_lexicon, make_rows
from tests.unit.streams.test_masking import assert_chance
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
from xalign_ray.shards.counter_random import row_keys
from xalign_ray.shards.rows import Rows, take
from xalign_ray.streams.collate import IGNORED, TOKEN_COLUMNS
from xalign_ray.streams.prediction import SLICE, StreamContext, stream_columns
from xalign_ray.vocabulary.dictionary import Lexicon, pick_synonyms, within_room

ROWS = 1500
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
@pytest.mark.parametrize("whole_word", [True, False])
def test_columns_fit_together(stream: Stream, segments: int, filled: int, whole_word: bool) -> None:
    rows = make_rows(ROWS, segments, filled=filled)
    columns = stream_columns(
        stream, rows, np.arange(ROWS), make_context(MaskingConfig(mlm_probability=0.4, whole_word_mask=whole_word))
    )
    ids, labels, example = columns["input_ids"], columns["labels"], columns["example_ids"]
    assert all(columns[name].shape == (ROWS, 60) for name in TOKEN_COLUMNS)
    assert [columns[name].dtype for name in TOKEN_COLUMNS] == [np.int32] * 2 + [np.int16] * 4
    real = example > 0
    assert ((ids == SPECIAL["pad"]) == ~real).all()
    for name in ("position_ids", "segment_ids", "language_ids"):
        assert (columns[name][~real] == 0).all()
    assert (np.diff(real.astype(int), axis=1) <= 0).all(), "padding is at the end"
    assert (ids[columns["position_ids"] == 0][real[columns["position_ids"] == 0]] == SPECIAL["cls"]).all()
    assert ((ids == SPECIAL["cls"]).sum(axis=1) == example.max(axis=1)).all()
    assert (
        (ids == SPECIAL["sep"]).sum(axis=1) == rows.row_segments * (1 + (stream.kind == "code_switched_copy"))
    ).all()
    fixed = np.isin(ids, [SPECIAL["pad"], SPECIAL["cls"], SPECIAL["sep"]])
    assert (labels[fixed] == IGNORED).all()
    assert not np.isin(labels, list(SPECIAL.values())).any()
    hidden = ids == SPECIAL["mask"]
    assert (labels[hidden] != IGNORED).all()
    assert (columns["cross_lingual"] <= (labels != IGNORED).sum(axis=1)).all()


@pytest.mark.parametrize("unit", ["word", "instance"])
def test_translated_labels_are_never_shown(unit: str) -> None:
    stream = CodeSwitchedLabels(t=1, mix_unit=unit)  # type: ignore[arg-type]
    columns = stream_columns(stream, make_rows(ROWS), np.arange(ROWS), make_context(MaskingConfig(mlm_probability=0.5)))
    assert (columns["labels"] >= SYNONYMS_FROM).sum() > 1000
    assert (columns["input_ids"] < SYNONYMS_FROM).all()


def test_language_ids_are_the_labels_at_translated_slots_only() -> None:
    columns = stream_columns(CodeSwitchedLabels(t=0.9), make_rows(ROWS), np.arange(ROWS), make_context())
    translated = columns["labels"] >= SYNONYMS_FROM
    assert (columns["language_ids"][translated] >= 3).all()
    assert (columns["language_ids"][~translated] < 3).all()
    np.testing.assert_array_equal(translated.sum(axis=1), columns["cross_lingual"])


@pytest.mark.parametrize("whole_word", [True, False])
@pytest.mark.parametrize("max_seq_length", [60, 61, 63, 70])
def test_rows_never_grow_beyond_their_length(max_seq_length: int, whole_word: bool) -> None:
    rows = make_rows(ROWS, covered=1.0)
    masking = MaskingConfig(mlm_probability=0.9, whole_word_mask=whole_word)
    columns = stream_columns(
        CodeSwitchedLabels(t=1), rows, np.arange(ROWS), make_context(masking, max_seq_length=max_seq_length)
    )
    assert columns["input_ids"].shape == (ROWS, max_seq_length)
    assert ((columns["input_ids"] == SPECIAL["sep"]).sum(axis=1) == rows.row_segments).all(), "the last [SEP] is there"
    assert columns["no_room"].sum() > 0
    assert columns["cross_lingual"].sum() > 0


def test_what_does_not_fit_becomes_fewer_with_reserve() -> None:
    rows = make_rows(ROWS, covered=1.0)
    dropped = [
        int(
            stream_columns(CodeSwitchedLabels(t=1), rows, np.arange(ROWS), make_context(max_seq_length=n))[
                "no_room"
            ].sum()
        )
        for n in (60, 66, 72, 120)
    ]
    assert dropped == sorted(dropped, reverse=True)
    assert dropped[0] > 100
    assert dropped[-1] == 0


def test_room_is_given_out_in_word_order() -> None:
    growth, row = np.array([2, 2, -3, 1, 5, -1]), np.array([0, 0, 0, 0, 1, 2])
    fits = within_room(growth, row, np.array([3, 5, 0]))
    assert fits.tolist() == [True, False, True, False, True, True]


@pytest.mark.parametrize("t", [0.0, 0.5, 0.9, 1.0])
def test_t_is_the_share_of_translated_labels_where_all_words_have_one(t: float) -> None:
    context = StreamContext(0, MaskingConfig(), make_context().vocabulary, make_lexicon(longest=1), 60, global_rows=1)
    rows = make_rows(ROWS, covered=1.0, lengths=(1,))
    columns = stream_columns(CodeSwitchedLabels(t=t), rows, np.arange(ROWS), context)
    assert_chance(int(columns["cross_lingual"].sum()), int((columns["labels"] != IGNORED).sum()), t)


def test_instance_mode_translates_by_example() -> None:
    """An example is in dictionary mode as a whole, with probability t, and then has no other labels."""
    columns = stream_columns(
        CodeSwitchedLabels(t=0.5, mix_unit="instance"), make_rows(ROWS), np.arange(ROWS), make_context()
    )
    translated = own = both = 0
    for row in range(ROWS):
        for e in range(1, columns["example_ids"][row].max() + 1):
            label = columns["labels"][row][columns["example_ids"][row] == e]
            has = (label >= SYNONYMS_FROM).any(), ((label >= 0) & (label < SYNONYMS_FROM)).any()
            translated, own, both = translated + has[0], own + has[1], both + all(has)
    assert translated > 1000
    assert own > 1000
    assert both <= columns["no_room"].sum(), "a label beside translations is one that found no room"


def test_realised_share_in_instance_mode_follows_the_fitted_law() -> None:
    """The reading of t: f = s t / (s t + 1 - t), s the labels of a dictionary instance relative to an ordinary one."""
    rows = make_rows(ROWS)
    context = make_context(max_seq_length=200)  # room for all

    def labels(t: float) -> tuple[int, int]:
        columns = stream_columns(CodeSwitchedLabels(t=t, mix_unit="instance"), rows, np.arange(ROWS), context)
        return int(columns["cross_lingual"].sum()), int((columns["labels"] != IGNORED).sum())

    s = labels(1.0)[0] / labels(0.0)[1]
    for t in (0.5, 0.7, 0.9):
        cross, total = labels(t)
        assert cross / total == pytest.approx(s * t / (s * t + 1 - t), abs=0.02)


def test_language_first_then_synonym() -> None:
    """DICT-MLM's example: andar -> it 1/3, es 1/3, en:walking 1/6, en:walk 1/6."""
    andar = Lexicon(*(np.asarray(a, np.int32) for a in ([1, 3], [9, 0, 1, 2], [1, 2, 1, 1], [1] * 5, range(5))))
    trials = 60000
    synonym, language = pick_synonyms(
        andar, np.ones(trials, np.int64), row_keys(0, np.arange(trials)), np.zeros(trials, np.int64)
    )
    for number, share in {1: 1 / 6, 2: 1 / 6, 3: 1 / 3, 4: 1 / 3}.items():
        assert_chance(int((synonym == number).sum()), trials, share)
    assert (language == np.array([9, 0, 0, 1, 2])[synonym]).all()


def test_words_of_a_row_draw_on_their_own() -> None:
    two = Lexicon(*(np.asarray(a, np.int32) for a in ([2], [0, 1], [1, 1], [1, 1], range(2))))
    rows = 20000
    keys = np.repeat(row_keys(0, np.arange(rows)), 2)
    synonym, _ = pick_synonyms(two, np.zeros(rows * 2, np.int64), keys, np.tile([0, 1], rows))
    assert_chance(int((synonym[::2] == synonym[1::2]).sum()), rows, 0.5)


def test_sides_are_swapped_half_of_the_time() -> None:
    rows = make_rows(ROWS, 2)
    rows = Rows(**{**vars(rows), "segment_language": np.tile([0, 1], len(rows.segment_words) // 2).astype(np.int32)})
    columns = stream_columns(MaskedPairs(random_order=True), rows, np.arange(ROWS), make_context())
    first = columns["language_ids"][columns["input_ids"] == SPECIAL["cls"]]
    assert_chance(int(first.sum()), len(first), 0.5)
    plain = stream_columns(MaskedPairs(), rows, np.arange(ROWS), make_context())
    assert (plain["language_ids"][plain["input_ids"] == SPECIAL["cls"]] == 0).all()


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
