"""What tests of several files share: a real MLflow database with an experiment for each test, and a walk."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.parity.damage import Walk
from xalign_ray.track.follower import resolve_uri


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database, because making its tables takes seconds; each test has its own experiment."""
    return resolve_uri("sqlite", tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    return f"{request.node.path.stem}.{request.node.name}"


@pytest.fixture
def walk(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Iterator[Walk]:
    """A walk over damaged files; its counts are printed, and the test fails for whatever went wrong in it."""
    one = Walk(capsys, Counter(), [])
    yield one
    with capsys.disabled():
        sys.stdout.write(f"\n{request.node.name}: {dict(one.counted)}\n")
    assert not one.wrong, "\n".join(one.wrong)
