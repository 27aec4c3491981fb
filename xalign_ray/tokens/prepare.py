"""Raw files to token shards: one Ray Data task a part, nothing shuffled between tasks, the manifest last."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.align.corpus import align_once
from xalign_ray.align.kinds import named_aligner
from xalign_ray.align.links import TokenizerSplitter
from xalign_ray.clean.duplicates import Sift, mark_duplicates
from xalign_ray.clean.kept_out import RetrievalTexts, keep_out, write_tests
from xalign_ray.clean.text_stage import make_text, without_text
from xalign_ray.config.choices import PAIRS
from xalign_ray.config.identity import data_settings
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.files import shard_hashes, write_shard_table
from xalign_ray.shards.prepared import Prepared, whole_folder
from xalign_ray.sources import language_id
from xalign_ray.sources.inputs import Input, data_root, find_sources, number_parts, split_source
from xalign_ray.sources.stage import (
    DEV,
    TESTS,
    TOKENIZER,
    InputHashes,
    hash_files,
    is_as_written,
    list_files,
    run,
    tokenizer_is_whole,
)
from xalign_ray.sources.summary import (
    BAD_ROWS,
    DROPPED,
    SourceSummary,
    check_first_rows,
    check_trained,
    judge_text,
    merge_counts,
    merge_samples,
    missing_held_out,
    say_lines,
    summarize,
)
from xalign_ray.tokens.examples import longest_word
from xalign_ray.tokens.find import data_folder, fingerprint_by_content, fingerprint_of, link_by_content
from xalign_ray.tokens.part import DROPPED_OF_PART, Task, prepare_step, read_left
from xalign_ray.tokens.teacher import facts_of_teacher
from xalign_ray.tokens.vocabulary import (
    MEASURED,
    first_lines,
    read_translations,
    trained_translations,
    write_lexicon,
    write_tokenizer,
)
from xalign_ray.vocabulary.dictionary import Translations
from xalign_ray.vocabulary.exchange import fertility
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer, vocabulary
from xalign_ray.work.artifacts import seal, write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import fetch_listed, local_folder, refresh
from xalign_ray.work.storage import is_url

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPLIT_AT_ONCE = 16  # sources; most of that is waiting for a disk or a store


def prepare(config: RunConfig, verify: bool = False, connect: Callable[[], None] = lambda: None) -> Prepared:
    """The shards of a recipe: opened if they exist, made (or finished, or repaired) if not.

    Args:
        verify: read every shard and compare hashes; without it a finished folder is not checked, and damage is
            found when a shard is first read.
        connect: joins or starts the cluster that does the work; called if there is any.

    Raises:
        DataError, ConfigError: input that is missing, empty or worse than data.max_bad_fraction.
    """
    sources = find_sources(config.data, data_root(config))
    output = local_folder(config.output)
    hashes = InputHashes.of_output(output)
    all_sources = [*chain(*sources)]
    folder = data_folder(config, fingerprint_of(config, all_sources, hashes))
    if folder.is_symlink() and not folder.exists():
        folder.unlink()  # it led to data that was removed
    (refresh if verify else fetch_listed)(folder)
    if not verify and whole_folder(folder) is not None:
        return Prepared.open(folder)
    with open_job(folder, "prepare", upload="once finished") as job:
        manifest = whole_folder(folder)
        if manifest is None or (not job.waited and not is_as_written(folder, manifest, shard_hashes(folder, manifest))):
            texts, dictionaries, *held = (_split(some, hashes) for some in sources)
            if not tokenizer_is_whole(folder):  # else an earlier attempt looked at them
                unread = [*without_text(texts, output), *dictionaries]
                # Files in stores are read once, by the task that parses them, which raises the same errors.
                check_first_rows([source for source in unread if not any(map(is_url, source.files))])
            kept_out = keep_out(config, texts, dict(zip((TESTS, DEV), held, strict=True)))
            translated = read_translations(config, dictionaries, folder)
            connect()
            identify = partial(fingerprint_by_content, config, all_sources, hashes, folder / TOKENIZER)
            job.finish(_make(config, texts, translated, kept_out, folder, identify))
        elif verify:
            say_lines(manifest)
    prepared = Prepared.open(folder)
    link_by_content(config, folder, prepared.fingerprint)
    return prepared


def _make(
    config: RunConfig,
    texts: Sequence[Input],
    translated: tuple[Translations, Sequence[SourceSummary]],
    tests: Sequence[RetrievalTexts],
    folder: Path,
    identify: Callable[[], str],
) -> dict[str, Any]:
    """Writes all but the manifest, which it returns."""

    output = local_folder(config.output)
    texts = make_text(texts, output, config.parallel)
    bad_rows = judge_text(texts, config.data.max_bad_fraction, folder / BAD_ROWS)
    translations, dictionary_sources = translated
    write_tokenizer(config, texts, trained_translations(translations), folder)
    tokenizer = open_tokenizer(str(folder / "tokenizer"))
    dictionary_counts = write_lexicon(config, translations, tokenizer, folder)
    write_tests(tests, folder)
    texts = _align(config, texts, folder)
    texts = mark_duplicates(texts, output, config.data.filters, config.parallel, _sift(config, folder))
    tasks = _tasks(config, texts, folder)
    records = _prepare_parts(tasks, config)
    others = [*dictionary_sources, *(source for test in tests for source in test.sources)]
    return _finish(config, texts, bad_rows, tasks, records, folder, identify(), dictionary_counts, others, tokenizer)


def _prepare_parts(tasks: Sequence[Task], config: RunConfig) -> list[dict[str, Any]]:
    """The records of all parts. Where pairs are capped, the second files of all pools wait for the first, and so on."""
    cap, step = config.data.max_pairs, prepare_step(config.languages)
    if not cap:
        return run(step, tasks, config.parallel)
    used: Counter[str] = Counter()
    records: dict[str, dict[str, Any]] = {}
    rounds = [0 if task.pool.startswith("text/") else task.number for task in tasks]
    for number in sorted(set(rounds)):
        ready = [
            task if task.pool.startswith("text/") else replace(task, max_pairs=cap - used[task.pool])
            for task, its in zip(tasks, rounds, strict=True)
            if its == number
        ]
        for task, record in zip(ready, run(step, ready, config.parallel), strict=True):
            records[task.name] = record
            used[task.pool] += record["trained"]["examples"] if record["trained"] else 0
    return [records[task.name] for task in tasks]


def _split(sources: Sequence[Input], hashes: InputHashes) -> list[Input]:
    with ThreadPoolExecutor(SPLIT_AT_ONCE) as threads:
        return [*threads.map(lambda source: split_source(source, hashes.of(source.files)), sources)]


def _align(config: RunConfig, texts: Sequence[Input], folder: Path) -> list[Input]:
    """Aligns the corpora that ask for it, on the words that `prepare_part` will find."""
    words = TokenizerSplitter(str(folder / TOKENIZER), longest_word(config.data.capacity, 2))
    settings, aligned = config.data.word_alignment, list(texts)
    for number, corpus in enumerate(config.data.parallel):
        if corpus.align:
            index, output = len(config.data.corpora) + number, local_folder(config.output)
            kind = named_aligner(corpus.align, corpus.languages, settings)
            aligned[index] = align_once(texts[index], output, words, kind, settings, config.parallel)
    return aligned


def _sift(config: RunConfig, folder: Path) -> Sift:
    """The filters as `prepare_part` will apply them."""
    files = hash_files(folder, [f"{TOKENIZER}/tokenizer.json", "entries.json"])
    identifier = language_id.identity_of(config.data.filters)
    return Sift(
        left=partial(read_left, languages=tuple(config.languages)),
        tasks=lambda texts: _tasks(config, texts, folder),
        identity=[config.data.filters.model_dump(mode="json"), files, config.data.capacity, identifier],
    )


def _tasks(config: RunConfig, texts: Sequence[Input], folder: Path) -> list[Task]:
    data = config.data
    with_text = {corpus.language for corpus in data.corpora}
    aligners = [None] * len(data.corpora) + [corpus.align for corpus in data.parallel]
    return [
        Task(
            folder=str(folder),
            name=name,
            pool=texts[source].pool,
            languages=texts[source].languages,
            part=part,
            capacity=data.capacity,
            whole_documents=data.example == "document",
            held_out_fraction=data.held_out_fraction,
            text_languages=tuple(code for code in texts[source].languages if code in with_text),
            filters=data.filters,
            source=source,
            number=number,
            aligned_words="tokenizer" if aligners[source] else "blanks",
            teacher=data.teacher if texts[source].pool.startswith(PAIRS) else None,
            given_negatives=data.negatives_of == (0,) and texts[source].pool.startswith(PAIRS),
        )
        for source, name, number, part in number_parts(texts)
    ]


def _finish(
    config: RunConfig,
    texts: Sequence[Input],
    bad_rows: Sequence[dict[str, int]],
    tasks: Sequence[Task],
    found: Sequence[dict[str, Any]],
    folder: Path,
    fingerprint: str,
    dictionary_counts: dict[str, int],
    other_sources: Sequence[SourceSummary],
    tokenizer: PreTrainedTokenizerFast,
) -> dict[str, Any]:
    records = list(zip(tasks, found, strict=True))
    counts = merge_counts([record["counts"] for _, record in records])
    of_source: list[list[dict[str, Any]]] = [[] for _ in texts]
    samples: list[dict[Path, list[str]]] = [{} for _ in texts]  # files of dropped rows, and the reasons in each
    for task, record in records:
        of_source[task.source].append(record)
        if record["dropped"]:
            samples[task.source][task.path(DROPPED_OF_PART)] = record["dropped"]
    merge_samples(samples, folder / DROPPED)
    check_trained(texts, of_source)
    special = asdict(vocabulary(tokenizer))
    special.pop("regular")
    write_atomic(folder / "settings.json", json.dumps(data_settings(config), indent=1))
    shards: list[dict[str, Any]] = []
    pools, held_out = (_pools(records, split, shards) for split in ("trained", "held_out"))
    write_shard_table(folder, shards)
    sources = [*(summarize(*each) for each in zip(texts, of_source, bad_rows, strict=True)), *other_sources]
    manifest = seal(
        {
            "fingerprint": fingerprint,
            "languages": config.languages,
            "max_seq_length": config.data.max_seq_length,
            "vocabulary": {"size": len(tokenizer), "special": special},
            "pieces": {
                language: fertility(tokenizer.backend_tokenizer, some[:MEASURED])
                for language, some in sorted(first_lines(texts, MEASURED).items())
            },
            "files": list_files(folder),
            "pools": pools,
            "held_out": held_out,
            "held_out_missing": missing_held_out(pools, held_out) if config.data.held_out_fraction else {},
            "counts": counts,
            "bad_rows": merge_counts(bad_rows),
            "dictionary": dictionary_counts,
            **({"teacher": facts_of_teacher(config.data.teacher, records)} if config.data.teacher else {}),
            "sources": [asdict(source) for source in sources],
        }
    )
    say_lines(manifest)
    return manifest


def _pools(records: Sequence[tuple[Task, dict[str, Any]]], split: str, shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Adds up each pool's parts of a split, and appends their shards, pool by pool, to `shards`."""
    pools: dict[str, list[dict[str, Any]]] = {}
    for task, record in records:
        if record[split] is not None:
            pools.setdefault(task.pool, []).append(record)
    totals = {}
    for name, parts in pools.items():
        mine = [shard | {"sha256": part["files"][shard["file"]]} for part in parts for shard in part[split]["shards"]]
        totals[name] = {
            "shards": [len(shards), len(shards) + len(mine)],
            "rows": sum(shard["rows"] for shard in mine),
            "tokens": sum(part[split]["tokens"] for part in parts),
            "examples": sum(part[split]["examples"] for part in parts),
            **({"counts": merge_counts([part["counts"] for part in parts])} if split == "trained" else {}),
        }
        shards += mine
    return totals
