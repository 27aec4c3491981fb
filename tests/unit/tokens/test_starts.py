"""A start on inputs that are known opens none of them, and cuts them into parts as it did before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.sources import open as opening
from xalign_ray.sources import records as splitting
from xalign_ray.sources.formats import parts
from xalign_ray.sources.stage import KeptCuts
from xalign_ray.tokens import prepare as preparation
from xalign_ray.tokens.find import find_prepared
from xalign_ray.tokens.stats import measure

OLD = 1_600_000_000  # seconds: a file that was written long ago is remembered
OPENED: list[str] = []


def watch(event: str, arguments: tuple) -> None:
    if event == "open" and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


sys.addaudithook(watch)  # it stays until the process ends


def opened(folder: Path, act: Callable[[], object]) -> set[str]:
    """The names of the inputs that are opened meanwhile, however often."""
    OPENED.clear()
    act()
    return {Path(path).name for path in OPENED if Path(path).parent == folder} - {"recipe.yaml"}


def write_old_inputs(folder: Path) -> list[Path]:
    write_inputs(folder)
    files = [path for path in folder.iterdir() if path.is_file()]
    for path in files:
        os.utime(path, (OLD, OLD))
    return files


def test_no_start_on_prepared_data_opens_an_input(tmp_path: Path) -> None:
    names = {path.name for path in write_old_inputs(tmp_path)}
    config = make_config(tmp_path)
    assert opened(tmp_path, lambda: prepare_here(config)) == names
    assert opened(tmp_path, lambda: prepare_here(config)) == set()
    assert opened(tmp_path, lambda: find_prepared(config)) == set()
    assert opened(tmp_path, lambda: measure(str(tmp_path / "recipe.yaml"))) == set()


def test_a_prepare_that_was_stopped_does_not_read_its_inputs_for_cuts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "PART_BYTES", 4_000)
    write_old_inputs(tmp_path)
    config = make_config(tmp_path)
    prepared = prepare_here(config)
    (prepared.folder / "manifest.json").unlink()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def start() -> None:
        with pytest.raises(KeyboardInterrupt):
            prepare_here(config)

    monkeypatch.setattr(preparation, "_make", stop)
    assert opened(tmp_path, start) == {"en-de.txt"}  # a dictionary is read before a cluster starts, whole


@pytest.mark.parametrize(("kind", "names"), [("text", ["a", "b"]), ("moses", ["a", "b"])])
def test_cuts_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, names: list[str]) -> None:
    monkeypatch.setattr(splitting, "PART_BYTES", 500)
    paths = [str(tmp_path / name) for name in names]
    for path in paths:
        Path(path).write_text("".join(f"line {n}\n\n" for n in range(300)))
    wanted = parts(kind, paths)
    assert len(wanted) > 5
    kept = KeptCuts(tmp_path / "cuts")
    assert kept.of(kind, paths, ["one", "two"]) == wanted
    with monkeypatch.context() as patch:
        for module in (splitting, opening):
            patch.setattr(module, "open_bytes", lambda path: pytest.fail(f"{path} is read again"))
        assert KeptCuts(tmp_path / "cuts").of(kind, paths, ["one", "two"]) == wanted
    for path in paths:
        Path(path).write_text("".join(f"line {n}\n" for n in range(70)))
    assert kept.of(kind, paths, ["one", "other"]) == parts(kind, paths) != wanted
    for file in (tmp_path / "cuts").iterdir():
        file.write_text(file.read_text()[:100])
    assert kept.of(kind, paths, ["one", "two"]) == parts(kind, paths), "a damaged file is none"
