"""What `xalign plan` says that a worker holds, against bytes a parameter worked out by hand."""

from __future__ import annotations

import pytest

from xalign_ray.config.load import load_recipe
from xalign_ray.needs import state_bytes


@pytest.mark.parametrize(
    ("stage", "bf16", "expected"),
    [
        (0, False, 4 + 4 + 8),
        (1, False, 4 + 4 + 8 / 4),
        (2, False, 4 + (4 + 8) / 4),
        (3, False, (4 + 4 + 8) / 4),
        (0, True, 4 + 2 + 4 + 8),  # autocast keeps bf16 copies of fp32 weights
        (1, True, 2 + 2 + (4 + 8) / 4),  # fp32 master weights are split with Adam's states
        (2, True, 2 + (2 + 4 + 8) / 4),
        (3, True, (2 + 2 + 4 + 8) / 4),
    ],
)
def test_bytes_of_a_parameter_on_four_workers(stage: int, bf16: bool, expected: float) -> None:
    settings = ["parallel.workers=4", f"parallel.zero_stage={stage}", f"train.bf16={str(bf16).lower()}"]
    assert state_bytes(load_recipe("tiny/mlm", settings).config, 100) == 100 * expected
