"""The shares of the code-switching streams within what chance allows, and the realised fractions beside DICT-MLM's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.streams.random_rows import SPECIAL, SYNONYMS_FROM, VOCABULARY, make_context, make_lexicon, make_rows
from tests.unit.streams.test_masking import assert_chance
from xalign_ray.config.choices import CodeSwitchedCopy, CodeSwitchedLabels, MaskedText
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.rows import NO_ENTRY, Rows
from xalign_ray.streams.collate import IGNORED
from xalign_ray.streams.prediction import StreamContext, stream_columns

ROWS = 1500
COVERAGE = 0.3415  # Wikipedia's tokens with a synonym, as DICT-MLM counts them
REALISED = {0.5: 0.267, 0.7: 0.383, 0.9: 0.503}  # where 40 % of the examples are of languages without a dictionary
PUBLISHED = {0.5: 0.34, 0.7: 0.55, 0.9: 0.82}  # cross-lingual labels of DICT-MLM-50, -70, -90 (section 3.4)


def _single_pieces(covered: float) -> tuple[StreamContext, Rows]:
    """Words of one piece, synonyms of one piece, so that everything fits and shares are plain."""
    context = StreamContext(0, MaskingConfig(), VOCABULARY, make_lexicon(longest=1), 60, global_rows=1)
    return context, make_rows(ROWS, covered=covered, lengths=(1,))


@pytest.mark.parametrize("t", [0.5, 0.9])
def test_swapped_inputs_hide_what_is_not_flagged(t: float) -> None:
    """Of the labels t (with an entry) show a translation, and 0.8 (1 - t) show [MASK]."""
    context, rows = _single_pieces(1.0)
    columns = stream_columns(CodeSwitchedLabels(t=t, variant="input_swap"), rows, np.arange(ROWS), context)
    labelled = columns["labels"] != IGNORED
    shown, total = columns["input_ids"][labelled], int(labelled.sum())
    assert total > 8000
    assert_chance(int((shown >= SYNONYMS_FROM).sum()), total, t)
    assert_chance(int((shown == SPECIAL["mask"]).sum()), total, 0.8 * (1 - t))
    assert columns["labels"].max() < SYNONYMS_FROM
    np.testing.assert_array_equal(
        columns["cross_lingual"], ((columns["input_ids"] >= SYNONYMS_FROM) & labelled).sum(axis=1)
    )


def test_swapped_inputs_of_align_mlm() -> None:
    """With a dictionary of a quarter of the words 42.5 % of the targets are visible, 40 % are [MASK]."""
    context, rows = _single_pieces(0.25)
    columns = stream_columns(CodeSwitchedLabels(t=0.5, variant="input_swap"), rows, np.arange(ROWS), context)
    labelled = columns["labels"] != IGNORED
    total = int(labelled.sum())
    visible = (columns["input_ids"] == columns["labels"]) & labelled
    assert_chance(int((columns["input_ids"] == SPECIAL["mask"]).sum()), total, 0.4)
    same_by_chance = 0.05 / len(VOCABULARY.regular)
    assert_chance(int(visible.sum()), total, 0.375 + 0.05 + same_by_chance)


@pytest.mark.parametrize("rate", [0.15, 0.5, 1.0])
def test_the_rate_of_the_copy_is_of_its_words_with_an_entry(rate: float) -> None:
    context = StreamContext(
        0,
        MaskingConfig(mask_replace_prob=0, random_replace_prob=0),
        VOCABULARY,
        make_lexicon(longest=1),
        60,
        global_rows=1,
    )
    rows = make_rows(ROWS, filled=30, covered=0.4, lengths=(1,))
    columns = stream_columns(CodeSwitchedCopy(codeswitch_rate=rate), rows, np.arange(ROWS), context)
    switched = columns["input_ids"] >= SYNONYMS_FROM
    assert_chance(int(switched.sum()), int((rows.entry >= 0).sum()), rate)
    assert (columns["language_ids"][switched] >= 3).all(), "a replaced word has its synonym's language"
    assert (columns["language_ids"][~switched] < 3).all()
    assert (columns["labels"][switched & (columns["labels"] != IGNORED)] >= SYNONYMS_FROM).all(), "labels as they stand"


def test_a_gloss_of_long_synonyms_never_outgrows_its_row() -> None:
    rows = make_rows(ROWS, filled=30, covered=1.0)
    columns = stream_columns(
        CodeSwitchedCopy(codeswitch_rate=1), rows, np.arange(ROWS), make_context(max_seq_length=60)
    )
    assert columns["input_ids"].shape == (ROWS, 60)
    assert ((columns["input_ids"] == SPECIAL["sep"]).sum(axis=1) == 2 * rows.row_segments).all()
    assert columns["no_room"].sum() > 100
    roomy = stream_columns(CodeSwitchedCopy(codeswitch_rate=1), rows, np.arange(ROWS), make_context(max_seq_length=150))
    assert roomy["no_room"].sum() == 0


# --- what t comes to: the published fractions, and which reading gives them -------------------------------------------
LACKING = 99  # a language without a dictionary


def _fraction(stream: CodeSwitchedLabels, with_dictionary: float = 1) -> float:
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


@pytest.mark.parametrize("t", PUBLISHED)
def test_by_word_the_realised_fraction_is_coverage_times_t(t: float) -> None:
    assert _fraction(CodeSwitchedLabels(t=t)) == pytest.approx(COVERAGE * t, abs=0.015)


@pytest.mark.parametrize("t", PUBLISHED)
def test_by_instance_the_realised_fraction_follows_what_an_instance_yields(t: float) -> None:
    """Where every language has a dictionary an instance nearly fills its budget: above the published fraction."""
    s = _yield(_fraction(CodeSwitchedLabels(t=0.5, mix_unit="instance")), 0.5)
    fraction = _fraction(CodeSwitchedLabels(t=t, mix_unit="instance"))
    assert 0.8 < s < 0.95
    assert fraction == pytest.approx(s * t / (s * t + 1 - t), abs=0.01)
    assert fraction > PUBLISHED[t] + 0.05


@pytest.mark.parametrize(("t", "share"), REALISED.items())
def test_where_some_languages_have_no_dictionary_the_fraction_is_below_the_published_one(
    t: float, share: float
) -> None:
    """They are plain MLM (footnote 5): 40 % of the examples give as many labels at every t, none of them translated."""
    found = _fraction(CodeSwitchedLabels(t=t, mix_unit="instance"), 0.6)
    assert found == pytest.approx(share, abs=0.01)
    assert found < PUBLISHED[t] - 0.06


def test_an_example_of_a_language_without_a_dictionary_is_plain_masked_text() -> None:
    context, rows = _single_pieces(0.0)
    everywhere = frozenset(rows.segment_language.tolist())
    stream = CodeSwitchedLabels(t=0.9, mix_unit="instance")
    plain = stream_columns(MaskedText(), rows, np.arange(ROWS), context)
    lacking = stream_columns(stream, rows, np.arange(ROWS), replace(context, no_dictionary=everywhere))
    starved = stream_columns(stream, rows, np.arange(ROWS), context)
    for name, values in plain.items():
        np.testing.assert_array_equal(lacking[name], values, err_msg=name)
    assert (starved["labels"] >= 0).sum() < 0.2 * (plain["labels"] >= 0).sum(), (
        "its words have no entry to be chosen by"
    )


def test_refilled_instances_are_all_of_the_budget() -> None:
    context, rows = _single_pieces(COVERAGE)
    streams = CodeSwitchedLabels(t=1, mix_unit="instance", refill=True), CodeSwitchedLabels(t=0)
    refilled, ordinary = (stream_columns(stream, rows, np.arange(ROWS), context) for stream in streams)
    np.testing.assert_array_equal((refilled["labels"] >= 0).sum(axis=1), (ordinary["labels"] >= 0).sum(axis=1))
    assert 0 < refilled["cross_lingual"].sum() < (refilled["labels"] >= 0).sum()


def _yield(fraction: float, t: float) -> float:
    """s of f = s t / (s t + 1 - t): labels of a dictionary instance relative to those of an ordinary one."""
    return fraction * (1 - t) / (t * (1 - fraction))
