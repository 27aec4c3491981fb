"""Groups of real worker processes that run one function after another: starting them costs seconds, a run does not."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train.distributed import Workers, setup_workers


class Pool:
    """`size` processes with a group between them; the same function is called in all of them."""

    def __init__(self, size: int, gpus: int = 0) -> None:
        """`gpus` is 1 for processes that train on one each, else 0."""
        context = multiprocessing.get_context("spawn" if gpus else "forkserver")  # a GPU is not to be forked
        if not gpus:
            context.set_forkserver_preload(["tests.parity.train.warm"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, port, theirs, gpus), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """`function(workers, *arguments)` in every process; raises what rank 0 raised, else what another did."""
        for pipe in self._pipes:
            pipe.send((function, arguments))
        answers = [pipe.recv() for pipe in self._pipes]
        for error, shown, _ in answers:
            if error is not None:
                raise error from RuntimeError(shown)
        return [value for _, _, value in answers]

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)


def _serve(rank: int, size: int, port: int, pipe: Connection, gpus: int) -> None:
    if size > 1:  # as torchrun says it; one alone is a plain process, which nobody tells anything
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers: Workers = setup_workers(ParallelConfig(workers=size, gpus_per_worker=gpus))
    while (job := pipe.recv()) is not None:
        function, arguments = job
        try:
            pipe.send((None, "", function(workers, *arguments)))
        except Exception as error:
            pipe.send((error, traceback.format_exc(), None))
    dist.destroy_process_group()
