"""The order: exactly once an epoch, one sequence for any number of workers, resumed anywhere, few reads a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.streams.random_rows import assert_chance
from xalign_ray.config.derive import BatchSizes
from xalign_ray.feed.batches import GROUP
from xalign_ray.shards import order as order_module
from xalign_ray.shards.order import ROW_GROUP, TURNS, WINDOW_SHARDS, Order, Pool, Request, StreamPools, apportion

SHARES = np.array([0.25, 0.6, 0.05, 0.1])


def pool(*shards: int) -> Pool:
    return Pool(np.array(shards))


POOLS = [pool(300, 300, 270), pool(4000), pool(1), pool(*[400] * 9, 30)]


def stream(pools: list[Pool], shares: list[float] | np.ndarray, weight: float = 1.0) -> StreamPools:
    return StreamPools(weight, pools, lambda _: np.asarray(shares))


def make_order(global_rows: int = 12, chunk_steps: int = 8, seed: int = 0) -> Order:
    return Order([stream(POOLS, SHARES)], seed, global_rows, chunk_steps)


def read(order: Order, first: int, last: int, low: int, high: int, steps: int = 5) -> dict[int, tuple[int, int, int]]:
    """Position -> (source, shard, row) of the rows [low, high) of some steps."""
    found: dict[int, tuple[int, int, int]] = {}
    for request in order.requests(first, last, low, high, steps):
        places = order.places(request)
        where = zip(places.source.tolist(), places.shard.tolist(), places.row.tolist(), strict=True)
        steps_of = range(request.first, request.last)
        positions = np.concatenate([order.positions(step, low, high) for step in steps_of]).tolist()
        for position, place in zip(positions, where, strict=True):
            assert position not in found
            found[position] = place
    return found


def read_groups(order: Order, request: Request) -> int:
    """Rows of the row groups that a request needs."""
    places = order.places(request)
    keys = set(
        zip(*(values.tolist() for values in (places.source, places.shard, places.row // ROW_GROUP)), strict=True)
    )
    sizes = (order.pools[source].shard_rows[shard] - group * ROW_GROUP for source, shard, group in keys)
    return sum(min(ROW_GROUP, int(size)) for size in sizes)


def test_every_row_of_a_pool_once_an_epoch() -> None:
    order = make_order()
    drawn = read(order, 0, 3600, 0, 12)
    assert sorted(drawn) == list(range(3600 * 12)), "positions neither repeat nor leave gaps"
    for source, pool in enumerate(POOLS):
        rows = [(shard, row) for shard, size in enumerate(pool.shard_rows.tolist()) for row in range(size)]
        seen = Counter((s, r) for n, s, r in drawn.values() if n == source)
        assert max(seen.values()) - min(seen.values()) <= 1, "after any number of rows no row is two epochs ahead"
        assert set(seen) == set(rows), "all rows of a pool, and no others"


def test_the_first_epoch_is_whole_before_the_second_begins() -> None:
    order = Order([stream([pool(5, 4, 3)], [1.0])], 0, 6, 2)
    drawn = [place[1:] for _, place in sorted(read(order, 0, 8, 0, 6).items())]
    for begin in range(0, 48, 12):  # chunks of 12 positions are epochs of 12 rows here
        assert len(set(drawn[begin : begin + 12])) == 12


def in_turn(order: Order, steps: int) -> list[tuple[int, int, int]]:
    """The places of an order of one row a step and one step a chunk: as its epochs have them."""
    return [read(order, step, step + 1, 0, 1)[step] for step in range(steps)]


def test_each_epoch_takes_shards_and_row_groups_in_an_order_of_its_own() -> None:
    shards = [ROW_GROUP * 3] * 8
    rows = sum(shards)
    order = Order([stream([pool(*shards), pool(*shards)], [1.0, 0.0])], 0, rows, 1)
    epochs = []
    for epoch in range(3):
        drawn = read(order, epoch, epoch + 1, 0, rows)
        runs = [drawn[p][1:] for p in sorted(drawn)]
        assert len(set(runs)) == rows
        epochs.append(runs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    other = Order([stream([pool(*shards), pool(*shards)], [0.0, 1.0])], 0, rows, 1)
    assert [place[1:] for _, place in sorted(read(other, 0, 1, 0, rows).items())] != epochs[0], "so does each source"


def test_row_groups_are_mixed_within_windows_of_shards() -> None:
    shards = [ROW_GROUP * 4] * (2 * WINDOW_SHARDS)
    order = Order([stream([pool(*shards)], [1.0])], 0, 1, 1)
    groups = [place[1:] for place in in_turn(order, sum(shards))][::ROW_GROUP]
    seen = [shard for shard, _ in groups]
    first, second = seen[: 4 * WINDOW_SHARDS], seen[4 * WINDOW_SHARDS :]
    assert len(set(first)) == len(set(second)) == WINDOW_SHARDS, "few shards are open at once"
    assert not set(first) & set(second)
    assert first != sorted(first, key=first.index), "the row groups of a shard are not read one after the other"
    assert all(row % ROW_GROUP == 0 for _, row in groups), "a row group is read to its end"


@pytest.mark.parametrize("global_rows", [12, 96, 13, 130])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_any_number_of_workers_sees_the_same_rows(global_rows: int, workers: int) -> None:
    alone = read(make_order(global_rows, 32), 0, 40, 0, global_rows)
    batch = BatchSizes(global_rows, workers, 1)
    together: dict[int, tuple[int, int, int]] = {}
    for rank in range(workers):
        share = read(make_order(global_rows, 32), 0, 40, *batch.rows_of(rank))
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


@pytest.mark.parametrize("first", [1, 3, 8, 9, 17, 39])
def test_a_resumed_order_goes_on_where_it_was(first: int) -> None:
    whole = read(make_order(), 0, 40, 3, 9)
    resumed = read(make_order(), first, 40, 3, 9)
    assert resumed == {position: place for position, place in whole.items() if position >= first * 12}


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = read(make_order(), 0, 6, 0, 12), read(make_order(), 0, 30, 0, 12)
    assert short == {position: place for position, place in long.items() if position < 6 * 12}


def test_the_order_does_not_depend_on_how_requests_are_cut() -> None:
    whole = read(make_order(100, 32), 0, 40, 0, 100, steps=40)
    assert read(make_order(100, 32), 0, 40, 0, 100, steps=1) == whole
    order = make_order(100, 32)
    for request in order.requests(0, 40, 0, 100, 1, parts=7):
        places = order.places(request)
        for row, place in enumerate(zip(*(v.tolist() for v in vars(places).values()), strict=True), request.low):
            assert whole[request.first * 100 + row] == place


def test_long_requests_end_with_a_chunk() -> None:
    requests = [(one.first, one.last) for one in make_order(chunk_steps=8).requests(2, 60, 1, 5, 20)]
    assert requests == [(2, 3), (3, 5), (5, 8), (8, 16), (16, 32), (32, 48), (48, 60)]


def test_requests_grow_from_one_step_and_end_at_the_last() -> None:
    requests = list(make_order().requests(2, 18, 1, 5, 6))
    assert requests == [
        Request(2, 3, 1, 5),
        Request(3, 5, 1, 5),
        Request(5, 9, 1, 5),
        Request(9, 15, 1, 5),
        Request(15, 18, 1, 5),
    ]
    assert list(make_order().requests(10, 10, 1, 5, 3)) == []


def test_a_step_may_be_several_requests_each_a_part_of_its_rows() -> None:
    assert list(make_order().requests(7, 9, 1, 9, 1, parts=3)) == [
        Request(7, 8, 1, 3), Request(7, 8, 3, 6), Request(7, 8, 6, 9),
        Request(8, 9, 1, 3), Request(8, 9, 3, 6), Request(8, 9, 6, 9),
    ]  # fmt: skip


def test_a_chunk_has_of_each_source_the_integer_below_or_above_its_share() -> None:
    order = make_order(global_rows=10, chunk_steps=33)
    rows = 330 * SHARES
    before = np.stack([order.sampled_before(chunk) for chunk in range(2001)])
    counts = np.diff(before, axis=0)
    assert (counts.sum(axis=1) == 330).all()
    assert ((counts >= np.floor(rows)) & (counts <= np.ceil(rows))).all()
    for source, share in enumerate(SHARES):
        assert_chance(int(before[-1, source] - 2000 * np.floor(rows[source])), 2000, rows[source] % 1)
        assert abs(before[-1, source] - 2000 * 330 * share) < 100
    assert len({tuple(count) for count in counts.tolist()}) > 1, "drawn anew for each chunk"


def test_what_is_drawn_before_a_chunk_is_what_the_chunks_before_it_gave() -> None:
    order = make_order(12, 8)
    drawn = Counter(place[0] for place in read(order, 0, 10 * 8, 0, 12).values())
    assert [drawn[source] for source in range(4)] == order.sampled_before(10).tolist()
    late = make_order(12, 8).sampled_before(5000)
    assert late.tolist() == order.sampled_before(5000).tolist(), "whatever was asked for before"
    assert late.sum() == 5000 * 96


def test_each_partition_has_every_stream_in_proportion() -> None:
    """So every rank has the same work: streams cost differently."""
    few = [stream(POOLS, SHARES, weight=0.2), stream(POOLS[:2], [0.5, 0.5], weight=0.7), stream([pool(9)], [1.0], 0.1)]
    order = Order(few, 0, 512, 32)
    kind = np.repeat([0, 1, 2], [4, 2, 1])
    for low, high in pairwise(range(0, 513, 64)):
        drawn = np.array([place[0] for place in read(order, 0, 64, low, high).values()])
        counts = np.bincount(kind[drawn], minlength=3)
        np.testing.assert_allclose(counts / len(drawn), [0.2, 0.7, 0.1], atol=0.002)


def test_a_ranks_rows_of_a_chunk_are_few_contiguous_reads() -> None:
    """At a hundred languages, on 64 to 512 ranks: rows at random would decode 50.8 for one that is used."""
    shares = np.arange(1, 105) ** 1.5
    pools = [pool(*[64 * ROW_GROUP] * 3, 100) for _ in range(104)]
    alone = [(1, 64, 1, 1.2), (3, 64, 1, 1.5), (1, 256, 1, 1.4), (1, 512, 1, 1.7)]
    of_tasks = [(1, 256, GROUP, 1.2), (3, 256, GROUP, 1.45), (1, 512, GROUP, 1.2), (3, 512, GROUP, 1.5)]
    for streams, ranks, adjacent, most in alone + of_tasks:  # a data task reads for several adjacent ranks
        order = Order([stream(pools, shares / shares.sum())] * streams, 0, 8192, 32)
        share = 8192 // ranks * adjacent
        some = range(0, ranks // adjacent, max(1, ranks // adjacent // 64))
        requests = [Request(224, 256, rank * share, rank * share + share) for rank in some]
        decoded = sum(read_groups(order, request) for request in requests)
        assert decoded < most * len(some) * share * 32


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Order:
    """A hundred sources of which most give less than a row group to a chunk of 2,048 rows."""
    monkeypatch.setattr(order_module, "MANY_ROWS", 2048)
    monkeypatch.setattr(order_module, "TABLED", 64)
    pools = [pool(*[2 * ROW_GROUP] * (1 + number % 3), 7) for number in range(97)] + [pool(3), pool(200), pool(900)]
    shares = np.arange(100) ** 1.5  # the first has none
    return Order([StreamPools(1.0, pools, constantly(shares / shares.sum()))], 0, 64, 32)


def constantly(shares: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda _: shares


def test_many_sources_give_row_groups_in_turn_as_a_slow_line_has_them(many: Order) -> None:
    """Two tables of chunks: pieces of all sources in a line, dealt to chunks row by row."""
    before = np.zeros(100, np.int64)
    for table in range(2):
        counts = np.diff([many.sampled_before(chunk) for chunk in range(64 * table, 64 * table + 65)], axis=0)
        drawn = counts.sum(axis=0)
        assert drawn.sum() == 64 * 2048
        assert (abs(drawn - 64 * 2048 * many.shares(0)) < 1).all(), "of a table the integer below or above the share"
        phases = np.random.default_rng([0, TURNS, table, 0, 0]).random(100)
        pieces = []
        for source, total in enumerate(drawn.tolist()):
            size = min(many.pools[source].rows, ROW_GROUP)
            left, own = int(before[source]) % size, []
            while total:
                own.append(min(total, size - left))
                total, left = total - own[-1], 0
            pieces += [((n + phases[source]) / len(own), source, rows) for n, rows in enumerate(own)]
        line = [source for _, source, rows in sorted(pieces, key=lambda piece: piece[0]) for _ in range(rows)]
        slow = [np.bincount(line[at : at + 2048], minlength=100) for at in range(0, len(line), 2048)]
        np.testing.assert_array_equal(counts, slow)
        before += drawn


def test_many_sources_are_read_by_whole_row_groups_and_each_row_once_an_epoch(many: Order) -> None:
    chunks = [Request(step, step + 32, 0, 64) for step in range(320, 640, 32)]
    assert sum(read_groups(many, chunk) for chunk in chunks) < 1.5 * 10 * 2048
    parted = Order([StreamPools(1.0, many.pools, lambda step: many.shares(step).copy())], 0, 64, 32)
    assert sum(read_groups(parted, chunk) for chunk in chunks) > 5 * 10 * 2048, "without turns"
    seen = Counter(place for place in read(many, 0, 32 * 40, 0, 64).values() if place[0] == 60)
    assert set(seen.values()) <= {max(seen.values()), max(seen.values()) - 1}
    assert len(seen) == many.pools[60].rows


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_many_sources_are_the_same_for_any_number_of_workers_and_resumed(many: Order, workers: int) -> None:
    alone = read(many, 2040, 2060, 0, 64)  # over the end of a table
    again = Order(many.streams, 0, 64, 32)
    together: dict[int, tuple[int, int, int]] = {}
    for rank in range(workers):
        together |= read(again, 2040, 2060, *BatchSizes(64, workers, 1).rows_of(rank))
    assert together == alone
    assert read(Order(many.streams, 0, 64, 32), 2055, 2060, 0, 64).items() <= alone.items()


def test_a_late_resume_draws_tables_and_no_chunk_before(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Counter[str] = Counter()
    real = np.random.default_rng

    def counting(key: list[int]) -> np.random.Generator:
        drawn["generators"] += 1
        return real(key)

    monkeypatch.setattr(np.random, "default_rng", counting)
    many = Order([stream([pool(512)] * 104, np.full(104, 1 / 104))], 0, 8192, 32)
    (request,) = many.requests(500_000, 500_001, 0, 128, 1)
    many.places(request)
    assert drawn["generators"] < 40, "16 tables of chunks, and the epochs of a few sources"


def test_partitions_are_as_many_as_make_long_reads_and_at_most_the_rows_of_a_step() -> None:
    partitions = [
        len(make_order(rows, steps).partitions) - 1
        for rows, steps in ((1, 32), (12, 32), (13, 400), (127, 32), (8192, 32))
    ]
    assert partitions == [1, 1, 13, 15, 1024]


def test_shares_of_a_function_are_those_of_a_chunks_first_step() -> None:
    steady = Order([StreamPools(1.0, POOLS, lambda _: SHARES)], 0, 12, 4)
    assert read(steady, 0, 40, 0, 12) == read(make_order(12, 4), 0, 40, 0, 12)
    last = np.array([0.0, 0.0, 0.0, 1.0])
    turning = Order([StreamPools(1.0, POOLS, lambda step: SHARES if step < 18 else last)], 0, 12, 4)
    before, after = read(turning, 0, 20, 0, 12), read(turning, 20, 40, 0, 12)  # step 18 is in the chunk from 16 on
    assert before == read(make_order(12, 4), 0, 20, 0, 12)
    assert {source for source, _, _ in after.values()} == {3}
    assert read(turning, 30, 31, 3, 7) == {p: place for p, place in after.items() if 363 <= p < 367}
    np.testing.assert_array_equal(turning.shares(19), SHARES)
    np.testing.assert_array_equal(turning.shares(20), last)


def test_rows_are_apportioned_by_largest_remainder() -> None:
    assert apportion([1, 1, 1], 10) == [4, 3, 3]
    assert apportion([0.5, 0.25, 0.25], 8) == [4, 2, 2]
    assert apportion([2, 1], 4) == [3, 1]
    assert sum(apportion([0.3, 0.3, 0.4, 0.001], 12345)) == 12345
