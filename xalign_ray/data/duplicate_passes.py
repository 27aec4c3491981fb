"""The two passes before parts are prepared: hashes of every part, then what stood before, a task a partition.

A near-duplicate is found as a duplicate is: one of the hashes of its bands stood before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from xalign_ray.data.duplicates import Partition, count_partitions, find_duplicates
from xalign_ray.data.part import Task, hash_part, sign_part


class Run(Protocol):
    """Does the work of each task, on whatever machines."""

    def __call__(self, tasks: Sequence[Any], work: Callable[[Any], None]) -> None: ...


HASHED_BY = {"duplicates": hash_part, "near_duplicates": sign_part}


def with_duplicates(tasks: Sequence[Task], run: Run, kind: str = "duplicates") -> list[Task]:
    """The tasks with the files that list their duplicates of a kind, made where they are missing.

    Sources are read for it once. A pass that was interrupted goes on with what is left of it; at the end the hashes are
    removed, and the files of partitions stay, for parts that have to be prepared again.
    """
    pools = {pool: [task for task in tasks if task.pool == pool] for pool in dict.fromkeys(task.pool for task in tasks)}
    new = [members for members in pools.values() if not _found(members, kind)]
    run([task for members in new for task in members if not task.hashes_file(kind).is_file()], HASHED_BY[kind])
    partitions = [one for members in new for one in _partitions(members, kind)]
    run([one for one in partitions if not one.duplicates_file.is_file()], find_duplicates)
    for members in pools.values():
        for path in _folder(members).glob(f"*.{kind}.sorted_hashes"):
            path.unlink()
    files = {pool: tuple(map(str, _found(members, kind))) for pool, members in pools.items()}
    return [replace(task, **{kind: files[task.pool]}) for task in tasks]


def _folder(members: Sequence[Task]) -> Path:
    return members[0].record_file.parent


def _found(members: Sequence[Task], kind: str) -> list[Path]:
    """The files of a pool's partitions, in order; none if one is missing. Their names say how many there are."""
    files = sorted(_folder(members).glob(f"*-of-*.{kind}"))
    return files if files and len(files) == int(files[0].stem.rpartition("-")[2]) else []


def _partitions(members: Sequence[Task], kind: str) -> list[Partition]:
    files = [task.hashes_file(kind) for task in members]
    count = count_partitions(files)
    return [
        Partition(
            members[0].folder,
            tuple(map(str, files)),
            _folder(members) / f"{number:05d}-of-{count:05d}.{kind}",
            number,
            count,
        )
        for number in range(count)
    ]
