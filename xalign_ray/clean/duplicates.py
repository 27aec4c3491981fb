"""Finds lines, pairs and documents that stood before in their pool, equal or nearly, and marks them beside the text.

Each part's hashes are sorted. A range of hashes is a partition, and one task: it reads its stretch of each part's file,
so that the work is linear in the lines and a task's memory is bounded by PARTITION_LINES, whatever the size of the
pool. A near-duplicate is found as a duplicate is: one of the hashes of its bands stood before. At the end a column
beside the text of each part marks the duplicates.

Only lines and pairs that pass all other filters are compared: if the first copy of a text is filtered out, the next
copy stays. `OUTPUT/duplicates/<fingerprint>` holds the columns of one pool. They depend on its texts, on these
filters, and on the tokenizer, by which lengths are counted.
"""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xalign_ray.clean.filters import Hashes, unit_hashes
from xalign_ray.config.code import SHARDS_CODE, package_code
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.config.sources import FiltersConfig, NearDuplicatesConfig
from xalign_ray.shards.counter_random import mix
from xalign_ray.shards.rows import Index, spans, starts
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import Document, Pair, Part, windows
from xalign_ray.sources.stage import Made, StageStep, hash_files, make_lacking, run, write_arrays
from xalign_ray.sources.stored import write_column
from xalign_ray.vocabulary.words import letters_a_word, read_characters
from xalign_ray.work.artifacts import hash_value

DUPLICATES_FOLDER = "duplicates"  # below the output folder
PARTITION_LINES = 4_000_000  # whose hashes and numbers a task holds: 64 MB, and some 200 while they are sorted
_COLUMN, _HASHES, _COUNTS, _FOUND = ".parquet", ".hashes", ".counts", ".found"
_ENDS = f"{_FOUND}-ends"


@dataclass(frozen=True)
class PooledPart:
    """A part whose lines are compared with its pool: small, since it travels to a worker."""

    folder: str  # of the pool's columns
    number: int  # in its pool
    source: Input  # of this part alone
    left: Any  # the argument of `Sift.left`
    near: NearDuplicatesConfig | None = None  # looks for near-duplicates; without it for equal lines and pairs
    partitions: int = 0  # of the pool's hashes

    @property
    def kind(self) -> str:
        """The name of the column."""
        return "near_duplicate" if self.near else "duplicate"

    @property
    def part(self) -> Part:
        """The part."""
        return self.source.parts[0]

    def path(self, suffix: str) -> Path:
        """A file of the part."""
        return Path(self.folder, f"part-{self.number:05d}{suffix}")


@dataclass(frozen=True)
class Partition:
    """A range of a pool's hashes: `number` of `count`. Small, so that it travels to a worker."""

    folder: str  # of the pool's columns
    parts: int  # of the pool
    number: int
    count: int

    def path(self, suffix: str) -> Path:
        """A file of the partition."""
        return Path(self.folder, f"{self.number:05d}-of-{self.count:05d}{suffix}")


@dataclass(frozen=True)
class Sift:
    """The other filters, applied before duplicates are looked for.

    Attributes:
        left: yields for each row of a part the record after filtering, or None. All tasks share it.
        tasks: the argument of `left` for each part of some texts, in order.
        identity: the settings of the filters, and the hashes of the files that they depend on.
    """

    left: Callable[[Any], Iterator[Document | Pair | None]]
    tasks: Callable[[Sequence[Input]], Sequence[Any]]
    identity: Any


def mark_duplicates(
    texts: Sequence[Input], output: Path, filters: FiltersConfig, parallel: ParallelConfig, sift: Sift
) -> list[Input]:
    """The texts with a column for each kind of duplicates that the filters drop, made where no recipe has done so.

    Near-duplicates are found first: the lines of those are no first copies. Text is read for it once a kind. A pass
    that was interrupted resumes; at the end only the columns are kept.
    """
    texts = list(texts)
    if filters.near_duplicates:
        texts = _mark(texts, output, filters.near_duplicates, parallel, sift)
    return _mark(texts, output, None, parallel, sift) if filters.drop_duplicates else texts


def _mark(
    texts: Sequence[Input], output: Path, near: NearDuplicatesConfig | None, parallel: ParallelConfig, sift: Sift
) -> list[Input]:
    pools: dict[str, list[tuple[int, Input, Any]]] = {}
    parts = [(number, part) for number, text in enumerate(texts) for part in text.each_part()]
    for (number, part), left in zip(parts, sift.tasks(texts), strict=True):
        pools.setdefault(part.pool, []).append((number, part, left))
    members: dict[Path, list[PooledPart]] = {}
    marked: list[list[Part]] = [[] for _ in texts]
    for pool, sources in pools.items():
        folder = _folder(output, pool, [source for _, source, _ in sources], near, sift.identity)
        members[folder] = [
            PooledPart(str(folder), n, source, left, near) for n, (_, source, left) in enumerate(sources)
        ]
        for (number, source, _), task in zip(sources, members[folder], strict=True):
            (part,) = source.parts
            marked[number].append(replace(part, beside=(*part.beside, str(task.path(_COLUMN)))))
    make_lacking(members, partial(_make, members, parallel, sift))
    return [replace(text, parts=tuple(parts)) for text, parts in zip(texts, marked, strict=True)]


def _folder(output: Path, pool: str, sources: Sequence[Input], near: NearDuplicatesConfig | None, sifted: Any) -> Path:
    """The folder of a pool's columns, named by all that they depend on; a file of text is named by its content."""
    assert all(part.text for source in sources for part in source.parts), "make_text comes first"
    identity = {
        "code": package_code(*SHARDS_CODE),
        "pool": pool,
        "texts": [
            [[Path(file).parts[-2:] for file in (part.text, *part.beside)], source.languages]
            for source in sources
            for part in source.parts
        ],
        "sifted": sifted,
        "near": near.model_dump() if near else None,
    }
    return output.absolute() / DUPLICATES_FOLDER / hash_value(identity)[:12]


def _make(
    members: Mapping[Path, Sequence[PooledPart]], parallel: ParallelConfig, sift: Sift, folders: Sequence[Path]
) -> dict[Path, dict[str, Any]]:
    """Writes the columns of these folders, and returns their manifests."""
    new = [members[folder] for folder in folders]
    if any(not MARK.is_whole(task) for tasks in new for task in tasks):
        title = "reading for near-duplicates" if new[0][0].near else "reading for duplicate lines"
        hashing = StageStep(title, partial(hash_part, left=sift.left), kind=_HASHES)
        records = iter(run(hashing, [*chain(*new)], parallel))
        lines = [sum(record["lines"] for record in islice(records, len(tasks))) for tasks in new]
        partitions = [_partitions(*each) for each in zip(new, lines, strict=True)]
        run(FIND, [*chain(*partitions)], parallel)
        tasks_with_counts = [
            replace(task, partitions=len(some)) for tasks, some in zip(new, partitions, strict=True) for task in tasks
        ]
        run(MARK, tasks_with_counts, parallel)
    manifests = {}
    for folder in folders:
        for pattern in (_HASHES, _COUNTS, _FOUND):
            for path in folder.glob(f"*{pattern}*"):
                path.unlink()
        names = [path.name for task in members[folder] for path in (task.path(_COLUMN), MARK.record(task))]
        manifests[folder] = {"pool": members[folder][0].source.pool, "files": hash_files(folder, names)}
    return manifests


def _partitions(members: Sequence[PooledPart], lines: int) -> list[Partition]:
    """As many as hold PARTITION_LINES of these lines each."""
    count = max(1, -(-lines // PARTITION_LINES))
    return [Partition(members[0].folder, len(members), number, count) for number in range(count)]


def hash_part(task: PooledPart, left: Callable[[Any], Iterator[Document | Pair | None]]) -> Made:
    """Writes the hashes of a part after filtering, and their number in each row: one a line or pair, or one a band."""
    counts = array("I")

    def records() -> Iterator[Document | Pair]:
        for record in left(task.left):
            if record is None:
                counts.append(0)
                continue
            lines = len(record.paragraphs) if isinstance(record, Document) else 1
            counts.append(BANDS if task.near else lines)
            yield record

    hashes = band_hashes(task.near, task.source.languages, records()) if task.near else hash_records(records())
    files = write_hashes(task.path(_HASHES), hashes)
    write_arrays(task.path(_COUNTS), lambda file: np.save(file, np.asarray(counts, np.uint32)))
    return [*files, task.path(_COUNTS)], {"lines": sum(counts)}


def mark_part(task: PooledPart) -> Made:
    """Writes the column of a part: of each line that is left of a row whether it is a duplicate, or of each row whether
    nearly."""
    ends = np.cumsum(np.load(task.path(_COUNTS)), dtype=np.int64)
    partitions = [Partition(task.folder, 0, number, task.partitions) for number in range(task.partitions)]
    duplicates = np.concatenate([_of_part(partition, task.number) for partition in partitions])
    if task.near:
        is_near = np.zeros(len(ends), bool)
        is_near[np.searchsorted(ends, duplicates, side="right")] = True
        column, kind = pa.array(is_near), pa.bool_()
    else:
        is_duplicate = np.zeros(ends[-1] if len(ends) else 0, bool)
        is_duplicate[duplicates] = True
        begins = np.concatenate([[0], ends]).astype(np.int32)
        column, kind = pa.ListArray.from_arrays(begins, pa.array(is_duplicate)), pa.list_(pa.bool_())
    write_column(task.path(_COLUMN), task.kind, kind, [column])
    return [task.path(_COLUMN)], {}


def hash_records(records: Iterable[Document | Pair]) -> Iterator[bytes]:
    """8 bytes of each line or pair, in reading order; among 10^8 a false alarm has odds of 1:3700."""
    for record in records:
        if isinstance(record, Document):
            texts = record.paragraphs
        else:  # a pool holds sources of both orders of its languages
            sides = [text for _, text in sorted(zip(record.languages, record.texts, strict=True))]
            texts = ("\n".join((*sides, *record.negatives)),)  # a row a negative is how triplets are written
        for text in texts:
            plain = unicodedata.normalize("NFC", text).strip()
            yield hashlib.blake2b(plain.encode(), digest_size=8, person=b"repeated").digest()


def write_hashes(path: Path, digests: Iterator[bytes]) -> list[Path]:
    """Files the hashes of a part, 8 bytes each and any number at a time, in runs of about PARTITION_LINES.

    Returns:
        A file a run: [2, N] uint64, the hashes ascending, and the number that each line has in the part.
    """
    files: list[Path] = []
    first = 0
    while len(hashes := _next_run(digests)):
        order = np.argsort(hashes, kind="stable")  # equal ones stay in the order of lines
        table = np.stack([hashes[order], (order + first).astype(np.uint64)])
        files.append(path.with_name(f"{path.name}-{len(files):04d}"))
        write_arrays(files[-1], partial(np.save, arr=table))
        first += len(hashes)
    return files


def _next_run(digests: Iterator[bytes]) -> Hashes:
    run = bytearray()
    for some in digests:
        run += some
        if len(run) >= 8 * PARTITION_LINES:
            break
    return np.frombuffer(run, "<u8")


def find_duplicates(partition: Partition) -> Made:
    """Writes the numbers of the lines whose hash stood before in their part or in an earlier one, part after part, and
    the end of each part's."""
    runs: dict[str, list[Path]] = {f"part-{part:05d}": [] for part in range(partition.parts)}
    for path in sorted(Path(partition.folder).glob(f"part-*{_HASHES}-*")):  # listed once for all parts
        runs[path.stem].append(path)
    tables = [_read_range(partition, paths) for paths in runs.values()]
    ends = np.cumsum([table.shape[1] for table in tables])
    hashes, numbers = np.concatenate(tables, axis=1)
    del tables
    order = np.argsort(hashes, kind="stable")  # equal hashes stay in the order of parts and lines
    hashes = hashes[order]
    is_duplicate = np.zeros(len(order), bool)
    is_duplicate[order[1:]] = hashes[1:] == hashes[:-1]
    of_part = zip(np.split(numbers, ends[:-1]), np.split(is_duplicate, ends[:-1]), strict=True)
    by_part = [np.sort(its[duplicate]).astype(np.uint32) for its, duplicate in of_part]
    write_arrays(partition.path(_FOUND), partial(np.save, arr=np.concatenate(by_part)))
    write_arrays(partition.path(_ENDS), partial(np.save, arr=np.cumsum([0, *map(len, by_part)])))
    return [partition.path(_FOUND), partition.path(_ENDS)], {}


def _read_range(partition: Partition, runs: Sequence[Path]) -> NDArray[np.uint64]:
    """The hashes of a part's runs that are of the partition, and their lines [2, N]."""
    low, high = (
        np.uint64(min(2**64 * n // partition.count, 2**64 - 1)) for n in (partition.number, partition.number + 1)
    )
    tables = [np.zeros((2, 0), np.uint64)]
    for path in runs:
        run = np.load(path, mmap_mode="r")
        end = run.shape[1] if partition.number + 1 == partition.count else np.searchsorted(run[0], high)
        tables.append(run[:, np.searchsorted(run[0], low) : end])
    return np.concatenate(tables, axis=1)


def _of_part(partition: Partition, part: int) -> NDArray[np.uint32]:
    begin, end = np.load(partition.path(_ENDS), mmap_mode="r")[part : part + 2]
    return np.array(np.load(partition.path(_FOUND), mmap_mode="r")[begin:end])  # a copy, so that no file stays open


FIND = StageStep("looking for duplicates", find_duplicates, lambda tasks: [1.0] * len(tasks), _FOUND, "partition")
MARK = StageStep("marking duplicates", mark_part)


WINDOW_CHARACTERS = 1 << 20  # whose signatures are made together
BANDS, BAND_HASHES = 14, 8  # of a record, and of a band: datatrove's
_STEP = np.uint64(0x9E3779B97F4A7C15)


def band_hashes(
    settings: NearDuplicatesConfig, languages: Sequence[str], records: Iterable[Document | Pair]
) -> Iterator[bytes]:
    """8 bytes of each band of each record, in reading order: BANDS of a record, many records at a time."""
    for window in windows(records, WINDOW_CHARACTERS):
        texts = [record.paragraphs if isinstance(record, Document) else record.texts for record in window]
        yield sign(settings, languages, texts).astype("<u8").tobytes()


def sign(settings: NearDuplicatesConfig, languages: Sequence[str], texts: Sequence[Sequence[str]]) -> Hashes:
    """The hash of each band of each record [N, BANDS].

    A record's shingles are the n-grams of the words of its lines, lower-cased and without punctuation; a shorter line
    is one shingle. In a language without blanks, n words count as the letters of n average words.

    Args:
        languages: of all lines of a record, or of each of the two texts of a pair.
    """
    hashes, record = _shingles(settings, languages, texts)
    order = np.argsort(record, kind="stable")
    hashes, record = hashes[order], record[order]
    begins = np.searchsorted(record, np.arange(len(texts)))
    bands = np.empty((len(texts), BANDS), np.uint64)
    seeds = mix(np.arange(1, BANDS * BAND_HASHES + 1, dtype=np.uint64) * _STEP).reshape(BANDS, BAND_HASHES)
    for band, some in enumerate(seeds):
        key = np.full(len(texts), some[0])
        for seed in some:  # each seed orders all shingles anew, and the first one is kept
            key = mix(key * _STEP + np.minimum.reduceat((hashes ^ seed) * (seed | np.uint64(1)), begins))
        bands[:, band] = key
    return bands


def _shingles(
    settings: NearDuplicatesConfig, languages: Sequence[str], texts: Sequence[Sequence[str]]
) -> tuple[Hashes, Index]:
    """The hash of each shingle, and the record it is of; a record without a word has one like all of its kind."""
    hashes_of_lines, records = [np.zeros(len(texts), np.uint64)], [np.arange(len(texts))]
    for number, language in enumerate(languages):
        lines = [lines if len(languages) == 1 else lines[number : number + 1] for lines in texts]
        of_line = np.repeat(np.arange(len(texts)), [len(some) for some in lines])
        plain = [unicodedata.normalize("NFC", line).lower() for some in lines for line in some]
        hashes, line = _n_grams(plain, settings.n_grams * round(letters_a_word(language)))
        hashes_of_lines.append(hashes)
        records.append(of_line[line])
    hashes, record = np.concatenate(hashes_of_lines), np.concatenate(records)
    wordless = np.bincount(record, minlength=len(texts)) == 1
    keep = np.ones(len(hashes), bool)
    keep[: len(texts)] = wordless
    return hashes[keep], record[keep]


def _n_grams(lines: Sequence[str], n: int) -> tuple[Hashes, NDArray[np.int64]]:
    """The hash of each n-gram of words of each line, or of all words of a shorter one; and its line."""
    text = read_characters(lines, punctuation=False)
    words = unit_hashes(text)
    count = np.where(text.line_units > 0, np.maximum(text.line_units - n + 1, 1), 0)
    begins = spans(starts(text.line_units), count)
    line = np.repeat(np.arange(len(lines)), count)
    left = np.minimum(starts(text.line_units)[line] + text.line_units[line] - begins, n)
    hashes = left.astype(np.uint64)
    for k in range(n):
        longer = np.flatnonzero(left > k)
        hashes[longer] = hashes[longer] * _STEP + words[begins[longer] + k]
    return mix(hashes), line
