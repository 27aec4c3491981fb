"""Replay gives text its share of the rows, beside any streams, and one masked-LM loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xalign_ray.config.choices import AlignedPairs, ContrastedPairs, MaskedLm, SentenceContrast
from xalign_ray.continuing.recipe import with_replay
from xalign_ray.shards.order import CHUNK_STEPS, Order, Pool, Request, StreamPools

PAIRS = ContrastedPairs(text="none")
CONTRAST = SentenceContrast()


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("streams", [[PAIRS], [ContrastedPairs(weight=2.0), AlignedPairs()]])
def test_text_has_its_share_of_the_rows(share: float, streams: list[Any]) -> None:
    mixed, _ = with_replay(share, streams, [CONTRAST])
    pools = [StreamPools(one.weight, [Pool(np.array([500]))], lambda _: np.ones(1)) for one in mixed]
    source = Order(pools, 0, 32, CHUNK_STEPS).places(Request(0, 640, 0, 32)).source
    assert (source == len(streams)).mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("objectives", [[CONTRAST], [MaskedLm(), CONTRAST]])
def test_masked_lm_is_asked_once(objectives: list[Any]) -> None:
    _, asked = with_replay(0.1, [PAIRS], objectives)
    assert [loss.kind for loss in asked] == ["masked_lm", "sentence_contrast"]
