"""One worker and two, started once for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity.train.pool import Pool


@pytest.fixture(scope="session")
def one() -> Iterator[Pool]:
    pool = Pool(1)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()
