"""Every file of a prepared folder: damaged it is not read, and `prepare` given again makes the same folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources.stage import HINT
from xalign_ray.tokens import vocabulary as vocabulary
from xalign_ray.work.artifacts import hash_file

READ_BY_TRAINING = (
    "manifest.json", "records.json", "settings.json", "regular_pieces.npy", "new_rows.json", "entries.json",
    "lexicon.npz", "pairs_trained.npz", "pairs_held_out.npz", "pair_words.json", "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)  # fmt: skip

LISTS = ("manifest.json", "records.json")  # what the others are known by


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path) -> None:
    """One bit of a digit or letter, so that JSON stays JSON."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if chr(byte).isalnum()] or [0]
    content[places[len(places) // 2]] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {"deleted": Path.unlink, "halved": halve, "flipped": flip}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A recipe whose folder has files of every kind."""
    folder = tmp_path_factory.mktemp("every-kind")
    write_inputs(folder)
    (folder / "en-de.txt").open("a").write("three words here\n")
    with (folder / "de.txt").open("ab") as file:
        file.write(b"\xff\n")
    first = prepare_here(make_config(folder))
    config = make_config(
        folder,
        f"data.tokenizer={{kind: folder, path: {first.folder / 'tokenizer'}}}",
        "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de], align: hmm}]",
        "data.filters={drop_duplicates: true}",
        "data.max_bad_fraction=0.05",
        "output=" + str(folder / "every"),
    )
    tokenizer = config.data.tokenizer.model_copy(update={"new_pieces": 5})  # as a run that continues an encoder has it
    return config.model_copy(update={"data": config.data.model_copy(update={"tokenizer": tokenizer})})


@pytest.fixture(scope="module")
def whole(recipe: RunConfig) -> Prepared:
    return prepare_here(recipe)


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_every_kind_of_file_is_there(whole: Prepared) -> None:
    names = hashes(whole.folder)
    assert set(READ_BY_TRAINING) <= set(names)
    wanted = {"parts", "shards", "held_out"}
    assert wanted <= {str(parent) for name in names for parent in Path(name).parents}


def test_prepare_given_again_mends_any_file(recipe: RunConfig, whole: Prepared) -> None:
    wanted = hashes(whole.folder)
    for name in LISTS:
        for damage in DAMAGES.values():
            damage(whole.folder / name)
            prepare_here(recipe, verify=True)
            assert hashes(whole.folder) == wanted, (name, damage)
    listed = [name for name in wanted if name not in LISTS and (whole.folder / name).stat().st_size]
    for first in range(0, len(listed), 3):  # three at a time, each in another way
        damaged = dict(zip(listed[first : first + 3], DAMAGES, strict=False))
        for name, damage in damaged.items():
            DAMAGES[damage](whole.folder / name)
        prepare_here(recipe, verify=True)
        assert hashes(whole.folder) == wanted, damaged


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READ_BY_TRAINING)
def test_what_training_reads_is_not_opened_damaged(whole: Prepared, tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    assert Prepared.open(folder).fingerprint == whole.fingerprint
    DAMAGES[damage](folder / name)
    with pytest.raises(DataError) as told:
        Prepared.open(folder)
    assert str(folder) in str(told.value)
    assert name in str(told.value)
    assert HINT in str(told.value) or (name, damage) == ("manifest.json", "halved")


def test_a_file_that_was_put_beside_the_tokenizer_is_noticed(whole: Prepared, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    (folder / "tokenizer" / "added_tokens.json").write_text('{"new": 5}')
    with pytest.raises(DataError, match=r"added_tokens.json is not of this data"):
        Prepared.open(folder)


@pytest.mark.parametrize(
    ("step", "half"), [("save_tokenizer", False), ("save_tokenizer", True), ("write_arrays", False)]
)
def test_a_tokenizer_that_was_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, half: bool
) -> None:
    write_inputs(tmp_path)
    config = make_config(tmp_path)
    wanted = hashes(prepare_here(config).folder)
    shutil.rmtree(tmp_path / "out")

    def die(what: Any, where: Any) -> None:
        if half:
            save(what, where)
            halve(where / "tokenizer.json")
        raise KeyboardInterrupt

    save = vocabulary.save_tokenizer
    monkeypatch.setattr(vocabulary, step, die)
    with pytest.raises(KeyboardInterrupt):
        prepare_here(config)
    monkeypatch.undo()
    assert hashes(prepare_here(config).folder) == wanted
