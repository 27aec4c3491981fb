"""Steps and rows counted from pairs: by hand, in what `data stats` says, and in the run that is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import make_config
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.planning.describe import describe
from xalign_ray.shards.planned import count_steps
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tokens.stats import measure
from xalign_ray.verbs.recipes import plan

BY_ROWS = "sampling={alpha: 1.0, unit: rows}"
PAIRS = "streams=[{kind: masked_pairs}]"
IN_PAIRS = ("train={num_train_epochs: 4, pairs_per_step: 32, schedule: {warmup_steps: 0.1}}", BY_ROWS)


def write(folder: Path, *settings: str) -> RunConfig:
    return make_config(folder, *settings)


def counted(prepared: Prepared, config: RunConfig) -> tuple[int, int, float]:
    train = count_steps(config, prepared).train
    return train.max_steps, train.global_batch_size, train.schedule.warmup_steps


def with_pools(prepared: Prepared, **counts: tuple[int, int]) -> Prepared:
    """The same folder with other numbers of rows and examples in its manifest."""
    pools = {
        name: pool
        | dict(zip(("rows", "examples"), counts.get(name[-2:], (pool["rows"], pool["examples"])), strict=True))
        for name, pool in prepared.manifest["pools"].items()
    }
    return replace(prepared, manifest=prepared.manifest | {"pools": pools})


def test_steps_of_pairs_by_hand(inputs: Path, prepared: Prepared) -> None:
    """250 pairs in 100 rows are 2.5 a row: 32 of them are 13 rows, and 4 epochs 400 rows."""
    config = write(inputs, PAIRS, *IN_PAIRS)
    fake = with_pools(prepared, en=(100, 250))
    assert fake.manifest["pools"]["pairs/de-en"]["examples"] == 250
    assert counted(fake, config) == (31, 13, 3)  # 400 / 13 = 30.8; a tenth of 31
    longer = write(inputs, PAIRS, *IN_PAIRS, "train.num_train_epochs=0.5", "train.pairs_per_step=1")
    assert counted(fake, longer) == (50, 1, 5)


def test_rows_of_text_hold_no_pairs(inputs: Path, prepared: Prepared) -> None:
    """Half of the rows are text: a step of 32 pairs needs twice the rows, and an epoch twice the steps' rows."""
    config = write(inputs, "streams=[{kind: masked_pairs}, {kind: masked_text}]", *IN_PAIRS)
    assert counted(with_pools(prepared, en=(100, 250)), config) == (31, 26, 3)


def test_epochs_of_text_alone_are_passes_over_it(inputs: Path, prepared: Prepared) -> None:
    config = write(
        inputs, "streams=[{kind: masked_text}]", BY_ROWS, "train={num_train_epochs: 3, global_batch_size: 7}"
    )
    rows = sum(pool["rows"] for name, pool in prepared.manifest["pools"].items() if name.startswith("text/"))
    assert counted(prepared, config) == (round(3 * rows / 7), 7, 0)


def test_what_is_given_wins_and_stays(inputs: Path, prepared: Prepared) -> None:
    both = write(inputs, PAIRS, *IN_PAIRS, "train.max_steps=3", "train.global_batch_size=5")
    assert counted(prepared, both) == (3, 5, 0)
    steps = write(inputs, PAIRS, *IN_PAIRS, "train.max_steps=3")
    assert counted(prepared, steps)[0] == 3
    once = count_steps(write(inputs, PAIRS, *IN_PAIRS), prepared)
    assert count_steps(once, prepared) == once
    assert RunConfig.model_validate_json(once.model_dump_json()) == once


def test_the_fingerprint_is_of_what_was_counted(inputs: Path, prepared: Prepared) -> None:
    one = count_steps(write(inputs, PAIRS, *IN_PAIRS), prepared)
    train = one.train
    said = (f"train.max_steps={train.max_steps}", f"train.global_batch_size={train.global_batch_size}")
    other = write(inputs, PAIRS, BY_ROWS, *said, f"train.schedule.warmup_steps={train.schedule.warmup_steps}")
    assert run_fingerprint(one, "d") == run_fingerprint(count_steps(other, prepared), "d")
    with pytest.raises(AssertionError, match="count_steps comes first"):
        run_fingerprint(write(inputs, PAIRS, *IN_PAIRS), "d")


def test_passes_are_the_epochs_and_the_plan_says_the_steps(inputs: Path, prepared: Prepared, tmp_path: Path) -> None:
    settings = [PAIRS, *IN_PAIRS, "train.num_train_epochs=20"]
    recipe = inputs / "recipe.yaml"
    write(inputs)
    stats, _ = measure(str(recipe), settings, tmp_path)
    config = count_steps(write(inputs, *settings), prepared)
    (draw,) = stats.sampling
    assert stats.steps == config.train.max_steps
    assert draw.expected_passes == pytest.approx(20, abs=0.5 * config.train.global_batch_size / stats.pools[0].rows)
    loaded = load_recipe(str(recipe), settings)
    lines = dict(line.split(maxsplit=1) for line in plan(loaded).splitlines())
    assert lines["length"] == "20 epochs in steps of 32 pairs"
    assert lines["steps"].startswith(f"{stats.steps:,} of {config.train.global_batch_size} rows = ")
    unprepared = dict(line.split(maxsplit=1) for line in describe(loaded).splitlines())
    assert unprepared["steps"] == "`xalign prepare` counts the pairs that they follow from"
    assert "deepspeed" not in unprepared
