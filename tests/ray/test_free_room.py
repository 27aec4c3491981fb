"""Room beside what runs: counted node by node, and used by a run that finds the rest held."""

from __future__ import annotations

import pytest
import ray

from xalign_ray.config.schema import ParallelConfig
from xalign_ray.train.capacity import fit_free, has_free

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Held:
    """Whatever else runs on a cluster."""

    def is_there(self) -> bool:
        return True


def test_only_what_nothing_else_holds_is_free() -> None:
    cpus = int(ray.cluster_resources()["CPU"])
    parallel = ParallelConfig(workers=cpus, cpus_per_worker=1, min_workers=1)
    assert has_free(parallel, cpus)
    assert not has_free(parallel, cpus + 1)
    held = ray.remote(Held).options(num_cpus=cpus - 1).remote()
    try:
        assert ray.get(held.is_there.remote())
        assert has_free(parallel, 1)
        assert not has_free(parallel, 2)
        assert fit_free(parallel).workers == 1
        assert fit_free(parallel.model_copy(update={"min_workers": 2})).workers == 2
    finally:
        ray.kill(held)
