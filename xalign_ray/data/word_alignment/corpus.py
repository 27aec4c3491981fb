"""Aligns a corpus as a Ray Data job: one model trained on a sample of all parts, all parts aligned in parallel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import ParallelConfig, ParallelCorpus
from xalign_ray.config.sources import WordAlignment
from xalign_ray.data.input_hashes import InputHashes
from xalign_ray.data.inputs import Input
from xalign_ray.data.sources.formats import check_languages, explain_empty, find_source, parts, read, read_part
from xalign_ray.data.sources.parts import Part, count_bytes
from xalign_ray.data.sources.records import Pair, Record
from xalign_ray.data.summary import merge_counts, merge_files
from xalign_ray.data.word_alignment.chain_aligner import Chains
from xalign_ray.data.word_alignment.kinds import Aligner, AlignerKind, alignment_identity, check_method
from xalign_ray.data.word_alignment.links import Link, WordPair, write_pharaoh
from xalign_ray.data.word_alignment.words import BlankSplitter, WordSplitter
from xalign_ray.errors import DataError, fault_of
from xalign_ray.text.look_up import look_up_form, trim_punctuation
from xalign_ray.text.words import split_words
from xalign_ray.work.artifacts import (
    MANIFEST,
    check_file,
    hash_file,
    hash_value,
    read_manifest,
    unfinished,
    whole_json,
    whole_manifest,
    write_atomic,
    write_json,
    write_manifest,
)
from xalign_ray.work.status_line import PartsDone

Hashes = NDArray[np.uint64]

HIGHEST_HASH = (1 << 64) - 1
HELD = 1 << 16  # hashes taken in between two cuts to the smallest: bounds the memory


def hash_pair(pair: Pair, seed: int) -> int:
    """64 bits of a pair's sentences, the same wherever the pair stands."""
    text = "\0".join((str(seed), *pair.texts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"word alignment").digest(), "big")


def smallest(hashes: Iterable[int], number: int) -> Hashes:
    """The `number` smallest of the distinct hashes, sorted; holds no more than these and HELD others."""
    kept = np.zeros(0, np.uint64)
    held: list[int] = []
    for one in hashes:
        held.append(one)
        if len(held) == HELD:
            kept, held = _merge(kept, held, number), []
    return _merge(kept, held, number)


def _merge(kept: Hashes, held: Sequence[int], number: int) -> Hashes:
    return np.unique(np.concatenate([kept, np.asarray(held, np.uint64)]))[:number]


def write_sample(path: Path, pairs: Iterable[tuple[int, WordPair]]) -> None:
    """The hash and the words of sampled pairs, as JSON lines."""
    write_atomic(path, "".join(json.dumps([one, *words], ensure_ascii=False) + "\n" for one, words in pairs))


def read_samples(paths: Sequence[Path]) -> list[WordPair]:
    """The sampled pairs of all parts in the order of their hashes, each once, whatever parts they were in.

    A word is held once, however often it occurs: millions of pairs then take 8 bytes a word.
    """
    found: dict[int, WordPair] = {
        one: (list(map(sys.intern, first)), list(map(sys.intern, second)))
        for path in paths
        for one, first, second in _lines(path)
    }
    return [found[one] for one in sorted(found)]


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


FILES_VERSION = 3  # raise it when the same input would give other files
BATCH = 1024  # records aligned together
ALIGNMENT = "alignment.txt"
HINT = "Align the corpus again: it redoes what is damaged and nothing else."


@dataclass(frozen=True)
class Job:
    """A corpus to be aligned: small, so that it travels to a worker."""

    folder: str
    fingerprint: str
    parts: tuple[Part, ...]
    languages: tuple[str, ...]
    words: WordSplitter
    kind: AlignerKind
    settings: WordAlignment
    parallel: ParallelConfig
    keep_rest_out: bool

    def path(self, *names: str) -> Path:
        """A path below the job's folder."""
        return Path(self.folder, *names)

    def read(self, number: int) -> Iterator[Record]:
        """The records of a part; a file whose rest cannot be read is an error, unless the rest is to be kept out."""
        return read_part(self.parts[number], self.languages, broken=[] if self.keep_rest_out else None)


def align_corpus(
    corpus: ParallelCorpus,
    out: Path,
    root: Path = Path(),
    words: WordSplitter = BlankSplitter(),
    kind: AlignerKind = Chains(),
    settings: WordAlignment = WordAlignment(),
) -> Path:
    """Aligns the words of a corpus, or finishes or repairs what was begun; Ray must have been connected.

    Writes below `out`: `parts/part-00000.txt`, a line of Pharaoh for each record of the part of this number (for each
    line of a Moses file), empty for a record that cannot be used; `model/`; and the manifest, last. Links count the
    words of `words` from 0. With BlankSplitter also `alignment.txt`, all parts joined: the third path of Moses.

    Args:
        root: what relative paths of the corpus start from; an alignment that it has already is not read.
        settings: of them those of a model that is trained are which pairs it sees: those with the smallest hashes over
            all parts, or all.

    Returns:
        `out`.

    Raises:
        DataError: sources that are missing or hold no pair; `out` holds the alignment of something else.
        ConfigError: a method that the kind of aligner does not have.
    """
    languages = check_languages(corpus.format, corpus.languages)
    reader, files = find_source(corpus, root)
    cut = tuple(
        replace(part, columns=corpus.columns, skip_empty=corpus.skip_empty)
        for part in parts(reader, files[:2] if reader == "moses" else files, corpus.columns)
    )
    hashes = InputHashes(None).of(list(dict.fromkeys(path for part in cut for path in part.paths)))
    return align_parts(Input("", languages, cut, tuple(hashes)), out, words, kind, settings)


def align_parts(
    corpus: Input,
    out: Path,
    words: WordSplitter,
    kind: AlignerKind,
    settings: WordAlignment,
    parallel: ParallelConfig = ParallelConfig(),
    keep_rest_out: bool = False,
) -> Path:
    """As `align_corpus`, of a corpus that is cut into parts already; `read_alignments` takes their numbers.

    Args:
        corpus: with the hashes of its files.
        parallel: says where tasks may run.
        keep_rest_out: of a file whose rest cannot be read; without it such a file is an error.
    """
    check_method(kind, settings.join or kind.default_method)
    languages, cut = corpus.languages, corpus.parts
    identity = {
        "version": FILES_VERSION,
        "inputs": corpus.hashes,
        "languages": languages,
        "words": words.identity(),
        **alignment_identity(kind, settings),
    }
    folder = out.absolute()
    job = Job(str(folder), hash_value(identity), cut, languages, words, kind, settings, parallel, keep_rest_out)
    _claim(job, identity)
    todo = [number for number in range(len(cut)) if _record(job, number) is None]
    if todo or whole_manifest(job.path("model"), "fingerprint", "files") is None:
        (folder / MANIFEST).unlink(missing_ok=True)
        _ensure_model(job)
    if todo:
        _run(align_part, job, todo)
    if whole_manifest(folder, "parts") is None:
        _finish(job, identity)
    return out


def read_alignments(folder: Path, part: int) -> Iterator[str]:
    """The Pharaoh line of each record of a part, in the order in which read_part yields them; empty for BadRows.

    Raises:
        DataError: the folder is not finished, or the part's file is not as it was written.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataError(f"{folder} holds no finished word alignment. {HINT}")
    record = manifest["parts"][part]
    check_file(folder / record["file"], record["sha256"], HINT)
    with (folder / record["file"]).open(encoding="utf-8") as file:
        for line in file:
            yield line.removesuffix("\n")


def _claim(job: Job, identity: dict[str, Any]) -> None:
    """Makes the folder this job's, so that what an earlier run left in it is of the same corpus and aligner."""
    path = job.path("settings.json")
    before = whole_json(path)
    if path.is_file() and before is None:  # nobody knows of what texts the rest is
        job.path(MANIFEST).unlink(missing_ok=True)
        for made in ("parts", "model", "sample"):
            shutil.rmtree(job.path(made), ignore_errors=True)
    elif before is not None and before != json.loads(json.dumps(identity)):
        raise DataError(f"{job.folder} holds the word alignment of other texts, or by other settings. "
                        "Give another --out, or remove the folder.")  # fmt: skip
    write_json(path, identity)


def _ensure_model(job: Job) -> None:
    if whole_manifest(job.path("model"), "fingerprint", "files") is not None:
        return
    if job.kind.learns:
        numbers = range(len(job.parts))
        _run(partial(sample_part, limit=_sample_limit(job)), job, numbers)
    _run(train_model, job, [0])


def _sample_limit(job: Job) -> int:
    """The highest hash of a pair that the model is trained on."""
    wanted = job.settings.train_pairs
    if wanted is None:
        return HIGHEST_HASH
    sketches = _run(sketch_part, job, range(len(job.parts)))
    limits = smallest((one for sketch in sketches for one in sketch["hashes"]), wanted)
    if not len(limits):
        raise DataError(explain_empty(job.parts))
    return int(limits[-1])


def sketch_part(job: Job, number: int) -> dict[str, Any]:
    """The smallest hashes of a part's pairs: no more of it can be in the sample."""
    pairs = (record for record in job.read(number) if isinstance(record, Pair))
    wanted = job.settings.train_pairs
    assert wanted is not None, "all pairs need no sketch"
    return {"hashes": smallest((hash_pair(pair, job.settings.seed) for pair in pairs), wanted).tolist()}


def sample_part(job: Job, number: int, limit: int) -> dict[str, Any]:
    """Writes the words of the part's pairs whose hash is not over the limit."""
    pairs = (record for record in job.read(number) if isinstance(record, Pair))
    chosen = [(one, pair) for pair in pairs if (one := hash_pair(pair, job.settings.seed)) <= limit]
    texts = [job.words.split([pair.texts[which] for _, pair in chosen]) for which in (0, 1)]
    kept = [(one, (a, b)) for (one, _), a, b in zip(chosen, *texts, strict=True) if a and b]
    write_sample(job.path("sample", f"part-{number:05d}.jsonl"), kept)
    return {"pairs": len(kept)}


def train_model(job: Job, _: int) -> dict[str, Any]:
    """Trains on the sample of all parts; the model's manifest is written last."""
    sampled = range(len(job.parts)) if job.kind.learns else ()
    pairs = read_samples([job.path("sample", f"part-{number:05d}.jsonl") for number in sampled])
    if job.kind.learns and not pairs:
        raise DataError(explain_empty(job.parts))
    folder = job.path("model")
    folder.mkdir(parents=True, exist_ok=True)
    job.kind.train(pairs, folder)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    write_manifest(
        folder, {"fingerprint": job.fingerprint, "pairs": len(pairs), "seed": job.settings.seed, "files": files}
    )
    return {"pairs": len(pairs)}


def align_part(job: Job, number: int) -> dict[str, Any]:
    """Aligns a part and writes its links, a line a record, then its record."""
    aligner = _open_model(job)
    path = job.path("parts", f"part-{number:05d}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(path)
    counts: list[dict[str, int]] = []
    with temporary.open("w", encoding="utf-8", newline="\n") as out:
        records = job.read(number)
        while batch := list(islice(records, BATCH)):
            links = _align_batch(batch, aligner, job)
            out.writelines(write_pharaoh(one) + "\n" for one in links)
            pairs = sum(isinstance(record, Pair) for record in batch)
            found = {"links": sum(map(len, links)), "pairs_without_links": pairs - sum(map(bool, links))}
            counts.append({"pairs": pairs, "bad_rows": len(batch) - pairs} | found)
    os.replace(temporary, path)
    record = {"file": f"parts/{path.name}", "sha256": hash_file(path), "counts": merge_counts(counts)}
    write_json(path.with_suffix(".json"), record)
    return {"counts": record["counts"]}


def _align_batch(records: Sequence[Record], aligner: Aligner, job: Job) -> list[list[Link]]:
    places = [place for place, record in enumerate(records) if isinstance(record, Pair)]
    pairs = [record for record in records if isinstance(record, Pair)]
    first, second = (job.words.split([pair.texts[which] for pair in pairs]) for which in (0, 1))
    links: list[list[Link]] = [[] for _ in records]
    method = job.settings.join or job.kind.default_method
    for place, found in zip(places, aligner.align(list(zip(first, second, strict=True)), method), strict=True):
        links[place] = found
    return links


def _open_model(job: Job) -> Aligner:
    return _open_model_once(job.folder, job.fingerprint, job.kind)


@lru_cache(maxsize=1)
def _open_model_once(folder: str, fingerprint: str, kind: AlignerKind) -> Aligner:
    model = Path(folder) / "model"
    manifest = read_manifest(model)
    assert manifest is not None, "the model is trained before parts are aligned"
    assert manifest["fingerprint"] == fingerprint, "the folder is this job's"
    for name, expected in manifest["files"].items():
        check_file(model / name, expected, f"Remove {model} and align again.")
    return kind.open(model)


def _record(job: Job, number: int) -> dict[str, Any] | None:
    """What an aligned part says of itself, or None if it is not finished or its file is not as it was written."""
    record = whole_json(job.path("parts", f"part-{number:05d}.json"), "file", "sha256", "counts")
    if record is None:
        return None
    file = job.path(record["file"])
    return record if file.is_file() and hash_file(file) == record["sha256"] else None


def _finish(job: Job, identity: dict[str, Any]) -> None:
    records = [record for number in range(len(job.parts)) if (record := _record(job, number)) is not None]
    if len(records) < len(job.parts):
        raise DataError(f"{len(job.parts) - len(records)} of {len(job.parts)} parts were not aligned. {HINT}")
    if isinstance(job.words, BlankSplitter):
        merge_files([job.path(record["file"]) for record in records], job.path(ALIGNMENT))
    model = read_manifest(job.path("model"))
    write_manifest(
        job.path(),
        {
            "fingerprint": job.fingerprint,
            "settings": identity,
            "model": {"pairs": model["pairs"]} if model else None,
            "parts": records,
            "counts": merge_counts([record["counts"] for record in records]),
        },
    )


def _run(step: Callable[[Job, int], dict[str, Any]], job: Job, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """A Ray Data task for each number. Returns what the step returned, in the order in which tasks ended."""
    import ray.data

    from xalign_ray.data.placement import placement

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    rows = ray.data.from_items([{"number": number} for number in numbers], override_num_blocks=len(numbers))
    guarded: Any = partial(_guarded, step=step, job=job)
    sizes = count_bytes(job.parts) if step is not train_model else [0]
    with PartsDone(_TITLES[getattr(step, "func", step)], {number: sizes[number] for number in numbers}) as shown:
        done = []
        for row in rows.map(guarded, num_cpus=1, **placement(job.parallel)).iter_rows():
            done.append(row)
            shown.add(row["number"])
    if faults := [row["fault"] for row in done if row["fault"]]:
        raise DataError(faults[0])
    return [json.loads(row["found"]) for row in done]


def _guarded(row: dict[str, Any], step: Callable[[Job, int], dict[str, Any]], job: Job) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    fault = fault_of(lambda: found.append(step(job, row["number"])), job.path())
    return {"number": row["number"], "found": json.dumps(found[0] if found else None), "fault": fault}


_TITLES: dict[Any, str] = {
    sketch_part: "word alignment, choosing a sample",
    sample_part: "word alignment, writing the sample",
    train_model: "word alignment, training",
    align_part: "word alignment",
}


SENTENCES = 100_000  # that are counted: the first of a corpus
PAIRS = 1000  # that are written
MAX_COUNTED = 4_000_000  # pairs of words that are held while they are counted: about 1 GB


def _linked_words(pairs: Iterable[Pair], languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The two words of each link, in lower case."""
    for pair in pairs:
        first, second = (
            [look_up_form(word, code) for word in split_words(text)]
            for text, code in zip(pair.texts, languages, strict=True)
        )
        links = (link.partition("-") for link in (pair.alignment or "").split())
        yield from ((first[int(i)], second[int(j)]) for i, _, j in links)


def frequent_words(pairs: Iterable[Pair], languages: Sequence[str], count: int = PAIRS) -> list[tuple[str, str]]:
    """Aligned words in lower case, the most frequent first, each word once, of letters only.

    Left out are words that both languages spell alike, and pairs whose English word is a stop word of scikit-learn's.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counted = Counter(_linked_words(pairs, languages))
    found: list[tuple[str, str]] = []
    taken: set[tuple[int, str]] = set()
    for words, _ in counted.most_common():
        english = [word for word, code in zip(words, languages, strict=True) if code == "en"]
        is_word = all(map(str.isalpha, words)) and words[0] != words[1] and not ENGLISH_STOP_WORDS.intersection(english)
        if is_word and taken.isdisjoint(enumerate(words)):
            taken |= set(enumerate(words))
            found.append(words)
        if len(found) == count:
            break
    return found


def translations(
    pairs: Iterable[Pair], languages: Sequence[str], min_count: int = 3, min_share: float = 0.1
) -> list[tuple[str, str, int, float]]:
    """A dictionary: words that are linked `min_count` times or more, with that number and their share, by number.

    The share is that of the links of either word, whichever is smaller: below `min_share` two words are linked by
    chance. Words without a letter are left out. Holds MAX_COUNTED pairs of words: of more those linked once go.
    """
    counted: Counter[tuple[str, str]] = Counter()
    of_word: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for one, other in _linked_words(pairs, languages):
        words = (trim_punctuation(one), trim_punctuation(other))
        counted[words] += 1
        for counts, word in zip(of_word, words, strict=True):
            counts[word] += 1
        if len(counted) > MAX_COUNTED:
            counted = Counter({words: count for words, count in counted.items() if count > 1})
    found = []
    for (first, second), count in counted.items():
        share = count / max(of_word[0][first], of_word[1][second])
        if count >= min_count and share >= min_share and any(map(str.isalpha, first)) and any(map(str.isalpha, second)):
            found.append((first, second, count, share))
    return sorted(found, key=lambda one: (-one[2], one))


def write_words(corpus: ParallelCorpus, aligned: Path, min_count: int = 3, min_share: float = 0.1) -> list[Path]:
    """What words the links of a corpus translate, in the folder that `align_corpus` wrote, of languages en and de:

    `en-de.frequent.txt`, a word and its partner a line, and `en-de.dictionary.tsv`, a table of all (`translations`).
    """
    name = "-".join(corpus.languages)
    frequent = frequent_words(islice(_aligned_pairs(corpus, aligned), SENTENCES), corpus.languages)
    table = translations(_aligned_pairs(corpus, aligned), corpus.languages, min_count, min_share)
    header = "\t".join([*corpus.languages, "count", "share"])
    rows = [f"{one}\t{other}\t{count}\t{share:.3f}" for one, other, count, share in table]
    texts = {
        aligned / f"{name}.frequent.txt": "".join(f"{one} {other}\n" for one, other in frequent),
        aligned / f"{name}.dictionary.tsv": "\n".join([header, *rows, ""]),
    }
    for path, text in texts.items():
        write_atomic(path, text)
    return list(texts)


def _aligned_pairs(corpus: ParallelCorpus, aligned: Path) -> Iterator[Pair]:
    reader, files = find_source(corpus)
    files = files[:2] if reader == "moses" else files
    with (aligned / ALIGNMENT).open(encoding="utf-8") as lines:
        found = read(reader, files, corpus.languages, columns=corpus.columns, skip_empty=corpus.skip_empty)
        records = zip(found, lines, strict=False)
        yield from (replace(record, alignment=line) for record, line in records if isinstance(record, Pair))
