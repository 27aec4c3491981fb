"""What tests of a real MLflow share: a database for the tests of a file, an experiment for each."""

from __future__ import annotations

import pytest

from xalign_ray.track.follower import resolve_uri


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for the module, because making its tables takes seconds; each test has its own experiment."""
    return resolve_uri("sqlite", tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    return request.node.name
