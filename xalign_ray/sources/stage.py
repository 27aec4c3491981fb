"""Stages of prepare: tasks on Ray Data, a sealed record a part, written last; what is whole is not made again.

Also the hashes of inputs: found once, and kept below the output folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, DataError, fault_of
from xalign_ray.sources.open import facts_of, open_bytes
from xalign_ray.sources.records import count_bytes
from xalign_ray.work.artifacts import (
    MANIFEST,
    check_file,
    hash_file,
    hash_value,
    is_sealed,
    seal,
    whole_json,
    whole_manifest,
    write_atomic,
    write_json,
)
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import fetch_listed
from xalign_ray.work.process import collecting_seldom
from xalign_ray.work.status_line import PartsDone
from xalign_ray.work.storage import is_stored

# Where data tasks run: on the nodes that have the recipe's custom Ray resource, or on any.

A_BIT = 0.001  # of the resource: it only marks a node, what runs there at once is bounded by its CPUs
PATIENCE_S = 120  # for a node that takes the place of one that died
_NOT_CUSTOM = ("CPU", "GPU", "memory", "object_store_memory")


def placement(parallel: ParallelConfig) -> dict[str, Any]:
    """Ray's resources of a data task or actor, besides its CPUs."""
    return {"resources": {parallel.data_resource: A_BIT}} if parallel.data_resource else {}


def check_placement(parallel: ParallelConfig) -> None:
    """Finds out whether a node of the joined cluster may run data tasks: Ray would wait for one without a word.

    Raises:
        ConfigError: none has the resource; lists those that there are.
    """
    name = parallel.data_resource
    if not name:
        return
    import ray  # here: what trains without a cluster imports this module too

    there = sorted(
        resource
        for resource in ray.cluster_resources()
        if resource not in _NOT_CUSTOM and not resource.startswith("node:")
    )
    if name not in there:
        raise ConfigError(
            f"parallel.data_resource is '{name}', but no node of the cluster has a custom resource of that name (there "
            f"is {', '.join(there) or 'none'}). Start the nodes that are to run data tasks with "
            f"ray start --resources='{json.dumps({name: 1})}', or set it to null to run them on any node."
        )


def wait_for_place(parallel: ParallelConfig) -> None:
    """As `check_placement`, in mid run: the last such node may have died, and another be on its way.

    Raises:
        ConfigError: none came within PATIENCE_S.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check_placement(parallel)
        except ConfigError:
            if time.monotonic() > until:
                raise
        time.sleep(1)


def set_data_context() -> None:
    """Executions of Ray Data from here on show no bars of their own, and wait for each other as long as it takes.

    By default one gives up after half an hour in which no task has ended and nobody has taken a block: a part of a
    large source with a teacher takes longer, and so does an evaluation in the middle of a training.
    """
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1


HINT = "Run `xalign prepare` again: it rebuilds what is damaged and nothing else."
READ_AT_ONCE = 8  # parts that are looked at, or files that are hashed: hashing lets go of the interpreter
GPU_SHARE = 0.25  # of a GPU, for a task with a model: four take turns, as each tokenizes between its forward passes
MAX_FAULTS = 10  # parts whose faults are reported at once


Made = tuple[Sequence[Path], dict[str, Any]]  # files that a task has made, and further fields of its record


def part_bytes(tasks: Sequence[Any]) -> Sequence[float]:
    """How much of its files each task on a part of a source reads."""
    return count_bytes([task.part for task in tasks])


@dataclass(frozen=True)
class StageStep:
    """What is done once for each task of a stage.

    A task is small, so that it travels to a worker. All that is made of it lies below its `folder`, in the files that
    `path(suffix)` names; of those on parts of sources `part` is the part.

    Attributes:
        title: of its progress line.
        work: makes the files of a task, from inputs and settings alone.
        sizes: of tasks, for the progress line.
        kind: goes before `.json` in the names of records; steps on the same tasks have different ones.
        noun: for a task.
        uses_gpu: whether a task runs a model, which is put on a GPU where the cluster has one.
    """

    title: str
    work: Callable[[Any], Made]
    sizes: Callable[[Any], Sequence[float]] = part_bytes
    kind: str = ""
    noun: str = "part"
    uses_gpu: Callable[[Any], bool] = lambda _: False

    def record(self, task: Any) -> Path:
        """Where the record of a task stands."""
        return task.path(f"{self.kind}.json")

    def is_whole(self, task: Any) -> bool:
        """Whether a task is done and its files are as they were written: reads them."""
        record = read_record(self.record(task))
        return record is not None and all(
            (file := Path(task.folder, name)).is_file() and hash_file(file) == expected
            for name, expected in record["files"].items()
        )


def run(step: StageStep, tasks: Sequence[Any], parallel: ParallelConfig) -> list[dict[str, Any]]:
    """Runs the tasks that are not done, on all machines. Stopped anywhere, it resumes with the rest.

    Returns:
        The records of all tasks, in their order.

    Raises:
        DataError: with the errors of the first tasks that failed.
    """
    with ThreadPoolExecutor(READ_AT_ONCE) as threads:
        done = [*threads.map(step.is_whole, tasks)]
    todo = [task for task, is_whole in zip(tasks, done, strict=True) if not is_whole]
    for task in todo:
        step.record(task).unlink(missing_ok=True)  # what stands there from now on was written now
    if todo:
        _run_tasks(todo, partial(_make, step), step, parallel)
    records = [record for task in tasks if (record := read_record(step.record(task))) is not None]
    if len(records) < len(tasks):
        raise DataError(
            f"{len(tasks) - len(records)} of {len(tasks)} parts were not prepared. Run `xalign prepare` again."
        )
    return records


def make_lacking(folders: Collection[Path], make: Callable[[Sequence[Path]], Mapping[Path, Mapping[str, Any]]]) -> None:
    """Makes the folders that recipes of an output share, where they are missing or damaged.

    Args:
        folders: of one stage: the lock on the folder that holds them is the lock on each.
        make: is given folders that are locked, and returns the manifest of each, with the hashes of its `files`.
    """
    for folder in folders:
        fetch_listed(folder)
    if not (lacking := sorted(folder for folder in folders if not _is_whole(folder))):
        return
    (home,) = {folder.parent for folder in lacking}
    with open_job(home, "prepare", upload=None) as stage:
        todo = [folder for folder in lacking if not (stage.waited and _is_whole(folder))]
        for folder in todo:
            (folder / MANIFEST).unlink(missing_ok=True)
        manifests = make(todo) if todo else {}
        for folder in todo:
            with open_job(folder, "prepare", upload="once finished") as job:
                job.finish(seal({**manifests[folder]}))


def _is_whole(folder: Path) -> bool:
    """Whether a folder is there and as it was written: reads it."""
    manifest = whole_manifest(folder, "files", "sha256")
    return manifest is not None and is_sealed(manifest) and hash_files(folder, manifest["files"]) == manifest["files"]


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a finished task; None if there is none, or a damaged one."""
    record = whole_json(path, "files", "sha256")
    return record if record is not None and is_sealed(record) else None


def _make(step: StageStep, task: Any) -> None:
    with collecting_seldom():
        files, facts = step.work(task)
    hashes = {file.relative_to(task.folder).as_posix(): hash_file(file) for file in files}
    write_json(step.record(task), seal(facts | {"files": hashes}))


def _run_tasks(tasks: Sequence[Any], work: Callable[[Any], None], step: StageStep, parallel: ParallelConfig) -> None:
    import ray.data

    check_placement(parallel)
    set_data_context()
    rows = ray.data.from_items(_as_rows(tasks), override_num_blocks=len(tasks))
    # Nodes that are for data alone have no GPU.
    on_gpu = any(map(step.uses_gpu, tasks)) and not parallel.data_resource and ray.cluster_resources().get("GPU", 0) > 0
    gpus = {"num_gpus": GPU_SHARE} if on_gpu else {}
    do_one: Any = partial(_do_row, work=work)
    done = []
    with PartsDone(step.title, dict(enumerate(step.sizes(tasks))), part=step.noun) as shown:
        for row in rows.map(do_one, num_cpus=1, **gpus, **placement(parallel)).iter_rows():
            done.append(row)
            shown.add(row["number"])
    _raise_faults(done)


def _raise_faults(done: Sequence[Mapping[str, Any]]) -> None:
    if faults := [row["fault"] for row in done if row["fault"]]:
        raise DataError("\n".join(dict.fromkeys(faults[:MAX_FAULTS])))


def _as_rows(tasks: Sequence[Any]) -> list[dict[str, Any]]:
    """A row a task: its part of the message to a worker; the work itself is shared."""
    from ray import cloudpickle

    dumps = cloudpickle.dumps  # pyright: ignore[reportPrivateImportUsage]
    return [{"number": number, "task": dumps(task)} for number, task in enumerate(tasks)]


def _do_row(row: dict[str, Any], work: Callable[[Any], None]) -> dict[str, Any]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one CPU
    task = pickle.loads(row["task"])
    return {"number": row["number"], "fault": fault_of(lambda: work(task), Path(task.folder))}


# ---- files of a prepared folder

TOKENIZER = "tokenizer"
TOKENIZER_FILES = "tokenizer_files.json"  # hashes of the tokenizer's inputs: prepare's record of that step
TESTS, DEV = "tests", "dev"  # folders of the pairs that are scored, and of those that choose a checkpoint
QUERY_AND_PASSAGE = "query", "passage"  # names of the two texts of a pair that is in one language
RECORDS = "records.json"  # hashes of the files that only prepare reads, as many as there are parts
REGULAR = "regular_pieces.npy"
NEW_ROWS = "new_rows.json"
START_ROWS = "start_rows.npz"
EXCHANGE = "exchange.json"  # how many rows start in each way, and pieces for a word before and after
OPENED = (
    "settings.json", REGULAR, NEW_ROWS, START_ROWS, EXCHANGE, "entries.json", "lexicon.npz", "pairs_trained.npz",
    "pairs_held_out.npz", "pair_words.json", "shards.arrow",
)  # fmt: skip
NOT_OPENED = ("bad_rows.jsonl", "dropped.jsonl", "dictionary_bad_rows.jsonl", TOKENIZER_FILES)
PARTS = "parts"

_checked: set[tuple[str, int, int, int, int, str]] = set()


def check_once(path: Path, expected: str) -> Path:
    """The path of a file whose bytes are those that were written; a process reads it for this once while it stays.

    Raises:
        DataError: it is missing or damaged.
    """
    if not path.is_file():
        check_file(path, expected, HINT)
    stat = path.stat()
    stamp = (str(path), stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, expected)
    if stamp not in _checked:
        check_file(path, expected, HINT)
        _checked.add(stamp)
    return path


def write_arrays(path: Path, save: Callable[[BinaryIO], None]) -> None:
    """Writes a file of arrays atomically: `save` is given what np.save or np.savez write into."""
    memory = io.BytesIO()
    save(memory)
    write_atomic(path, memory.getvalue())


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 by name of those files that are there."""
    sizes = {name: (folder / name).stat().st_size for name in sorted(names) if (folder / name).is_file()}
    hashes = {}
    with (
        ThreadPoolExecutor(READ_AT_ONCE) as threads,
        PartsDone("reading what is prepared", sizes, part="file") as shown,
    ):
        for name, digest in zip(sizes, threads.map(lambda name: hash_file(folder / name), sizes), strict=True):
            hashes[name] = digest
            shown.add(name)
    return hashes


def list_files(folder: Path) -> dict[str, str]:
    """The manifest's `files`: all that readers of a folder open, besides shards. Writes RECORDS for the others."""
    write_json(folder / RECORDS, hash_files(folder, [*NOT_OPENED, *_below(folder, PARTS)]))
    below = (name for part in (TOKENIZER, TESTS, DEV) for name in _below(folder, part))
    return hash_files(folder, [*OPENED, RECORDS, *below])


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Checks what readers open: that it is as it was written, and that nothing else is next to the tokenizer's files.

    Raises:
        DataError: names the file that is missing, damaged or too much.
    """
    for name, expected in files.items():
        check_once(folder / name, expected)
    if more := sorted(set(_below(folder, TOKENIZER)) - set(files)):
        raise DataError(f"{folder / more[0]} is not of this data: prepare did not write it. {HINT}")


def tokenizer_is_whole(folder: Path) -> bool:
    """Whether the step that wrote the tokenizer ended, and its files are as they were then."""
    written = whole_json(folder / TOKENIZER_FILES)
    return written is not None and written == hash_files(folder, {*written, *_below(folder, TOKENIZER)})


def is_as_written(folder: Path, manifest: Mapping[str, Any], shards: Mapping[str, str]) -> bool:
    """Reads every file of a finished folder: whether each is as it was written, and none beside the tokenizer's."""
    records = whole_json(folder / RECORDS) or {}
    listed = manifest["files"] | records | shards
    return hash_files(folder, listed) == listed and set(_below(folder, TOKENIZER)) <= set(listed)


def _below(folder: Path, place: str) -> list[str]:
    """Names of the files below a part of the folder; not those that somebody has yet to finish."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted((folder / place).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]


# ---- inputs

MEMORY = "inputs.json"  # in the output's data folder
SETTLED_S = 2  # a file that was written since may be written again within one tick of its disk's clock
TICK_S = 0.02  # longer than a tick of a local disk's clock
_HASHED_AT_ONCE = 16  # inputs; most of that is waiting for a disk or a store
_CHUNK = 4 << 20

Stamp = list[Any]


class InputHashes:
    """Known hashes of files, by path; of two processes with the same memory, one may lose its new entries.

    Args:
        memory: a JSON file; without it nothing is remembered.
    """

    def __init__(self, memory: Path | None) -> None:
        self._memory = memory
        self._found: dict[str, str] = {}

    @classmethod
    def of_output(cls, output: str | Path) -> InputHashes:
        """The memory of an output folder."""
        return cls(Path(output).absolute() / "data" / MEMORY)

    def forget(self) -> None:
        """Lets all files be read again."""
        if self._memory:
            self._memory.unlink(missing_ok=True)

    def of(self, paths: Sequence[str]) -> list[str]:
        """The SHA-256 of each file; of an object in a store that names versions that of its version: it is not read."""
        if distinct := [path for path in dict.fromkeys(paths) if path not in self._found]:
            self._find(distinct)
        return [self._found[path] for path in paths]

    def _find(self, distinct: Sequence[str]) -> None:
        with ThreadPoolExecutor(_HASHED_AT_ONCE) as threads:
            stamps = zip(distinct, threads.map(facts_of, distinct), strict=True)
            unread = {
                path: stamp for path, stamp in stamps if not stamp or self._entries.get(path, {}).get("stamp") != stamp
            }
            sizes = {path: (stamp[0] or 0 if stamp else 0) for path, stamp in unread.items()}
            with PartsDone("hashing the inputs", sizes, part="file") as shown:
                for path, entry in zip(unread, threads.map(_hash, unread, unread.values()), strict=True):
                    self._entries[path] = entry
                    shown.add(path)
        new = {path: self._entries[path] for path in unread if self._entries[path]["stamp"]}
        if new and self._memory:
            files = _read(self._memory) | new
            write_json(self._memory, {"files": files, "sha256": hash_value(files)})
        self._found |= {path: self._entries[path]["sha256"] for path in distinct}

    @cached_property
    def _entries(self) -> dict[str, Any]:
        return _read(self._memory) if self._memory else {}


def _hash(path: str, stamp: Stamp | None) -> dict[str, Any]:
    if stamp and is_stored(path):
        return {"stamp": stamp, "sha256": hash_value([path, stamp])}
    if stamp and len(stamp) == 4 and time.time() - stamp[2] / 1e9 < TICK_S:
        time.sleep(TICK_S)  # a change from now on has another ctime
    digest = hashlib.sha256()
    with open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return {"stamp": stamp if _is_settled(path, stamp) else None, "sha256": digest.hexdigest()}


def _read(memory: Path) -> dict[str, Any]:
    content = whole_json(memory, "files", "sha256")
    return content["files"] if content and content["sha256"] == hash_value(content["files"]) else {}


def _is_settled(path: str, before: Stamp | None) -> bool:
    """Whether a file that was just read was not written meanwhile, and can be told from one that will be."""
    return (
        before is not None
        and before == facts_of(path)
        and (len(before) < 4 or time.time() - before[1] / 1e9 > SETTLED_S)
    )
