"""Settings that make no sense are refused in a sentence with key and value."""

from __future__ import annotations

from typing import Any

import pytest

from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FineTuning


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0."),
        ({"num_train_epochs": 0}, "num_train_epochs is 0; it must be at least 1."),
        ({"warmup_steps": -0.1}, "warmup_steps is -0.1; it must be at least 0."),
        (
            {"lr_scheduler_type": "lineal"},
            "lr_scheduler_type is 'lineal'; it must be one of linear, cosine, polynomial, constant, "
            "constant_with_warmup.",
        ),
        (
            {"train_batch_size": 32, "per_device_train_batch_size": 12},
            "train_batch_size is 32, no multiple of per_device_train_batch_size, which is 12; give one that is.",
        ),
    ],
)
def test_what_makes_no_sense_is_named(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as caught:
        FineTuning(**settings)
    assert str(caught.value) == said
