"""What a worker computes of each step: the same rows for any number of workers, by any way of reading them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.unit.conftest import make_config
from tests.unit.streams.random_rows import assert_chance
from xalign_ray.config import derive
from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import (
    FEW_BYTES,
    GROUP,
    BatchReader,
    group_requests,
    needs_few_rows,
    open_local,
    split_blocks,
)
from xalign_ray.shards.order import Request, language_shares
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import IGNORED, TOKEN_COLUMNS, Columns, hash_rows


def with_workers(config: RunConfig, workers: int) -> RunConfig:
    return config.model_copy(update={"parallel": config.parallel.model_copy(update={"workers": workers})})


def all_steps(prepared: Prepared, config: RunConfig, first: int = 0) -> list[list[Columns]]:
    """[rank][step]."""
    return [list(open_local(prepared, config, first, rank)) for rank in range(config.parallel.workers)]


def join(shares: list[Columns]) -> Columns:
    return {name: np.concatenate([share[name] for share in shares]) for name in shares[0]}


def assert_same(left: Columns, right: Columns) -> None:
    assert left.keys() == right.keys()
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize("workers", [2, 3, 5, 7])
def test_shares_of_any_number_of_workers_are_the_same_steps(
    prepared: Prepared, config: RunConfig, workers: int
) -> None:
    (alone,) = all_steps(prepared, config)
    ranks = all_steps(prepared, with_workers(config, workers))
    assert [len(steps) for steps in ranks] == [40] * workers
    for step, whole in enumerate(alone):
        assert_same(join([steps[step] for steps in ranks]), whole)


def test_seven_and_sixty_four_workers_see_the_same_steps(prepared: Prepared, inputs) -> None:
    config = make_config(inputs, "train.global_batch_size=100", "train.max_steps=4")
    (alone,) = all_steps(prepared, config)
    for workers in (7, 64):
        ranks = all_steps(prepared, with_workers(config, workers))
        for step, whole in enumerate(alone):
            assert_same(join([steps[step] for steps in ranks]), whole)


@pytest.mark.parametrize("first", [1, 15, 32, 39])
def test_a_resumed_stream_goes_on_with_the_same_steps(prepared: Prepared, config: RunConfig, first: int) -> None:
    (alone,) = all_steps(prepared, config)
    (resumed,) = all_steps(prepared, config, first)
    assert len(resumed) == 40 - first
    for share, wanted in zip(resumed, alone[first:], strict=True):
        assert_same(share, wanted)


def test_steps_own_their_positions_in_slot_order(prepared: Prepared, config: RunConfig) -> None:
    for step, share in enumerate(open_local(prepared, config, 0, 0)):
        assert share["position"].tolist() == list(range(step * 12, (step + 1) * 12))


def steps_of(reader: BatchReader, request: Request) -> list[Columns]:
    return list(split_blocks([(request, reader(request))], request.high - request.low))


@pytest.mark.parametrize(("workers", "block_bytes"), [(1, 4000), (2, 1), (5, 700), (1, 20_000)])
def test_blocks_of_any_size_are_the_same_steps(
    prepared: Prepared, config: RunConfig, monkeypatch: pytest.MonkeyPatch, workers: int, block_bytes: int
) -> None:
    (alone,) = all_steps(prepared, config)
    monkeypatch.setattr(derive, "BLOCK_BYTES", block_bytes)
    spread = with_workers(config, workers)
    reader = BatchReader(prepared, spread)
    made = list(reader.requests(0, 0))
    rows = [(request.last - request.first) * (request.high - request.low) for request in made]
    assert max(rows) * reader.row_bytes <= max(block_bytes, 2 * reader.row_bytes)  # workers differ by a row
    assert min(rows) >= 1
    assert made[0].last - made[0].first == 1, "training begins when one step is there"
    assert len({len(list(reader.requests(0, rank))) for rank in range(workers)}) == 1
    ranks = all_steps(prepared, spread)
    for step, whole in enumerate(alone):
        assert_same(join([steps[step] for steps in ranks]), whole)


@pytest.mark.parametrize(
    ("workers", "block_bytes", "longest"),
    [(1, 4000, GROUP), (2, 20_000, GROUP), (3, 1, GROUP), (5, 700, 1)],  # 1: of ranks with two rows and with three
)
def test_requests_are_grouped_so_that_a_task_ends_each_block_by_its_size(
    prepared: Prepared, config: RunConfig, monkeypatch: pytest.MonkeyPatch, workers: int, block_bytes: int, longest: int
) -> None:
    monkeypatch.setattr(derive, "BLOCK_BYTES", block_bytes)
    reader = BatchReader(prepared, with_workers(config, workers))
    turns = zip(*(reader.requests(0, rank) for rank in range(workers)), strict=True)
    requests = [request for turn in turns for request in turn]
    groups, target = group_requests(requests, reader.row_bytes)
    assert [request for group in groups for request in group] == requests
    sizes = [[reader.row_bytes * len(reader(request)["position"]) for request in group] for group in groups]
    assert max(map(max, sizes)) < 1.5 * target
    assert all(size > target for group in sizes if len(group) > 1 for size in group)
    assert max(map(len, groups)) == longest


def test_the_bytes_of_a_row_are_those_of_its_columns(prepared: Prepared, config: RunConfig) -> None:
    reader = BatchReader(prepared, config)
    columns = reader(Request(0, 2, 0, 12))
    assert sum(values.nbytes for values in columns.values()) == 24 * reader.row_bytes


def test_a_request_may_be_any_stretch_of_a_chunk(prepared: Prepared, config: RunConfig) -> None:
    reader = BatchReader(prepared, config)
    whole = steps_of(reader, Request(0, 32, 0, 12))
    for first, last, low, high in ((16, 17, 0, 12), (20, 32, 3, 4), (31, 32, 11, 12)):
        part = steps_of(reader, Request(first, last, low, high))
        for share, step in zip(part, whole[first:last], strict=True):
            assert_same(share, {name: values[low:high] for name, values in step.items()})


def test_columns_have_the_shapes_and_types_of_the_contract(prepared: Prepared, config: RunConfig) -> None:
    share = next(open_local(prepared, config, 0, 0))
    assert {name: (values.dtype.name, values.shape) for name, values in share.items()} == {
        **dict.fromkeys(("input_ids", "labels"), ("int32", (12, 24))),
        **dict.fromkeys(TOKEN_COLUMNS[2:], ("int16", (12, 24))),
        "position": ("int64", (12,)),
        "row_hash": ("uint64", (12,)),
        "cross_lingual": ("int32", (12,)),
        "no_room": ("int32", (12,)),
    }
    np.testing.assert_array_equal(share["row_hash"], hash_rows(share["position"], share))


def test_columns_of_some_streams_are_blank_in_the_rows_of_others(prepared: Prepared, inputs) -> None:
    """Every share has every column, down to a share of one row; what a row's own stream does not give is zero."""
    streams = "streams=[{kind: masked_text}, {kind: aligned_pairs}, {kind: contrasted_pairs}]"
    aligned = "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de], align: hmm}]"
    config = make_config(inputs, streams, aligned)
    reader = BatchReader(prepared, config)
    request = Request(0, 16, 0, 12)
    whole = reader(request)
    kind = np.array([config.streams[stream].kind for stream, _ in reader.sources])[reader.order.places(request).source]
    assert {name for name in whole if name.startswith(("query_", "key_", "pair_", "aligned"))} == {
        "aligned", "pair_hash",
        *(f"{segment}_{name}" for segment in ("query", "key") for name in TOKEN_COLUMNS if name != "labels"),
    }  # fmt: skip
    assert whole["aligned"].shape == (192, 24, 3)
    for name, source_segment in (("pair_hash", "contrasted_pairs"), ("key_input_ids", "contrasted_pairs")):
        filled = whole[name].reshape(192, -1).any(axis=1)
        np.testing.assert_array_equal(filled, kind == source_segment)
    assert not whole["aligned"][kind != "aligned_pairs"].any()
    for row in range(12):
        one = reader(Request(3, 4, row, row + 1))
        assert_same(one, {name: values[36 + row : 37 + row] for name, values in whole.items()})


def test_the_masking_rate_follows_the_steps_of_the_run(prepared: Prepared, inputs) -> None:
    config = make_config(inputs, "streams=[{kind: masked_text}]", "masking.mlm_probability=[[9, 0.1], [29, 0.7]]")
    shares = list(open_local(prepared, config, 0, 0))
    rates = [(share["labels"] != IGNORED).sum() / (share["example_ids"] > 0).sum() for share in shares]
    # Sentences of 5 to 10 tokens: at least one of them is predicted, so a rate of 0.1 comes to more.
    assert 0.1 <= np.mean(rates[:10]) <= 0.17
    assert np.mean(rates[17:22]) == pytest.approx(0.4, abs=0.05)
    assert np.mean(rates[29:]) == pytest.approx(0.7, abs=0.06)


def test_streams_and_languages_are_drawn_by_weight_and_alpha(prepared: Prepared, inputs) -> None:
    config = make_config(inputs, "train.max_steps=200", "train.global_batch_size=96", "sampling.alpha=0.5")
    order, sources = prepared.order(config), prepared.sources(config)
    drawn = Counter(
        sources[source]
        for request in order.requests(0, 200, 0, 96, 32)
        for source in order.places(request).source.tolist()
    )
    total = 200 * 96
    sizes = {name: pool["tokens"] for name, pool in prepared.manifest["pools"].items() if name.startswith("text/")}
    shares = language_shares(sizes, 0.5)
    assert_chance(drawn[1, "pairs/de-en"], total, 1 / 3)
    for stream in (0, 2):
        for pool in ("text/en", "text/de"):
            assert_chance(drawn[stream, pool], total, shares[pool] / 3)


def test_every_row_of_a_pool_is_seen_once_before_any_is_seen_twice(prepared: Prepared, inputs) -> None:
    config = make_config(inputs, "streams=[{kind: masked_text}]", "train.max_steps=416", "sampling.alpha=1")
    order = prepared.order(config)
    seen: Counter[tuple[int, int, int]] = Counter()
    for request in order.requests(0, 416, 0, 12, 32):
        places = order.places(request)
        seen.update(zip(places.source.tolist(), places.shard.tolist(), places.row.tolist(), strict=True))
    for source, (_, pool) in enumerate(prepared.sources(config)):
        counts = [n for place, n in seen.items() if place[0] == source]
        assert len(counts) == prepared.manifest["pools"][pool]["rows"]
        assert max(counts) - min(counts) <= 1


def test_shares_follow_derive_batch(prepared: Prepared, config: RunConfig) -> None:
    spread = with_workers(config, 5)
    for rank in range(5):
        low, high = derive_batch(spread).rows_of(rank)
        assert next(open_local(prepared, spread, 0, rank))["position"].tolist() == list(range(low, high))


def test_another_seed_sees_other_rows_and_other_masks(prepared: Prepared, config: RunConfig, inputs) -> None:
    one = next(open_local(prepared, config, 0, 0))
    other = next(open_local(prepared, make_config(inputs, "seed=1"), 0, 0))
    assert not (one["row_hash"] == other["row_hash"]).any()


def test_data_tasks_are_for_runs_of_many_rows_and_for_recipes_that_ask(prepared: Prepared, config: RunConfig) -> None:
    def takes(steps: int, **parallel: object) -> bool:
        train = config.train.model_copy(update={"max_steps": steps})
        own = config.parallel.model_copy(update={"workers": 2} | parallel)
        return not needs_few_rows(prepared, config.model_copy(update={"train": train, "parallel": own}))

    reader = BatchReader(prepared, with_workers(config, 2))
    few = FEW_BYTES // (reader.rows_of(0) * reader.row_bytes)
    assert [takes(few), takes(few + 1), takes(few + 1, workers=4)] == [False, True, False]
    assert takes(1, data_cpus=1.0)
    assert takes(1, data_resource="reader")
