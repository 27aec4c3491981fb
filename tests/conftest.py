"""What tests of several folders share: groups of worker processes, started when first asked for and kept to the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.parity.train.pool import Pool

LONGEST = ["test_faults_node", "test_jobs", "test_faults_driver", "test_faults_feed", "test_six_objectives"]
# Tests send these to what they start, which would ignore them where this process does: under nohup, or behind `&`.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """The longest files first and unit tests last: processes that take file after file then end at the same time.

    Only unit tests are shuffled, where that is asked for: the others share what is slow to make.
    """
    given = {item: number for number, item in enumerate(items)}
    yield

    def place(item: pytest.Item) -> tuple[bool, int, int]:
        is_unit, name = "unit" in item.path.parts, item.path.stem
        return is_unit, LONGEST.index(name) if name in LONGEST else len(LONGEST), 0 if is_unit else given[item]

    items.sort(key=place)


@pytest.fixture(scope="module", autouse=True)
def _no_cluster(request: pytest.FixtureRequest) -> None:
    """Ends the cluster that tests on Ray have kept in this process: other tests may not find one."""
    if request.node.get_closest_marker("ray") is None and "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sys.modules["ray"].shutdown()


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
