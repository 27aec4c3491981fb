"""What tests of several folders share: groups of worker processes, started when first asked for and kept to the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.parity.train.pool import Pool

# Tests send these to what they start, which would ignore them where this process does: under nohup, or behind `&`.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def _pool(size: int) -> Iterator[Pool]:
    from tests.parity.train.pool import Pool  # torch, which most tests can do without

    pool = Pool(size)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def one() -> Iterator[Pool]:
    """One worker process."""
    yield from _pool(1)


@pytest.fixture(scope="session")
def two() -> Iterator[Pool]:
    """Two worker processes with a group between them."""
    yield from _pool(2)
