"""The table of a data folder's shards, each pool's one after the other: files, hashes and rows; memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xalign_ray.data.shards import Shard
from xalign_ray.work.artifacts import hash_file, write_atomic

SHARD_TABLE = "shards.arrow"
_SCHEMA = pa.schema(
    {"file": pa.string(), "sha256": pa.string(), "footer": pa.string(), "rows": pa.int64()}
)  # name below the folder; hashes of the whole file, and of its footer


def write_shard_table(folder: Path, shards: Iterable[Mapping[str, Any]]) -> None:
    """Writes the table; a pool knows its shards by their numbers in it."""
    memory = pa.BufferOutputStream()
    with pa.ipc.new_file(memory, _SCHEMA) as file:
        file.write_table(pa.Table.from_pylist(list(shards), schema=_SCHEMA))
    write_atomic(folder / SHARD_TABLE, memory.getvalue().to_pybytes())


def shard_hashes(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each shard by name; none where the table itself is damaged."""
    path = folder / SHARD_TABLE
    if not path.is_file() or hash_file(path) != manifest["files"].get(SHARD_TABLE):
        return {}
    table = open_shard_table(folder)
    return dict(zip(table["file"].to_pylist(), table["sha256"].to_pylist(), strict=True))


def open_shard_table(folder: Path) -> pa.Table:
    """The table, of which only what is looked at is read."""
    return pa.ipc.open_file(pa.memory_map(str(folder / SHARD_TABLE))).read_all()


class Shards:
    """The shards of one pool, of rows [begin, end) of the table."""

    def __init__(self, folder: Path, table: pa.Table, span: tuple[int, int]) -> None:
        begin, end = span
        self._folder, self._table = folder, table.slice(begin, end - begin)

    def __len__(self) -> int:
        return len(self._table)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Of each shard."""
        return self._table["rows"].to_numpy()

    def __getitem__(self, number: int) -> Shard:
        file, footer = (self._table[name][number].as_py() for name in ("file", "footer"))
        return Shard(str(self._folder / file), footer)
