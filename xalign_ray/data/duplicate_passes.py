"""The two passes before parts are prepared: hashes of every part, then what stood before, a task a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from xalign_ray.data.duplicates import Partition, count_partitions, find_duplicates
from xalign_ray.data.part import Task, hash_part


class Run(Protocol):
    """Does the work of each task, on whatever machines."""

    def __call__(self, tasks: Sequence[Any], work: Callable[[Any], None]) -> None: ...


def with_duplicates(tasks: Sequence[Task], run: Run) -> list[Task]:
    """The tasks with the files that list their duplicates, made where they are missing.

    Sources are read for it once. A pass that was interrupted goes on with what is left of it; at the end the hashes are
    removed, and the files of partitions stay, for parts that have to be prepared again.
    """
    pools = {pool: [task for task in tasks if task.pool == pool] for pool in dict.fromkeys(task.pool for task in tasks)}
    new = [members for members in pools.values() if not _found(members)]
    run([task for members in new for task in members if not task.hashes_file.is_file()], hash_part)
    partitions = [one for members in new for one in _partitions(members)]
    run([one for one in partitions if not one.duplicates_file.is_file()], find_duplicates)
    for members in pools.values():
        for path in _folder(members).glob("*.sorted_hashes"):
            path.unlink()
    files = {pool: tuple(map(str, _found(members))) for pool, members in pools.items()}
    return [replace(task, duplicates=files[task.pool]) for task in tasks]


def _folder(members: Sequence[Task]) -> Path:
    return members[0].record_file.parent


def _found(members: Sequence[Task]) -> list[Path]:
    """The files of a pool's partitions, in order; none if one is missing. Their names say how many there are."""
    files = sorted(_folder(members).glob("*-of-*.duplicates"))
    return files if files and len(files) == int(files[0].stem.rpartition("-")[2]) else []


def _partitions(members: Sequence[Task]) -> list[Partition]:
    files = [task.hashes_file for task in members]
    count = count_partitions(files)
    return [
        Partition(
            members[0].folder,
            tuple(map(str, files)),
            _folder(members) / f"{number:05d}-of-{count:05d}.duplicates",
            number,
            count,
        )
        for number in range(count)
    ]
