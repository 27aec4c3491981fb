"""This process: its stop signals, which interrupt it or wait for the end of a step, and Python's collector of cycles.

The first of SIGTERM, SIGINT and SIGHUP interrupts the main thread with KeyboardInterrupt, the one exception that Ray,
click and torch let through. Inside `heeded` it only leaves a word, which the training loop looks for at each step; a
second one interrupts.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from xalign_ray.errors import ConfigError, StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAME_STOP_S = 1.0  # one stop often comes twice: a terminal signals torchrun and its workers, then torchrun the workers


@dataclass
class _Stop:
    """What this process was asked."""

    name: str = ""  # of the first signal
    at: float = 0.0
    heeded: bool = False  # whether somebody waits for the word
    interrupted: bool = False
    urgent: bool = False


_stop = _Stop()


def launched() -> tuple[int, int]:
    """Rank of this process and number of processes, as torchrun sets RANK and WORLD_SIZE; 0 and 1 where neither is set.

    Raises:
        ConfigError: only one of the two is set, or the rank is not below the number of processes.
    """
    ranks = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE") if name in os.environ}
    if not ranks:
        return 0, 1
    if len(ranks) == 2 and all(value.isdecimal() for value in ranks.values()):
        rank, size = map(int, ranks.values())
        if rank < size:
            return rank, size
    shown = " ".join(f"{name}={value}" for name, value in ranks.items())
    raise ConfigError(
        f"{shown} in the environment is no rank of a number of processes, such as RANK=0 WORLD_SIZE=2. Unset RANK and "
        "WORLD_SIZE to train in one process, or start all processes with torchrun."
    )


def asked() -> str:
    """Name of the signal that asked this process to stop, empty if none did."""
    return _stop.name


def was_interrupted() -> bool:
    """Whether a signal has interrupted the main thread."""
    return _stop.interrupted


def exit_code(name: str) -> int:
    """143 for SIGTERM, as shells, Slurm and Kubernetes know it; 1 for the others."""
    return 128 + signal.SIGTERM if name == "SIGTERM" else 1


@contextmanager
def listened() -> Iterator[None]:
    """Inside, the first stop signal interrupts the main thread. SIGHUP stays ignored where it was (nohup)."""
    global _stop
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is _on_signal:
        yield
        return
    _stop = _Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _install(ignored={number for number, handler in before.items() if handler is signal.SIG_IGN})
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heeded() -> Iterator[None]:
    """Inside, the first stop signal only leaves its name for `asked`, and the second interrupts.

    A word that nobody has acted on by the end interrupts then. Does nothing in other threads than the main one.
    """
    with listened():
        if _stop.heeded or threading.current_thread() is not threading.main_thread():
            yield
            return
        _stop.heeded = True
        try:
            yield
        finally:
            _stop.heeded = False
        if _stop.name:
            interrupt()


@contextmanager
def kept() -> Iterator[None]:
    """Inside, a library starts processes and must not be broken off in the middle: a signal interrupts afterwards.

    A second one interrupts at once. The processes do not get SIGHUP, which a closed terminal sends to all that were
    started from it; handlers that the library has installed give way to ours.
    """
    ours = signal.getsignal(signal.SIGTERM) is _on_signal
    ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with heeded() if ours else nullcontext():
            yield
    finally:
        if ours and threading.current_thread() is threading.main_thread():
            _install(ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, or in a function that it decorates, stop signals act as in the command line, for programs.

    Ctrl-C is KeyboardInterrupt, with the saved step if there is one. SIGTERM and SIGHUP leave by SystemExit with the
    command line's exit codes, so that the interpreter ends in order. A lost lock interrupts where Ctrl-C is ignored.
    Only the main thread can hear signals.
    """
    with listened():
        try:
            yield
        except (KeyboardInterrupt, StoppedError) as stopped:
            name = asked() or "SIGINT"
            sentence = str(stopped) or f"Interrupted ({name}). The same call goes on."
            if name == "SIGINT":
                raise KeyboardInterrupt(sentence) from None
            sys.stderr.write(f"{sentence}\n")
            raise SystemExit(exit_code(name)) from None


def interrupt() -> None:
    """Interrupts the main thread, which must be the caller: for those who act on a signal."""
    _stop.interrupted, _stop.urgent, _stop.at = True, False, time.monotonic()
    raise KeyboardInterrupt


def ending() -> None:
    """Cleanup of a process that was stopped, such as shutting a cluster down; a second signal interrupts it too."""
    _stop.interrupted = True
    _install(ignored={number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN})


def interrupt_now() -> None:
    """From another thread: interrupts the main thread, also inside `heeded`: it must not continue."""
    _stop.urgent = True
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def _install(ignored: set[signal.Signals]) -> None:
    for number in SIGNALS:
        if number not in ignored or number is not signal.SIGHUP:
            signal.signal(number, _on_signal)


def _on_signal(number: int, _: object) -> None:
    if _stop.urgent:
        interrupt()
    now, first = time.monotonic(), not _stop.name
    if first:
        _stop.name, _stop.at = signal.Signals(number).name, now
        if not _stop.heeded:
            interrupt()
    elif now - _stop.at > SAME_STOP_S:
        if _stop.interrupted:  # it does not come to its end
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        interrupt()


# Python's collector of cycles is kept from walking again and again over the 600,000 objects that imports leave.
USUAL = gc.get_threshold()


def spare_imports() -> None:
    """From now on it comes seldom, and not at the exit, where the system takes back all memory anyway.

    To import torch, transformers, Ray and DeepSpeed, and to end, takes 5.3 CPU seconds in place of 7.8.
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
