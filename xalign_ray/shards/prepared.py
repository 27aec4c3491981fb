"""A prepared data folder, opened: what training reads, and nothing of how it was made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.config.choices import ContrastedPairs, MaskedText, Stream
from xalign_ray.config.fields import value_at
from xalign_ray.config.schema import MaskingConfig, RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.shards.files import SHARD_GROUPS, Shards, fetch_shards, open_shard_table, read_group
from xalign_ray.shards.order import CHUNK_STEPS, ROW_GROUP, Order, Places, Pool, StreamPools, language_shares
from xalign_ray.shards.rows import Rows, VectorShape, concatenate, starts, take
from xalign_ray.sources.stage import (
    DEV,
    EXCHANGE,
    HINT,
    NEW_ROWS,
    QUERY_AND_PASSAGE,
    REGULAR,
    START_ROWS,
    TESTS,
    check_files,
    check_once,
)
from xalign_ray.streams.collate import Columns, SpecialIds, Vocabulary
from xalign_ray.streams.prediction import Prompt, StreamContext, stream_columns
from xalign_ray.vocabulary.dictionary import DictionaryPairs, Lexicon
from xalign_ray.vocabulary.exchange import StartRows
from xalign_ray.vocabulary.tokenizer import encode_text, frame_of, tokenize_behind
from xalign_ray.work.artifacts import MANIFEST, is_sealed, read_json, read_manifest, whole_manifest
from xalign_ray.work.mirror import fetch_listed

KEYS = (
    *("fingerprint", "languages", "max_seq_length", "vocabulary", "files"),
    *("pools", "held_out", "held_out_missing", "counts", "bad_rows", "dictionary", "sources"),
)
HELD_OUT_ROWS = 64  # rows a language: enough for a curve, cheap enough to repeat
FIRST_WORDS = 1 << 16  # of sentences, whose pieces behind a prompt a process remembers
_SHARD_BITS = 40  # of a number that names a shard of a source
Loaded = TypeVar("Loaded")


class RetrievalPairs(NamedTuple):
    """Token ids of the tests of two languages, with special tokens and cut to max_seq_length; int32 arrays."""

    language: str
    other_language: str
    first: list[NDArray[np.int32]]
    second: list[NDArray[np.int32]]


def read_test_pairs(path: Path) -> tuple[tuple[str, str], list[str], list[str]]:
    """The languages and both sides of a file of tests or dev pairs, as prepare writes it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    first, second = rows[0]
    code = path.stem[: len(path.stem) // 2]  # of en-en
    is_one_language = (first, second) == QUERY_AND_PASSAGE
    sides = [row[first] for row in rows], [row[second] for row in rows]
    return (code, code) if is_one_language else (first, second), *sides


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
        return {int(number): olds for number, olds in self._read(NEW_ROWS).items()}

    @property
    def start_rows(self) -> StartRows | None:
        """The initial rows of an exchanged vocabulary; None if there is none."""
        return self._arrays(START_ROWS, StartRows)

    @property
    def exchange(self) -> dict[str, Any]:
        """How many rows of an exchanged vocabulary start in each way, and pieces for a word before and after."""
        return self._read(EXCHANGE)

    @property
    def held_out_missing(self) -> dict[str, int]:
        """Languages without a held-out document, with their numbers of documents."""
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
        return self._arrays("lexicon.npz", Lexicon)

    def pairs(self, split: str) -> DictionaryPairs | None:
        """The dictionary pairs of a split (`trained` or `held_out`) as pieces."""
        return self._arrays(f"pairs_{split}.npz", DictionaryPairs)

    def pair_words(self, split: str) -> list[list[str]]:
        """The dictionary pairs of a split as words: [left language, left word, right language, right word]."""
        return self._read("pair_words.json", split).get(split, [])

    @property
    def teacher(self) -> VectorShape | None:
        """Of the vectors that its pairs bring along; None without a teacher."""
        facts = self.manifest.get("teacher")
        return VectorShape(facts["most"], facts["width"]) if facts and "width" in facts else None

    @property
    def retrieval_part(self) -> str | None:
        """The pairs to score between steps: DEV where there are any, else TESTS; None if there are neither."""
        return next((part for part in (DEV, TESTS) if self._pairs_of(part)), None)

    def read_tests(self, part: str = TESTS, prompts: Sequence[str] = ("", "")) -> list[RetrievalPairs]:
        """The tests or the dev pairs as token ids, an entry for two languages; none if the recipe has none.

        Args:
            part: TESTS or DEV.
            prompts: what to put before each sentence of the first and of the second side.
        """
        tokenizer = Tokenizer.from_file(str(self.tokenizer_folder / "tokenizer.json"))
        begin, end = frame_of(tokenizer)
        room = self.manifest["max_seq_length"] - len(begin) - len(end)
        tests = []
        for name in self._pairs_of(part):
            path = check_once(self.folder / name, self.manifest["files"][name])
            languages, *sides = read_test_pairs(path)
            encoded = [
                [
                    np.asarray([*begin, *ids[:room], *end], np.int32)
                    for ids in encode_text(tokenizer, [prompt + text for text in texts])[0]
                ]
                for texts, prompt in zip(sides, prompts, strict=True)
            ]
            tests.append(RetrievalPairs(*languages, *encoded))
        return tests

    def _pairs_of(self, part: str) -> list[str]:
        return [name for name in self.manifest["files"] if name.startswith(f"{part}/") and name.endswith(".jsonl")]

    def _find(self, name: str) -> Path | None:
        """A file that this data has, checked, or None."""
        files = self.manifest["files"]
        return check_once(self.folder / name, files[name]) if name in files else None

    def _read(self, name: str, *keys: str) -> dict[str, Any]:
        """The JSON of a file; empty where this data has none."""
        path = self._find(name)
        return read_json(path, HINT, *keys) if path else {}

    def _arrays(self, name: str, kind: Callable[..., Loaded]) -> Loaded | None:
        path = self._find(name)
        return kind(**np.load(path, allow_pickle=False)) if path else None

    def pools(self, stream: Stream) -> dict[str, dict[str, Any]]:
        """The pools a stream draws from, by name."""
        return {name: pool for name, pool in self.manifest["pools"].items() if name.startswith(stream.pools)}

    def order(self, config: RunConfig) -> Order:
        """The order of a recipe over these shards: each stream draws from its pools on its own."""
        streams = [
            StreamPools(
                stream.weight,
                [Pool(self.shards(pool).rows) for pool in self.pools(stream)],
                self._shares(stream, config),
            )
            for stream in config.streams
        ]
        return Order(streams, config.seed, config.train.global_batch_size, CHUNK_STEPS)

    def _shares(self, stream: Stream, config: RunConfig) -> Callable[[int], NDArray[np.float64]]:
        sampling = config.sampling
        sizes = {name: float(pool[sampling.unit]) for name, pool in self.pools(stream).items()}
        if not sizes:
            raise ConfigError(
                f"stream {stream.kind} has no rows: prepare found no such text; check data.corpora and data.parallel."
            )

        @lru_cache(maxsize=1)
        def of(exponent: float) -> NDArray[np.float64]:
            return np.array([*language_shares(sizes, exponent).values()])

        return lambda step: of(value_at(sampling.exponent, step))

    def sources(self, config: RunConfig) -> list[tuple[int, str]]:
        """For each source of the order of a recipe: the number of its stream, and its pool."""
        return [(number, name) for number, stream in enumerate(config.streams) for name in self.pools(stream)]

    def read(self, pools: Sequence[str], places: Places) -> Rows:
        """The rows at these places of some pools, in their order; each row group is read once.

        Args:
            pools: the pool of each source.
        """
        shard = places.source << _SHARD_BITS | places.shard
        needed, which = np.unique(shard * SHARD_GROUPS + places.row // ROW_GROUP, return_inverse=True)
        shards, numbers = [], needed % SHARD_GROUPS
        for number in map(int, needed // SHARD_GROUPS):
            shards.append(self.shards(pools[number >> _SHARD_BITS])[number & (1 << _SHARD_BITS) - 1])
        fetch_shards(shards)
        groups = [read_group(shard, group) for shard, group in zip(shards, numbers.tolist(), strict=True)]
        row = places.row % ROW_GROUP
        return take(concatenate(groups), starts(np.array([len(group) for group in groups]))[which] + row)

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

    def context(self, config: RunConfig) -> StreamContext:
        """What streams of this recipe need besides rows."""
        dictionaries = [dictionary for dictionary in config.data.dictionaries if dictionary.split == "train"]
        covered = {code for dictionary in dictionaries for code in dictionary.languages}
        return StreamContext(
            config.seed,
            config.masking,
            self.vocabulary,
            self.lexicon,
            config.data.max_seq_length,
            global_rows=config.train.global_batch_size,
            no_dictionary=frozenset(n for n, code in enumerate(self.languages) if code not in covered),
            teacher=self.teacher,
            negatives_of=config.data.negatives_of,
            prompts=self.prompts(config),
        )

    def prompts(self, config: RunConfig) -> dict[str, Prompt]:
        """Each prompt of a recipe's streams; a blank at its end is the next word's."""
        contrasted = [stream for stream in config.streams if isinstance(stream, ContrastedPairs)]
        asked = {text for stream in contrasted for text in stream.prompts if text}
        if not asked:
            return {}
        tokenizer = Tokenizer.from_file(str(self.tokenizer_folder / "tokenizer.json"))
        prompts = {}
        for text in asked:
            pieces = np.array(tokenizer.encode(text.rstrip(), add_special_tokens=False).ids, np.int32)
            prompts[text] = Prompt(pieces, lru_cache(FIRST_WORDS)(partial(tokenize_behind, tokenizer, text)))
        return prompts

    def held_out(self, rank: int, workers: int, batch_rows: int) -> list[tuple[NDArray[np.int64], Columns]]:
        """The first rows of each language, masked the same in every run of this data, dealt to the ranks.

        Returns:
            For each batch of this rank the language of each row, a number of `languages`, and the columns. As many
            on each rank; of one batch a rank has at most a row more than another, perhaps none.
        """
        pools = sorted(self.manifest["held_out"])
        counts = [min(int(self.shards(pool, held_out=True).rows.sum()), HELD_OUT_ROWS) for pool in pools]
        of_pool = np.repeat(np.arange(len(pools)), counts)
        number = np.concatenate([np.arange(count) for count in [0, *counts]])
        languages = np.array([self.languages.index(pool.removeprefix("text/")) for pool in pools], np.int64)
        context = StreamContext(
            0, MaskingConfig(), self.vocabulary, None, self.manifest["max_seq_length"], global_rows=1
        )
        batches = []
        for begin in range(0, len(number), batch_rows * workers):
            together = min(batch_rows * workers, len(number) - begin)
            mine = slice(begin + together * rank // workers, begin + together * (rank + 1) // workers)
            places = [(pools[pool], number[mine][of_pool[mine] == pool]) for pool in np.unique(of_pool[mine])]
            parts = [take(self.first_rows(pool, HELD_OUT_ROWS, held_out=True), rows) for pool, rows in places]
            rows = concatenate(parts) if parts else take(self.first_rows(pools[0], 1, held_out=True), number[:0])
            batches.append((languages[of_pool[mine]], stream_columns(MaskedText(), rows, number[mine], context)))
        return batches

    def first_rows(self, pool: str, count: int, held_out: bool = False) -> Rows:
        """The first `count` rows of a pool or more, or all: no more row groups are read than it takes."""
        groups: list[Rows] = []
        shards = self.shards(pool, held_out)
        for number, rows in enumerate(shards.rows.tolist()):
            for group in range(-(-rows // ROW_GROUP)):
                if sum(map(len, groups)) < count:
                    groups.append(read_group(shards[number], group))
        return concatenate(groups)


def whole_folder(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder that prepare finished, None where it did not or the manifest is damaged."""
    manifest = whole_manifest(folder, *KEYS)
    return manifest if manifest and is_sealed(manifest) else None
