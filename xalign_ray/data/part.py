"""Prepares one part of a source: reads it window by window, and appends each window's rows to the part's shards."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.config.stages import pool_at
from xalign_ray.data.duplicates import Duplicates, band_hashes, hash_records, write_hashes
from xalign_ray.data.examples import ExampleEncoder, encode_documents, encode_pairs, longest_word, pack
from xalign_ray.data.filters import Filters
from xalign_ray.data.kept_out import hashes_of_tests
from xalign_ray.data.shards import ShardWriter
from xalign_ray.data.sources.broken import BrokenFile
from xalign_ray.data.sources.formats import NOTED, read_part
from xalign_ray.data.sources.moses import BOTH_EMPTY
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Document, Pair, Record
from xalign_ray.data.summary import LEFT_FILES, BadRowsFile, DroppedRow, first_rows, write_sample
from xalign_ray.data.word_alignment.corpus import read_alignments
from xalign_ray.text.cached_tokenizer import CachedTokenizer
from xalign_ray.text.rows import take
from xalign_ray.work.artifacts import hash_file, whole_json, write_json

# Characters of text that are tokenized, packed and shuffled together. It bounds memory: about 40 bytes a character.
WINDOW_CHARACTERS = 4 << 20


@dataclass(frozen=True)
class Task:
    """One part to be prepared: small, so that it travels to a worker; what is large lies in the folder."""

    folder: str
    name: str  # of its shards, below their split
    pool: str
    languages: tuple[str, ...]
    part: Part
    all_languages: tuple[str, ...]
    capacity: int
    whole_documents: bool
    held_out_fraction: float
    filters: Filters
    max_pairs: int | None = None  # that its pool still lacks
    source: int = 0  # number of the source of the recipe that the part is of
    keep_rest_out: bool = False  # of a file whose rest cannot be read
    alignment: tuple[str, int] | None = None  # folder of a word alignment, and the part's number in it
    number: int = 0  # of the part in its pool
    row_length: int | None = None  # of rows that a stage draws, if it is not the recipe's own
    shortest: int = 0  # capacity of the shortest rows of the recipe, in which each word must fit
    duplicates: tuple[str, ...] = ()  # the files of the pool's partitions, where duplicates are dropped
    near_duplicates: tuple[str, ...] = ()  # the same of near-duplicates

    @property
    def row_pool(self) -> str:
        """The pool that its rows go to: that of its text, or one for each further length of rows."""
        return self.pool if self.row_length is None else pool_at(self.pool, self.row_length)

    @property
    def record_file(self) -> Path:
        """What a finished part says of itself."""
        return Path(self.folder) / "parts" / f"{self.name}.json"

    @property
    def bad_rows_file(self) -> Path:
        """The part's bad rows."""
        return self.record_file.with_suffix(".bad.jsonl")

    @property
    def dropped_file(self) -> Path:
        """A sample of what the filters dropped of the part, if they did of any."""
        return self.record_file.with_suffix(".dropped.jsonl")

    def hashes_file(self, kind: str) -> Path:
        """Hashes of what the part holds, until duplicates of the kind (a field of the task) are found."""
        return self.record_file.with_suffix(f".{kind}.sorted_hashes")


@dataclass
class _Split:
    """What a part trains on, or holds out, while it is written."""

    name: str
    writer: ShardWriter
    tokens: int = 0
    examples: int = 0


def read_record(task: Task) -> dict[str, Any] | None:
    """What a finished part says of itself, or None if it is not finished."""
    record = whole_json(task.record_file, "trained", "held_out", "counts", "bad_rows")
    if record is None or not task.bad_rows_file.is_file():
        return None
    return None if record.get("dropped") and not task.dropped_file.is_file() else record


def is_finished(task: Task) -> bool:
    """Whether a part is finished and its shards are as they were written: reads them."""
    record = read_record(task)
    if record is None:
        return False
    files = [shard for split in (record["trained"], record["held_out"]) if split for shard in split["shards"]]
    return all((f := Path(task.folder) / s["file"]).is_file() and hash_file(f) == s["sha256"] for s in files)


def prepare_part(task: Task) -> None:
    """Reads, tokenizes, packs and writes one part: shards of its two splits, its bad rows, and its record, last."""
    folder = Path(task.folder)
    counts: Counter[str] = Counter()
    links = not _is_text(task)
    trained = _Split("trained", ShardWriter(folder / "shards" / task.name, links))
    held_out = _Split("held_out", ShardWriter(folder / "held_out" / task.name, links))
    skipped: Counter[str] = Counter()
    broken: list[BrokenFile] = []
    dropped: list[DroppedRow] = []
    seen: Counter[str] = Counter()
    with _rare_collections(), BadRowsFile(task.bad_rows_file) as bad_rows, trained.writer, held_out.writer:
        windows = enumerate(_windows(_read(task, bad_rows, skipped, broken)))
        while task.max_pairs is None or trained.examples < task.max_pairs:
            if (numbered := next(windows, None)) is None:
                break
            dropped += first_rows(_write_window(task, *numbered, (trained, held_out), counts), seen)
        else:
            counts[LEFT_FILES] = int(next(windows, None) is not None)
    counts.update({k if k.startswith(NOTED) else f"skipped: {k}": count for k, count in skipped.items()})
    if dropped:
        write_sample(task.dropped_file, dropped)
    record = {
        "pool": task.row_pool,
        "trained": _describe(task, trained),
        "held_out": _describe(task, held_out),
        "counts": dict(counts),
        "bad_rows": dict(bad_rows.counts),
        "broken_files": [asdict(one) for one in broken],
        "dropped": sorted(seen),  # reasons of which there is a sample
    }
    write_json(task.record_file, record)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Lets Python look for cycles less often: walking a window of records again and again cost a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def hash_part(task: Task) -> None:
    """The first of two passes where duplicate lines or pairs are dropped: writes the hashes of one part."""
    write_hashes(task.hashes_file("duplicates"), hash_records(_good_records(task)))


def sign_part(task: Task) -> None:
    """The same for near-duplicate documents or pairs: the hashes of their bands, so many of each."""
    assert task.filters.near_duplicates is not None, "they were asked for"
    hashes = band_hashes(task.filters.near_duplicates, task.languages, _good_records(task))
    write_hashes(task.hashes_file("near_duplicates"), hashes)


def _good_records(task: Task) -> Iterator[Document | Pair]:
    records = read_part(task.part, task.languages, broken=[] if task.keep_rest_out else None)
    return (record for record in records if isinstance(record, Document | Pair))


@dataclass(frozen=True, slots=True)
class _Found:
    """A good record; the mask of its duplicate lines, and whether it is a near-duplicate, where these are dropped."""

    record: Document | Pair
    duplicate: np.ndarray | None
    near_duplicate: bool | None


def _read(task: Task, bad_rows: BadRowsFile, skipped: Counter[str], broken: list[BrokenFile]) -> Iterator[_Found]:
    duplicates = Duplicates(map(Path, task.duplicates), task.number) if task.duplicates else None
    near = Duplicates(map(Path, task.near_duplicates), task.number) if task.near_duplicates else None
    bands = task.filters.near_duplicates.num_buckets if task.filters.near_duplicates else 0
    records = read_part(task.part, task.languages, skipped, broken if task.keep_rest_out else None)
    if task.alignment:
        folder, number = task.alignment
        records = map(_with_alignment, records, read_alignments(Path(folder), number))
    for record in records:
        if isinstance(record, BadRow) and record.reason == BOTH_EMPTY:
            skipped[BOTH_EMPTY] += 1  # such as the borders of documents: nothing is lost
        elif isinstance(record, BadRow):
            bad_rows.add(record)
        elif isinstance(record, Document | Pair):
            lines = len(record.paragraphs) if isinstance(record, Document) else 1
            yield _Found(
                record,
                duplicates.next(lines) if duplicates else None,
                bool(near.next(bands).any()) if near else None,
            )


def _with_alignment(record: Record, alignment: str) -> Record:
    return replace(record, alignment=alignment) if isinstance(record, Pair) else record


def _windows(records: Iterator[_Found]) -> Iterator[list[_Found]]:
    window, characters = [], 0
    for found in records:
        window.append(found)
        characters += sum(map(len, _lines(found.record)))
        if characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _lines(record: Document | Pair) -> tuple[str, ...]:
    return record.paragraphs if isinstance(record, Document) else record.texts


def _write_window(
    task: Task, number: int, window: Sequence[_Found], splits: tuple[_Split, ...], counts: Counter[str]
) -> Sequence[DroppedRow]:
    """Writes the examples of a window; returns a few of the rows that were dropped."""
    encoder = _open_encoder(task)
    records: list[Any] = [one.record for one in window]  # of one of the two kinds, as the pool is
    lines = [one.duplicate for one in window if one.duplicate is not None]
    duplicate = np.concatenate(lines) if task.duplicates else None
    near = np.asarray([one.near_duplicate for one in window], bool) if task.near_duplicates else None
    if _is_text(task):
        found = encode_documents(encoder, records, duplicate, near)
    else:
        left = None if task.max_pairs is None else task.max_pairs - splits[0].examples
        found = encode_pairs(encoder, records, duplicate, left, near)
    counts.update(found.counts)
    for split, chosen in zip(splits, (~found.held_out, found.held_out), strict=True):
        if split.name == "held_out" and task.row_length is not None:
            continue  # losses on held-out text are of rows of the recipe's own length
        numbers = np.flatnonzero(chosen)
        seed = f"{split.name} {task.name}" + (f" {number}" if number else "")
        mine = take(found.rows, numbers) if len(numbers) < len(chosen) else found.rows
        rows = pack(mine, task.capacity, seed, _segments(task))
        split.writer.append(rows)
        split.tokens += len(rows.pieces)
        split.examples += len(rows.segment_words) // _segments(task)
    return found.dropped


def _describe(task: Task, split: _Split) -> dict[str, Any] | None:
    """What the record says of a split; None if it has no rows."""
    shards = [
        {
            "file": shard.path.relative_to(task.folder).as_posix(),
            "sha256": hash_file(shard.path),
            "footer": shard.footer,
            "rows": shard.rows,
        }
        for shard in split.writer.shards
    ]
    return {"shards": shards, "tokens": split.tokens, "examples": split.examples} if shards else None


def _is_text(task: Task) -> bool:
    return task.pool.startswith("text/")


def _segments(task: Task) -> int:
    """Of an example."""
    return 1 if _is_text(task) else 2


def _open_encoder(task: Task) -> ExampleEncoder:
    return ExampleEncoder(
        tokenizer=open_cached_tokenizer(
            task.folder, longest_word(task.shortest or task.capacity, _segments(task)), task.all_languages
        ),
        languages=task.all_languages,
        capacity=task.capacity,
        whole_documents=task.whole_documents,
        held_out_fraction=task.held_out_fraction,
        filters=task.filters,
        aligned_words="tokenizer" if task.alignment else "blanks",
        test_lines=hashes_of_tests(task.folder),
    )


@lru_cache(maxsize=1)  # a worker keeps what it has cached of a tokenizer from part to part
def open_cached_tokenizer(folder: str, longest: int, languages: tuple[str, ...] = ()) -> CachedTokenizer:
    """The encoder of a data folder, with what this process has cached."""
    backend = Tokenizer.from_file(f"{folder}/tokenizer/tokenizer.json")
    return CachedTokenizer(backend, _open_entries(folder), longest, languages=languages)


@lru_cache(maxsize=1)
def _open_entries(folder: str) -> dict[tuple[int, str], int]:
    path = Path(folder) / "entries.json"
    listed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {(language, word): number for number, (language, word) in enumerate(listed)}
