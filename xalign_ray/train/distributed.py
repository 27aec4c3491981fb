"""Worker processes of a job: their ranks, process group, memory, and the few numbers they exchange."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, TrainingError, first_sentence
from xalign_ray.work import process

_HERE, _LOOK_S = "processes that have come", 0.5
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt, in malloc.h
# oneDNN caches a kernel for each number of labels, and ideep another, up to 1,024 of each. They fragment the memory
# that a step frees, so that no large block fits any more: 2.1 GB in use became 8 in 100 steps.
_KERNELS_KEPT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16", "LRU_CACHE_CAPACITY": "16"}  # read at the first bf16 product


def keep_freed_memory() -> bool:
    """Makes the C library keep freed memory instead of returning it to the system.

    The table's gradient and the logits of a large vocabulary are some hundred MB each. By default they are mapped anew
    in each step, and zeroing those pages is a third of it (4 layers of 256, 119,000 pieces); kept, they are there. In
    exchange the resident memory of the process stays at its peak, which is larger by a third, or twice as large where
    micro-steps differ much in their labels (word exchange over 30,000 pieces: 0.7 GB in use, 1.6 GB held); and its
    address space at its peak too, untouched pages included: after some trainings the system refuses to fork
    it. So this is for processes that train once and end, never for a program that calls us. Few of oneDNN's kernels are
    kept, since they would fragment the freed memory.

    Returns:
        Whether the C library can: glibc.
    """
    for name, most in _KERNELS_KEPT.items():
        os.environ.setdefault(name, most)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))


@dataclass(frozen=True)
class Workers:
    """One process of the job, as it sees itself and the others. Every method is called by all ranks or by none."""

    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def on_gpu(self) -> bool:
        """Whether the model lives on a GPU."""
        return self.device.type == "cuda"

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise sum over the ranks, in float64; the order of the sum is the same on every rank.

        It goes over the hosts: it does not wait for the work queued on a GPU.
        """
        return self.sum_on_device(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum_on_device(self, values: torch.Tensor) -> torch.Tensor:
        """The same of a tensor, where it is; on a GPU nothing waits for it."""
        total = values.to(torch.float64, copy=True)
        dist.all_reduce(total)
        return total

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over the ranks in its own precision, in place."""
        dist.all_reduce(values)
        return values

    def sum_of_part(self, values: torch.Tensor) -> torch.Tensor:
        """Of the sum of a flat tensor over the ranks, the rank's one of as many equal stretches; may be a view."""
        if self.size == 1:
            return values
        part = values.new_empty(values.numel() // self.size)
        dist.reduce_scatter_tensor(part, values)
        return part

    def join_parts(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        """Puts every rank's stretch of a flat tensor into it; `part` may be a view into `whole`."""
        if self.size > 1:
            dist.all_gather_into_tensor(whole, part)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value (small, picklable), in order of rank."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def concatenate(self, rows: torch.Tensor, sizes: Sequence[int] | None = None) -> torch.Tensor:
        """Every rank's rows [n, ...], concatenated in order of rank; n may differ from rank to rank.

        Args:
            sizes: n of each rank where it is known; else it is gathered first.
        """
        sizes = self.gather(len(rows)) if sizes is None else sizes
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def barrier(self) -> None:
        """Waits until every rank is here."""
        self.sum([0.0])

    def leave(self) -> None:
        """Ends the process group."""
        dist.destroy_process_group()


def split_hash(value: int) -> tuple[float, float]:
    """A 64-bit number as two 32-bit halves, which float64 adds exactly over up to two million ranks."""
    return float(value & 0xFFFFFFFF), float(value >> 32)


def combine_hash(low: float, high: float) -> int:
    """The sum modulo 2^64 of numbers whose halves were summed."""
    return (int(low) + (int(high) << 32)) % 2**64


def setup_workers(parallel: ParallelConfig, listening: socket.socket | None = None) -> Workers:
    """Sets up the process group of the job that this process was started for: by Ray Train, by torchrun, or alone.

    The environment names the ranks; a plain process becomes a group of one that no other machine reaches. GPUs are used
    if `parallel.gpus_per_worker` is above 0.

    Args:
        listening: the socket at which rank 0 is met, where it has opened one itself.

    Raises:
        ConfigError: the recipe wants a GPU that is not there, or another number of workers than were started.
    """
    on_gpu = parallel.gpus_per_worker > 0
    if on_gpu and not torch.cuda.is_available():
        raise ConfigError(
            f"parallel.gpus_per_worker is {parallel.gpus_per_worker:g}, but this process sees no GPU; set it to 0 to "
            "train on the CPU."
        )
    local_rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        # A sum over threads depends on their number: the recipe sets it, not the machine.
        torch.set_num_threads(max(1, int(parallel.cpus_per_worker)))
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"  # gloo for the host's tensors, NCCL for a GPU's
        _start_group(backend, timedelta(seconds=parallel.group_timeout_s), listening)
    if dist.get_world_size() != parallel.workers:
        raise ConfigError(
            f"parallel.workers is {parallel.workers}, but {dist.get_world_size()} were started; "
            f"set parallel.workers={dist.get_world_size()} or start {parallel.workers}."
        )
    return Workers(dist.get_rank(), dist.get_world_size(), local_rank, device)


def _start_group(backend: str, timeout: timedelta, listening: socket.socket | None) -> None:
    rank, size = process.launched()
    if os.environ.get("LOCAL_WORLD_SIZE", "1") == str(size):
        keep_to_loopback()
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has all processes
        dist.init_process_group(backend, timeout=timeout)
        return
    store = _meet(rank, size, timeout, listening) if size > 1 else dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


def _meet(rank: int, size: int, timeout: timedelta, listening: socket.socket | None) -> dist.Store:  # pyright: ignore[reportPrivateImportUsage]
    """The store of the process group, when all processes have come.

    Waits in Python, where a stop signal ends it: torch waits in C++, and no handler of Python's runs.

    Raises:
        ConfigError: the environment names no address to meet at, or the address is taken.
        TrainingError: some have not come in time.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        raise ConfigError(
            f"WORLD_SIZE is {size}, and MASTER_ADDR and MASTER_PORT name no address where the processes meet. Unset "
            "RANK and WORLD_SIZE to train in one process, or start all processes with torchrun."
        )
    ends = time.monotonic() + timeout.total_seconds()

    def wait_for(missing: Callable[[], str]) -> None:
        reported = ""
        while lacking := missing():
            if time.monotonic() > ends:
                raise TrainingError(f"{lacking} did not come within {timeout.total_seconds():,.0f} s.")
            if lacking != reported:
                sys.stderr.write(  # only the first rank prints by `say`
                    f"Rank {rank} waits for {lacking}, at most {ends - time.monotonic():,.0f} s. To train in one "
                    "process, unset RANK and WORLD_SIZE.\n"
                )
                sys.stderr.flush()
            reported = lacking
            time.sleep(_LOOK_S)

    def rank_zero() -> str:
        with suppress(OSError), socket.create_connection((address, int(port)), timeout=_LOOK_S):
            return ""
        return f"rank 0 of {size} processes (WORLD_SIZE) at {address}:{port}"

    if rank:
        wait_for(rank_zero)
    try:
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented all the same
            address, int(port), is_master=rank == 0, timeout=timeout, wait_for_workers=False,
            master_listen_fd=listening.detach() if listening else None,
        )  # fmt: skip
    except dist.DistNetworkError as error:
        raise ConfigError(f"The processes cannot meet at MASTER_ADDR:MASTER_PORT: {first_sentence(error)}") from None
    store.add(_HERE, 1)
    wait_for(
        lambda: f"{lacking} more of {size} processes (WORLD_SIZE)" if (lacking := size - store.add(_HERE, 0)) else ""
    )
    return store


def keep_to_loopback() -> None:
    """Binds Gloo and NCCL to loopback before a group starts: they do not authenticate peers.

    By default they listen at the address of the machine's host name. Variables that the user has set stay.
    """
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", loopback)
