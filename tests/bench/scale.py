"""The feed at the papers' size, 104 languages x 64 ranks x 8,192 rows, beside a small shape; no model, no Ray."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from records import record

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import BatchReader, group_requests
from xalign_ray.shards.files import SHARD_ROWS, SHARD_TABLE, ShardWriter, read_group, write_shard_table
from xalign_ray.shards.order import ROW_GROUP, Request
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import Rows
from xalign_ray.sources.stage import REGULAR
from xalign_ray.work.artifacts import hash_file, seal, write_json

ROUNDS = 3
LENGTH, VOCABULARY = 128, 120_000
DISTINCT = 4  # shards that are written; the others are the same files under other names
LARGEST = 300  # shards of the largest language; the n-th has LARGEST / n
TASKS = 16  # data tasks at work at once: this process does every 16th
STRETCH = 1024  # requests that the feed plans at once
SECONDS = 12.0  # of each shape in a round
WARM_UP = 4  # blocks that are made before it is measured
TERABYTE = 125_000  # shards: two billion rows of 128 tokens
STREAMS = {
    "text": "streams=[{kind: masked_text}]",
    "three": "streams=[{kind: masked_text}, {kind: masked_pairs}, {kind: code_switched_labels}]",
}


@dataclass(frozen=True)
class Shape:
    """How large a run is; `tasks` is how many data tasks share its requests."""

    languages: int
    workers: int
    global_rows: int
    tasks: int


SMALL, LARGE, WIDE = Shape(9, 2, 48, 1), Shape(104, 64, 8192, TASKS), Shape(104, 512, 8192, TASKS)


def measure() -> list[dict[str, Any]]:
    """Tokens per CPU second of making blocks, each shape in a process of its own; and what a start costs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for shape in (SMALL, LARGE):
            write_corpus(root / str(shape.languages), shape.languages, _sizes(shape.languages))
        runs: dict[str, list[dict[str, float]]] = {"small": [], "large": [], "three": []}
        for _ in range(ROUNDS):
            runs["small"].append(_apart(_make_blocks, root, SMALL, "text"))
            runs["large"].append(_apart(_make_blocks, root, LARGE, "text"))
            runs["three"].append(_apart(_make_blocks, root, LARGE, "three"))
        wide = _apart(_make_blocks, root, WIDE, "text")
        found = {name: _medians(rounds) for name, rounds in runs.items()}
        starts = {
            name: statistics.median(_apart(_start, root, step)["seconds"] for _ in range(2 * ROUNDS + 1))
            for name, step in (("0", 0), ("late", 499_999))
        }
        reads = {
            name: statistics.median(_apart(_plan, root, shards)["ms"] for _ in range(ROUNDS))
            for name, shards in (("gigabyte", 125), ("terabyte", TERABYTE))
        }
        opened = _apart(_open, root)["seconds"]
    how = (
        f"blocks of masked rows from token shards, {LENGTH} tokens a row, median of {ROUNDS} interleaved rounds, no Ray"
    )
    shape = f"{LARGE.languages} languages x {LARGE.workers} ranks x {LARGE.global_rows} rows, one of {TASKS} data tasks"
    told = ", ".join(f"{name} {one['speed'] / 1e6:.2f} M tokens per CPU second" for name, one in found.items())
    return [
        record("scale/feed_ratio", found["large"]["speed"] / found["small"]["speed"], 0.7,
               f"{shape}, against {SMALL.languages} x {SMALL.workers} x {SMALL.global_rows}; {told}; {how}"),
        record("scale/feed_three_streams_ratio", found["three"]["speed"] / found["small"]["speed"], 0.6,
               f"the same with text, pairs and code-switched text; {how}"),
        record("scale/rows_decoded", found["large"]["decoded"], 2, f"per row used; {shape}", "lower"),
        record("scale/rows_decoded_three_streams", found["three"]["decoded"], 2, "of three streams", "lower"),
        record("scale/rows_decoded_512", wide["decoded"], 1.5,
               f"per row used; {WIDE.workers} ranks, data tasks of several adjacent ranks' requests", "lower"),
        record("scale/task_gib", max(one["gib"] for one in found.values()), 1,
               "peak resident memory of the process that makes blocks, the largest of all shapes", "lower"),
        record("scale/read_ratio", reads["terabyte"] / reads["gigabyte"], 1.2,
               f"planning a request over {TERABYTE:,} shards (1 TB of text) against 125 (1 GB): "
               f"{reads['terabyte']:.2f} against {reads['gigabyte']:.2f} ms", "lower"),
        record("scale/resume_ratio", starts["late"] / starts["0"], 1.2,
               f"opening the data and making the first block at step 499,999 against step 0; "
               f"{starts['late']:.2f} against {starts['0']:.2f} s", "lower"),
        record("scale/open_s", opened, 1, f"opening data of {TERABYTE:,} shards, hashes of its files checked", "lower"),
    ]  # fmt: skip


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def _apart(work: Any, *arguments: Any) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _make_blocks(root: Path, shape: Shape, streams: str) -> dict[str, float]:
    """Blocks of all ranks in turn, every `tasks`-th, for some seconds; those of the first rounds do not count."""
    reader = BatchReader(Prepared.open(root / str(shape.languages)), make_config(root, shape, STREAMS[streams]))
    work = chain.from_iterable(islice(_tasks(reader, shape, first=64), 0, None, shape.tasks))
    for _ in range(WARM_UP):
        reader(next(work))
    began, misses, rows = time.process_time(), read_group.cache_info().misses, 0
    while time.process_time() < began + SECONDS:
        rows += len(reader(next(work))["position"])
    seconds = time.process_time() - began
    return {
        "speed": rows * LENGTH / seconds,
        "decoded": (read_group.cache_info().misses - misses) * ROW_GROUP / rows,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
    }


def _in_turn(reader: BatchReader, shape: Shape, first: int) -> Iterator[Request]:
    """Requests of all ranks as the block server asks for them, once they have grown to their full size."""
    ranks = [islice(reader.requests(first, rank), 12, None) for rank in range(shape.workers)]
    for turn in zip(*ranks, strict=True):
        yield from turn


def _tasks(reader: BatchReader, shape: Shape, first: int) -> Iterator[list[Request]]:
    """The requests of data tasks, each of several adjacent ranks."""
    requests = _in_turn(reader, shape, first)
    while stretch := [*islice(requests, STRETCH)]:
        yield from group_requests(stretch, reader.row_bytes)[0]


def _start(root: Path, step: int) -> dict[str, float]:
    began = time.perf_counter()
    reader = BatchReader(Prepared.open(root / str(LARGE.languages)), make_config(root, LARGE, STREAMS["text"]))
    reader(next(reader.requests(step, 0)))
    return {"seconds": time.perf_counter() - began}


def _plan(root: Path, shards: int) -> dict[str, float]:
    """What finding the rows of a request costs besides reading them."""
    folder = root / f"planned-{shards}"
    if not folder.exists():
        sizes = np.maximum(1, _sizes(LARGE.languages) * shards // _sizes(LARGE.languages).sum())
        write_manifest(
            folder, [(f"text/{_language(n)}", [_entry("none", "none")] * int(size)) for n, size in enumerate(sizes)]
        )
    reader = BatchReader(Prepared.open(folder), make_config(root, LARGE, STREAMS["text"]))
    requests = list(islice(_in_turn(reader, LARGE, 64), 2 * LARGE.workers))
    for request in requests[: LARGE.workers]:
        reader.order.places(request)
    began = time.perf_counter()
    for request in requests[LARGE.workers :]:
        places = reader.order.places(request)
        for source, shard in {*zip(places.source.tolist(), places.shard.tolist(), strict=True)}:
            assert reader.prepared.shards(reader.sources[source][1])[shard].footer == "none"
    return {"ms": 1e3 * (time.perf_counter() - began) / LARGE.workers}


def _open(root: Path) -> dict[str, float]:
    began = time.perf_counter()
    Prepared.open(root / f"planned-{TERABYTE}")
    return {"seconds": time.perf_counter() - began}


def make_config(root: Path, shape: Shape, streams: str, recipe: str = "tiny/mlm") -> RunConfig:
    """The recipe of a shape; its inputs are never looked at."""
    train = f"train={{global_batch_size: {shape.global_rows}, max_steps: 1000000, per_device_batch_size: 8192}}"
    parallel = "data.parallel=[{format: moses, languages: [en, de], paths: [en, de]}]"
    settings = [
        streams,
        train,
        parallel,
        f"parallel.workers={shape.workers}",
        "sampling.alpha=0.7",
        f"data.max_seq_length={LENGTH}",
        f"output={root}",
    ]
    return load_recipe(recipe, settings).config


def write_corpus(folder: Path, languages: int, sizes: Sequence[int]) -> None:
    """Prepared text and pairs of each language: a few random shards under many names."""
    random = np.random.default_rng(0)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for kind, segments in (("text", 1), ("pairs", 2)):
        with ShardWriter(folder / kind, links=segments == 2) as writer:
            for _ in range(DISTINCT):
                writer.append(_random_rows(SHARD_ROWS, segments, random))
        kinds[kind] = [_entry(shard.path.name, shard.footer) for shard in writer.shards]
    pools = []
    for kind, shards in kinds.items():
        for language in range(languages):
            mine = []
            for number in range(sizes[language]):
                shard = shards[(language + number) % DISTINCT]
                name = f"{kind}-{language}-{number}.parquet"
                os.link(folder / shard["file"], folder / name)
                mine.append(shard | {"file": name})
            pool = f"text/{_language(language)}" if kind == "text" else f"pairs/en-{_language(language)}"
            pools.append((pool, mine))
    write_manifest(folder, pools)


def write_manifest(folder: Path, pools: Sequence[tuple[str, list[dict[str, Any]]]]) -> None:
    """What makes shards prepared data: their table, the vocabulary, a dictionary, the manifest."""
    folder.mkdir(exist_ok=True)
    np.save(folder / REGULAR, np.arange(5, VOCABULARY, dtype=np.int32))
    np.savez(folder / "lexicon.npz", **_lexicon())
    write_shard_table(folder, [shard for _, shards in pools for shard in shards])
    ends = np.cumsum([0] + [len(shards) for _, shards in pools]).tolist()
    found = {}
    for (pool, shards), first in zip(pools, ends[:-1], strict=True):
        rows = sum(shard["rows"] for shard in shards)
        found[pool] = {"shards": [first, first + len(shards)], "rows": rows, "tokens": rows * LENGTH, "examples": rows}
    names = (REGULAR, "lexicon.npz", SHARD_TABLE)
    fields = {
        "fingerprint": "random",
        "languages": [pool.split("/")[1] for pool, _ in pools if pool.startswith("text/")],
        "max_seq_length": LENGTH,
        "vocabulary": {"size": VOCABULARY, "special": {"pad": 0, "unknown": 1, "cls": 2, "sep": 3, "mask": 4}},
        "files": {name: hash_file(folder / name) for name in names},
        "pools": found,
        **{key: {} for key in ("held_out", "held_out_missing", "counts", "bad_rows", "dictionary")},
        "sources": [],
    }
    write_json(folder / "manifest.json", seal(fields))


def _random_rows(count: int, segments: int, random: np.random.Generator) -> Rows:
    """Rows of examples of 20 words a segment, until about LENGTH tokens are full."""
    examples = LENGTH // (segments * 28)
    row_segments = np.full(count, segments * examples, np.int32)
    segment_words = random.integers(14, 22, row_segments.sum()).astype(np.int32)
    words = int(segment_words.sum())
    word_length = np.where(random.random(words) < 0.2, 2, 1).astype(np.int32)
    pieces = np.minimum(5 + random.zipf(1.2, int(word_length.sum())), VOCABULARY - 1).astype(np.int32)
    entry = np.where(random.random(words) < 0.3, random.integers(0, 30_000, words), -1).astype(np.int32)
    first = segment_words if segments == 1 else segment_words[::2]
    links = np.zeros_like(segment_words)
    if segments == 2:
        links[::2] = np.minimum(first, segment_words[1::2])
    link = np.concatenate([np.arange(n, dtype=np.int32) for n in links]) if segments == 2 else np.zeros(0, np.int32)
    language = np.zeros(len(segment_words), np.int32)
    return Rows(pieces, word_length, entry, segment_words, language, row_segments, links, link, link)


def _lexicon() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    entries = np.full(30_000, 2, np.int32)
    synonyms = np.ones(60_000, np.int32)
    length = random.integers(1, 3, 60_000).astype(np.int32)
    return {
        "entry_groups": entries, "group_language": random.integers(0, 9, 60_000).astype(np.int32),
        "group_synonyms": synonyms, "synonym_length": length,
        "pieces": random.integers(5, VOCABULARY, length.sum()).astype(np.int32),
    }  # fmt: skip


def _entry(name: str, footer: str) -> dict[str, Any]:
    return {"file": name, "sha256": "0" * 64, "footer": footer, "rows": SHARD_ROWS}


def _language(number: int) -> str:
    return f"q{chr(97 + number // 26)}{chr(97 + number % 26)}"


def _sizes(languages: int) -> np.ndarray:
    return np.maximum(1, LARGEST // np.arange(1, languages + 1))
