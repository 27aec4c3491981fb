"""The data fingerprint: what changes it, and that finding data again reads no input."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import tokenizers

from tests.unit.data.conftest import make_config, prepare_here, write_inputs
from xalign_ray import pipeline
from xalign_ray.config.schema import RunConfig
from xalign_ray.data import identity, input_hashes, prepare
from xalign_ray.data.identity import fingerprint_of
from xalign_ray.data.input_hashes import InputHashes
from xalign_ray.data.inputs import Source, data_root, find_sources
from xalign_ray.data.prepared import Prepared
from xalign_ray.data.sources import open as opening
from xalign_ray.data.sources import parts
from xalign_ray.data.word_alignment import chain_aligner

ALIGNED = "data.parallel=[{{format: moses, languages: [en, de], paths: [pairs.en, pairs.de], align: '{}'}}]"


def fingerprint(config: RunConfig, *more: Source) -> str:
    texts, dictionaries = find_sources(config.data, data_root(config))
    return fingerprint_of(config, [*texts, *dictionaries, *more], InputHashes(None))


def given(folder: Path, tokenizer: Path) -> RunConfig:
    return make_config(folder, f"data.tokenizer={{kind: folder, path: {tokenizer}}}")


@pytest.fixture
def own(tmp_path: Path, prepared: Prepared) -> Path:
    """Inputs, and a copy of a tokenizer, that the test may change."""
    write_inputs(tmp_path)
    shutil.copytree(prepared.tokenizer_folder, tmp_path / "tokenizer")
    return tmp_path


def test_the_version_of_shards_is_in_it(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(config)
    assert fingerprint(config) == before
    monkeypatch.setattr(identity, "SHARDS_VERSION", identity.SHARDS_VERSION + 1)
    assert fingerprint(config) != before


def test_the_version_of_the_tokenizers_library_is_in_it(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(config)
    monkeypatch.setattr(tokenizers, "__version__", "0.0")
    assert fingerprint(config) != before


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


def test_the_aligners_version_is_in_it(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(make_config(own, ALIGNED.format("hmm")))
    monkeypatch.setattr(chain_aligner, "VERSION", chain_aligner.VERSION + 1)
    assert fingerprint(make_config(own, ALIGNED.format("hmm"))) != before
    assert fingerprint(make_config(own)) != before


def test_the_version_of_an_alignments_files_is_in_it(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(make_config(own, ALIGNED.format("hmm")))
    monkeypatch.setattr(identity, "FILES_VERSION", identity.FILES_VERSION + 1)
    assert fingerprint(make_config(own, ALIGNED.format("hmm"))) != before


def test_the_weights_of_an_encoder_that_aligns_are_in_it(own: Path) -> None:
    encoder = own / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    (encoder / "model.safetensors").write_bytes(b"one")
    before = fingerprint(make_config(own, ALIGNED.format(f"encoder:{encoder}")))
    (encoder / "model.safetensors").write_bytes(b"two")
    assert fingerprint(make_config(own, ALIGNED.format(f"encoder:{encoder}"))) != before


def test_the_parser_of_wiki_text_is_in_it_where_there_is_any(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, dump = make_config(own), Source("text/en", "wikipedia", ("en",), (str(own / "en.txt"),))
    without, before = fingerprint(config), fingerprint(config, dump)
    monkeypatch.setattr(identity, "version", lambda _: "another")
    assert fingerprint(config, dump) != before
    assert fingerprint(config) == without


def test_finding_prepared_data_again_reads_no_input(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in own.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    config = make_config(own)
    wanted = prepare_here(config)

    def refuse(path: str) -> None:
        raise AssertionError(f"{path} is read again")

    for module in (input_hashes, parts, opening):
        monkeypatch.setattr(module, "open_bytes", refuse)
    assert prepare.find_prepared(config) == wanted
    assert prepare_here(config) == wanted
    assert prepare_here(config, verify=True) == wanted


def test_rehash_forgets_what_is_remembered_of_inputs(own: Path) -> None:
    for path in own.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    config = make_config(own)
    before = prepare_here(config).fingerprint
    (own / "en.txt").write_text((own / "en.txt").read_text().replace("en1 ", "en2 "))
    os.utime(own / "en.txt", (1_600_000_000, 1_600_000_000))  # size, time and inode say that nothing changed
    assert prepare_here(config).fingerprint == before
    pipeline.forget_inputs(config.output)
    assert prepare_here(config).fingerprint != before
