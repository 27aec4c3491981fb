"""Prepares one part of a source: reads it window by window, and appends each window's rows to the part's shards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.clean.filters import Filters
from xalign_ray.clean.kept_out import hashes_of_tests
from xalign_ray.config.sources import Teacher
from xalign_ray.shards.files import ShardWriter
from xalign_ray.shards.rows import take
from xalign_ray.sources.formats import NOTED, read_part
from xalign_ray.sources.records import BOTH_EMPTY, BadRow, Document, Pair, Part, windows
from xalign_ray.sources.stage import TOKENIZER, Made, StageStep
from xalign_ray.sources.summary import LEFT_FILES, DroppedRow, first_rows, write_sample
from xalign_ray.tokens.examples import ExampleEncoder, encode_documents, encode_pairs, left_of, longest_word, pack
from xalign_ray.tokens.teacher import open_teacher
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer

DROPPED_OF_PART = ".dropped.jsonl"
Good = Document | Pair

# Characters of text that are tokenized, packed and shuffled together. It bounds memory: about 40 bytes a character.
WINDOW_CHARACTERS = 4 << 20


@dataclass(frozen=True)
class Task:
    """One part to be prepared: small, since it travels to a worker; large data are in the folder."""

    folder: str
    name: str  # of its shards, below their split
    pool: str
    languages: tuple[str, ...]
    part: Part
    capacity: int
    whole_documents: bool
    held_out_fraction: float
    text_languages: tuple[str, ...]  # of its languages those with a pool of text
    filters: Filters
    max_pairs: int | None = None  # that its pool still lacks
    source: int = 0  # number of the source of the recipe that the part is of
    number: int = 0  # of the part in its pool
    aligned_words: Literal["blanks", "tokenizer"] = "blanks"  # which words the alignments of pairs count
    teacher: Teacher | None = None  # of pairs
    given_negatives: bool = False  # of pairs: whether there are sources with negatives

    def path(self, suffix: str) -> Path:
        """A file of the part besides its shards."""
        return Path(self.folder, "parts", f"{self.name}{suffix}")


@dataclass
class _Split:
    """The training or held-out rows of a part, while they are written."""

    name: str
    writer: ShardWriter
    tokens: int = 0
    examples: int = 0
    most_examples: int = 0  # of a row


def prepare_part(task: Task, languages: tuple[str, ...]) -> Made:
    """Reads, tokenizes, packs and writes one part: shards of its two splits, a sample of dropped rows.

    Args:
        languages: of the recipe: thousands, that all tasks share.
    """
    folder, encoder = Path(task.folder), _open_encoder(task, languages)
    counts: Counter[str] = Counter()
    columns = not _is_text(task), task.teacher is not None or task.given_negatives
    trained = _Split("trained", ShardWriter(folder / "shards" / task.name, *columns))
    held_out = _Split("held_out", ShardWriter(folder / "held_out" / task.name, *columns))
    skipped: Counter[str] = Counter()
    dropped: list[DroppedRow] = []
    seen: Counter[str] = Counter()
    with trained.writer, held_out.writer:
        numbered_windows = enumerate(windows(_read(task, skipped), WINDOW_CHARACTERS))
        while task.max_pairs is None or trained.examples < task.max_pairs:
            if (numbered := next(numbered_windows, None)) is None:
                break
            dropped += first_rows(_write_window(task, encoder, *numbered, (trained, held_out), counts), seen)
        else:
            counts[LEFT_FILES] = int(next(numbered_windows, None) is not None)
    counts.update({k if k.startswith(NOTED) else f"skipped: {k}": count for k, count in skipped.items()})
    if dropped:
        write_sample(task.path(DROPPED_OF_PART), dropped)
    files = [shard.path for split in (trained, held_out) for shard in split.writer.shards]
    return [*files, *([task.path(DROPPED_OF_PART)] if dropped else [])], {
        "pool": task.pool,
        "trained": _describe(task, trained),
        "held_out": _describe(task, held_out),
        "counts": dict(counts),
        "dropped": sorted(seen),  # reasons with a sample
    }


def _read(task: Task, skipped: Counter[str]) -> Iterator[Good]:
    for record in read_part(task.part, task.languages, skipped):
        if isinstance(record, BadRow) and record.reason == BOTH_EMPTY:
            skipped[BOTH_EMPTY] += 1
        elif isinstance(record, Document | Pair):
            yield record


def read_left(task: Task, languages: tuple[str, ...]) -> Iterator[Document | Pair | None]:
    """Each row of a part after filtering: a document with the lines that pass, a pair, or None; bad rows are None."""
    encoder, part = _open_encoder(replace(task, teacher=None), languages), replace(task.part, skip_empty=False)
    for window in windows(read_part(part, task.languages), WINDOW_CHARACTERS):
        good = [record for record in window if isinstance(record, Document | Pair)]
        left = iter(left_of(encoder, good) if good else ())
        yield from (next(left) if isinstance(record, Document | Pair) else None for record in window)


def _write_window(
    task: Task,
    encoder: ExampleEncoder,
    number: int,
    window: Sequence[Any],
    splits: tuple[_Split, ...],
    counts: Counter[str],
) -> Sequence[DroppedRow]:
    """Writes the examples of a window, of records of one kind; returns a few of the rows that were dropped."""
    if _is_text(task):
        examples = encode_documents(encoder, window)
    else:
        left = None if task.max_pairs is None else task.max_pairs - splits[0].examples
        examples = encode_pairs(encoder, window, left)
    counts.update(examples.counts)
    for split, chosen in zip(splits, (~examples.held_out, examples.held_out), strict=True):
        numbers = np.flatnonzero(chosen)
        seed = f"{split.name} {task.name}" + (f" {number}" if number else "")
        mine = take(examples.rows, numbers) if len(numbers) < len(chosen) else examples.rows
        rows = pack(mine, task.capacity, seed, _segments(task))
        split.writer.append(rows)
        split.tokens += len(rows.pieces)
        split.examples += len(rows.segment_words) // _segments(task)
        split.most_examples = max(split.most_examples, int(rows.row_segments.max(initial=0)) // _segments(task))
    return examples.dropped


def _describe(task: Task, split: _Split) -> dict[str, Any] | None:
    """The record of a split; None if it has no rows."""
    shards = [
        {
            "file": shard.path.relative_to(task.folder).as_posix(),
            "footer": shard.footer,
            "rows": shard.rows,
        }
        for shard in split.writer.shards
    ]
    counted = {"tokens": split.tokens, "examples": split.examples, "most_examples": split.most_examples}
    return {"shards": shards, **counted} if shards else None


def _is_text(task: Task) -> bool:
    return task.pool.startswith("text/")


def _segments(task: Task) -> int:
    """Of an example."""
    return 1 if _is_text(task) else 2


def _open_encoder(task: Task, languages: tuple[str, ...]) -> ExampleEncoder:
    teacher = task.teacher
    return ExampleEncoder(
        tokenizer=open_cached_tokenizer(task.folder, longest_word(task.capacity, _segments(task)), languages),
        languages=languages,
        capacity=task.capacity,
        whole_documents=task.whole_documents,
        held_out_fraction=task.held_out_fraction,
        text_languages=task.text_languages,
        filters=task.filters,
        aligned_words=task.aligned_words,
        given_negatives=task.given_negatives,
        teacher=teacher and open_teacher(teacher.path, teacher.language if teacher.gives == "vectors" else None),
        test_lines=hashes_of_tests(task.folder),
    )


def prepare_step(languages: Sequence[str]) -> StageStep:
    """The step that prepares parts of a recipe with these languages."""
    work = partial(prepare_part, languages=tuple(languages))
    return StageStep("preparing", work, uses_gpu=lambda task: task.teacher is not None)


@lru_cache(maxsize=1)
def open_cached_tokenizer(folder: str, longest: int, languages: tuple[str, ...] = ()) -> CachedTokenizer:
    """The encoder of a data folder, with what this process has cached for any folder of the same content."""
    entries = Path(folder) / "entries.json"
    return _open_cached(
        (Path(folder) / TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"),
        entries.read_text(encoding="utf-8") if entries.is_file() else "[]",
        longest,
        languages,
    )


@lru_cache(maxsize=1)  # a worker keeps a tokenizer's cache from part to part and from recipe to recipe
def _open_cached(tokenizer: str, entries: str, longest: int, languages: tuple[str, ...]) -> CachedTokenizer:
    numbered = {(language, word): number for number, (language, word) in enumerate(json.loads(entries))}
    return CachedTokenizer(Tokenizer.from_str(tokenizer), numbered, longest, languages=languages)
