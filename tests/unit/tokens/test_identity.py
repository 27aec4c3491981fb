"""The data fingerprint: what changes it, and that finding data again reads no input."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import tokenizers

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray import pretraining
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import language_id, markup, records, stage
from xalign_ray.sources import open as opening
from xalign_ray.sources.inputs import Input, data_root, find_sources
from xalign_ray.sources.stage import InputHashes
from xalign_ray.tokens import find
from xalign_ray.tokens.find import fingerprint_of

ALIGNED = "data.parallel=[{{format: moses, languages: [en, de], paths: [pairs.en, pairs.de], align: '{}'}}]"


def fingerprint(config: RunConfig, *more: Input) -> str:
    texts, dictionaries, *_ = find_sources(config.data, data_root(config))
    return fingerprint_of(config, [*texts, *dictionaries, *more], InputHashes(None))


def given(folder: Path, tokenizer: Path) -> RunConfig:
    return make_config(folder, f"data.tokenizer={{kind: folder, path: {tokenizer}}}")


@pytest.fixture
def own(tmp_path: Path, prepared: Prepared) -> Path:
    """Inputs, and a copy of a tokenizer, that the test may change."""
    write_inputs(tmp_path)
    shutil.copytree(prepared.tokenizer_folder, tmp_path / "tokenizer")
    return tmp_path


def test_a_tokenizer_is_read_once_until_its_folder_changes(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study asks for the shards of each of its recipes; reading 75,000 pieces takes more than a second."""
    opened, open_tokenizer = [], find.open_tokenizer
    monkeypatch.setattr(find, "open_tokenizer", lambda path: opened.append(path) or open_tokenizer(path))
    config = given(own, own / "tokenizer")
    before = fingerprint(config)
    assert fingerprint(config) == before
    assert len(opened) == 1
    content = json.loads((own / "tokenizer/tokenizer.json").read_text())
    content["model"]["vocab"]["a piece"] = len(content["model"]["vocab"])
    (own / "tokenizer/tokenizer.json").write_text(json.dumps(content))
    assert fingerprint(config) != before
    assert len(opened) == 2


HMM = (ALIGNED.format("hmm"),)
IDENTIFIED = ("data.filters={language_threshold: 0.5}",)
DUMP = "data.corpora=[{format: wikipedia, language: en, paths: [en.txt]}]"
OTHER_PROGRAMS = {  # name in a module, its other value, and settings of a recipe that it matters to
    "tokenizers library": (tokenizers, "__version__", "0.0", ()),
    "Unicode tables": (find.unicodedata, "unidata_version", "0.0", ()),
    "parser of wiki text": (markup, "version", lambda _: "0.0", (DUMP,)),
    "language identifier": (language_id, "version", lambda _: "0.0", IDENTIFIED),
}


@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_programs_that_change_shards_change_the_fingerprint(
    own: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, value, settings = OTHER_PROGRAMS[program]
    before, without = fingerprint(make_config(own, *settings)), fingerprint(make_config(own))
    assert fingerprint(make_config(own, *settings)) == before
    monkeypatch.setattr(module, name, value)
    assert fingerprint(make_config(own, *settings)) != before
    if settings:
        assert fingerprint(make_config(own)) == without, "a recipe that does not use it stays as it was"


@pytest.mark.parametrize("setting", ["train_pairs=5", "train_pairs=null", "seed=1", "join=union"])
def test_settings_of_an_aligner_change_the_fingerprint_where_a_corpus_is_aligned(own: Path, setting: str) -> None:
    changed = f"data.word_alignment.{setting}"
    assert fingerprint(make_config(own, *HMM, changed)) != fingerprint(make_config(own, *HMM))
    assert fingerprint(make_config(own, changed)) == fingerprint(make_config(own)), "no corpus is aligned"


def test_sample_of_an_encoder_aligner_is_not_in_the_fingerprint_and_its_extraction_is(own: Path) -> None:
    (own / "aligner").mkdir()
    (own / "aligner" / "config.json").write_text("{}")
    aligned = ALIGNED.format(f"encoder:{own / 'aligner'}")
    before = fingerprint(make_config(own, aligned))
    for same in ("train_pairs=5", "seed=1", "join=intersection"):
        assert fingerprint(make_config(own, aligned, f"data.word_alignment.{same}")) == before
    for other in ("extraction=argmax", "layer=3", "join=union"):
        assert fingerprint(make_config(own, aligned, f"data.word_alignment.{other}")) != before


def test_encoder_aligner_without_an_embedding_for_a_language_is_refused_before_a_cluster_starts(own: Path) -> None:
    (own / "aligner").mkdir()
    (own / "aligner" / "config.json").write_text('{"xalign_languages": ["en", "fr"]}')
    with pytest.raises(ConfigError, match=r"aligner has language embeddings for en, fr, not de; align with another"):
        fingerprint(make_config(own, ALIGNED.format(f"encoder:{own / 'aligner'}")))


CHANGES = {
    "a letter of a text": lambda folder: edit(folder / "en.txt", "en1 ", "en2 "),
    "a letter of a dictionary": lambda folder: edit(folder / "en-de.txt", "de1\n", "de2\n"),
    "a letter of a pair": lambda folder: edit(folder / "pairs.de", "de1 ", "de2 "),
    "two sides exchanged": lambda folder: swap(folder / "pairs.de", folder / "pairs.en"),
}
NO_CHANGES = {
    "other times": lambda folder: [os.utime(path, (1, 1)) for path in folder.iterdir()],
    "a copy in place of the file": lambda folder: (folder / "en.txt").write_text((folder / "en.txt").read_text()),
    "another file next to it": lambda folder: (folder / "more.txt").write_text("more"),
}
SAME_SETTINGS = (
    "parallel.workers=3", "parallel.zero_stage=0", "track.mlflow=off", "track.logging_steps=3", "notes=other",
    "checkpoint.save_steps=7", "data.max_bad_fraction=0.5", "seed=3", "train.max_steps=7",
)  # fmt: skip


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def swap(first: Path, second: Path) -> None:
    one, other = first.read_text(), second.read_text()
    first.write_text(other)
    second.write_text(one)


@pytest.mark.parametrize("change", [*CHANGES, *NO_CHANGES])
def test_content_of_inputs_changes_the_fingerprint_and_nothing_else_of_them(own: Path, change: str) -> None:
    before = fingerprint(make_config(own))
    (CHANGES | NO_CHANGES)[change](own)
    assert (fingerprint(make_config(own)) != before) == (change in CHANGES)


@pytest.mark.parametrize("setting", SAME_SETTINGS)
def test_settings_that_change_no_shard_do_not_change_it(own: Path, setting: str) -> None:
    assert fingerprint(make_config(own, setting)) == fingerprint(make_config(own))


def test_the_same_inputs_elsewhere_under_other_names_have_the_same_fingerprint(own: Path, tmp_path: Path) -> None:
    before = fingerprint(make_config(own))
    (tmp_path / "moved").mkdir()
    for name in ("en.txt", "de.txt", "pairs.en", "pairs.de", "en-de.txt"):
        shutil.move(own / name, tmp_path / "moved" / name)
    (tmp_path / "moved" / "en.txt").rename(tmp_path / "moved" / "english.txt")
    corpora = ", ".join(f"{{format: text, language: {code}, paths: [{name}.txt]}}"
                        for code, name in (("en", "english"), ("de", "de")))  # fmt: skip
    assert fingerprint(make_config(tmp_path / "moved", f"data.corpora=[{corpora}]")) == before


def test_a_given_tokenizer_is_in_it_by_what_it_does(own: Path) -> None:
    before = fingerprint(given(own, own / "tokenizer"))
    shutil.copytree(own / "tokenizer", own / "elsewhere")
    assert fingerprint(given(own, own / "elsewhere")) == before
    path = own / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    first, second, *_ = content["model"]["merges"]
    content["model"]["merges"][:2] = [second, first]
    path.write_text(json.dumps(content))
    assert fingerprint(given(own, own / "tokenizer")) != before


def test_a_given_tokenizer_is_in_it_by_its_special_tokens(own: Path) -> None:
    before = fingerprint(given(own, own / "tokenizer"))
    path = own / "tokenizer" / "tokenizer_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"cls_token": content["sep_token"], "sep_token": content["cls_token"]}))
    assert fingerprint(given(own, own / "tokenizer")) != before


def test_the_weights_of_an_encoder_that_aligns_are_in_it(own: Path) -> None:
    encoder = own / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    (encoder / "model.safetensors").write_bytes(b"one")
    before = fingerprint(make_config(own, ALIGNED.format(f"encoder:{encoder}")))
    (encoder / "model.safetensors").write_bytes(b"two")
    assert fingerprint(make_config(own, ALIGNED.format(f"encoder:{encoder}"))) != before


def test_finding_prepared_data_again_reads_no_input(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in own.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    config = make_config(own)
    wanted = prepare_here(config)

    def refuse(path: str) -> None:
        raise AssertionError(f"{path} is read again")

    for module in (stage, records, opening):
        monkeypatch.setattr(module, "open_bytes", refuse)
    assert find.find_prepared(config) == wanted
    assert prepare_here(config) == wanted
    assert prepare_here(config, verify=True) == wanted


def hash_of(path: Path) -> str:
    """As a new process would find it."""
    return InputHashes(path.with_suffix(".memory")).of([str(path)])[0]


def test_a_file_changed_in_place_under_its_old_time_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "en.txt"
    path.write_text("one")
    os.utime(path, (1_600_000_000, 1_600_000_000))
    before, stat = hash_of(path), path.stat()
    with path.open("r+") as file:  # the same inode and size
        file.write("two")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    assert hash_of(path) != before


def test_rehash_forgets_what_is_remembered_of_inputs(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in own.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    config = make_config(own)
    before = prepare_here(config).fingerprint
    known = {path: stage.facts_of(path) for path in map(str, own.iterdir())}
    (own / "en.txt").write_text((own / "en.txt").read_text().replace("en1 ", "en2 "))
    monkeypatch.setattr(stage, "facts_of", known.__getitem__)  # as a disk without times would say
    assert prepare_here(config).fingerprint == before
    pretraining.forget_inputs(config.output)
    assert prepare_here(config).fingerprint != before


def test_a_recipe_given_the_tokenizer_of_prepared_data_finds_that_data(own: Path) -> None:
    """As one that continues a run: nothing is prepared twice, and both name the same data."""
    before = prepare_here(make_config(own))
    continued = given(own, before.tokenizer_folder)
    found = find.find_prepared(continued)
    assert found is not None
    assert found.fingerprint == before.fingerprint
    assert found.folder.resolve() == before.folder.resolve()
    assert prepare_here(continued, verify=True).folder.resolve() == before.folder.resolve()
    exported = shutil.copytree(before.tokenizer_folder, own / "export")
    assert find.find_prepared(given(own, exported)) == found
    other = make_config(own, f"data.tokenizer={{kind: folder, path: {exported}}}", "data.max_seq_length=32")
    assert find.find_prepared(other) is None


def test_a_disk_without_links_ends_no_prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mounted drive of a notebook service."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    config = make_config(tmp_path)
    (folder := find.data_folder(config, "a" * 64)).mkdir(parents=True)
    find.link_by_content(config, folder, "b" * 64)
    assert [*folder.parent.iterdir()] == [folder]


def test_data_whose_link_leads_nowhere_is_prepared(own: Path) -> None:
    before = prepare_here(make_config(own))
    exported = shutil.copytree(before.tokenizer_folder, own / "export")
    shutil.rmtree(before.folder)
    assert find.find_prepared(given(own, exported)) is None
    again = prepare_here(given(own, exported))
    assert not again.folder.is_symlink()
    assert again.fingerprint == before.fingerprint
    assert prepare_here(make_config(own)).fingerprint == before.fingerprint
