"""The order: exactly once an epoch, one sequence for any number of workers, resumed anywhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.text.test_masking import assert_chance
from xalign_ray.config.derive import BatchSizes, partitions
from xalign_ray.text.order import COUNTS, EPOCH, PARTITIONS, SHUFFLE, Order, Pool, Request

POOLS = [Pool((5, 5, 3)), Pool((40,)), Pool((1,)), Pool((7,) * 9 + (2,))]
SHARES = [0.2, 0.5, 0.05, 0.25]


def make_order(global_rows: int = 12, chunk_steps: int = 4, seed: int = 0) -> Order:
    return Order(POOLS, SHARES, seed, global_rows, partitions(global_rows), chunk_steps)


def read(order: Order, first: int, last: int, low: int, high: int) -> dict[int, tuple[int, int, int]]:
    """Position -> (source, group, row) of the rows [low, high) of some steps."""
    found: dict[int, tuple[int, int, int]] = {}
    for request in order.requests(first, last, low, high):
        places = order.places(request)
        where = zip(places.source.tolist(), places.group.tolist(), places.row.tolist(), strict=True)
        steps = range(request.first, request.last)
        positions = np.concatenate([order.positions(step, low, high) for step in steps]).tolist()
        for position, place in zip(positions, where, strict=True):
            assert position not in found
            found[position] = place
    return found


def test_every_row_of_a_pool_once_an_epoch() -> None:
    order = make_order()
    drawn = read(order, 0, 400, 0, 12)
    assert sorted(drawn) == list(range(400 * 12)), "positions neither repeat nor leave gaps"
    for source, pool in enumerate(POOLS):
        rows = [(group, row) for group, size in enumerate(pool.group_rows) for row in range(size)]
        seen = Counter((g, r) for s, g, r in drawn.values() if s == source)
        assert set(seen) == set(rows), "all rows of a pool, and no others"
        assert max(seen.values()) - min(seen.values()) <= 1, "after any number of rows no row is two epochs ahead"
        assert max(seen.values()) >= 10


def test_the_first_epoch_is_whole_before_the_second_begins() -> None:
    pool = Pool((4, 4, 4))
    order = Order([pool], [1.0], 0, 6, 6, 2)
    drawn = [place[1:] for _, place in sorted(read(order, 0, 8, 0, 6).items())]
    for begin in range(0, 48, 12):  # chunks of 12 positions are epochs of 12 rows here
        assert len(set(drawn[begin : begin + 12])) == 12


def test_each_epoch_takes_the_row_groups_in_an_order_of_its_own() -> None:
    order = Order([Pool((4,) * 30), Pool((4,) * 30)], [1.0, 0.0], 0, 4, 1, 1)  # a step is a chunk is one row group
    groups = [group for _, group, _ in (read(order, step, step + 1, 0, 1)[4 * step] for step in range(90))]
    epochs = [groups[begin : begin + 30] for begin in (0, 30, 60)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(30))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    other = Order([Pool((4,) * 30), Pool((4,) * 30)], [0.0, 1.0], 0, 4, 1, 1)
    of_other = [group for _, group, _ in (read(other, step, step + 1, 0, 1)[4 * step] for step in range(30))]
    assert of_other != epochs[0], "so does each source"


def test_each_chunk_and_each_partition_is_shuffled_in_an_order_of_its_own() -> None:
    order = Order(
        [Pool((24,))], [1.0], 0, 12, 2, 2
    )  # an epoch is a chunk; two partitions of six rows, twelve rows each
    rows = {position: row for position, (_, _, row) in read(order, 0, 6, 0, 12).items()}
    partitions_of_chunks = [
        [rows[step * 12 + row] for step in (first, first + 1) for row in range(partition * 6, partition * 6 + 6)]
        for first in (0, 2, 4)
        for partition in (0, 1)
    ]
    permutations = [tuple(row - min(partition) for row in partition) for partition in partitions_of_chunks]
    assert [sorted(one) for one in permutations] == [list(range(12))] * 6
    assert len(set(permutations)) == 6


def test_each_chunk_deals_its_sources_to_partitions_anew() -> None:
    order = Order([Pool((1000,)), Pool((1000,))], [0.5, 0.5], 0, 12, 6, 4)
    drawn = read(order, 0, 80, 0, 12)
    dealt = np.zeros((20, 6), int)  # rows of the first source in each partition of each chunk
    for position, (source, _, _) in drawn.items():
        step, row = divmod(position, 12)
        dealt[step // 4, row // 2] += source == 0
    totals = dealt.sum(axis=1)
    assert len(set(totals.tolist())) > 5, "how many rows a chunk has of a source is drawn anew"
    fewer, more = np.argsort(totals, kind="stable")[[0, -1]]
    assert totals[fewer] < totals[more]
    # Were all chunks dealt alike, more rows of a source would mean no fewer of them in any partition.
    nested = [(dealt[a] <= dealt[b]).all() for a in range(20) for b in range(20) if totals[a] < totals[b]]
    assert not all(nested)


@pytest.mark.parametrize("global_rows", [12, 96, 13, 130])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_any_number_of_workers_sees_the_same_rows(global_rows: int, workers: int) -> None:
    alone = read(make_order(global_rows), 0, 11, 0, global_rows)
    batch = BatchSizes(global_rows, workers, 1)
    together: dict[int, tuple[int, int, int]] = {}
    for rank in range(workers):
        share = read(make_order(global_rows), 0, 11, *batch.rows_of(rank))
        assert not share.keys() & together.keys()
        together |= share
    assert together == alone


def test_shares_of_workers_are_slots_in_order() -> None:
    for rows, workers in ((12, 5), (96, 7), (10, 10)):
        shares = [BatchSizes(rows, workers, 1).rows_of(rank) for rank in range(workers)]
        assert shares[0][0] == 0
        assert shares[-1][1] == rows
        assert all(a[1] == b[0] for a, b in pairwise(shares))
        sizes = [high - low for low, high in shares]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1


@pytest.mark.parametrize("first", [1, 3, 4, 5, 17, 39])
def test_a_resumed_order_goes_on_where_it_was(first: int) -> None:
    whole = read(make_order(), 0, 40, 3, 9)
    resumed = read(make_order(), first, 40, 3, 9)
    assert resumed == {position: place for position, place in whole.items() if position >= first * 12}


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = read(make_order(), 0, 6, 0, 12), read(make_order(), 0, 30, 0, 12)
    assert short == {position: place for position, place in long.items() if position < 6 * 12}


def test_requests_end_at_chunks_and_at_the_last_step() -> None:
    wanted = [Request(0, 2, 4, 1, 5), Request(1, 4, 8, 1, 5), Request(2, 8, 10, 1, 5)]
    assert list(make_order().requests(2, 10, 1, 5)) == wanted
    assert list(make_order().requests(10, 10, 1, 5)) == []


def test_another_seed_is_another_order() -> None:
    assert read(make_order(seed=0), 0, 4, 0, 12) != read(make_order(seed=1), 0, 4, 0, 12)


def test_sources_are_drawn_by_their_shares() -> None:
    order = make_order(global_rows=96, chunk_steps=16)
    drawn = Counter(place[0] for place in read(order, 0, 320, 0, 96).values())
    for source, share in enumerate(SHARES):
        assert_chance(drawn[source], 320 * 96, share)


def test_sources_are_mixed_within_steps() -> None:
    order = make_order(global_rows=96, chunk_steps=16)
    drawn = read(order, 0, 64, 0, 96)
    of_step = [sum(drawn[step * 96 + row][0] == 1 for row in range(96)) for step in range(64)]
    for hits in of_step:
        assert_chance(hits, 96, 0.5)
    assert len(set(of_step)) > 5


def test_a_workers_part_of_a_chunk_is_few_row_groups() -> None:
    """What makes streaming cheap: a rank's share of a chunk is a contiguous read of each source."""
    order = Order([Pool((512,) * 100)], [1.0], 0, 256, partitions(256), 16)
    (request,) = order.requests(0, 16, 64, 128)
    assert len(set(order.places(request).group.tolist())) <= 3  # 1,024 rows lie in two or three groups of 512


def test_resuming_late_draws_one_row_of_totals_for_each_chunk_before_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: Counter[int] = Counter()
    real = np.random.default_rng

    def counting(key: list[int]) -> np.random.Generator:
        drawn[key[1]] += 1
        return real(key)

    monkeypatch.setattr(np.random, "default_rng", counting)
    many = Order([Pool((512,) * 20)] * 104, [1 / 104] * 104, 0, 8192, partitions(8192), 16)
    (request,) = many.requests(100_000, 100_001, 0, 8192)
    many.places(request)
    assert drawn[COUNTS] == 100_000 // 16 + 1
    assert (drawn[PARTITIONS], drawn[SHUFFLE]) == (1, 64)
    assert drawn[EPOCH] <= 2 * 104, "each source is in one epoch, or ends one and begins the next"


def test_lanes_divide_the_global_batch() -> None:
    assert [partitions(n) for n in (1, 12, 64, 96, 127, 128, 8192)] == [1, 12, 64, 48, 1, 64, 64]


def test_shares_of_a_function_are_those_of_a_chunks_first_step() -> None:
    steady = Order(POOLS, lambda _: SHARES, 0, 12, partitions(12), 4)
    assert read(steady, 0, 40, 0, 12) == read(make_order(), 0, 40, 0, 12)
    turning = Order(POOLS, lambda step: SHARES if step < 18 else [0.0, 0.0, 0.0, 1.0], 0, 12, partitions(12), 4)
    before, after = read(turning, 0, 20, 0, 12), read(turning, 20, 40, 0, 12)  # step 18 is in the chunk from 16 on
    assert before == read(make_order(), 0, 20, 0, 12)
    assert {source for source, _, _ in after.values()} == {3}
    assert read(turning, 30, 31, 3, 7) == {p: place for p, place in after.items() if 363 <= p < 367}
