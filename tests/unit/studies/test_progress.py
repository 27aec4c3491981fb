"""The line of a cell that ended."""

from __future__ import annotations

import pytest

from xalign_ray.studies.cells import FINISHED
from xalign_ray.studies.workers import End


@pytest.mark.parametrize(
    ("development", "seconds", "line"),
    [
        (None, 12.3, "finished, 12 s"),
        (0.5, 12.3, "development 0.500, 12 s"),
        (None, None, "finished"),
        (0.0, None, "development 0.000"),
        (0.0, 0.0, "development 0.000, 0 s"),
    ],
)
def test_line_of_a_finished_cell(development: float | None, seconds: float | None, line: str) -> None:
    assert str(End(FINISHED, development, seconds)) == line
