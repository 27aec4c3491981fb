"""Models, shards and texts of somebody else are read without running what they hold; each attack is a real one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModel

from tests.ray.tagging_world import write_encoder
from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.inference import open_model
from xalign_ray.models.open import open_encoder
from xalign_ray.shards.files import Shard, hash_footer, read_group
from xalign_ray.sources.formats import read
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer


class Attack:
    """What a pickle runs when it is read."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._marker}",)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "attacked"


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return Path(write_encoder(tmp_path / "encoder"))


def write_pickles(path: Path, marker: Path, lists: bool) -> None:
    """A Parquet file whose column `text` holds pickled objects, as Ray Data writes them."""
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectArray

    column: Any = ArrowPythonObjectArray.from_objects([Attack(marker)])
    if lists:
        column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    pq.write_table(pa.table({"text": column}), path)


def test_a_parquet_column_of_pickles_is_refused(tmp_path: Path, marker: Path) -> None:
    write_pickles(tmp_path / "a.parquet", marker, lists=False)
    with pytest.raises(DataError, match=r"no column of text 'text'; it has none; of other kinds text \(extension"):
        list(read("parquet", [str(tmp_path / "a.parquet")], ["en"]))
    assert not marker.exists()
    pq.read_table(tmp_path / "a.parquet").column("text").to_pylist()
    assert marker.exists(), "the attack works where nobody looks"


def test_a_shard_of_pickles_is_refused(tmp_path: Path, marker: Path) -> None:
    path = tmp_path / "a.parquet"
    write_pickles(path, marker, lists=True)
    with pytest.raises(DataError, match=r"a\.parquet is no shard: a column of it holds something else than lists"):
        read_group(Shard(str(path), hash_footer(path)), 0)
    assert not marker.exists()


def test_weights_that_are_a_pickle_with_code_are_refused(encoder: Path, marker: Path) -> None:
    for file in encoder.glob("*.safetensors"):
        file.unlink()
    torch.save({"bert.embeddings.word_embeddings.weight": Attack(marker)}, encoder / "pytorch_model.bin")
    with pytest.raises(DataError, match="its weights are a pickle of more than tensors, and could run any code"):
        open_model(open_encoder(encoder), AutoModel)
    with pytest.raises(ConfigError, match=r"model\.init_from"):
        build_encoder(ModelConfig(init_from=str(encoder)), 100, ["en"], 16, 0, {})
    assert not marker.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_that_brings_its_own_code_is_read_without_it(encoder: Path, marker: Path, name: str) -> None:
    (encoder / "theirs.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    told = json.loads((encoder / name).read_text())
    classes = {
        "AutoConfig": "theirs.Config",
        "AutoModel": "theirs.Model",
        "AutoTokenizer": ["theirs.Slow", "theirs.Fast"],
    }
    told |= {"auto_map": classes, "model_type": "theirs", "tokenizer_class": "Theirs"}
    (encoder / name).write_text(json.dumps(told))
    for opened in (lambda: open_model(open_encoder(encoder), AutoModel), lambda: open_tokenizer(str(encoder))):
        try:
            opened()
        except (DataError, ConfigError):
            continue
    assert not marker.exists()
