"""Process-group setup of a Ray Train job: over loopback where one machine holds all workers, else as Ray does it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.train.backend import Backend, BackendConfig

from xalign_ray.private.ray import start_torch_group
from xalign_ray.work import process

LOOPBACK = "127.0.0.1"
PARTING_S = 30  # for leaving the group: a worker that has died keeps the others waiting


@dataclass
class ClosedTorchConfig(BackendConfig):
    """Ray Train's process group, whose store asks nobody who they are, out of other machines' reach where it can be.

    Torch is imported by the workers and not by Ray's controller, which only starts them.
    """

    on_gpu: bool
    timeout_s: int

    @property
    def backend_cls(self) -> type[Backend]:
        return _ClosedBackend


class _ClosedBackend(Backend):
    share_cuda_visible_devices: bool = True

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        assert isinstance(backend_config, ClosedTorchConfig)
        group = backend_config.on_gpu, backend_config.timeout_s
        if len(set(worker_group.execute(_node))) > 1:
            from xalign_ray.train.distributed import backend_of

            start_torch_group(worker_group, backend_of(backend_config.on_gpu), backend_config.timeout_s)
            return
        port, size = worker_group.execute_single(0, _listen), len(worker_group)
        ray.get([worker_group.execute_single_async(rank, _meet, rank, size, port, *group) for rank in range(size)])

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:  # noqa: ARG002 - Ray's signature
        with suppress(GetTimeoutError):
            ray.get(worker_group.execute_async(_leave), timeout=PARTING_S)


def _node() -> str:
    process.spare_imports()  # a worker's first words: torch is imported next
    return ray.get_runtime_context().get_node_id()


_listening: list[socket.socket] = []  # of rank 0, until the store takes it over


def _listen() -> int:
    """Opens the store's port before anybody asks for it, where torch would open it on every address of the machine."""
    _listening.append(socket.create_server((LOOPBACK, 0)))
    return _listening[0].getsockname()[1]


def _meet(rank: int, size: int, port: int, on_gpu: bool, timeout_s: int) -> None:
    import torch.distributed as dist

    from xalign_ray.train.distributed import backend_of, keep_to_loopback

    keep_to_loopback()
    here = {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "NODE_RANK": 0, "RANK": rank, "WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in here.items()}
    os.environ |= {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}
    timeout = timedelta(seconds=timeout_s)
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented all the same
        LOOPBACK,
        port,
        size,
        is_master=rank == 0,
        timeout=timeout,
        master_listen_fd=_listening.pop().detach() if rank == 0 else None,
    )
    dist.init_process_group(backend_of(on_gpu), store=store, rank=rank, world_size=size, timeout=timeout)


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
