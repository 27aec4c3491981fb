"""What tests of several files share: a real MLflow database with an experiment for each test, and a walk."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
def walk(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Walk]:
    """A walk over damaged files; its counts are printed, and the test fails for whatever went wrong in it.

    Reports get empty figures: drawing them again for each damaged file takes most of the time, and damage shows in the
    numbers that they are drawn from.
    """
    monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: file.write("<svg></svg>"))
    monkeypatch.setattr(FigureCanvasAgg, "print_png", lambda _, file, **__: file.write(b""))
    one = Walk(capsys, Counter(), [])
    yield one
    with capsys.disabled():
        sys.stdout.write(f"\n{request.node.name}: {dict(one.counted)}\n")
    assert not one.wrong, "\n".join(one.wrong)
