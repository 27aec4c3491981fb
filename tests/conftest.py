"""What tests of several folders share: groups of worker processes, started when first asked for and kept to the end."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.parity.train.pool import Pool
    from tests.s3_server import S3Server

LONGEST = [
    *("test_jobs", "test_faults_run", "test_study", "test_documented_commands", "test_notebook"),
    *("test_studies_of_papers", "test_stops_without_ray", "test_damage_walk", "test_stock_tools", "test_mlflow"),
    *("test_mlflow_postgres", "test_runs_in_a_store", "test_train_resize", "test_train_async_save", "test_continue"),
    *("test_damage_walk_studies", "test_align_study", "test_train_memory"),
]
GIVEN = pytest.StashKey[int]()
# Tests send these to what they start, which would ignore them where this process does: under nohup, or behind `&`.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder of embedded worlds, before there are processes that take test files one after the other."""
    if "TESTS_WORLDS" not in os.environ:
        worlds = TemporaryDirectory(prefix="worlds-")
        os.environ["TESTS_WORLDS"] = worlds.name
        config.add_cleanup(worlds.cleanup)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_keep_order(items: list[pytest.Item]) -> None:
    """Remembers the order before the shuffle: pytest's own has put tests with the same value of a fixture together."""
    for number, item in enumerate(items):
        item.stash[GIVEN] = number


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Files that share a cluster first, then other slow ones, and unit tests last; of each the longest first: processes
    that take file after file start few clusters and end at the same time.

    Only unit tests are shuffled, where that is asked for: the others share what is slow to make.
    """
    yield

    def place(item: pytest.Item) -> tuple[bool, bool, int, int]:
        is_unit, name = "unit" in item.path.parts, item.path.stem
        rank = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return is_unit, "ray" not in item.path.parts, rank, 0 if is_unit else item.stash[GIVEN]

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Spares the collector, which each fine-tuning calls, the million objects that imports have made."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests of released models where nobody asks for them; a folder that is named and not there is a failure."""
    if not item.get_closest_marker("models"):
        return
    folder = os.environ.get("XALIGN_MODELS")
    if not folder:
        pytest.skip("XALIGN_MODELS is not set: `make models` fetches the released models and runs these tests")
    if not Path(folder).is_dir():
        pytest.fail(f"XALIGN_MODELS names no folder: '{folder}'")


@pytest.fixture(scope="session")
def released_models() -> Path:
    """The folder of released models that XALIGN_MODELS names, one folder each; tests that use it carry `models`."""
    return Path(os.environ["XALIGN_MODELS"])


@pytest.fixture(scope="module", autouse=True)
def _no_cluster(request: pytest.FixtureRequest) -> None:
    """Ends the cluster that tests on Ray have kept in this process: other tests may not find one."""
    if request.node.get_closest_marker("ray") is None and "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sys.modules["ray"].shutdown()


@pytest.fixture(autouse=True)
def _known_tasks() -> Iterator[None]:
    """Forgets tasks of the user's own and of mteb that a test has made known to its process."""
    from xalign_ray.tasks import registry

    tables = (registry.TASKS, registry.TUNED_TASKS, registry.METRICS)
    before = [{**table} for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


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


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    """Four worker processes with a group between them."""
    yield from _pool(4)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for all tests of a process."""
    from tests.s3_server import S3Server  # moto, which most tests can do without

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The S3 server with an empty bucket, and an environment that leads there, also of processes that are started."""
    import fsspec

    from tests.s3_server import BUCKET

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-shown")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.filesystem("s3").clear_instance_cache()
    system = fsspec.filesystem("s3")
    if not system.exists(BUCKET):
        system.mkdir(BUCKET)
    yield s3_server
    s3_server.heal()
    if found := system.find(BUCKET):
        system.rm(found)
    system.clear_instance_cache()
