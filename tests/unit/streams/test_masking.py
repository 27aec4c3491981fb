"""Masking against BERT's own algorithm, and its shares within what chance allows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.streams.random_rows import REGULAR, SPECIAL, make_context, make_rows
from xalign_ray.config.choices import CodeSwitchedLabels, MaskedPairs, MaskedText
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.counter_random import CHOOSE_WORD, random_bits, row_keys
from xalign_ray.shards.rows import run_index, starts, sum_runs
from xalign_ray.streams.collate import IGNORED
from xalign_ray.streams.prediction import budgets, choose_words, stream_columns

ROWS = 1500


def assert_chance(hits: int, trials: int, share: float) -> None:
    """The hits are within 4.5 standard deviations of what chance gives; the seed is fixed, so this never flickers."""
    assert abs(hits - trials * share) <= 4.5 * np.sqrt(trials * share * (1 - share)), (hits / trials, share, trials)


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_budget_is_berts(rate: float) -> None:
    lengths = np.arange(1, 2000)
    assert budgets(lengths, rate).tolist() == [max(1, round(int(n) * rate)) for n in lengths]


def test_budget_rounds_half_to_even() -> None:
    assert budgets(np.array([3, 10, 30, 50]), 0.15).tolist() == [1, 2, 4, 8]  # 0.45, 1.5, 4.5, 7.5
    assert budgets(np.array([1, 3, 5, 7]), 0.5).tolist() == [1, 2, 2, 4]


def _bert(order: list[int], lengths: list[int], budget: int) -> set[int]:
    """create_masked_lm_predictions of google-research/bert, its loop."""
    masked: list[int] = []
    covered = 0
    for word in order:
        if covered >= budget:
            break
        if covered + lengths[word] > budget:
            continue
        masked.append(word)
        covered += lengths[word]
    return set(masked)


@pytest.mark.parametrize("partly", [False, True])
def test_choice_is_berts_greedy_with_skips(partly: bool) -> None:
    random = np.random.default_rng(1)
    groups = 800
    group_words = random.integers(0, 15, groups)
    words = int(group_words.sum())
    lengths = random.choice([1, 2, 3, 8], words)
    budget = random.integers(1, 12, groups)
    eligible = random.random(words) < 0.5 if partly else None
    keys, number = row_keys(3, run_index(group_words)), np.arange(words) - starts(group_words)[run_index(group_words)]
    chosen = choose_words(keys, number, lengths, group_words, budget, eligible)

    priority = (random_bits(keys, CHOOSE_WORD, number) >> np.uint64(34)).tolist()
    allowed = np.ones(words, bool) if eligible is None else eligible
    wanted: set[int] = set()
    for first, count, limit in zip(starts(group_words).tolist(), group_words.tolist(), budget.tolist(), strict=True):
        order = sorted((w for w in range(first, first + count) if allowed[w]), key=lambda w: (priority[w], w))
        wanted |= _bert(order, lengths.tolist(), limit)
    assert set(np.flatnonzero(chosen).tolist()) == wanted


def test_budget_is_used_to_the_last_piece_where_words_are_single_pieces() -> None:
    group_words = np.array([3, 40, 1])
    keys = np.repeat(row_keys(0, np.arange(3)), group_words)
    number = np.concatenate([np.arange(n) for n in group_words])
    chosen = choose_words(keys, number, np.ones(44, np.int32), group_words, np.array([2, 6, 5]))
    assert sum_runs(chosen.astype(int), group_words).tolist() == [2, 6, 1]


def test_every_word_is_chosen_equally_often() -> None:
    rows, words = 10000, 10
    keys = np.repeat(row_keys(0, np.arange(rows)), words)
    chosen = choose_words(
        keys, np.tile(np.arange(words), rows), np.ones(rows * words, int), np.full(rows, words), np.full(rows, 2)
    )
    for hits in chosen.reshape(rows, words).sum(axis=0):
        assert_chance(int(hits), rows, 0.2)


def test_no_word_is_chosen_from_no_words() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(choose_words(nothing.astype(np.uint64), nothing, nothing, nothing, nothing)) == 0
    none_fits = choose_words(
        row_keys(0, np.zeros(2, np.int64)), np.arange(2), np.array([3, 4]), np.array([2]), np.array([2])
    )
    assert none_fits.tolist() == [False, False]


def test_shares_of_mask_random_and_kept_pieces() -> None:
    rows = make_rows(ROWS)
    columns = stream_columns(MaskedText(), rows, np.arange(ROWS), make_context())
    original = stream_columns(
        MaskedText(), rows, np.arange(ROWS), make_context(MaskingConfig(mask_replace_prob=0, random_replace_prob=0))
    )
    at = columns["labels"] != IGNORED
    shown, label, total = columns["input_ids"][at], columns["labels"][at], int(at.sum())
    np.testing.assert_array_equal(label, original["input_ids"][at])
    assert total > 8000
    assert_chance(int((shown == SPECIAL["mask"]).sum()), total, 0.8)
    same_by_chance = 0.1 / len(REGULAR)  # a random piece may be the right one
    assert_chance(int((shown == label).sum()), total, 0.1 + same_by_chance)
    np.testing.assert_array_equal(columns["input_ids"][~at], original["input_ids"][~at])


@pytest.mark.parametrize(("stream", "segments"), [(MaskedText(), 1), (MaskedPairs(), 2)])
def test_masking_rate_is_the_budget_less_what_skipping_leaves(stream: MaskedText | MaskedPairs, segments: int) -> None:
    rows = make_rows(ROWS, segments)
    columns = stream_columns(stream, rows, np.arange(ROWS), make_context())
    example = columns["example_ids"]
    for e in range(1, int(example.max()) + 1):
        tokens, labels = (example == e).sum(axis=1), ((example == e) & (columns["labels"] != IGNORED)).sum(axis=1)
        assert (labels <= budgets(tokens, 0.15)).all()
    assert 0.13 < (columns["labels"] != IGNORED).sum() / (example > 0).sum() <= 0.16


def test_the_rate_follows_its_schedule_by_step() -> None:
    """Positions 4s to 4s + 3 are step s; between [10, 1/8] and [20, 5/8] step 15 masks 3/8."""
    rows = make_rows(400)
    positions = np.arange(400) % 100 + 4
    steps = positions // 4
    context = make_context(MaskingConfig(mlm_probability=((10, 0.125), (20, 0.625))), global_rows=4)
    columns = stream_columns(MaskedText(), rows, positions, context)
    for step, rate in ((1, 0.125), (10, 0.125), (15, 0.375), (20, 0.625), (25, 0.625)):
        constant = stream_columns(MaskedText(), rows, positions, make_context(MaskingConfig(mlm_probability=rate)))
        for name in columns:
            np.testing.assert_array_equal(columns[name][steps == step], constant[name][steps == step])
    assert set(steps.tolist()) == set(range(1, 26))


def test_random_pieces_are_regular_and_uniform() -> None:
    masking = MaskingConfig(mlm_probability=0.9, mask_replace_prob=0, random_replace_prob=1)
    columns = stream_columns(MaskedText(), make_rows(ROWS), np.arange(ROWS), make_context(masking))
    shown = columns["input_ids"][columns["labels"] != IGNORED]
    assert set(np.unique(shown)) <= set(REGULAR.tolist())
    counts = np.bincount(shown, minlength=1000)[REGULAR]
    expected = len(shown) / len(REGULAR)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - (len(REGULAR) - 1)) < 4.5 * np.sqrt(2 * (len(REGULAR) - 1))


def test_masks_differ_by_position_and_seed_and_by_nothing_else() -> None:
    rows = make_rows(600)
    stream = CodeSwitchedLabels()
    once = stream_columns(stream, rows, np.arange(600), make_context())
    again = stream_columns(stream, rows, np.arange(600), make_context())
    for name, values in once.items():
        np.testing.assert_array_equal(values, again[name])
    for other in (
        stream_columns(stream, rows, np.arange(600) + 600, make_context()),
        stream_columns(stream, rows, np.arange(600), make_context(seed=1)),
    ):
        assert ((once["labels"] != other["labels"]).any(axis=1)).mean() > 0.99
