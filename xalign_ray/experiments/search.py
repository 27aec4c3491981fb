"""Which settings a study tries for a fine-tuning: all combinations, or some drawn at random."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

from xalign_ray.experiments.declared import GridSearch, LogUniform, RandomSearch, Settings


def settings_to_try(settings: Settings, search: GridSearch | RandomSearch) -> list[dict[str, Any]]:
    """Values for fields of `FineTuning`, a dict a combination, each once; one value alone is never searched."""
    among = {name: values for name, values in settings if values is not None}
    if isinstance(search, GridSearch):
        return [dict(zip(among, values, strict=True)) for values in itertools.product(*among.values())]
    rng = random.Random(f"study/{search.seed}")
    drawn = [{name: _draw(rng, values) for name, values in among.items()} for _ in range(search.num_samples)]
    return [setting for place, setting in enumerate(drawn) if setting not in drawn[:place]]


def _draw(rng: random.Random, among: Sequence[Any] | LogUniform) -> Any:
    if isinstance(among, LogUniform):
        low, high = map(math.log, among.log_uniform)
        return float(f"{math.exp(rng.uniform(low, high)):.3g}")
    return among[0] if len(among) == 1 else rng.choice(among)
