"""What an assertion of a pinned number says: these numbers are what checkpoints on disk were made with."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_pinned(found: Any, expected: Any) -> None:
    """The numbers are still those that were written down; arrays count as their lists."""
    found = found.tolist() if isinstance(found, np.ndarray) else found
    assert found == expected, (
        "the same recipe sees other rows or other masks: a run that was begun before cannot go on. If that is meant, "
        f"write the new numbers down in this test. Found\n{found}\nwhere it was\n{expected}"
    )
