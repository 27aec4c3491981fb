"""What a state may hold that is read from a disk: tensors, plain values, and the few types that DeepSpeed writes."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile

from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from xalign_ray.errors import CheckpointError

ALLOWED = (  # beyond what torch allows by itself
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
)
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
        trusted: everything is read as it is.
        allowed: types, which are imported: those of DeepSpeed after `load_deepspeed`.

    Raises:
        CheckpointError: a file holds something else.
    """
    with _ONE_AT_A_TIME:
        if trusted:
            yield
            return
        known = [getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in allowed]
        before = {name: os.environ.pop(name, None) for name in (FORCED, NEVER)}
        os.environ[FORCED] = "1"
        try:
            with safe_globals(known):
                yield
        except pickle.UnpicklingError as error:
            raise CheckpointError(f"A file of the checkpoint is refused: it names {_named(error)}. {HINT}") from None
        finally:
            del os.environ[FORCED]
            os.environ |= {name: value for name, value in before.items() if value is not None}


def _named(error: Exception) -> str:
    """What the pickle wanted: torch says it in the middle of its advice."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return found[1] if found else "something that is no tensor and no plain value"
