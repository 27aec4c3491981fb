"""A run on the Hugging Face hub: a server on this machine answers as the hub does, and fails as it sometimes does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.parity.hub_server import Hub, hub_server
from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, TrackingError
from xalign_ray.exports import export


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps, whose checkpoints of steps 2 and 4 are kept."""
    folder = tmp_path_factory.mktemp("hub")
    settings = [*write_world(folder, 300, 50), *batches(8, 8, 4, saved_every=2), "checkpoint.save_total_limit=2"]
    prepare_here(load_recipe("tiny/mlm", settings).config)
    return pretraining.pretrain(load_recipe("tiny/mlm", settings), out=folder / "run", local=True)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, where this process is logged in."""
    with hub_server() as made:
        for name, value in {"ENDPOINT": made.url, "HF_HUB_DISABLE_XET": True, "HF_HUB_OFFLINE": False}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)  # read from the environment by an import
        monkeypatch.setenv("HF_TOKEN", made.token)
        yield made


def files_of(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_of_a_step_becomes_the_main_revision(hub: Hub, run: Path, tmp_path: Path):
    folder = export(run, step=2, out=tmp_path / "out", push_to="org/name")
    assert hub.private
    assert hub.files == {"main": {name: text for name, text in files_of(folder).items() if name != ".lock"}}
    folder = export(run, push_to="org/name")
    assert b"library_name" in hub.files["main"]["README.md"]
    assert hub.files["main"] == files_of(folder)


@pytest.mark.parametrize(
    "failing",
    [{"preupload": [429], "batch": [503]}, {"/large/": ["cut", "cut"]}],
    ids=["asked too often", "half an upload"],
)
def test_a_hub_that_fails_for_a_moment_gets_it_all(hub: Hub, run: Path, failing: dict[str, list[int | str]]):
    hub.failing = failing
    folder = export(run, push_to="org/name")
    assert not any(failing.values())
    assert hub.files["main"] == files_of(folder)


def test_a_hub_that_does_not_answer_is_one_sentence(hub: Hub, run: Path):
    hub.failing = {"/commit/": [500]}
    with pytest.raises(TrackingError, match=r"hub does not answer \(.*\); run the same command again"):
        export(run, push_to="org/name")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("repository", "token", "sentence"),
    [
        ("org/name", "hf_wrong", r"--push-to org/name cannot be written .*Log in by `hf auth login`"),
        ("a/b/c", "hf_right", r"--push-to 'a/b/c' is no repository: "),
    ],
)
def test_a_repository_that_cannot_be_written_is_refused_before_the_export(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str, token: str, sentence: str
):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ConfigError, match=sentence):
        export(run, out=tmp_path / "out", push_to=repository)
    assert not (tmp_path / "out").exists()
