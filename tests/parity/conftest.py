"""What tests of several files share: an MLflow database with an experiment a test, a walk, a server of files."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from matplotlib.figure import Figure

from tests.parity.damage import Walk
from tests.parity.file_server import Site, serve
from xalign_ray.sources import fetch
from xalign_ray.track.destinations import resolve_uri


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

    def leave_empty(_: Figure, file: IO[Any], **__: object) -> None:
        file.write("<svg></svg>" if isinstance(file, io.StringIO) else b"")

    monkeypatch.setattr(Figure, "savefig", leave_empty)
    one = Walk(capsys, Counter(), [])
    yield one
    with capsys.disabled():
        sys.stdout.write(f"\n{request.node.name}: {dict(one.counted)}\n")
    assert not one.wrong, "\n".join(one.wrong)


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as state:
        yield state


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """A catalogue of one's own: what the test puts in is there once `write` is called."""
    entries: dict = {}
    path = tmp_path / "catalogue.yaml"

    def clear() -> None:
        fetch.catalogue.cache_clear()
        fetch._everything.cache_clear()

    class Entries(dict):
        def __setitem__(self, name: str, entry: object) -> None:
            entries[name] = entry
            path.write_text(yaml.safe_dump(entries))
            clear()

    monkeypatch.setattr(fetch, "FILE", path)
    yield Entries()
    clear()
