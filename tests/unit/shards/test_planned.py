"""The planned share of each language against the rows that the order deals, and the facts on bad rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import make_config
from xalign_ray.feed.batches import open_local
from xalign_ray.shards.planned import bad_rows_facts, planned_shares
from xalign_ray.shards.prepared import Prepared


def test_planned_shares_are_near_those_of_the_tokens_that_come(inputs: Path, prepared: Prepared) -> None:
    config = make_config(inputs)
    planned = planned_shares(prepared, config)
    tokens = np.zeros(len(prepared.languages))
    for batch in open_local(prepared, config, 0, 0):
        shown = batch["language_ids"][batch["example_ids"] > 0]
        tokens += np.bincount(shown, minlength=len(tokens))
    assert list(planned) == prepared.languages
    assert sum(planned.values()) == pytest.approx(1)
    assert [*planned.values()] == pytest.approx(tokens / tokens.sum(), abs=0.03)


def test_bad_rows_are_counted_against_the_limit_of_the_recipe(inputs: Path, prepared: Prepared) -> None:
    config = make_config(inputs)
    counts = prepared.manifest["counts"] | {"lines": 90, "pairs": 6}
    damaged = Prepared(prepared.folder, prepared.manifest | {"bad_rows": {"too long": 1, "empty": 3}, "counts": counts})
    facts = bad_rows_facts(damaged, config)
    assert (facts["count"], facts["share"], facts["limit"]) == (4, 0.04, config.data.max_bad_fraction)
    assert facts["reasons"] == {"too long": 1, "empty": 3}
