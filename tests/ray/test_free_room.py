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
from xalign_ray.train.capacity import check_cluster, free_places

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Held:
    """Whatever else runs on a cluster."""

    def is_there(self) -> bool:
        return True


def test_places_are_what_nothing_else_holds_and_what_the_run_holds_itself() -> None:
    cpus = int(ray.cluster_resources()["CPU"])
    parallel = ParallelConfig(workers=cpus, cpus_per_worker=1, min_workers=1)
    held = ray.remote(Held).options(num_cpus=cpus - 1).remote()
    try:
        assert ray.get(held.is_there.remote())
        ((node, free),) = free_places(parallel, [], has_feed=False).items()
        assert free["CPU"] == pytest.approx(1)
        assert free_places(parallel, [node], has_feed=False)[node]["CPU"] == pytest.approx(2)
        assert free_places(parallel, [node], has_feed=True)[node]["CPU"] == pytest.approx(1)
        assert free_places(parallel.model_copy(update={"node_labels": {"role": "trains"}}), [], has_feed=False) == {}
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
    monkeypatch.setattr(stage, "PATIENCE_S", 1)
    with pytest.raises(ConfigError, match=sentence):
        stage.wait_for_place(recipe(settings).parallel)
