"""Raw files to token shards: one Ray Data task a part, nothing shuffled between tasks, the manifest last."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from xalign_ray.config.derive import data_settings, row_lengths
from xalign_ray.config.schema import DataConfig, ParallelConfig, RunConfig
from xalign_ray.config.sources import REPLACING, BpeTokenizer
from xalign_ray.config.stages import pool_at
from xalign_ray.data.cuts import KeptCuts
from xalign_ray.data.dictionaries import read_translations, trained_translations, write_lexicon
from xalign_ray.data.duplicate_passes import with_duplicates
from xalign_ray.data.duplicates import find_duplicates, partition_bytes
from xalign_ray.data.examples import longest_word
from xalign_ray.data.exchange import replace_tokenizer
from xalign_ray.data.file_hashes import (
    EXCHANGE,
    NEW_ROWS,
    REGULAR,
    START_ROWS,
    TOKENIZER,
    TOKENIZER_FILES,
    hash_files,
    list_files,
    remove_damaged,
    seal,
    tokenizer_is_whole,
    write_arrays,
)
from xalign_ray.data.identity import data_folder, fingerprint_by_content, fingerprint_of, given_folder, link_by_content
from xalign_ray.data.input_hashes import InputHashes
from xalign_ray.data.inputs import Input, Source, data_root, find_sources, split_source
from xalign_ray.data.kept_out import RetrievalTexts, keep_out, read_tests, write_tests
from xalign_ray.data.part import Task, hash_part, is_finished, prepare_part, read_record, sign_part
from xalign_ray.data.prepared import Prepared, whole_folder
from xalign_ray.data.shards import shard_hashes, write_shard_table
from xalign_ray.data.sources.broken import BrokenFile
from xalign_ray.data.sources.formats import read_part
from xalign_ray.data.sources.parts import count_bytes
from xalign_ray.data.sources.records import BadRow, Document
from xalign_ray.data.summary import (
    BAD_ROWS,
    DROPPED,
    SourceSummary,
    as_fields,
    check_first_rows,
    check_sources,
    check_trained,
    merge_counts,
    merge_files,
    merge_samples,
    missing_held_out,
    say_lines,
    summarize,
)
from xalign_ray.data.text_stage import TextTask, make_text, parse_part
from xalign_ray.data.tokenizer_folder import framed, open_tokenizer, save_tokenizer, vocabulary, wrap_tokenizer
from xalign_ray.data.word_alignment.corpus import align_parts
from xalign_ray.data.word_alignment.kinds import named_aligner
from xalign_ray.data.word_alignment.words import TokenizerSplitter
from xalign_ray.errors import DataError, fault_of
from xalign_ray.text.new_pieces import add_subwords, extend_tokenizer
from xalign_ray.text.tokenizer import train_bpe
from xalign_ray.work.artifacts import (
    MANIFEST,
    write_atomic,
    write_json,
)
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import fetch_listed, local_folder, refresh
from xalign_ray.work.status_line import PartsDone

NEW_PIECES_SAMPLE = 16 << 20  # characters read of each input to find words that become pieces
SPLIT_AT_ONCE = 16  # sources; most of that is waiting for a disk or a store
READ_AT_ONCE = 8  # parts of an interrupted prepare that are hashed
MAX_FAULTS = 10  # parts whose faults are reported at once


def prepare(config: RunConfig, verify: bool = False, connect: Callable[[], None] = lambda: None) -> Prepared:
    """The shards of a recipe: opened if they exist, made (or finished, or repaired) if not.

    Args:
        verify: read every shard and compare hashes; without it a finished folder is taken as it is, and damage is found
            when a shard is first read.
        connect: joins or starts the cluster that does the work; called if there is any.

    Raises:
        DataError, ConfigError: input that is missing, empty or worse than data.max_bad_fraction.
    """
    sources = find_sources(config.data, data_root(config))
    output = local_folder(config.output)
    hashes = InputHashes.of_output(output)
    every = [*chain(*sources)]
    folder = data_folder(config, fingerprint_of(config, every, hashes))
    if folder.is_symlink() and not folder.exists():
        folder.unlink()  # it led to data that was removed
    (refresh if verify else fetch_listed)(folder)
    if not verify and whole_folder(folder) is not None:
        return Prepared.open(folder)
    with open_job(folder, "prepare", upload="once finished") as job:
        manifest = whole_folder(folder)
        if manifest is None or (not job.waited and remove_damaged(folder, manifest, shard_hashes(folder, manifest))):
            cuts = KeptCuts.of_output(output)
            texts, dictionaries, tests = (_split(some, hashes, cuts) for some in sources)
            if not tokenizer_is_whole(folder):  # else an earlier attempt looked at them
                check_first_rows([*texts, *dictionaries], keep_rest_out=config.data.on_broken_file == "keep_rest_out")
            kept_out = keep_out(config, texts) if config.data.test_fraction else read_tests(config, tests, texts)
            connect()
            identify = partial(fingerprint_by_content, config, every, hashes, folder / TOKENIZER)
            job.finish(_make(config, texts, dictionaries, kept_out, folder, identify))
        elif verify:
            say_lines(manifest)
    prepared = Prepared.open(folder)
    link_by_content(config, folder, prepared.fingerprint)
    return prepared


def _make(
    config: RunConfig,
    texts: Sequence[Input],
    dictionaries: Sequence[Input],
    tests: Sequence[RetrievalTexts],
    folder: Path,
    identify: Callable[[], str],
) -> dict[str, Any]:
    """Writes all but the manifest, which it returns."""

    def run(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
        _run_tasks(tasks, work, config.parallel)

    texts = make_text(texts, local_folder(config.output), run)
    broken: list[BrokenFile] = []
    translations, dictionary_sources = read_translations(config, dictionaries, folder, broken)
    _write_tokenizer(config, texts, trained_translations(translations), folder)
    tokenizer = open_tokenizer(str(folder / "tokenizer"))
    dictionary_counts = write_lexicon(config, translations, tokenizer, folder)
    write_tests(tests, folder)
    tasks = _tasks(config, texts, folder, _align(config, texts, folder))
    filters = config.data.filters
    for kind, asked in (("duplicates", filters.drop_duplicates), ("near_duplicates", filters.near_duplicates)):
        if asked:
            tasks = with_duplicates(tasks, run, kind)
    tasks += _of_other_lengths(config, tasks)
    with ThreadPoolExecutor(READ_AT_ONCE) as threads:
        finished = [*threads.map(is_finished, tasks)]
    todo = [task for task, done in zip(tasks, finished, strict=True) if not done]
    for task in todo:
        task.record_file.unlink(missing_ok=True)  # what stands there from now on was written in this prepare
    _prepare_parts(todo, tasks, config)
    others = [*dictionary_sources, *(source for one in tests for source in one.sources)]
    return _finish(config, texts, tasks, folder, identify(), dictionary_counts, others, broken)


def _prepare_parts(todo: Sequence[Task], tasks: Sequence[Task], config: RunConfig) -> None:
    """All at once; where pairs are capped, the second files of all pools wait for the first, and so on."""
    cap = config.data.max_pairs
    rounds = [task.number if cap and not task.pool.startswith("text/") else 0 for task in todo]
    for number in sorted(set(rounds)):
        ready = [task for task, its in zip(todo, rounds, strict=True) if its == number]
        _run_tasks([_capped(task, tasks, cap) for task in ready] if cap else ready, prepare_part, config.parallel)


def _capped(task: Task, tasks: Sequence[Task], max_pairs: int) -> Task:
    """A file of pairs with how many its pool lacks once the files before it are prepared."""
    if task.pool.startswith("text/"):
        return task
    before = [one for one in tasks if one.row_pool == task.row_pool and one.number < task.number]
    trained = [record["trained"] for one in before if (record := read_record(one)) is not None]
    return replace(task, max_pairs=max_pairs - sum(split["examples"] for split in trained if split))


def find_prepared(config: RunConfig) -> Prepared | None:
    """The shards of a recipe if they are finished, else None; makes nothing."""
    sources = [*chain(*find_sources(config.data, data_root(config)))]
    folder = data_folder(config, fingerprint_of(config, sources, InputHashes.of_output(local_folder(config.output))))
    fetch_listed(folder)
    return Prepared.open(folder) if (folder / MANIFEST).is_file() else None


def _split(sources: Sequence[Source], hashes: InputHashes, cuts: KeptCuts) -> list[Input]:
    with ThreadPoolExecutor(SPLIT_AT_ONCE) as threads:
        return [*threads.map(lambda source: split_source(source, hashes.of(source.files), cuts), sources)]


def _write_tokenizer(
    config: RunConfig, texts: Sequence[Input], translations: Mapping[str, Sequence[str]], folder: Path
) -> None:
    if tokenizer_is_whole(folder):
        return
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    data, settings = config.data, config.data.tokenizer
    if isinstance(settings, BpeTokenizer):
        tokenizer = wrap_tokenizer(train_bpe(settings, _sampler(data, texts, settings.sample_mib << 20)))
    elif isinstance(settings, REPLACING):
        sample = _sampler(data, texts, getattr(settings, "sample_mib", 1) << 20)
        tokenizer = replace_tokenizer(config, settings, translations, texts, sample, folder)
    else:
        given = given_folder(settings)
        tokenizer = framed(open_tokenizer(given.path))
        if wanted := given.new_pieces:
            lines = _sampler(data, texts, NEW_PIECES_SAMPLE)()
            unknown, backend = vocabulary(tokenizer).unknown, tokenizer.backend_tokenizer
            backend, rows = (
                extend_tokenizer(backend, lines, wanted, translations, unknown)
                if given.new_pieces_are == "words"
                else add_subwords(backend, lines, wanted, {unknown, *tokenizer.all_special_ids})
            )
            tokenizer = wrap_tokenizer(backend, like=tokenizer)
            write_json(folder / NEW_ROWS, rows)
    save_tokenizer(tokenizer, folder / "tokenizer")
    write_arrays(folder / REGULAR, lambda file: np.save(file, vocabulary(tokenizer).regular))
    written = [f"{TOKENIZER}/{path.name}" for path in (folder / TOKENIZER).iterdir()]
    write_json(
        folder / TOKENIZER_FILES, hash_files(folder, [*written, REGULAR, NEW_ROWS, START_ROWS, EXCHANGE])
    )  # last: it is all there


def _sampler(data: DataConfig, texts: Sequence[Input], limit: int) -> Callable[[], Iterator[str]]:
    """The beginning of each input, up to `limit` characters of each: the same lines each time it is called."""

    def lines() -> Iterator[str]:
        with PartsDone("reading for the tokenizer", dict.fromkeys(range(len(texts)), 0), part="input") as shown:
            for number, one in enumerate(texts):
                yield from beginning(one)
                shown.add(number)

    def beginning(one: Input) -> Iterator[str]:
        left = limit
        broken = [] if data.on_broken_file == "keep_rest_out" else None
        for record in (record for part in one.parts for record in read_part(part, one.languages, broken=broken)):
            if isinstance(record, BadRow):
                continue
            texts = record.paragraphs if isinstance(record, Document) else record.texts  # type: ignore[union-attr]
            for line in texts:
                yield line
                left -= len(line)
            if left <= 0:
                break

    return lines


def _align(config: RunConfig, texts: Sequence[Input], folder: Path) -> dict[int, Path]:
    """Aligns the corpora that ask for it, on the words that `prepare_part` will find: a folder by number in `texts`."""
    words = TokenizerSplitter(str(folder / "tokenizer"), longest_word(_shortest(config), 2))
    folders = {}
    for number, corpus in enumerate(config.data.parallel):
        if corpus.align:
            place = len(config.data.corpora) + number
            folders[place] = align_parts(
                texts[place],
                folder / "word_alignment" / str(number),
                words,
                named_aligner(corpus.align, corpus.languages, config.data.word_alignment),
                config.data.word_alignment,
                parallel=config.parallel,
                keep_rest_out=config.data.on_broken_file == "keep_rest_out",
            )
    return folders


def _tasks(config: RunConfig, texts: Sequence[Input], folder: Path, alignments: Mapping[int, Path]) -> list[Task]:
    numbers: dict[str, int] = {}
    tasks = []
    for place, one in enumerate(texts):
        for part_number, part in enumerate(one.parts):
            number = numbers[one.pool] = numbers.get(one.pool, -1) + 1
            tasks.append(
                Task(
                    folder=str(folder),
                    name=f"{one.pool}/part-{number:05d}",
                    pool=one.pool,
                    languages=one.languages,
                    part=part,
                    all_languages=tuple(config.languages),
                    capacity=config.data.capacity,
                    whole_documents=config.data.example == "document",
                    held_out_fraction=config.data.held_out_fraction,
                    filters=config.data.filters,
                    alignment=(str(alignments[place]), part_number) if place in alignments else None,
                    source=place,
                    keep_rest_out=config.data.on_broken_file == "keep_rest_out",
                    number=number,
                    shortest=_shortest(config),
                )
            )
    return tasks


def _shortest(config: RunConfig) -> int:
    """Capacity of the shortest rows of the recipe."""
    lengths = [length for _, length in row_lengths(config)]
    return min([config.data.capacity, *map(config.data.capacity_of, lengths)])


def _of_other_lengths(config: RunConfig, tasks: Sequence[Task]) -> list[Task]:
    """The same parts again, for stages that draw rows of another length than the recipe's own."""
    return [
        replace(
            task,
            name=f"{pool_at(task.pool, length)}/{task.name.rpartition('/')[2]}",
            capacity=config.data.capacity_of(length),
            row_length=length,
        )
        for pools, length in row_lengths(config)
        for task in tasks
        if task.pool.startswith(pools)
    ]


def _run_tasks(tasks: Sequence[Any], work: Callable[[Any], None], parallel: ParallelConfig) -> None:
    import ray.data

    from xalign_ray.data.placement import check_placement, placement

    if not tasks:
        return
    check_placement(parallel)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    numbers = ray.data.from_items([{"number": number} for number in range(len(tasks))], override_num_blocks=len(tasks))
    do_one: Any = partial(_do_numbered, tasks=list(tasks), work=work)
    title, noun, sizes_of = _SHOWN[work]
    done = []
    with PartsDone(title, dict(enumerate(sizes_of(tasks))), part=noun) as shown:
        for row in numbers.map(do_one, num_cpus=1, **placement(parallel)).iter_rows():
            done.append(row)
            shown.add(row["number"])
    _raise_faults(done)


def _part_bytes(tasks: Sequence[Task | TextTask]) -> list[float]:
    return count_bytes([task.part for task in tasks])


# What is shown of a pass: its title, what its tasks are, and how large each of them is.
_SHOWN: dict[Callable[[Any], None], tuple[str, str, Callable[[Any], Sequence[float]]]] = {
    hash_part: ("reading for duplicate lines", "part", _part_bytes),
    sign_part: ("reading for near-duplicates", "part", _part_bytes),
    find_duplicates: ("looking for duplicates", "partition", partition_bytes),
    prepare_part: ("preparing", "part", _part_bytes),
    parse_part: ("reading the sources", "part", _part_bytes),
}


def _raise_faults(done: Sequence[Mapping[str, Any]]) -> None:
    if faults := [row["fault"] for row in done if row["fault"]]:
        raise DataError("\n".join(dict.fromkeys(faults[:MAX_FAULTS])))


def _do_numbered(row: dict[str, Any], tasks: Sequence[Any], work: Callable[[Any], None]) -> dict[str, Any]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one CPU
    task = tasks[row["number"]]
    return {"number": row["number"], "fault": fault_of(lambda: work(task), Path(task.folder))}


def _finish(
    config: RunConfig,
    texts: Sequence[Input],
    tasks: Sequence[Task],
    folder: Path,
    fingerprint: str,
    dictionary_counts: dict[str, int],
    other_sources: Sequence[SourceSummary],
    dictionary_broken: Sequence[BrokenFile],
) -> dict[str, Any]:
    records = [(task, record) for task in tasks if (record := read_record(task)) is not None]
    if len(records) < len(tasks):
        raise DataError(
            f"{len(tasks) - len(records)} of {len(tasks)} parts were not prepared. Run `xalign prepare` again."
        )
    own = [(task, record) for task, record in records if task.row_length is None]  # others hold the same text again
    bad = merge_counts([record["bad_rows"] for _, record in own])
    merge_files([task.bad_rows_file for task, _ in own], folder / BAD_ROWS)
    merge_samples(_samples(own, len(texts)), folder / DROPPED)
    counts = merge_counts([record["counts"] for _, record in own])
    of_source: list[list[dict[str, Any]]] = [[] for _ in texts]
    for task, record in own:
        of_source[task.source].append(record)
    check_sources(texts, of_source, config.data.max_bad_fraction, folder / BAD_ROWS)
    check_trained(texts, of_source)
    backend = open_tokenizer(str(folder / "tokenizer"))
    special = asdict(vocabulary(backend))
    special.pop("regular")
    write_atomic(folder / "settings.json", json.dumps(data_settings(config), indent=1))
    shards: list[dict[str, Any]] = []
    pools, held_out = (_pools(records, split, shards) for split in ("trained", "held_out"))
    write_shard_table(folder, shards)
    sources = [*(summarize(*both) for both in zip(texts, of_source, strict=True)), *other_sources]
    broken = [one for _, record in own for one in record["broken_files"]] + [asdict(o) for o in dictionary_broken]
    manifest = seal(
        {
            "fingerprint": fingerprint,
            "languages": config.languages,
            "max_seq_length": config.data.max_seq_length,
            "vocabulary": {"size": len(backend), "special": special},
            "files": list_files(folder),
            "pools": pools,
            "held_out": held_out,
            "held_out_missing": missing_held_out(pools, held_out) if config.data.held_out_fraction else {},
            "counts": counts,
            "bad_rows": bad,
            "dictionary": dictionary_counts,
            "sources": as_fields(sources),
            "broken_files": broken,
        }
    )
    say_lines(manifest)
    return manifest


def _samples(records: Sequence[tuple[Task, dict[str, Any]]], sources: int) -> list[dict[Path, list[str]]]:
    """Of each source the files with samples of what was dropped, and the reasons in each."""
    files: list[dict[Path, list[str]]] = [{} for _ in range(sources)]
    for task, record in records:
        if record["dropped"]:
            files[task.source][task.dropped_file] = record["dropped"]
    return files


def _pools(records: Sequence[tuple[Task, dict[str, Any]]], split: str, shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Adds up each pool's parts of a split, and appends their shards, a pool's one after the other, to `shards`."""
    pools: dict[str, list[dict[str, Any]]] = {}
    for task, record in records:
        if record[split] is not None:
            pools.setdefault(task.row_pool, []).append(record)
    found = {}
    for name, parts in pools.items():
        mine = [shard for part in parts for shard in part[split]["shards"]]
        found[name] = {
            "shards": [len(shards), len(shards) + len(mine)],
            "rows": sum(shard["rows"] for shard in mine),
            "tokens": sum(part[split]["tokens"] for part in parts),
            "examples": sum(part[split]["examples"] for part in parts),
            **({"counts": merge_counts([part["counts"] for part in parts])} if split == "trained" else {}),
        }
        shards += mine
    return found
