"""Free resources, counted node by node; a recipe that asks for what no node has is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import ray

from tests.ray.runs import on_ray
from tests.ray.small import CUSTOM, recipe
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.sources import stage
from xalign_ray.tokens.prepare import prepare
from xalign_ray.train.capacity import check_cluster, has_free_place, most_workers

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Held:
    """Whatever else runs on a cluster."""

    def is_there(self) -> bool:
        return True


def test_most_workers_leave_the_feed_its_cpu_and_a_free_place_is_what_nothing_else_holds() -> None:
    cpus = int(ray.cluster_resources()["CPU"])
    parallel = ParallelConfig(workers=2 * cpus, cpus_per_worker=1, min_workers=1)
    assert most_workers(parallel) == cpus - 1
    assert most_workers(parallel.model_copy(update={"min_workers": cpus})) == 0
    elsewhere = parallel.model_copy(update={"ray": {"label_selector": {"role": "trains"}}})
    assert (most_workers(elsewhere), has_free_place(elsewhere)) == (0, False)
    held = ray.remote(Held).options(num_cpus=cpus - 1).remote()
    try:
        assert ray.get(held.is_there.remote())
        assert has_free_place(parallel)
        assert not has_free_place(parallel.model_copy(update={"cpus_per_worker": 1.5}))
    finally:
        ray.kill(held)


def test_resource_of_no_node_is_refused_before_anything_waits(
    world: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = re.escape(
        "parallel.data_resource is 'raeder', but no node of the cluster has a custom resource of that name (there is "
        + CUSTOM
        + "). Start the nodes that are to run data tasks with ray start --resources='{\"raeder\": 1}', or set it to "
        "null to run them on any node."
    )
    settings = [*world, "parallel.data_resource=raeder"]
    with pytest.raises(ConfigError, match=sentence):
        prepare(recipe(settings, f"output={tmp_path}"))
    with pytest.raises(ConfigError, match=sentence):
        check_cluster(recipe(settings).parallel)
    with pytest.raises(ConfigError, match=r"workers 8 x .*cpus_per_worker 1 and 1 CPU for the feed are 9 CPUs; the cl"):
        on_ray(recipe(settings[:-1], "parallel.workers=8", "parallel.cpus_per_worker=1"), tmp_path)
    with pytest.raises(ConfigError, match=r"parallel.ray: Ray Train's ScalingConfig cannot read it: .*'placement'"):
        on_ray(recipe(settings[:-1], "parallel.ray.placement=SPREAD"), tmp_path)
    monkeypatch.setattr(stage, "PATIENCE_S", 1)
    with pytest.raises(ConfigError, match=sentence):
        stage.wait_for_place(recipe(settings).parallel)
