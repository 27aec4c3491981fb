"""Held-out rows: all languages mixed, the same rows and masks on any number of ranks, each with its share of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.schema import MaskingConfig
from xalign_ray.shards.prepared import HELD_OUT_ROWS, Prepared
from xalign_ray.shards.rows import take
from xalign_ray.streams.prediction import StreamContext, stream_columns


def one_language_at_a_time(prepared: Prepared) -> dict[str, dict[int, bytes]]:
    """The labels of each row by its hash, as each language gives them alone."""
    length = prepared.manifest["max_seq_length"]
    context = StreamContext(0, MaskingConfig(), prepared.vocabulary, None, length, global_rows=1)
    found = {}
    for language in prepared.languages:
        rows = prepared.first_rows(f"text/{language}", HELD_OUT_ROWS, held_out=True)
        numbers = np.arange(min(len(rows), HELD_OUT_ROWS))
        found[language] = by_hash(stream_columns(MaskedText(), take(rows, numbers), numbers, context))
    return found


def by_hash(columns: dict[str, np.ndarray]) -> dict[int, bytes]:
    named = zip(columns["row_hash"].tolist(), columns["input_ids"], columns["labels"], strict=True)
    return {key: ids.tobytes() + labels.tobytes() for key, ids, labels in named}


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_each_language_has_its_rows_and_masks_on_any_number_of_ranks(prepared: Prepared, workers: int) -> None:
    shares = [prepared.held_out(rank, workers, 4) for rank in range(workers)]
    found: dict[str, dict[int, bytes]] = {language: {} for language in prepared.languages}
    for share in shares:
        for languages, columns in share:
            assert len(languages) == len(columns["row_hash"])
            for number in np.unique(languages):
                chosen = {name: values[languages == number] for name, values in columns.items()}
                new = by_hash(chosen)
                assert not new.keys() & found[prepared.languages[number]].keys(), "a row is scored once"
                found[prepared.languages[number]] |= new
    wanted = one_language_at_a_time(prepared)
    assert found == wanted
    assert all(wanted.values())


def test_64_rows_of_each_language_are_scored(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    prepared = prepare_here(make_config(tmp_path, "data.held_out_fraction=0.5"))
    languages = np.concatenate([languages for languages, _ in prepared.held_out(0, 1, 16)])
    few = min(64, prepared.manifest["held_out"]["text/de"]["rows"])
    assert prepared.manifest["held_out"]["text/en"]["rows"] > 64
    assert np.bincount(languages).tolist() == [64, few] if prepared.languages == ["en", "de"] else [few, 64]


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_ranks_have_even_shares(prepared: Prepared, workers: int) -> None:
    shares = [prepared.held_out(rank, workers, 3) for rank in range(workers)]
    sizes = np.array([[len(languages) for languages, _ in share] for share in shares])
    assert sizes.sum() == sum(map(len, one_language_at_a_time(prepared).values()))
    assert sizes.shape[1] == -(-sizes.sum() // (3 * workers))
    assert (sizes.max(axis=0) - sizes.min(axis=0) <= 1).all()
    assert sizes.max() <= 3


def test_languages_share_a_batch(prepared: Prepared) -> None:
    (first, *_) = prepared.held_out(0, 1, 1000)
    assert len(np.unique(first[0])) == len(prepared.languages) == 2
