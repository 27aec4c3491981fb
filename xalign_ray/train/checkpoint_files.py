"""Files of a checkpoint: copied to host memory, written in the background, and read without running code."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from xalign_ray.errors import CheckpointError
from xalign_ray.private.deepspeed import ALLOWED
from xalign_ray.private.torch import map_tensors
from xalign_ray.work.artifacts import hash_file

_READ_OTHERWISE = re.compile(r"[][*?(){}+^$|\\]")  # by glob or by re


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder, or inside the block a temporary link to it where its path has characters such as `[` or `*`."""
    folder = folder.absolute()
    if not _READ_OTHERWISE.search(str(folder)):
        yield folder
        return
    temporary = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir="/tmp" if _READ_OTHERWISE.search(temporary) else temporary) as parent:
        link = Path(parent) / "folder"
        link.symlink_to(folder)
        yield link


Part = tuple[Path, Any]  # a file, and the value that `torch.save` is to write to it


def copy_to_host(state: Any) -> Any:
    """A copy of the value on the host, which later steps do not change; tensors shared in it stay shared.

    A GPU's tensors go to pinned memory, and may be on their way: wait for the device before they are read.
    """
    copies: dict[tuple[Any, ...], torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if key not in copies:
            copies[key] = value.detach().to("cpu", non_blocking=True, copy=True)
        return copies[key]

    return map_tensors(copy, state)


def write_parts(parts: Sequence[Part]) -> dict[Path, str]:
    """Writes each part to the disk, down to the last byte, and forgets it.

    Returns:
        The SHA-256 of each file.

    Raises:
        OSError, RuntimeError: the system's error, such as of a full disk.
    """
    hashes = {}
    for path, state in parts:
        try:
            with path.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            raise _root(error) from None
        hashes[path] = hash_file(path)
    return hashes


def _root(error: OSError | RuntimeError) -> OSError | RuntimeError:
    """The system's error: torch hides it behind an error about its file format."""
    context = error.__context__
    return _root(context) if isinstance(context, OSError | RuntimeError) else error


_ONE_AT_A_TIME = threading.Lock()  # what torch goes by is the whole process's: its environment, its list of types
FORCED, NEVER = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
HINT = (
    "The files of a checkpoint are pickles, which can run any code: this one was not written by xalign-ray, or by "
    "another version of it. If you know who wrote it and trust them, say --trust."
)


def check_pickles(files: Iterable[Path]) -> None:
    """Looks into pickles without reading them.

    Raises:
        CheckpointError: one names something to call that is not in `ALLOWED`, or cannot be looked into.
    """
    for file in files:
        try:
            unsafe = set(get_unsafe_globals_in_checkpoint(file)) - set(ALLOWED)
        except (ValueError, RuntimeError, EOFError, BadZipFile, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{file} cannot be read: {str(error).partition('.')[0]}. {HINT}") from None
        if unsafe:
            raise CheckpointError(f"{file} is refused: it names {', '.join(sorted(unsafe))}. {HINT}")


@contextmanager
def only_data(trusted: bool = False, allowed: Sequence[str] = ALLOWED) -> Iterator[None]:
    """Inside, torch.load gives nothing but tensors, plain values and `allowed`, whatever its caller asks for.

    DeepSpeed's loaders ask for everything; this holds for them and for processes that they start. Threads wait for each
    other.

    Args:
        trusted: everything is read, without checks.
        allowed: types, which are imported: DeepSpeed's after `load_deepspeed`.

    Raises:
        CheckpointError: a file holds something else.
    """
    with _ONE_AT_A_TIME:
        if trusted:
            yield
            return
        types = [getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in allowed]
        before = {name: os.environ.pop(name, None) for name in (FORCED, NEVER)}
        os.environ[FORCED] = "1"
        try:
            with safe_globals(types):
                yield
        except pickle.UnpicklingError as error:
            raise CheckpointError(f"A file of the checkpoint is refused: it names {_named(error)}. {HINT}") from None
        finally:
            del os.environ[FORCED]
            os.environ |= {name: value for name, value in before.items() if value is not None}


def _named(error: Exception) -> str:
    """The type that the pickle names: torch has it in the middle of its advice."""
    match = re.search(r"GLOBAL (\S+)", str(error))
    return match[1] if match else "something that is no tensor and no plain value"
