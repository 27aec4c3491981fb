"""Preparing a small recipe in one process: what is written, what is kept, what is mended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.conftest import WORDS, make_config, prepare_here, write_inputs
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.prepared import HELD_OUT_ROWS, Prepared
from xalign_ray.data.shards import CURE, read_group
from xalign_ray.errors import DataError
from xalign_ray.text.collate import IGNORED


@pytest.fixture
def fresh(tmp_path: Path) -> RunConfig:
    """A recipe over inputs of its own."""
    write_inputs(tmp_path)
    return make_config(tmp_path)


def shards(prepared: Prepared) -> dict[str, bytes]:
    files = sorted(prepared.folder.rglob("*.parquet"))
    return {path.relative_to(prepared.folder).as_posix(): path.read_bytes() for path in files}


def test_the_manifest_tells_what_there_is(prepared: Prepared) -> None:
    assert prepared.languages == ["en", "de"]
    assert sorted(prepared.manifest["pools"]) == ["pairs/de-en", "text/de", "text/en"]
    assert prepared.manifest["counts"]["documents"] == 1800
    assert prepared.manifest["counts"]["pairs"] == 250
    assert prepared.manifest["bad_rows"] == {}
    assert prepared.vocab_size == len(prepared.vocabulary.regular) + 5
    special = prepared.special
    assert sorted((special.pad, special.unknown, special.cls, special.sep, special.mask)) == [0, 1, 2, 3, 4]
    assert not set(prepared.vocabulary.regular.tolist()) & {0, 1, 2, 3, 4}
    for pool in prepared.manifest["pools"].values():
        assert pool["rows"] == sum(sum(shard["groups"]) for shard in pool["shards"])


def test_the_same_inputs_elsewhere_are_the_same_bytes_and_fingerprint(prepared: Prepared, fresh: RunConfig) -> None:
    again = prepare_here(fresh)
    assert again.fingerprint == prepared.fingerprint
    assert shards(again) == shards(prepared)
    for name in ("tokenizer/tokenizer.json", "entries.json", "pair_words.json", "manifest.json", "lexicon.npz"):
        assert (again.folder / name).read_bytes() == (prepared.folder / name).read_bytes(), name


def test_a_finished_folder_is_opened_and_not_made_again(prepared: Prepared, config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*")}
    assert prepare_here(config) == prepared
    assert {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*")} == before


def test_changed_content_is_other_data(prepared: Prepared, fresh: RunConfig) -> None:
    path = Path(fresh.data.root) / "en-de.txt"
    path.write_text(path.read_text() + "more mehr\n")
    assert prepare_here(fresh).fingerprint != prepared.fingerprint


def test_an_interrupted_prepare_goes_on_with_what_is_missing(fresh: RunConfig) -> None:
    whole = prepare_here(fresh)
    wanted = shards(whole)
    (whole.folder / "manifest.json").unlink()
    (whole.folder / "parts" / "text" / "de" / "part-00000.json").unlink()
    (whole.folder / "shards" / "text" / "de" / "part-00000.parquet").unlink()
    untouched = whole.folder / "shards" / "text" / "en" / "part-00000.parquet"
    before = untouched.stat().st_mtime_ns
    assert shards(prepare_here(fresh)) == wanted
    assert untouched.stat().st_mtime_ns == before


def test_verify_mends_a_damaged_shard_and_nothing_else(fresh: RunConfig) -> None:
    whole = prepare_here(fresh)
    wanted = shards(whole)
    path = whole.folder / "shards" / "text" / "en" / "part-00000.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    shard = whole.manifest["pools"]["text/en"]["shards"][0]
    with pytest.raises(DataError, match=f"^{path} is damaged: .* {CURE}$"):
        read_group(str(path), shard["sha256"], 0)
    assert shards(prepare_here(fresh, verify=True)) == wanted


def test_a_folder_without_a_manifest_is_not_opened(prepared: Prepared, tmp_path: Path) -> None:
    shutil.copytree(prepared.folder, tmp_path / "copy")
    (tmp_path / "copy" / "manifest.json").unlink()
    with pytest.raises(DataError) as told:
        Prepared.open(tmp_path / "copy")
    assert str(told.value) == f"{tmp_path / 'copy'} has no manifest.json: prepare has not finished it. {CURE}"


def test_dictionary_pairs_are_split_by_concept(prepared: Prepared) -> None:
    trained, held_out = prepared.pair_words("trained"), prepared.pair_words("held_out")
    assert len(trained) + len(held_out) == WORDS
    assert 0.1 < len(held_out) / WORDS < 0.45
    assert not {tuple(p) for p in trained} & {tuple(p) for p in held_out}
    assert all((a, c) == ("en", "de") and b.replace("en", "de") == d for a, b, c, d in trained + held_out)


def test_pairs_as_pieces_are_the_pairs_as_words(prepared: Prepared) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared.tokenizer_folder)
    for split in ("trained", "held_out"):
        pairs, words = prepared.pairs(split), prepared.pair_words(split)
        assert pairs is not None
        assert len(pairs) == len(words)
        for row, (_, left, _, right) in enumerate(words):
            for pieces, word in ((pairs.left[row], left), (pairs.right[row], right)):
                assert pieces[pieces >= 0].tolist() == tokenizer(word, add_special_tokens=False)["input_ids"]
        assert set(pairs.left_language.tolist()) == {0}
        assert set(pairs.right_language.tolist()) == {1}


def test_words_held_out_are_no_entries(prepared: Prepared) -> None:
    entries = {tuple(entry) for entry in json.loads((prepared.folder / "entries.json").read_text())}
    assert not entries & {(0, pair[1]) for pair in prepared.pair_words("held_out")}
    assert {(0, pair[1]) for pair in prepared.pair_words("trained")} <= entries


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_held_out_rows_are_the_same_for_any_number_of_workers(prepared: Prepared, workers: int) -> None:
    alone = prepared.held_out(0, 1, 4)
    shares = [prepared.held_out(rank, workers, 4) for rank in range(workers)]
    assert len({len(share) for share in shares}) == 1, "collectives need as many batches on each rank"
    for language in ("de", "en"):
        every = [c["row_hash"] for share in shares for name, c in share if name == language]
        wanted = np.concatenate([c["row_hash"] for name, c in alone if name == language])
        assert sorted(np.concatenate(every).tolist()) == sorted(wanted.tolist())
        assert 0 < len(wanted) <= HELD_OUT_ROWS


def test_held_out_rows_are_not_trained_on(prepared: Prepared) -> None:
    for language in ("en", "de"):
        shard = prepared.manifest["held_out"][f"text/{language}"][0]
        assert sum(shard["groups"]) > 0
        tokens = prepared.manifest["pools"][f"text/{language}"]["tokens"] + shard["tokens"]
        assert tokens < prepared.manifest["counts"]["tokens"]
    (first, *_) = prepared.held_out(0, 1, 4)
    assert (first[1]["labels"] != IGNORED).any()


def test_a_dictionary_with_a_held_out_file_is_not_split_by_hash(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "test.txt").write_text("".join(f"de{n} en{n}\n" for n in range(20)))
    (tmp_path / "en-de.txt").write_text("".join(f"en{n} de{n}\n" for n in range(20, WORDS)))
    dictionaries = (
        "data.dictionaries=[{languages: [en, de], paths: [en-de.txt]},"
        " {languages: [de, en], paths: [test.txt], split: held_out}]"
    )
    prepared = prepare_here(make_config(tmp_path, dictionaries))
    assert len(prepared.pair_words("trained")) == WORDS - 20
    assert [pair[1] for pair in prepared.pair_words("held_out")] == [f"de{n}" for n in range(20)]
