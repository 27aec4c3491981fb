"""How the workers of a Ray Train job meet: over loopback where one machine holds them all, else as Ray does it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig
from ray.train.torch.config import _set_torch_distributed_env_vars, _TorchBackend
from torch._C._distributed_c10d import TCPStore

from xalign_ray.train.distributed import keep_to_loopback

LOOPBACK = "127.0.0.1"


@dataclass
class ClosedTorchConfig(TorchConfig):
    """Ray Train's process group, whose store asks nobody who they are, out of other machines' reach where it can be."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _ClosedBackend


class _ClosedBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        nodes = worker_group.execute(_node)
        if len(set(nodes)) > 1:
            super().on_start(worker_group, backend_config)
            return
        worker_group.execute(_set_torch_distributed_env_vars)
        port = worker_group.execute_single(0, _listen)
        group = {"backend": backend_config.backend, "timeout_s": backend_config.timeout_s}
        size = len(worker_group)
        ray.get([worker_group.execute_single_async(rank, _meet, rank, size, port, **group) for rank in range(size)])


def _node() -> str:
    return ray.get_runtime_context().get_node_id()


_listening: list[socket.socket] = []  # of rank 0, until the store takes it over


def _listen() -> int:
    """Opens the store's port before anybody asks for it, where torch would open it on every address of the machine."""
    _listening.append(socket.create_server((LOOPBACK, 0)))
    return _listening[0].getsockname()[1]


def _meet(rank: int, size: int, port: int, backend: str, timeout_s: int) -> None:
    keep_to_loopback()
    os.environ |= {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}
    store = TCPStore(
        LOOPBACK,
        port,
        size,
        is_master=rank == 0,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=_listening.pop().detach() if rank == 0 else None,
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s))
