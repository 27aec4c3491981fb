"""Entry point of a Ray Train worker: its rows, its process group, the loop, and requests to stop."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray.train
import ray.util
from ray import cloudpickle
from ray.train.backend import Backend, BackendConfig

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError, LockError, TrainingError, XalignError
from xalign_ray.feed.batches import open_local
from xalign_ray.private.ray import post, posted
from xalign_ray.shards.prepared import Prepared
from xalign_ray.work import process
from xalign_ray.work.job import Job

if TYPE_CHECKING:
    from ray.train import TrainContext

    from xalign_ray.train.loop import OpenBatches

LOOPBACK = "127.0.0.1"
LOOK_S = 0.2  # between two looks for a request to stop


# What a worker raises because of code, and not of a machine. Torch's errors are RuntimeErrors, of a lost peer as of a
# wrong shape: these are tried again.
_BUGS = (TypeError, AttributeError, LookupError, NameError, ValueError, AssertionError, ArithmeticError, ImportError)


def work(sent: dict[str, Any]) -> XalignError | None:
    """The train function. Errors that the loop raises on all ranks are returned: a retry would only meet them again.

    Raises:
        TrainingError: a programming error in this worker, with its line of code; the others may still work.
    """
    try:
        return _train(sent)
    except _BUGS as error:
        frames = traceback.extract_tb(error.__traceback__)
        users = [
            at for at in frames if "site-packages" not in at.filename and not at.filename.startswith(sys.base_prefix)
        ]
        at = (users or frames)[-1]
        raise TrainingError(
            f"A worker met an error in its code, which no retry mends. {type(error).__name__}: {error} "
            f"({at.filename}:{at.lineno}, in {at.name}: {at.line})"
        ) from error


def _train(sent: dict[str, Any]) -> XalignError | None:
    process.spare_imports()
    config, context = RunConfig.model_validate(sent["config"]), ray.train.get_context()
    parallel = config.parallel.model_copy(update={"workers": context.get_world_size()})
    config = config.model_copy(update={"parallel": parallel})
    prepared = Prepared.open(Path(sent["prepared_folder"]))
    open_rows, fields = _feed(prepared, config, sent["few_rows"])
    # Imported by workers alone: torch and its users would hold the driver up for two seconds.
    from xalign_ray.train.distributed import keep_freed_memory, setup_workers
    from xalign_ray.train.loop import train

    workers = setup_workers(config.parallel, _meeting_place(context, config.parallel.gpus_per_worker > 0))
    if not workers.on_gpu:
        keep_freed_memory()

    job = Job(
        Path(sent["job"]["folder"]),
        sent["job"]["identity"] | fields,
        sent["job"]["token"],
        trust=sent["trust"],
        stop_asked=hear_stop(sent["attempt"]) if workers.rank == 0 else lambda: "",
        on_checkpoint=lambda step, metrics: ray.train.report({"step": step, **metrics}),
    )
    try:
        train(job, config, prepared, open_rows, workers)
    except (CheckpointError, LockError, TrainingError) as error:
        return error
    workers.leave()
    return None


def _meeting_place(context: TrainContext, on_gpu: bool) -> socket.socket | None:
    """Sets the ranks and the address of the process group, as torchrun does; rank 0 listens there from now on.

    The store of a group asks nobody who they are, and torch would open it on every address of the machine: it is on
    loopback where one machine holds all workers, else on the address of rank 0's node.
    """
    size, of_node, listening = context.get_world_size(), context.get_local_world_size(), None
    if context.get_world_rank() == 0:
        address = LOOPBACK if of_node == size else ray.util.get_node_ip_address()
        listening = socket.create_server((address, 0))
    address, port = _from_rank_zero(listening and listening.getsockname()[:2])
    ranks = {"RANK": context.get_world_rank(), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": of_node}
    ranks |= {"LOCAL_RANK": context.get_local_rank(), "MASTER_ADDR": address, "MASTER_PORT": port}
    if on_gpu:
        from ray.train.torch import get_device

        ranks["LOCAL_RANK"] = get_device().index  # which of those that it sees is its own
    os.environ |= {name: str(value) for name, value in ranks.items()}
    return listening


class _SharedGpus(Backend):
    share_cuda_visible_devices = True


class SharedGpus(BackendConfig):
    """Has each worker see the GPUs of all on its node, as NCCL needs it; the workers meet by themselves."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _SharedGpus


def _feed(prepared: Prepared, config: RunConfig, few_rows: bool) -> tuple[OpenBatches, dict[str, Any]]:
    """The opener of a rank's rows, and the fields of a start event on it."""
    if few_rows:
        return lambda first_step, rank, _: open_local(prepared, config, first_step, rank), {}
    from xalign_ray.feed.on_ray import Feed, describe_feed, start_server

    # The executor's process imports its own while this one imports torch.
    server = start_server(prepared, config) if ray.train.get_context().get_world_rank() == 0 else None

    def open_rows(first_step: int, rank: int, _: int) -> Feed:
        return Feed(prepared, config, first_step, rank, _from_rank_zero, server)

    return open_rows, {"feed": describe_feed(prepared, config)}


def _from_rank_zero(value: Any) -> Any:
    """Rank 0's value on every rank; Ray's pickle knows actor handles."""
    import ray.train.collective

    sent = cloudpickle.dumps(value)  # pyright: ignore[reportPrivateImportUsage]
    return cloudpickle.loads(ray.train.collective.broadcast_from_rank_zero(sent))


def ask_to_stop(attempt: str, why: str) -> None:
    """Asks the workers of an attempt, which may be on other machines, to save and end the job.

    Args:
        attempt: its name.
        why: a signal's name, or what stands for it.
    """
    post(f"{attempt}/stop", why)


def asked_to_stop(attempt: str) -> str:
    """Why the workers of an attempt are to stop; empty while they are not."""
    return posted(f"{attempt}/stop")


def listens(attempt: str) -> bool:
    """Whether workers of an attempt have begun to take steps, after which they will see a request to stop."""
    return posted(f"{attempt}/listens") == "yes"


def has_failed(attempt: str) -> bool:
    """Whether the workers of an attempt have failed, and none that followed them takes steps yet."""
    return posted(f"{attempt}/listens") == "no"


def say_failed(attempt: str) -> None:
    """Says of an attempt that its workers have failed: nobody sees a request to stop until others take steps."""
    post(f"{attempt}/listens", "no")


def hear_stop(attempt: str) -> Callable[[], str]:
    """Listens from now on; gives why the workers are to stop, empty while they are not."""
    post(f"{attempt}/listens", "yes")
    heard, asked_at = "", -math.inf

    def asked() -> str:
        nonlocal heard, asked_at
        if not heard and time.monotonic() > asked_at + LOOK_S:
            asked_at = time.monotonic()
            heard = asked_to_stop(attempt)
        return heard

    return asked
