"""Raw files to token shards: one Ray Data task a part, nothing shuffled between tasks, the manifest last."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from xalign_ray.artifacts import hash_file, hash_value, read_manifest, write_atomic, write_json, write_manifest
from xalign_ray.config.choices import BpeTokenizer
from xalign_ray.config.derive import data_settings
from xalign_ray.config.schema import DataConfig, RunConfig
from xalign_ray.data.examples import Cutter, Examples, cut_documents, cut_pairs, pack
from xalign_ray.data.inputs import Input, content_hashes, data_root, find_inputs
from xalign_ray.data.lexicon import write_lexicon
from xalign_ray.data.prepared import Prepared
from xalign_ray.data.quarantine import BAD_ROWS, Quarantine, check_tolerance, merge_counts, merge_files
from xalign_ray.data.shards import write_shard
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import BadRow, Document
from xalign_ray.data.sources.registry import explain_empty, read_part
from xalign_ray.data.tokenizer_folder import open_tokenizer, save_tokenizer, vocabulary, wrap_tokenizer
from xalign_ray.errors import DataError
from xalign_ray.text.tokenizer import train_bpe

SHARDS_VERSION = 2  # raise it when the same input would give other shards

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One part to be prepared: small, so that it travels to a worker; what is large lies in the folder."""

    folder: str
    name: str  # of the shard, below its pool
    pool: str
    languages: tuple[str, ...]
    part: Part
    all_languages: tuple[str, ...]
    capacity: int
    whole_documents: bool
    held_out_share: float


def prepare(config: RunConfig, verify: bool = False) -> Prepared:
    """The shards of a recipe: opened if they exist, made (or finished, or mended) if not.

    Args:
        verify: read every shard and compare hashes; without it a finished folder is taken as it is, and damage is found
            when a shard is first read.

    Raises:
        DataError, ConfigError: input that is missing, empty or worse than the tolerance.
    """
    texts, dictionaries = find_inputs(config.data, data_root(config))
    fingerprint = _fingerprint(config, texts + dictionaries)
    folder = _folder(config, fingerprint)
    if read_manifest(folder) is not None and not verify:
        return Prepared.open(folder)
    _write_tokenizer(config.data, texts, folder)
    tokenizer = open_tokenizer(str(folder / "tokenizer"))
    dictionary_counts = write_lexicon(config, dictionaries, tokenizer, folder)
    tasks = _tasks(config, texts, folder)
    todo = [task for task in tasks if _record(task) is None]
    if todo:
        log.info("prepare: %d of %d parts to do in %s", len(todo), len(tasks), folder)
        _run_tasks(todo)
    _finish(config, texts, tasks, folder, fingerprint, dictionary_counts)
    return Prepared.open(folder)


def find_prepared(config: RunConfig) -> Prepared | None:
    """The shards of a recipe if they are finished, else None; makes nothing."""
    texts, dictionaries = find_inputs(config.data, data_root(config))
    folder = _folder(config, _fingerprint(config, texts + dictionaries))
    return Prepared.open(folder) if read_manifest(folder) is not None else None


def _fingerprint(config: RunConfig, inputs: Sequence[Input]) -> str:
    return hash_value(
        {
            "settings": data_settings(config),
            "inputs": content_hashes(inputs),
            "tokenizer": _tokenizer_identity(config.data),
            "versions": {"shards": SHARDS_VERSION, "tokenizers": tokenizers.__version__},
        }
    )


def _folder(config: RunConfig, fingerprint: str) -> Path:
    return Path(config.output).absolute() / "data" / fingerprint[:12]


def _tokenizer_identity(data: DataConfig) -> str:
    if isinstance(data.tokenizer, BpeTokenizer):
        return "trained"
    return hash_value(json.loads(open_tokenizer(data.tokenizer.path).backend_tokenizer.to_str()))


def _write_tokenizer(data: DataConfig, texts: Sequence[Input], folder: Path) -> None:
    if (folder / "regular_pieces.npy").is_file():
        return
    settings = data.tokenizer
    if isinstance(settings, BpeTokenizer):
        tokenizer = wrap_tokenizer(train_bpe(settings, _sampler(texts, settings.sample_mib << 20)))
    else:
        tokenizer = open_tokenizer(settings.path)
    save_tokenizer(tokenizer, folder / "tokenizer")
    temporary = folder / ".regular_pieces.npy"
    np.save(temporary, vocabulary(tokenizer).regular)
    temporary.rename(folder / "regular_pieces.npy")


def _sampler(texts: Sequence[Input], limit: int) -> Callable[[], Iterator[str]]:
    """The beginning of each input, up to `limit` characters of each: the same lines each time it is called."""

    def lines() -> Iterator[str]:
        for one in texts:
            left = limit
            for record in (record for part in one.parts for record in read_part(part, one.languages)):
                if isinstance(record, BadRow):
                    continue
                sides = record.paragraphs if isinstance(record, Document) else record.sides  # type: ignore[union-attr]
                for line in sides:
                    yield line
                    left -= len(line)
                if left <= 0:
                    break

    return lines


def _tasks(config: RunConfig, texts: Sequence[Input], folder: Path) -> list[Task]:
    numbers: dict[str, int] = {}
    tasks = []
    for one in texts:
        for part in one.parts:
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
                    held_out_share=config.data.held_out_share,
                )
            )
    return tasks


def _record(task: Task) -> dict[str, Any] | None:
    """What a finished part says of itself, or None if it is not finished or a file of it is not as it was written."""
    path = Path(task.folder) / "parts" / f"{task.name}.json"
    if not path.is_file():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    files = [shard for shard in (record["trained"], record["held_out"]) if shard]
    whole = all((f := Path(task.folder) / s["file"]).is_file() and hash_file(f) == s["sha256"] for s in files)
    return record if whole else None


def _run_tasks(tasks: Sequence[Task]) -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    numbers = ray.data.from_items([{"number": number} for number in range(len(tasks))], override_num_blocks=len(tasks))
    done = numbers.map(partial(_prepare_numbered, tasks=list(tasks)), num_cpus=1).take_all()
    if faults := [row["fault"] for row in done if row["fault"]]:
        raise DataError(faults[0])


def _prepare_numbered(row: dict[str, Any], tasks: Sequence[Task]) -> dict[str, Any]:
    """What is wrong with the input is returned: Ray would wrap what is raised, and another try only meet it again."""
    task = tasks[row["number"]]
    try:
        prepare_part(task)
    except DataError as error:
        return {"name": task.name, "fault": str(error)}
    return {"name": task.name, "fault": ""}


def prepare_part(task: Task) -> None:
    """Reads, cuts, packs and writes one part: two shards at most, its bad rows, and its record, last."""
    folder = Path(task.folder)
    cutter = Cutter(
        backend=_open_backend(task.folder),
        languages=task.all_languages,
        entries=_open_entries(task.folder),
        capacity=task.capacity,
        whole_documents=task.whole_documents,
        held_out_share=task.held_out_share,
    )
    cut = cut_documents if task.pool.startswith("text/") else cut_pairs
    with Quarantine(folder / "parts" / f"{task.name}.bad.jsonl") as quarantine:

        def good() -> Iterator[Any]:
            for record in read_part(task.part, task.languages):
                if isinstance(record, BadRow):
                    quarantine.add(record)
                else:
                    yield record

        examples = cut(cutter, good())
    record = {
        "pool": task.pool,
        "trained": _write(examples, "trained", task, folder / "shards"),
        "held_out": _write(examples, "held_out", task, folder / "held_out"),
        "counts": dict(examples.counts),
        "bad_rows": dict(quarantine.counts),
    }
    write_json(folder / "parts" / f"{task.name}.json", record)


def _write(examples: Examples, split: str, task: Task, below: Path) -> dict[str, Any] | None:
    kept = getattr(examples, split)
    if not kept:
        return None
    rows = pack(kept, task.capacity, f"{split} {task.name}")
    path = below / f"{task.name}.parquet"
    groups = write_shard(rows, path)
    file = path.relative_to(task.folder).as_posix()
    return {
        "file": file,
        "sha256": hash_file(path),
        "groups": groups,
        "tokens": len(rows.pieces),
        "examples": len(kept),
    }


@lru_cache(maxsize=1)
def _open_backend(folder: str) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(f"{folder}/tokenizer/tokenizer.json")


@lru_cache(maxsize=1)
def _open_entries(folder: str) -> dict[tuple[int, str], int]:
    path = Path(folder) / "entries.json"
    listed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {(language, word): number for number, (language, word) in enumerate(listed)}


def _finish(
    config: RunConfig,
    texts: Sequence[Input],
    tasks: Sequence[Task],
    folder: Path,
    fingerprint: str,
    dictionary_counts: dict[str, int],
) -> None:
    records = [(task, record) for task in tasks if (record := _record(task)) is not None]
    if len(records) < len(tasks):
        raise DataError(
            f"{len(tasks) - len(records)} of {len(tasks)} parts were not prepared. Run `xalign prepare` again."
        )
    bad = merge_counts([record["bad_rows"] for _, record in records])
    merge_files([folder / "parts" / f"{task.name}.bad.jsonl" for task in tasks], folder / BAD_ROWS)
    counts = merge_counts([record["counts"] for _, record in records])
    good = counts.get("lines", 0) + counts.get("pairs", 0)
    check_tolerance(bad, good + sum(bad.values()), config.data.tolerance, folder / BAD_ROWS)
    for one in texts:
        if not any(record["trained"] for task, record in records if task.pool == one.pool):
            raise DataError(explain_empty(one.parts))
    backend = open_tokenizer(str(folder / "tokenizer"))
    special = asdict(vocabulary(backend))
    special.pop("regular")
    write_atomic(folder / "settings.json", json.dumps(data_settings(config), indent=1))
    write_manifest(
        folder,
        {
            "fingerprint": fingerprint,
            "languages": config.languages,
            "row_tokens": config.data.row_tokens,
            "vocabulary": {"size": len(backend), "special": special},
            "tokenizer_sha256": hash_file(folder / "tokenizer" / "tokenizer.json"),
            "pools": _pools(records),
            "held_out": _held_out(records),
            "counts": counts,
            "bad_rows": bad,
            "dictionary": dictionary_counts,
        },
    )


def _pools(records: Sequence[tuple[Task, dict[str, Any]]]) -> dict[str, Any]:
    pools: dict[str, Any] = {}
    for task, record in records:
        if record["trained"] is None:
            continue
        pool = pools.setdefault(task.pool, {"shards": [], "rows": 0, "tokens": 0, "examples": 0, "counts": {}})
        pool["shards"].append(record["trained"])
        pool["rows"] += sum(record["trained"]["groups"])
        pool["tokens"] += record["trained"]["tokens"]
        pool["examples"] += record["trained"]["examples"]
        pool["counts"] = merge_counts([pool["counts"], record["counts"]])
    return pools


def _held_out(records: Sequence[tuple[Task, dict[str, Any]]]) -> dict[str, Any]:
    held_out: dict[str, Any] = {}
    for task, record in records:
        if record["held_out"]:
            held_out.setdefault(task.pool, []).append(record["held_out"])
    return held_out
