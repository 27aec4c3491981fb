"""Aligns a corpus as a Ray Data job: one model trained on a sample of all parts, all parts aligned in parallel."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import regex

from xalign_ray.align.chain_aligner import Chains
from xalign_ray.align.kinds import Aligner, AlignerKind, alignment_identity
from xalign_ray.align.links import BlankSplitter, WordPair, WordSplitter, write_pharaoh
from xalign_ray.config.code import package_code
from xalign_ray.config.schema import ParallelConfig, ParallelCorpus
from xalign_ray.config.sources import WordAlignment
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import check_languages, explain_empty, find_source, parts, read
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import Pair, Part, Record
from xalign_ray.sources.stage import InputHashes, Made, StageStep, hash_files, make_lacking, run
from xalign_ray.sources.stored import read_column, write_column
from xalign_ray.sources.summary import merge_counts
from xalign_ray.vocabulary.dictionary import look_up_form, trim_punctuation
from xalign_ray.vocabulary.words import split_words
from xalign_ray.work.artifacts import (
    hash_value,
    is_sealed,
    read_manifest,
    replacing,
    seal,
    whole_json,
    whole_manifest,
    write_atomic,
    write_json,
    write_manifest,
)

HELD = 1 << 16  # pairs beside the smallest that are held between two cuts: bounds the memory
T = TypeVar("T")


def hash_pair(pair: Pair, seed: int) -> int:
    """64 bits of a pair's sentences, the same wherever the pair stands."""
    text = "\0".join((str(seed), *pair.texts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"word alignment").digest(), "big")


def smallest(hashed: Iterable[tuple[int, T]], number: int | None) -> dict[int, T]:
    """What has the `number` smallest hashes (None: any), in their order, each hash once."""
    kept: dict[int, T] = {}
    for key, item in hashed:
        kept[key] = item
        if number is not None and len(kept) == number + HELD:
            kept = {key: kept[key] for key in sorted(kept)[:number]}
    return {key: kept[key] for key in sorted(kept)[:number]}


def write_sample(path: Path, pairs: Iterable[tuple[int, WordPair]]) -> None:
    """The hash and the words of sampled pairs, as JSON lines."""
    lines = (json.dumps([pair_hash, *words], ensure_ascii=False) for pair_hash, words in pairs)
    write_atomic(path, "".join(f"{line}\n" for line in lines))


def read_samples(paths: Sequence[Path], number: int | None) -> list[WordPair]:
    """The `number` pairs of the smallest hashes of all parts that have words, each once, whatever parts they were in.

    A word is held once, however often it occurs: millions of pairs then take 8 bytes a word.
    """
    pairs = (
        (pair_hash, (list(map(sys.intern, first)), list(map(sys.intern, second))))
        for path in paths
        for pair_hash, first, second in _lines(path)
    )
    return [(first, second) for first, second in smallest(pairs, number).values() if first and second]


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


BATCH = 1024  # records aligned together
WORD_ALIGNMENTS = "word_alignments"  # below the output folder
ALIGNMENT = "alignment.txt"
COLUMN = ".parquet"


def part_name(number: int) -> str:
    """The name of a part's files."""
    return f"part-{number:05d}"


@dataclass(frozen=True)
class Job:
    """How a corpus is aligned: small, so that it travels to a worker."""

    folder: str
    fingerprint: str
    words: WordSplitter
    kind: AlignerKind
    settings: WordAlignment


@dataclass(frozen=True)
class AlignTask:
    """A part of the corpus; the model is trained in the task of the first part, which has all."""

    job: Job
    corpus: Input
    number: int

    @property
    def folder(self) -> str:
        """Of the job."""
        return self.job.folder

    @property
    def part(self) -> Part:
        """The part, with all of its rows: the alignment has a value for each."""
        return replace(self.corpus.parts[0], skip_empty=False)

    def path(self, suffix: str) -> Path:
        """A file of the part."""
        return Path(self.folder, "parts", f"{part_name(self.number)}{suffix}")

    def read(self) -> Iterator[Record]:
        """Its records."""
        return replace(self.corpus, parts=(self.part,)).records()


def align_corpus(
    corpus: ParallelCorpus,
    out: Path,
    root: Path = Path(),
    words: WordSplitter = BlankSplitter(),
    kind: AlignerKind = Chains(),
    settings: WordAlignment = WordAlignment(),
) -> Path:
    """Aligns the words of a corpus, or finishes or repairs an alignment; Ray must have been connected.

    Writes below `out`: `parts/part-00000.parquet`, a column of Pharaoh with a value for each record of the part of this
    number (for each line of a Moses file), null for a record that cannot be used; `model/`; and the manifest, last.
    Links count the words of `words` from 0. With BlankSplitter also `alignment.txt`, all parts joined, a line a record:
    the third path of Moses.

    Args:
        root: what relative paths of the corpus start from; an alignment that it has already is not read.
        settings: for a trained aligner also the pairs that it sees: those with the smallest hashes over all parts,
            or all.

    Returns:
        `out`.

    Raises:
        DataError: sources that are missing or hold no pair; `out` holds the alignment of something else.
    """
    languages = check_languages(corpus.format, corpus.languages)
    reader, files = find_source(corpus, root)
    cut = tuple(
        replace(part, columns=corpus.read_columns, skip_empty=corpus.skip_empty)
        for part in parts(reader, files[:2] if reader == "moses" else files, "pairs")
    )
    hashes = InputHashes(None).of(list(dict.fromkeys(path for part in cut for path in part.paths)))
    align_parts(Input("", languages, cut, tuple(hashes)), out, words, kind, settings)
    return out


def align_parts(
    corpus: Input,
    out: Path,
    words: WordSplitter,
    kind: AlignerKind,
    settings: WordAlignment,
    parallel: ParallelConfig = ParallelConfig(),
) -> Input:
    """As `align_corpus`, of a corpus that is cut into parts already.

    Args:
        corpus: with the hashes of its files.
        parallel: resources of the tasks.

    Returns:
        The corpus with the alignment as a column beside its text.
    """
    identity = _identity(corpus, words, kind, settings)
    folder = out.absolute()
    job = Job(str(folder), hash_value(identity), words, kind, settings)
    _claim(folder, identity)
    tasks = [AlignTask(job, part, number) for number, part in enumerate(corpus.each_part())]
    if kind.learns:
        run(SAMPLE, tasks, parallel)
    (model,) = run(TRAIN, [replace(tasks[0], corpus=corpus)], parallel)
    records = run(ALIGN, tasks, parallel)
    columns = [task.path(COLUMN) for task in tasks]
    manifest = {
        "fingerprint": job.fingerprint,
        "settings": json.loads(json.dumps(identity)),
        "model": {"pairs": model["pairs"]},
        "parts": [record["sha256"] for record in records],
        "counts": merge_counts([record["counts"] for record in records]),
    }
    joined = None if not isinstance(words, BlankSplitter) else folder / ALIGNMENT
    if whole_manifest(folder) != manifest or (joined and not joined.is_file()):
        if joined:
            _write_pharaoh(columns, joined)
        write_manifest(folder, manifest)
    return _with_links(corpus, columns)


def align_once(
    corpus: Input,
    output: Path,
    words: WordSplitter,
    kind: AlignerKind,
    settings: WordAlignment,
    parallel: ParallelConfig,
) -> Input:
    """As `align_parts`, once for all recipes of an output folder that have the same pairs, tokenizer and settings.

    Args:
        corpus: whose text `make_text` has written.
    """
    text = [Path(part.text).parts[-2:] for part in corpus.parts]
    identity = hash_value([_identity(corpus, words, kind, settings), text])
    folder = output.absolute() / WORD_ALIGNMENTS / identity[:12]
    columns = [folder / "parts" / f"{part_name(number)}{COLUMN}" for number in range(len(corpus.parts))]

    def align(folders: Sequence[Path]) -> dict[Path, dict[str, Any]]:
        align_parts(corpus, folder, words, kind, settings, parallel)
        files = hash_files(folder, [column.relative_to(folder).as_posix() for column in columns])
        return {made: {**(read_manifest(made) or {}), "files": files} for made in folders}

    make_lacking([folder], align)
    return _with_links(corpus, columns)


def _identity(corpus: Input, words: WordSplitter, kind: AlignerKind, settings: WordAlignment) -> dict[str, Any]:
    return {
        "code": package_code("sources", "vocabulary", "align"),
        "inputs": corpus.hashes,
        "languages": corpus.languages,
        "words": words.identity(),
        **alignment_identity(kind, settings),
    }


def _with_links(corpus: Input, columns: Sequence[Path]) -> Input:
    """The corpus with the alignment as a column beside its text."""
    beside = zip(corpus.parts, columns, strict=True)
    return replace(corpus, parts=tuple(replace(part, beside=(*part.beside, str(column))) for part, column in beside))


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Makes the folder this job's, so that files of an earlier run in it are of the same corpus and aligner."""
    path, sealed = folder / "settings.json", seal(json.loads(json.dumps(identity)))
    before = whole_json(path)
    if path.is_file() and not (before and is_sealed(before)):  # nobody knows of what texts the rest is
        for made in ("parts", "model"):
            shutil.rmtree(folder / made, ignore_errors=True)
    elif before is not None and before != sealed:
        raise DataError(f"{folder} holds the word alignment of other texts, or by other settings. "
                        "Give another --out, or remove the folder.")  # fmt: skip
    write_json(path, sealed)


def sample_part(task: AlignTask) -> Made:
    """Writes the words of the part's pairs that may be in the sample: those of the smallest hashes."""
    settings = task.job.settings
    pairs = (record for record in task.read() if isinstance(record, Pair))
    chosen = smallest(((hash_pair(pair, settings.seed), pair) for pair in pairs), settings.train_pairs)
    texts = [task.job.words.split([pair.texts[which] for pair in chosen.values()]) for which in (0, 1)]
    write_sample(task.path(".sample.jsonl"), zip(chosen, zip(*texts, strict=True), strict=True))
    return [task.path(".sample.jsonl")], {}


def train_model(task: AlignTask) -> Made:
    """Trains on the sample of all parts."""
    job, folder = task.job, Path(task.folder, "model")
    sampled = range(len(task.corpus.parts)) if job.kind.learns else ()
    samples = [replace(task, number=number).path(".sample.jsonl") for number in sampled]
    pairs = read_samples(samples, job.settings.train_pairs)
    if job.kind.learns and not pairs:
        raise DataError(explain_empty(task.corpus.parts))
    folder.mkdir(parents=True, exist_ok=True)
    job.kind.train(pairs, folder)
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    return files, {"pairs": len(pairs)}


def align_part(task: AlignTask) -> Made:
    """Aligns a part and writes its links as Pharaoh, a value a row; none for a row that is no pair."""
    job = task.job
    aligner = _open_model(task.folder, job.fingerprint, job.kind)
    counts: Counter[str] = Counter()

    def values() -> Iterator[pa.Array]:
        records = task.read()
        while batch := list(islice(records, BATCH)):
            pairs = [record for record in batch if isinstance(record, Pair)]
            first, second = (job.words.split([pair.texts[which] for pair in pairs]) for which in (0, 1))
            aligned = aligner.align(list(zip(first, second, strict=True)), job.settings.join or job.kind.default_method)
            counts.update(pairs=len(aligned), bad_rows=len(batch) - len(aligned), links=sum(map(len, aligned)))
            counts["pairs_without_links"] += len(aligned) - sum(map(bool, aligned))
            links = map(write_pharaoh, aligned)
            yield pa.array([next(links) if isinstance(record, Pair) else None for record in batch], pa.string())

    write_column(task.path(COLUMN), "alignment", pa.string(), values())
    return [task.path(COLUMN)], {"counts": dict(counts)}


SAMPLE = StageStep("word alignment, writing the sample", sample_part, kind=".sample")
TRAIN = StageStep("word alignment, training", train_model, lambda tasks: [0.0] * len(tasks), kind=".model")
ALIGN = StageStep("word alignment", align_part, uses_gpu=lambda task: task.job.kind.name == "encoder")


@lru_cache(maxsize=1)
def _open_model(folder: str, fingerprint: str, kind: AlignerKind) -> Aligner:  # noqa: ARG001  # the cache knows it by it
    return kind.open(Path(folder) / "model")


def _write_pharaoh(columns: Sequence[Path], path: Path) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{value or ''}\n" for column in columns for value in read_column(column))


SENTENCES = 100_000  # that are counted: the first of a corpus
PAIRS = 1000  # that are written
_LETTERS = regex.compile(r"(?:\p{L}[\p{M}\u200c\u200d]*)+")  # with vowel signs and joiners
MAX_COUNTED = 4_000_000  # pairs of words that are counted at once: about 1 GB


def _linked_words(pairs: Iterable[Pair], languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The two words of each link, in lower case."""
    for pair in pairs:
        first, second = (
            [look_up_form(word, code) for word in split_words(text)]
            for text, code in zip(pair.texts, languages, strict=True)
        )
        links = (link.partition("-") for link in (pair.alignment or "").split())
        yield from ((first[int(i)], second[int(j)]) for i, _, j in links)


def frequent_words(pairs: Iterable[Pair], languages: Sequence[str]) -> list[tuple[str, str]]:
    """Aligned words in lower case, the most frequent first, each word once, of letters only.

    Left out are words that both languages spell alike, and pairs whose English word is a stop word of scikit-learn's.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counted = Counter(_linked_words(pairs, languages))
    frequent: list[tuple[str, str]] = []
    used: set[tuple[int, str]] = set()
    for words, _ in counted.most_common():
        english = [word for word, code in zip(words, languages, strict=True) if code == "en"]
        is_word = (
            all(map(_LETTERS.fullmatch, words))
            and words[0] != words[1]
            and not ENGLISH_STOP_WORDS.intersection(english)
        )
        if is_word and used.isdisjoint(enumerate(words)):
            used |= set(enumerate(words))
            frequent.append(words)
        if len(frequent) == PAIRS:
            break
    return frequent


def translations(
    pairs: Iterable[Pair], languages: Sequence[str], min_count: int = 3, min_share: float = 0.1
) -> list[tuple[str, str, int, float]]:
    """A dictionary: words that are linked `min_count` times or more, with that number and their share, by number.

    The share is that of the links of either word, whichever is smaller: below `min_share` two words are linked by
    chance. Words without a letter are left out. Holds MAX_COUNTED pairs of words: of more the rarer half is
    forgotten, of equally rare ones the oldest.
    """
    counted: Counter[tuple[str, str]] = Counter()
    of_word: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for left, right in _linked_words(pairs, languages):
        words = (trim_punctuation(left), trim_punctuation(right))
        counted[words] += 1
        for counts, word in zip(of_word, words, strict=True):
            counts[word] += 1
        if len(counted) > MAX_COUNTED:
            for rare in sorted(counted, key=counted.__getitem__)[: len(counted) // 2]:
                del counted[rare]
    table = []
    for (first, second), count in counted.items():
        share = count / max(of_word[0][first], of_word[1][second])
        if count >= min_count and share >= min_share and any(map(str.isalpha, first)) and any(map(str.isalpha, second)):
            table.append((first, second, count, share))
    return sorted(table, key=lambda one: (-one[2], one))


def write_words(corpus: ParallelCorpus, aligned: Path, min_count: int = 3, min_share: float = 0.1) -> list[Path]:
    """What words the links of a corpus translate, in the folder that `align_corpus` wrote, of languages en and de:

    `en-de.frequent.txt`, a word and its partner a line, and `en-de.dictionary.tsv`, a table of all (`translations`).
    """
    name = "-".join(corpus.languages)
    frequent = frequent_words(islice(_aligned_pairs(corpus, aligned), SENTENCES), corpus.languages)
    table = translations(_aligned_pairs(corpus, aligned), corpus.languages, min_count, min_share)
    header = "\t".join([*corpus.languages, "count", "share"])
    rows = [f"{left}\t{right}\t{count}\t{share:.3f}" for left, right, count, share in table]
    texts = {
        aligned / f"{name}.frequent.txt": "".join(f"{left} {right}\n" for left, right in frequent),
        aligned / f"{name}.dictionary.tsv": "\n".join([header, *rows, ""]),
    }
    for path, text in texts.items():
        write_atomic(path, text)
    return list(texts)


def _aligned_pairs(corpus: ParallelCorpus, aligned: Path) -> Iterator[Pair]:
    reader, files = find_source(corpus)
    files = files[:2] if reader == "moses" else files
    with (aligned / ALIGNMENT).open(encoding="utf-8") as lines:
        records_of_files = read(reader, files, corpus.languages, columns=corpus.read_columns)
        records = zip(records_of_files, lines, strict=False)
        yield from (replace(record, alignment=line) for record, line in records if isinstance(record, Pair))
