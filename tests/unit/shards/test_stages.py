"""Stages of a run: what rows its steps are made of, whoever asks for them and wherever it was interrupted."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.unit.conftest import STREAMS, make_config, prepare_here
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.derive import stages_of
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import BatchReader, open_local
from xalign_ray.shards.order import CHUNK_STEPS, Request
from xalign_ray.shards.planned import planned_shares
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import IGNORED, Columns
from xalign_ray.tokens.stats import measure

STAGES = [
    {
        "name": "short",
        "data": {"max_seq_length": 16},
        "sampling": {"languages": ["en"], "alpha": 1.0},
        "streams": [{"kind": "masked_text"}],
        "masking": {"mlm_probability": 0.4},
        "train": {"max_steps": 37, "global_batch_size": 18, "per_device_batch_size": 18},
    },
    {"name": "all", "sampling": {"alpha": 0.3}, "train": {"max_steps": 70}},
    {"name": "one step", "masking": {"mlm_probability": 0.1}, "train": {"max_steps": 1}},
    {"name": "text", "streams": [{"kind": "masked_text"}], "train": {"max_steps": 45}},
]
STEPS = 37 + 70 + 1 + 45


def staged(folder: Path, stages: list[dict], *settings: str) -> RunConfig:
    written = yaml.safe_dump(stages, default_flow_style=True, width=10_000).strip()
    return make_config(folder, "train.max_steps=0", f"stages={written}", *settings)


@pytest.fixture(scope="module")
def config(inputs: Path) -> RunConfig:
    return staged(inputs, STAGES)


@pytest.fixture(scope="module")
def prepared(config: RunConfig) -> Prepared:
    return prepare_here(config)


def batches(prepared: Prepared, config: RunConfig, first: int = 0, rank: int = 0) -> list[Columns]:
    return list(open_local(prepared, config, first, rank))


def test_positions_follow_one_another_across_stages(prepared: Prepared, config: RunConfig) -> None:
    made = batches(prepared, config)
    assert [len(batch["position"]) for batch in made] == [18] * 37 + [12] * (STEPS - 37)
    positions = np.concatenate([batch["position"] for batch in made])
    assert np.array_equal(positions, np.arange(len(positions)))


@pytest.mark.parametrize("first", [1, 36, 37, 38, 69, 101, 106, 107, 108, 140, 152])
def test_a_run_that_begins_at_any_step_sees_the_same_rows(prepared: Prepared, config: RunConfig, first: int) -> None:
    whole, resumed = batches(prepared, config), batches(prepared, config, first)
    assert len(resumed) == STEPS - first
    for one, other in zip(whole[first:], resumed, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_rows_do_not_depend_on_the_number_of_workers(prepared: Prepared, config: RunConfig) -> None:
    alone = batches(prepared, config)
    spread = config.model_copy(update={"parallel": config.parallel.model_copy(update={"workers": 3})})
    ranks = [batches(prepared, spread, rank=rank) for rank in range(3)]
    for step, whole in enumerate(alone):
        parts = [rank[step]["row_hash"] for rank in ranks]
        assert np.array_equal(np.concatenate(parts), whole["row_hash"])


def test_a_source_is_read_on_where_the_stage_before_left_it(prepared: Prepared, config: RunConfig) -> None:
    """Of each source no row is seen for the n-th time before all of them were seen n - 1 times."""
    rows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for of in prepared.orders(config):
        places = of.order.places(Request(of.first, of.last, 0, of.order.global_rows))
        for source, shard, row in zip(places.source.tolist(), places.shard.tolist(), places.row.tolist(), strict=True):
            stream, pool = of.sources[source]
            rows.setdefault((of.stage.config.streams[stream].kind, pool), []).append((shard, row))
    assert {pool for _, pool in rows} == {"text-16/en", "text/en", "text/de", "pairs/de-en"}
    assert len(rows["masked_text", "text/en"]) > prepared.manifest["pools"]["text/en"]["rows"] / 2
    repeated = 0
    for (_, pool), drawn in rows.items():
        size = prepared.manifest["pools"][pool]["rows"]
        assert all(len(set(drawn[begin : begin + size])) == len(drawn[begin : begin + size])
                   for begin in range(0, len(drawn), size))  # fmt: skip
        repeated += len(drawn) > size
    assert repeated, "no source came to a second epoch, so that nothing was tried"


def test_orders_cover_the_steps_without_a_gap(prepared: Prepared, config: RunConfig) -> None:
    orders = prepared.orders(config)
    assert [(of.first, of.last) for of in orders] == [(0, 32), (32, 37), (37, 101), (101, 107), (107, 108), (108, 153)]
    assert [of.order.chunk_steps for of in orders] == [CHUNK_STEPS, 5, CHUNK_STEPS, 6, 1, CHUNK_STEPS]
    assert all(one.last == other.first for one, other in pairwise(orders))


def test_each_stage_has_its_own_length_streams_languages_and_mask_rate(prepared: Prepared, config: RunConfig) -> None:
    made = batches(prepared, config)
    assert {batch["input_ids"].shape[1] for batch in made[:37]} == {16}
    assert {batch["input_ids"].shape[1] for batch in made[37:]} == {24}
    english = prepared.languages.index("en")
    shown = [batch["language_ids"][batch["example_ids"] > 0] for batch in made]
    assert {int(code) for codes in shown[:37] for code in np.unique(codes)} == {english}
    assert len(np.unique(np.concatenate(shown[37:]))) == 2

    def masked(some: list[Columns]) -> float:
        labels = sum(int((batch["labels"] != IGNORED).sum()) for batch in some)
        return labels / sum(int((batch["example_ids"] > 0).sum()) for batch in some)

    assert 0.3 < masked(made[:37]) < 0.5
    assert 0.1 < masked(made[37:107]) < 0.25


def test_one_stage_is_the_recipe_without_stages(inputs: Path) -> None:
    plain = make_config(inputs, "train.max_steps=45")
    one = staged(inputs, [{"name": "all", "train": {"max_steps": 45}}])
    prepared = prepare_here(plain)
    assert prepare_here(one).folder == prepared.folder
    for first, other in zip(batches(prepared, plain), batches(prepared, one), strict=True):
        assert np.array_equal(first["row_hash"], other["row_hash"])


def test_a_schedule_over_steps_goes_on_through_stages(inputs: Path) -> None:
    corners = "masking.mlm_probability=[[0, 0.05], [60, 0.6]]"
    streams = "streams=[{kind: masked_text}]"
    plain = make_config(inputs, "train.max_steps=60", corners, streams)
    halves = [{"name": name, "train": {"max_steps": steps}} for name, steps in (("a", 32), ("b", 28))]
    two = staged(inputs, halves, corners, streams)
    prepared = prepare_here(plain)
    rates = [
        [(batch["labels"] != IGNORED).sum() / (batch["example_ids"] > 0).sum() for batch in batches(prepared, one)]
        for one in (plain, two)
    ]
    assert np.corrcoef(*rates)[0, 1] > 0.95
    assert rates[1][59] > 0.5


def test_prepared_data_hold_what_the_stages_draw_and_count_it_once(
    inputs: Path, prepared: Prepared, config: RunConfig
) -> None:
    plain = prepare_here(make_config(inputs))
    assert set(prepared.manifest["pools"]) == {"text/en", "text/de", "pairs/de-en", "text-16/en", "text-16/de"}
    for key in ("held_out", "counts", "bad_rows", "sources"):
        of_both = [one.manifest[key] for one in (prepared, plain)]
        if key == "held_out":
            of_both = [{name: pool["rows"] for name, pool in one.items()} for one in of_both]
        assert of_both[0] == of_both[1], key
    rows = prepared.first_rows("text-16/en", 50)
    held = {tuple(row) for row in _segments(prepared.first_rows("text/en", 50, held_out=True))}
    assert not held & {tuple(row) for row in _segments(rows)}
    assert prepared.pools(MaskedText(), 16).keys() == {"text-16/en", "text-16/de"}
    reader = BatchReader(prepared, config)
    assert reader.parts[0].row_bytes < reader.parts[-1].row_bytes


def _segments(rows):
    ends = np.cumsum([0, *(rows.word_length[a:b].sum() for a, b in _bounds(rows))])
    return [rows.pieces[a:b].tolist() for a, b in pairwise(ends)]


def _bounds(rows):
    return pairwise([0, *np.cumsum(rows.segment_words).tolist()])


def test_planned_shares_and_stats_are_those_of_the_rows_that_come(
    inputs: Path, prepared: Prepared, config: RunConfig, tmp_path: Path
) -> None:
    counted: Counter[int] = Counter()
    for batch in batches(prepared, config):
        counted.update(batch["language_ids"][batch["example_ids"] > 0].ravel().tolist())
    whole = sum(counted.values())
    for code, share in planned_shares(prepared, config).items():
        assert counted[prepared.languages.index(code)] / whole == pytest.approx(share, abs=0.02)
    written = yaml.safe_dump(STAGES, default_flow_style=True, width=10_000).strip()
    stats, _ = measure(str(inputs / "recipe.yaml"), [STREAMS, "train.max_steps=0", f"stages={written}"], tmp_path)
    assert sum(draw.drawn_rows for draw in stats.sampling) == 18 * 37 + 12 * (STEPS - 37)
    assert sum(draw.expected_rows for draw in stats.sampling) == pytest.approx(18 * 37 + 12 * (STEPS - 37))
    assert stats.all.sentences == sum(p.sentences for p in stats.pools if p.pool.partition("/")[0] in ("text", "pairs"))


def test_what_a_stage_changes_is_another_run_and_how_it_is_computed_is_not(inputs: Path, config: RunConfig) -> None:
    def named(**changes: object) -> str:
        stages = [dict(stage) for stage in STAGES]
        stages[0]["train"] = {**STAGES[0]["train"], **changes}
        return run_fingerprint(staged(inputs, stages), "data")

    same = run_fingerprint(config, "data")
    assert named() == same
    assert named(per_device_batch_size=6) == same
    assert named(global_batch_size=24) != same
    assert named(optimizer={"learning_rate": 1e-5}) != same
    assert run_fingerprint(make_config(inputs), "data") != same


def test_stages_follow_one_another(config: RunConfig) -> None:
    stages = stages_of(config)
    assert [(one.name, one.first, one.last, one.position) for one in stages] == [
        ("short", 0, 37, 0), ("all", 37, 107, 666), ("one step", 107, 108, 1506), ("text", 108, 153, 1518),
    ]  # fmt: skip


def test_a_scheduled_alpha_is_that_of_the_first_step_of_a_chunk(inputs: Path) -> None:
    corners = "sampling={alpha: [[0, 0.0], [80, 1.0]]}"
    two = staged(inputs, [{"name": name, "train": {"max_steps": 40}} for name in ("a", "b")], corners)
    prepared = prepare_here(two)
    for of in prepared.orders(two):
        for step in range(of.first, of.last):
            begin = of.first + (step - of.first) // of.order.chunk_steps * of.order.chunk_steps
            alone = make_config(inputs, f"sampling.alpha={begin / 80}")
            assert np.allclose(of.order.shares(step), prepared.order(alone).shares(0)), step
