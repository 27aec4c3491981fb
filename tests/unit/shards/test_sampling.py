"""Sampling shares by alpha."""

from __future__ import annotations

import pytest

from xalign_ray.config.schema import SamplingConfig
from xalign_ray.shards.order import language_shares

SIZES = {"en": 8000.0, "sw": 125.0}


@pytest.mark.parametrize(
    ("alpha", "en"),
    [(1.0, 8000 / 8125), (0.0, 0.5), (0.5, 8000**0.5 / (8000**0.5 + 125**0.5)), (1 / 3, 20 / 25)],
)
def test_shares_are_sizes_to_the_power_of_alpha(alpha: float, en: float) -> None:
    shares = language_shares(SIZES, alpha)
    assert shares == pytest.approx({"en": en, "sw": 1 - en})


def test_shares_of_very_many_very_different_pools_sum_to_one() -> None:
    assert sum(language_shares({str(n): 10.0**n for n in range(13)}, 0.3).values()) == pytest.approx(1, abs=1e-12)


def test_temperature_is_the_inverse_of_alpha() -> None:
    assert SamplingConfig(temperature=5).exponent == pytest.approx(0.2)
    assert SamplingConfig(alpha=0).exponent == 0
    assert SamplingConfig().exponent == 0.7
