"""Python's collector of cycles, kept from walking again and again over the 600,000 objects that imports leave."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = gc.get_threshold()


def spare_imports() -> None:
    """From now on it comes seldom: to import torch, transformers and Ray takes a fifth less; and not at the exit.

    A process would otherwise spend two seconds before its end on objects whose memory the system takes back anyway.
    """
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """For work that holds thousands of records: walking them again and again costs a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_as_usual() -> None:
    """For a loop of steps, in which cycles may hold tensors: they are to go soon."""
    gc.set_threshold(*USUAL)


def keep_what_lives() -> None:
    """For a loop that ends with its process: what set-up has made is looked at once more, and then never again."""
    gc.collect()
    gc.freeze()


def collect_now() -> None:
    """Where all ranks stop anyway: one that collects between two steps holds the others up."""
    gc.collect()
