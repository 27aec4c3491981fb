"""A prepared data folder, opened: what training reads, and nothing of how it was made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.artifacts import MANIFEST, read_json, read_manifest, whole_manifest
from xalign_ray.config.choices import MaskedText, Stream
from xalign_ray.config.derive import CHUNK_STEPS, partitions
from xalign_ray.config.scheduled import value_at
from xalign_ray.config.schema import MaskingConfig, RunConfig
from xalign_ray.data.file_hashes import HINT, NEW_ROWS, REGULAR, check_files, check_once, is_sealed
from xalign_ray.data.shards import read_group
from xalign_ray.errors import DataError
from xalign_ray.text.code_switch import Lexicon
from xalign_ray.text.collate import Columns, Vocabulary
from xalign_ray.text.dictionary import DictionaryPairs
from xalign_ray.text.order import Order, Places, Pool
from xalign_ray.text.prediction import StreamContext
from xalign_ray.text.rows import Rows, concatenate, starts, take
from xalign_ray.text.sampling import source_shares
from xalign_ray.text.streams import stream_columns

KEYS = (
    *("fingerprint", "languages", "max_seq_length", "vocabulary", "files"),
    *("pools", "held_out", "held_out_missing", "counts", "bad_rows", "dictionary", "sources", "broken_files"),
)
HELD_OUT_ROWS = 64  # rows a language in the held-out loss: enough for a curve, cheap enough to repeat


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int
    unknown: int


@dataclass(frozen=True)
class Prepared:
    """Token shards, tokenizer and lexicon of one data fingerprint."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Prepared:
        """Opens a finished folder.

        Raises:
            DataError: if prepare has not finished it, or a file that is not a shard is not as it was written: all of
                them are read, once a process. A shard is checked when it is first read.
        """
        manifest = read_manifest(folder, *KEYS)
        if manifest is None:
            raise DataError(f"{folder} has no manifest.json: prepare has not finished it. {HINT}")
        if not is_sealed(manifest):
            raise DataError(f"{folder / MANIFEST} is damaged: its hash is not that of its fields. {HINT}")
        check_files(folder, manifest["files"])
        return cls(folder, manifest)

    @property
    def languages(self) -> list[str]:
        """The run's languages; the index is the language id."""
        return self.manifest["languages"]

    @property
    def new_rows(self) -> dict[int, list[int]]:
        """For each piece that prepare added to a given vocabulary, the old pieces whose mean row it starts as."""
        path = self._find(NEW_ROWS)
        listed = read_json(path, HINT) if path else {}
        return {int(number): olds for number, olds in listed.items()}

    @property
    def held_out_missing(self) -> dict[str, int]:
        """Languages of which no document is held out, with the documents that they have."""
        return self.manifest["held_out_missing"]

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the shards depend on."""
        return self.manifest["fingerprint"]

    @property
    def vocab_size(self) -> int:
        """Ids of the tokenizer."""
        return self.manifest["vocabulary"]["size"]

    @property
    def special(self) -> SpecialIds:
        """Ids of the special tokens."""
        return SpecialIds(**self.manifest["vocabulary"]["special"])

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer lies, as transformers reads it."""
        return self.folder / "tokenizer"

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids that streams need."""
        regular = np.load(self.folder / REGULAR, allow_pickle=False)
        return Vocabulary(**asdict(self.special), regular=regular)

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """The dictionaries as arrays, or None if the recipe names none."""
        path = self._find("lexicon.npz")
        return Lexicon(**np.load(path, allow_pickle=False)) if path else None

    def pairs(self, split: str) -> DictionaryPairs | None:
        """The dictionary pairs of a split (`trained` or `held_out`) as pieces."""
        path = self._find(f"pairs_{split}.npz")
        return DictionaryPairs(**np.load(path, allow_pickle=False)) if path else None

    def pair_words(self, split: str) -> list[list[str]]:
        """The dictionary pairs of a split as words: [left language, left word, right language, right word]."""
        path = self._find("pair_words.json")
        return read_json(path, HINT, split)[split] if path else []

    def _find(self, name: str) -> Path | None:
        """A file that this data has, checked, or None."""
        files = self.manifest["files"]
        return check_once(self.folder / name, files[name]) if name in files else None

    def pools(self, stream: Stream) -> dict[str, dict[str, Any]]:
        """The pools a stream draws from, by name."""
        return {name: pool for name, pool in self.manifest["pools"].items() if name.startswith(stream.pools)}

    def order(self, config: RunConfig) -> Order:
        """The order of a recipe over these shards: each stream draws from its pools on its own."""
        streams = [(stream, self.pools(stream)) for stream in config.streams]
        unit = config.sampling.unit
        sizes = [(stream.kind, stream.weight, {n: p[unit] for n, p in pools.items()}) for stream, pools in streams]

        def shares(step: int) -> list[float]:
            return source_shares(sizes, value_at(config.sampling.exponent, step))

        pools = [_pool(pool) for _, pools in streams for pool in pools.values()]
        rows = config.train.global_batch_size
        return Order(pools, shares, config.seed, rows, partitions(rows), CHUNK_STEPS)

    def sources(self, config: RunConfig) -> list[tuple[int, str]]:
        """For each source of the order: the number of its stream, and its pool."""
        return [(i, name) for i, stream in enumerate(config.streams) for name in self.pools(stream)]

    def read(self, pool: str, places: Places) -> Rows:
        """The rows at these places of a pool, in their order; each row group is read once."""
        shards, begins = self.manifest["pools"][pool]["shards"], self._group_begins[pool]
        needed, which = np.unique(places.group, return_inverse=True)
        lying_in = np.searchsorted(begins, needed, side="right") - 1
        groups = [
            read_group(str(self.folder / shards[shard]["file"]), shards[shard]["sha256"], int(number - begins[shard]))
            for number, shard in zip(needed, lying_in, strict=True)
        ]
        first = np.cumsum([0] + [len(group) for group in groups])
        return take(concatenate(groups), first[which] + places.row)

    @cached_property
    def _group_begins(self) -> dict[str, NDArray[np.int64]]:
        """The number of each shard's first row group in its pool: a read looks up few of what may be millions."""
        pools = self.manifest["pools"].items()
        return {name: starts(np.array([len(shard["groups"]) for shard in pool["shards"]])) for name, pool in pools}

    def context(self, config: RunConfig) -> StreamContext:
        """What streams of this recipe need besides rows."""
        rows = config.train.global_batch_size
        return StreamContext(
            config.seed, config.masking, self.vocabulary, self.lexicon, config.data.max_seq_length, global_rows=rows
        )

    def held_out(self, rank: int, workers: int, batch_rows: int) -> list[tuple[str, Columns]]:
        """Masked held-out rows of each language, the same masks in every run of this data.

        Returns:
            (language, columns) for batches of this rank; as many on each rank, some perhaps without rows.
        """
        max_seq_length = self.manifest["max_seq_length"]
        context = StreamContext(0, MaskingConfig(), self.vocabulary, None, max_seq_length, global_rows=1)
        batches = []
        for pool, shards in sorted(self.manifest["held_out"].items()):
            rows = self._first_rows(shards, HELD_OUT_ROWS)
            total = min(len(rows), HELD_OUT_ROWS)
            for begin in range(0, total, batch_rows * workers):
                low = min(begin + rank * batch_rows, total)
                mine = np.arange(low, min(low + batch_rows, total))
                batches.append(
                    (pool.removeprefix("text/"), stream_columns(MaskedText(), take(rows, mine), mine, context))
                )
        return batches

    def _first_rows(self, shards: list[dict[str, Any]], count: int) -> Rows:
        """The first `count` rows of some shards or more, or all: no more row groups are read than it takes."""
        groups: list[Rows] = []
        for shard in shards:
            for group in range(len(shard["groups"])):
                if sum(map(len, groups)) < count:
                    groups.append(read_group(str(self.folder / shard["file"]), shard["sha256"], group))
        return concatenate(groups)


def _pool(pool: dict[str, Any]) -> Pool:
    return Pool(tuple(size for shard in pool["shards"] for size in shard["groups"]))


def whole_folder(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder that prepare finished, None where it did not or the manifest is damaged."""
    manifest = whole_manifest(folder, *KEYS)
    return manifest if manifest and is_sealed(manifest) else None
