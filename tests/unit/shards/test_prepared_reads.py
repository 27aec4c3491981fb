"""Reads of pools look up the row groups that they need, and nothing for each of those that there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.schema import RunConfig, SamplingConfig
from xalign_ray.shards import prepared
from xalign_ray.shards.files import SHARD_TABLE, Shard, shard_hashes, write_shard_table
from xalign_ray.shards.order import ROW_GROUP, Places
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import Rows, concatenate
from xalign_ray.work.artifacts import hash_file


@pytest.fixture
def prepared_here(tmp_path: Path) -> Prepared:
    """Rows of en are fuller than those of de, so that rows and tokens are shared differently."""
    write_inputs(tmp_path)
    (tmp_path / "de.txt").write_text("de1 de2\n\n" * 300)
    return prepare_here(make_config(tmp_path, "data.example=document", "data.held_out_fraction=0"))


SHARDS = {"text/de": 2, "text/en": 5}


def named_row(name: str, group: int, row: int) -> Rows:
    """A row whose only piece says where it lies."""
    one, none = np.array([1], np.int32), np.zeros(0, np.int32)
    return Rows(
        pieces=np.array([int(name.split(".")[0]) * 100_000 + group * 1000 + row], np.int32),
        word_length=one,
        entry=np.zeros(1, np.int32),
        segment_words=one,
        segment_language=np.zeros(1, np.int32),
        segment_links=np.zeros(1, np.int32),
        link_from=none,
        link_to=none,
        row_segments=one,
    )


def shard(number: int) -> dict[str, object]:
    return {"file": f"{number}.parquet", "sha256": f"hash {number}", "footer": f"footer {number}", "rows": 300}


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepared:
    def read_group(shard: Shard, group: int) -> Rows:
        name = Path(shard.path).name
        assert shard.footer == f"footer {name.split('.')[0]}"
        return concatenate([named_row(name, group, row) for row in range(ROW_GROUP if group == 0 else 44)])

    monkeypatch.setattr(prepared, "read_group", read_group)
    write_shard_table(tmp_path, [shard(number) for number in range(7)])
    pools = {"text/de": {"shards": [0, 2]}, "text/en": {"shards": [2, 7]}}
    return Prepared(tmp_path, {"pools": pools, "held_out": {"text/en": {"shards": [0, 1]}}})


def test_each_row_is_found_in_the_shard_of_its_pool(many: Prepared) -> None:
    source, shard, row = np.array([[1, 4, 299], [0, 0, 7], [1, 0, 256], [0, 1, 0], [1, 4, 298], [0, 0, 7]]).T
    rows = many.read(["text/de", "text/en"], Places(source, shard, row))
    assert rows.pieces.tolist() == [601_043, 7, 201_000, 100_000, 601_042, 7]


def test_a_language_is_drawn_by_the_unit_of_its_size(prepared_here: Prepared, config: RunConfig) -> None:
    pools = {name: prepared_here.manifest["pools"][name] for name in ("text/de", "text/en")}
    found = {}
    for unit in ("rows", "tokens"):
        sampling = config.sampling.model_copy(update={"unit": unit, "alpha": 1.0})
        order = prepared_here.order(config.model_copy(update={"sampling": sampling, "streams": config.streams[:1]}))
        total = sum(pool[unit] for pool in pools.values())
        found[unit] = order.shares(0).tolist()
        assert found[unit] == pytest.approx([pool[unit] / total for pool in pools.values()])
    assert found["rows"] != pytest.approx(found["tokens"], rel=1e-3), "the two can be told apart"


def test_a_scheduled_alpha_is_that_of_the_step(prepared_here: Prepared, config: RunConfig) -> None:
    update = {"alpha": [[0, 1.0], [64, 0.0]], "unit": "rows"}
    sampling = SamplingConfig.model_validate(config.sampling.model_dump() | update)
    order = prepared_here.order(config.model_copy(update={"sampling": sampling, "streams": config.streams[:1]}))
    rows = [prepared_here.manifest["pools"][name]["rows"] for name in ("text/de", "text/en")]
    assert order.shares(0).tolist() == pytest.approx([one / sum(rows) for one in rows])
    assert order.shares(64).tolist() == pytest.approx([0.5, 0.5])


def test_words_of_a_held_out_dictionary_are_not_in_the_lexicon_of_streams(
    prepared_here: Prepared, config: RunConfig
) -> None:
    """A language whose only dictionary is held out has no entry to train on."""
    (dictionary,) = config.data.dictionaries
    held_out = dictionary.model_copy(update={"split": "held_out"})
    for split, missing in ((dictionary, frozenset()), (held_out, frozenset(range(2)))):
        data = config.data.model_copy(update={"dictionaries": (split,)})
        assert prepared_here.context(config.model_copy(update={"data": data})).no_dictionary == missing


def test_shards_are_those_of_a_pool_and_a_split(many: Prepared) -> None:
    assert [len(many.shards(pool)) for pool in SHARDS] == [2, 5]
    assert many.shards("text/en")[0] == Shard(str(many.folder / "2.parquet"), "footer 2")
    assert many.shards("text/en", held_out=True)[0].footer == "footer 0"
    assert many.shards("text/de").rows.tolist() == [300, 300]


def test_the_table_gives_hashes_while_it_is_as_it_was_written(many: Prepared) -> None:
    path = many.folder / SHARD_TABLE
    manifest = {"files": {SHARD_TABLE: hash_file(path)}}
    assert shard_hashes(many.folder, manifest) == {f"{number}.parquet": f"hash {number}" for number in range(7)}
    path.write_bytes(path.read_bytes()[:-1])
    assert shard_hashes(many.folder, manifest) == {}
    path.unlink()
    assert shard_hashes(many.folder, manifest) == {}
