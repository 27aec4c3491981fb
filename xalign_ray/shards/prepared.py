"""A prepared data folder, opened: what training reads, and nothing of how it was made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.config.choices import PAIRS, ContrastedPairs, MaskedText, Stream
from xalign_ray.config.derive import Stage, stages_of
from xalign_ray.config.fields import value_at
from xalign_ray.config.schema import DataConfig, MaskingConfig, RunConfig
from xalign_ray.config.training import pool_at
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.shards.files import SHARD_GROUPS, Shard, Shards, fetch_shards, open_shard_table, read_group
from xalign_ray.shards.order import CHUNK_STEPS, ROW_GROUP, Order, Places, Pool, Start, StreamPools, language_shares
from xalign_ray.shards.rows import Rows, VectorShape, concatenate, starts, take
from xalign_ray.sources.stage import (
    DEV,
    EXCHANGE,
    HINT,
    NEW_ROWS,
    REGULAR,
    START_ROWS,
    TESTS,
    check_files,
    check_once,
)
from xalign_ray.streams.collate import Columns, Vocabulary
from xalign_ray.streams.prediction import Prompt, StreamContext, stream_columns
from xalign_ray.vocabulary.dictionary import DictionaryPairs, Lexicon
from xalign_ray.vocabulary.exchange import StartRows
from xalign_ray.vocabulary.tokenizer import encode_text, frame_of, tokenize_behind
from xalign_ray.work.artifacts import MANIFEST, is_sealed, read_json, read_manifest, whole_manifest
from xalign_ray.work.mirror import fetch_listed, url_of

KEYS = (
    *("fingerprint", "languages", "max_seq_length", "vocabulary", "files"),
    *("pools", "held_out", "held_out_missing", "counts", "bad_rows", "dictionary", "sources"),
)
_PAIRS = PAIRS.rstrip("/")
FIRST_WORDS = 1 << 16  # of sentences, whose pieces behind a prompt a process remembers
_SHARD_BITS = 40  # of a number that names a shard of a source


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int
    unknown: int


class RetrievalPairs(NamedTuple):
    """Token ids of the tests of two languages, with special tokens and cut to max_seq_length; int32 arrays."""

    language: str
    other_language: str
    first: list[NDArray[np.int32]]
    second: list[NDArray[np.int32]]


@dataclass(frozen=True)
class StageOrder:
    """The order of the steps [first, last) of a run, all of one stage; `sources`: of each its stream, and its pool."""

    stage: Stage
    first: int
    last: int
    order: Order
    sources: list[tuple[int, str]]


@dataclass(frozen=True)
class Prepared:
    """Token shards, tokenizer and lexicon of one data fingerprint."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Prepared:
        """Opens a finished folder; of one in a store, all but its shards is fetched.

        Raises:
            DataError: if prepare has not finished it, or a file that is not a shard is not as it was written: all of
                them are read, once a process. A shard is checked when it is first read.
        """
        fetch_listed(folder)
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
    def start_rows(self) -> StartRows | None:
        """What the rows of an exchanged vocabulary start as; None if there is none."""
        path = self._find(START_ROWS)
        return StartRows(**np.load(path, allow_pickle=False)) if path else None

    @property
    def exchange(self) -> dict[str, Any]:
        """How many rows of an exchanged vocabulary start in each way, and pieces for a word before and after."""
        path = self._find(EXCHANGE)
        return read_json(path, HINT) if path else {}

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

    @property
    def teacher(self) -> VectorShape | None:
        """Of the vectors that its pairs bring along; None without a teacher."""
        facts = self.manifest.get("teacher")
        return VectorShape(facts["most"], facts["width"]) if facts and "width" in facts else None

    @property
    def has_negatives(self) -> bool:
        """Whether the sentences of its pairs bring hard negatives along."""
        return (self.manifest.get("teacher") or {}).get("gives") == "hard_negatives"

    @property
    def retrieval_part(self) -> str | None:
        """What is scored between steps: DEV pairs where there are any, else the TESTS; None if there are neither."""
        return next((part for part in (DEV, TESTS) if self._pairs_of(part)), None)

    def read_tests(self, part: str = TESTS, prompt: str = "") -> list[RetrievalPairs]:
        """The tests or the dev pairs as token ids, an entry for two languages; none if the recipe has none.

        Args:
            part: TESTS or DEV.
            prompt: what to put before each sentence.
        """
        tokenizer = Tokenizer.from_file(str(self.tokenizer_folder / "tokenizer.json"))
        begin, end = frame_of(tokenizer)
        room = self.manifest["max_seq_length"] - len(begin) - len(end)
        found = []
        for name in self._pairs_of(part):
            path = check_once(self.folder / name, self.manifest["files"][name])
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
            first, second = rows[0]
            encoded = [
                [
                    np.asarray([*begin, *ids[:room], *end], np.int32)
                    for ids in encode_text(tokenizer, [prompt + row[code] for row in rows])[0]
                ]
                for code in (first, second)
            ]
            found.append(RetrievalPairs(first, second, *encoded))
        return found

    def _pairs_of(self, part: str) -> list[str]:
        return [name for name in self.manifest["files"] if name.startswith(f"{part}/") and name.endswith(".jsonl")]

    def _find(self, name: str) -> Path | None:
        """A file that this data has, checked, or None."""
        files = self.manifest["files"]
        return check_once(self.folder / name, files[name]) if name in files else None

    def pools(self, stream: Stream, length: int) -> dict[str, dict[str, Any]]:
        """The pools a stream draws from, of rows of a length, by name."""
        begin = stream.pools if length == self.manifest["max_seq_length"] else pool_at(stream.pools, length)
        return {name: pool for name, pool in self.manifest["pools"].items() if name.startswith(begin)}

    def order(self, config: RunConfig) -> Order:
        """The order of a recipe without stages over these shards: each stream draws from its pools on its own."""
        return Order(self._stream_pools(config, None), config.seed, config.train.global_batch_size, CHUNK_STEPS)

    def orders(self, config: RunConfig) -> list[StageOrder]:
        """The orders of a run, one after the other: of each stage, and of its last steps where they fill no chunk.

        A source that several stages draw from is read on where the stage before left it.
        """
        stages = stages_of(config)
        if len(stages) == 1 and stages[0].languages is None:
            stage = stages[0]
            return [StageOrder(stage, 0, stage.last, self.order(stage.config), self.sources(stage.config))]
        numbers: dict[tuple[str, int, str], int] = {}  # of every source of the run
        drawn: Counter[int] = Counter()
        found: list[StageOrder] = []
        for stage in stages:
            sources, rows = self.sources(stage.config), stage.config.train.global_batch_size
            kinds = [stream.kind for stream in stage.config.streams]
            keys = [(kinds[stream], kinds[:stream].count(kinds[stream]), pool) for stream, pool in sources]
            numbered = [numbers.setdefault(key, len(numbers)) for key in keys]
            streams = self._stream_pools(stage.config, stage.languages)
            whole = stage.last if stage is stages[-1] else stage.last - (stage.last - stage.first) % CHUNK_STEPS
            for first, last in ((stage.first, whole), (whole, stage.last)):
                if first == last:
                    continue
                before = np.array([drawn[number] for number in numbered], np.int64)
                position = stage.position + (first - stage.first) * rows
                start = Start(first, position, len(found), np.array(numbered), before)
                chunk_steps = CHUNK_STEPS if first == stage.first and whole > first else last - first
                order = Order(streams, config.seed, rows, chunk_steps, start)
                found.append(StageOrder(stage, first, last, order, sources))
                if stage is not stages[-1]:
                    after = order.sampled_before((last - first) // chunk_steps).tolist()
                    drawn.update(dict(zip(numbered, (np.array(after) - before).tolist(), strict=True)))
        return found

    def _stream_pools(self, config: RunConfig, languages: frozenset[str] | None) -> list[StreamPools]:
        length = config.data.max_seq_length
        return [
            StreamPools(
                stream.weight,
                [Pool(self.shards(pool).rows) for pool in self.pools(stream, length)],
                self._shares(stream, config, languages),
            )
            for stream in config.streams
        ]

    def _shares(
        self, stream: Stream, config: RunConfig, languages: frozenset[str] | None
    ) -> Callable[[int], NDArray[np.float64]]:
        sampling, pools = config.sampling, self.pools(stream, config.data.max_seq_length)
        drawn = pools if languages is None else _pools_of(languages, config.data, pools)
        sizes = {name: float(pools[name][sampling.unit]) for name in drawn}
        if not sizes:
            raise ConfigError(
                f"stream {stream.kind} has no rows: prepare found no such text; check data.corpora and data.parallel."
            )

        @lru_cache(maxsize=1)
        def of(exponent: float) -> NDArray[np.float64]:
            found = language_shares(sizes, exponent)
            return np.array([found.get(name, 0.0) for name in pools])

        return lambda step: of(value_at(sampling.exponent, step))

    def sources(self, config: RunConfig) -> list[tuple[int, str]]:
        """For each source of the order of a recipe without stages: the number of its stream, and its pool."""
        length = config.data.max_seq_length
        return [(i, name) for i, stream in enumerate(config.streams) for name in self.pools(stream, length)]

    def read(self, pools: Sequence[str], places: Places) -> Rows:
        """The rows at these places of some pools, in their order; each row group is read once.

        Args:
            pools: the pool of each source.
        """
        needed, which = self._groups(pools, places)
        groups = [read_group(*one) for one in needed]
        row = places.row % ROW_GROUP
        return take(concatenate(groups), starts(np.array([len(group) for group in groups]))[which] + row)

    def fetch(self, pools: Sequence[str], places: Places) -> None:
        """Brings what `read` will need here, from a store that it lies in, many shards at once."""
        if self.is_stored:
            needed, _ = self._groups(pools, places)
            fetch_shards(shard for shard, _ in needed)

    @cached_property
    def is_stored(self) -> bool:
        """Whether its shards may lie in a store."""
        return url_of(self.folder) is not None

    def _groups(self, pools: Sequence[str], places: Places) -> tuple[list[tuple[Shard, int]], NDArray[np.intp]]:
        """The row groups of places, shard by shard, and for each place the number of its group among them."""
        shard = places.source << _SHARD_BITS | places.shard
        needed, which = np.unique(shard * SHARD_GROUPS + places.row // ROW_GROUP, return_inverse=True)
        found = []
        for shard, group in zip(*np.divmod(needed, SHARD_GROUPS), strict=True):
            source, number = int(shard) >> _SHARD_BITS, int(shard) & (1 << _SHARD_BITS) - 1
            found.append((self.shards(pools[source])[number], int(group)))
        return found, which

    def shards(self, pool: str, held_out: bool = False) -> Shards:
        """The shards of a pool, those that are trained on or the held-out ones."""
        return self._shards[pool, held_out]

    @cached_property
    def _shards(self) -> dict[tuple[str, bool], Shards]:
        table = open_shard_table(self.folder)
        return {
            (name, key == "held_out"): Shards(self.folder, table, pool["shards"])
            for key in ("pools", "held_out")
            for name, pool in self.manifest[key].items()
        }

    def context(self, config: RunConfig, first_step: int = 0, first_position: int = 0) -> StreamContext:
        """What streams of this recipe need besides rows; a stage begins at a step and position of the run."""
        dictionaries = [one for one in config.data.dictionaries if one.split == "train"]
        covered = {code for one in dictionaries for code in one.languages}
        return StreamContext(
            config.seed,
            config.masking,
            self.vocabulary,
            self.lexicon,
            config.data.max_seq_length,
            global_rows=config.train.global_batch_size,
            first_step=first_step,
            first_position=first_position,
            no_dictionary=frozenset(n for n, code in enumerate(self.languages) if code not in covered),
            teacher=self.teacher,
            hard_negatives=self.has_negatives,
            prompts=self.prompts(config),
        )

    def prompts(self, config: RunConfig) -> dict[str, Prompt]:
        """Each prompt of a recipe's streams; a blank at its end is the next word's."""
        asked = {stream.prompt for stream in config.streams if isinstance(stream, ContrastedPairs) and stream.prompt}
        if not asked:
            return {}
        tokenizer = Tokenizer.from_file(str(self.tokenizer_folder / "tokenizer.json"))
        found = {}
        for one in asked:
            pieces = np.array(tokenizer.encode(one.rstrip(), add_special_tokens=False).ids, np.int32)
            found[one] = Prompt(pieces, lru_cache(FIRST_WORDS)(partial(tokenize_behind, tokenizer, one)))
        return found

    def held_out(self, rank: int, workers: int, batch_rows: int) -> list[tuple[NDArray[np.int64], Columns]]:
        """The held-out rows of a rank in batches, with the language of each row: see `held_out_batches`."""
        return held_out_batches(self, rank, workers, batch_rows)

    def first_rows(self, pool: str, count: int, held_out: bool = False) -> Rows:
        """The first `count` rows of a pool or more, or all: no more row groups are read than it takes."""
        groups: list[Rows] = []
        shards = self.shards(pool, held_out)
        for number, rows in enumerate(shards.rows.tolist()):
            for group in range(-(-rows // ROW_GROUP)):
                if sum(map(len, groups)) < count:
                    groups.append(read_group(shards[number], group))
        return concatenate(groups)


def _pools_of(languages: frozenset[str], data: DataConfig, pools: Iterable[str]) -> list[str]:
    """Those of some pools whose text, or both sides of whose pairs, are in the languages."""
    pairs = {"-".join(sorted(one.languages)) for one in data.parallel if languages.issuperset(one.languages)}
    return [name for name in pools if name.partition("/")[2] in (pairs if name.startswith(_PAIRS) else languages)]


def whole_folder(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder that prepare finished, None where it did not or the manifest is damaged."""
    manifest = whole_manifest(folder, *KEYS)
    return manifest if manifest and is_sealed(manifest) else None


HELD_OUT_ROWS = 64  # rows a language: enough for a curve, cheap enough to repeat


def held_out_batches(
    prepared: Prepared, rank: int, workers: int, batch_rows: int
) -> list[tuple[NDArray[np.int64], Columns]]:
    """The first rows of each language, masked the same in every run of this data, dealt to the ranks.

    Returns:
        For each batch of this rank the language of each row, a number of `prepared.languages`, and the columns. As many
        on each rank; of one batch a rank has at most a row more than another, perhaps none.
    """
    pools = sorted(prepared.manifest["held_out"])
    counts = [min(int(prepared.shards(pool, held_out=True).rows.sum()), HELD_OUT_ROWS) for pool in pools]
    of_pool = np.repeat(np.arange(len(pools)), counts)
    number = np.concatenate([np.arange(count) for count in [0, *counts]])
    languages = np.array([prepared.languages.index(pool.removeprefix("text/")) for pool in pools], np.int64)
    context = StreamContext(
        0, MaskingConfig(), prepared.vocabulary, None, prepared.manifest["max_seq_length"], global_rows=1
    )
    batches = []
    for begin in range(0, len(number), batch_rows * workers):
        together = min(batch_rows * workers, len(number) - begin)
        mine = slice(begin + together * rank // workers, begin + together * (rank + 1) // workers)
        places = [(pools[pool], number[mine][of_pool[mine] == pool]) for pool in np.unique(of_pool[mine])]
        parts = [take(prepared.first_rows(pool, HELD_OUT_ROWS, held_out=True), rows) for pool, rows in places]
        rows = concatenate(parts) if parts else take(prepared.first_rows(pools[0], 1, held_out=True), number[:0])
        batches.append((languages[of_pool[mine]], stream_columns(MaskedText(), rows, number[mine], context)))
    return batches
