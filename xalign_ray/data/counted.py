"""Counts steps and rows a step from prepared data, where a recipe says its length in epochs or in pairs."""

from __future__ import annotations

from xalign_ray.config.choices import PAIRS, TEXT
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.prepared import Prepared


def count_steps(config: RunConfig, prepared: Prepared) -> RunConfig:
    """The recipe with `max_steps`, `global_batch_size` and `warmup_steps` as whole numbers; given ones stay.

    A source s with e_s pairs in r_s rows has the share q_s of all rows, so a row holds c = sum of q_s e_s / r_s pairs
    on average. A step of P pairs is then G = P / c rows, rounded, and E epochs over N pairs are E N / (G c) steps.

    Args:
        prepared: the shards of this recipe; only their counts are read.
    """
    train = config.train
    rows, steps = train.global_batch_size, train.max_steps
    if not train.is_counted:
        pairs_a_row, pairs = pairs_of_row(config, prepared)
        rows = rows or max(1, round(train.pairs_per_step / pairs_a_row))
        steps = steps or max(1, round(train.num_train_epochs * pairs / (rows * pairs_a_row)))
    schedule = train.schedule.model_copy(update={"warmup_steps": train.schedule.steps_of(steps)})
    counted = {"max_steps": steps, "global_batch_size": rows, "schedule": schedule}
    return config.model_copy(update={"train": train.model_copy(update=counted)})


def pairs_of_row(config: RunConfig, prepared: Prepared) -> tuple[float, int]:
    """Pairs of a row that the recipe draws, on average, and all that its streams draw from; of text alone, examples."""
    counted = PAIRS if any(stream.pools == PAIRS for stream in config.streams) else TEXT
    one_row = config.model_copy(update={"train": config.train.model_copy(update={"global_batch_size": 1})})
    shares = prepared.order(one_row).shares(0).tolist()
    pools = {name: prepared.manifest["pools"][name] for _, name in prepared.sources(config) if name.startswith(counted)}
    a_row = {name: pool["examples"] / pool["rows"] for name, pool in pools.items()}
    drawn = zip(shares, prepared.sources(config), strict=True)
    return sum(share * a_row.get(name, 0) for share, (_, name) in drawn), sum(p["examples"] for p in pools.values())
