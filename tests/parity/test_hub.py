"""A run on the Hugging Face hub: a server on this machine answers as the hub does, and fails as it sometimes does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.parity.hub_server import Hub, hub_server
from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import exports, pipeline
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, TrackingError
from xalign_ray.exports import push
from xalign_ray.verbs.scores import hub_push


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a recipe of four steps, whose shards are there and whose checkpoints of steps 2 and 4 are kept."""
    folder = tmp_path_factory.mktemp("hub")
    settings = [*write_world(folder, 300, 50), *batches(8, 8, 4, saved_every=2), "checkpoint.save_total_limit=2"]
    prepare_here(load_recipe("tiny/mlm", settings).config)
    return settings


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, where this process is logged in."""
    with hub_server() as made:
        for name, value in {"ENDPOINT": made.url, "HF_HUB_DISABLE_XET": True, "HF_HUB_OFFLINE": False}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)  # read from the environment by an import
        monkeypatch.setenv("HF_TOKEN", made.token)
        yield made


def train(settings: list[str], out: Path, *more: str) -> Path:
    return pipeline.pretrain(load_recipe("tiny/mlm", [*settings, *more]), out=out, local=True)


@pytest.fixture(scope="module")
def finished(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that names no repository."""
    return train(settings, tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


def files_of(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_it_has(hub: Hub, run: Path) -> None:
    assert sorted(hub.files) == ["main", "step-2", "step-4"]
    assert hub.files["main"] == files_of(run / "export")
    for step in (2, 4):
        exported = exports.export(run, step=step, out=run.parent / f"expected-{step}")
        assert hub.files[f"step-{step}"] == files_of(exported)
    assert [path.name for path in (run / "hub").iterdir()] == ["pushed.json"]


def test_a_run_pushes_checkpoints_as_branches_and_its_export_as_main(hub: Hub, settings: list[str], tmp_path: Path):
    run = train(settings, tmp_path / "run", "track.hub=org/name")
    assert hub.private
    assert_it_has(hub, run)
    assert b"model-index" in hub.files["main"]["README.md"] or b"library_name" in hub.files["main"]["README.md"]
    hub.asked.clear()
    assert sorted(push(run)) == ["main", "step-2", "step-4"]
    assert not [one for one in hub.asked if "/commit/" in one or one.startswith("PUT")]  # nothing is sent again


@pytest.mark.parametrize(
    ("failing", "again"),
    [
        ({"preupload": [429], "batch": [503]}, 0),
        ({"/large/": ["cut", "cut"]}, 0),
        ({"/commit/step-2": [500], "/commit/step-4": [502]}, 2),
    ],
    ids=["asked too often", "half an upload", "an error of the hub's"],
)
def test_a_hub_that_fails_for_a_moment_gets_it_all(
    hub: Hub, run: Path, failing: dict[str, list[int | str]], again: int
):
    hub.failing = failing
    for _ in range(again):
        with pytest.raises(TrackingError, match="the same command sends the rest"):
            push(run, "org/name")
    shown = hub_push(run, "org/name")
    assert [line.split()[0] for line in shown] == ["step-2", "step-4", "main"]
    assert not any(failing.values())
    assert_it_has(hub, run)


def test_a_run_goes_on_without_the_hub_and_a_later_push_brings_it_all(
    hub: Hub, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hub.failing = {"": [503] * 1000}
    run = train(settings, tmp_path / "run", "track.hub=org/name", "checkpoint.save_total_limit=1")
    said = capsys.readouterr().err
    assert "What a run has for it waits in the run's folder." in said
    assert f"`xalign hub push {run}` brings it up to date." in said
    assert not hub.files
    with pytest.raises(
        TrackingError, match=r"the Hugging Face hub does not hold all of .* the same command sends the rest"
    ):
        push(run)
    hub.failing = {}
    waiting = sorted(path.name for path in (run / "hub").glob("step-*"))
    push(run, "org/other")
    assert waiting == sorted(path.name for path in (run / "hub").glob("step-*")) != []  # for the recipe's own
    push(run)
    assert not [*(run / "hub").glob("step-*")]
    assert {"main", "step-4"} <= hub.files.keys()
    assert hub.files["main"] == files_of(run / "export")


@pytest.mark.usefixtures("hub")
def test_a_checkpoint_that_was_removed_is_said(run: Path, capsys: pytest.CaptureFixture[str]):
    shutil.rmtree(run / "checkpoints" / "step_000002")
    assert list(push(run, "org/name")) == ["step-4", "main"]
    assert "Not pushed: checkpoints that are not kept any more, of steps 2." in capsys.readouterr().err


@pytest.mark.usefixtures("hub")
def test_who_may_not_write_there_is_refused_before_anything_is_made(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ConfigError, match=r"track\.hub: org/name cannot be written .*Log in by `hf auth login`"):
        train(settings, tmp_path / "run", "track.hub=org/name")
    assert not (tmp_path / "run").exists()


def test_a_repository_must_be_named_and_be_one(run: Path, settings: list[str]):
    with pytest.raises(ConfigError, match="names no repository: give one, as in --to ORG/NAME"):
        push(run)
    with pytest.raises(ConfigError, match=r"track\.hub"):
        load_recipe("tiny/mlm", [*settings, "track.hub=name"])
