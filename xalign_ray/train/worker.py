"""Entry point of a Ray Train worker: its rows, the process group, the loop, and requests to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import ray.train
from ray import cloudpickle
from ray.exceptions import RayError

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError, LockError, TrainingError, XalignError
from xalign_ray.feed.batches import open_local
from xalign_ray.shards.prepared import Prepared
from xalign_ray.work.job import Job

if TYPE_CHECKING:
    from xalign_ray.train.loop import OpenBatches

ANSWER_S = 6.0  # for rank 0 to answer, after which it does not listen


def work(sent: dict[str, Any]) -> XalignError | None:
    """The train function. Errors that the loop raises on all ranks are returned: a retry would only meet them again."""
    config = RunConfig.model_validate(sent["config"])
    parallel = config.parallel.model_copy(update={"workers": ray.train.get_context().get_world_size()})
    config = config.model_copy(update={"parallel": parallel})
    prepared = Prepared.open(Path(sent["prepared_folder"]))
    open_rows, fields = _feed(prepared, config, sent["few_rows"])
    # Imported by workers alone: torch and its users would hold the driver up for two seconds.
    from xalign_ray.train.distributed import keep_freed_memory, setup_workers
    from xalign_ray.train.loop import train

    if config.parallel.gpus_per_worker:
        from ray.train.torch import get_device

        os.environ["LOCAL_RANK"] = str(get_device().index)  # which of those that it sees is its own
    workers = setup_workers(config.parallel)
    if not workers.on_gpu:
        keep_freed_memory()

    job = Job(
        Path(sent["job"]["folder"]),
        sent["job"]["identity"] | fields,
        sent["job"]["token"],
        trust=sent["trust"],
        stop_asked=hear_stop() if workers.rank == 0 else lambda: "",
        on_checkpoint=lambda step, metrics: ray.train.report({"step": step, **metrics}),
    )
    try:
        train(job, config, prepared, open_rows, workers)
    except (CheckpointError, LockError, TrainingError) as error:
        return error
    return None


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


def ask_to_stop(rank_zero: Callable[..., Any], why: str) -> bool:
    """Asks rank 0 of the workers that train, which may be on another machine, to save and end the job.

    Args:
        rank_zero: calls a function in rank 0, as the trainer's method does; gives no reference while there is none.
        why: a signal's name, or what stands for it.

    Returns:
        Whether a rank that takes steps has heard it.
    """
    if (answer := rank_zero(_hear, why)) is None:
        return False
    try:
        return ray.get(answer, timeout=ANSWER_S)
    except RayError:
        return False


_heard: list[str] = []
_listening = False


def hear_stop() -> Callable[[], str]:
    """Listens from now on in this process, rank 0's; gives the signal's name, empty while there is none."""
    global _listening
    _listening = True
    return lambda: _heard[0] if _heard else ""


def _hear(name: str) -> bool:
    if _listening:
        _heard.append(name)
    return _listening
