"""The Kubernetes manifests in cluster/ fit their schemas, and a typo in one is found."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages import text_of
from tests.unit.cluster.schemas import faults

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"
NAMES = ["raycluster.yaml", "rayjob.yaml", "podmonitor.yaml", "mlflow.yaml"]


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CLUSTER / name).read_text()))


def all_manifests() -> list[dict[str, Any]]:
    return [each for name in NAMES for each in manifests(name)]


def of(kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (
        each for each in all_manifests() if each["kind"] == kind and (not name or each["metadata"]["name"] == name)
    )
    return found


def pods(tree: Any) -> list[dict[str, Any]]:
    """Every pod's spec anywhere in a manifest."""
    if isinstance(tree, list):
        return [pod for each in tree for pod in pods(each)]
    if not isinstance(tree, dict):
        return []
    return [tree] if "containers" in tree else [pod for each in tree.values() for pod in pods(each)]


def ray_pods(kind: str) -> list[dict[str, Any]]:
    spec = of(kind)["spec"]
    spec = spec.get("rayClusterSpec", spec)
    return pods([spec["headGroupSpec"], *spec["workerGroupSpecs"]])


def test_every_manifest_is_checked_here() -> None:
    kubernetes = [path.name for path in CLUSTER.glob("*.yaml") if "\nkind: " in path.read_text()]
    assert sorted(kubernetes) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_fits_its_schema(name: str) -> None:
    assert [fault for each in manifests(name) for fault in faults(each)] == []


def _rename(tree: dict[str, Any], old: str, new: str) -> None:
    tree[new] = tree.pop(old)


BROKEN: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("RayCluster", lambda each: _rename(each["spec"], "enableInTreeAutoscaling", "enableAutoscaling"), "unexpected"),
    ("RayCluster", lambda each: each["spec"]["autoscalerOptions"].update(version="v3"), "is not one of"),
    ("RayCluster", lambda each: each["spec"]["workerGroupSpecs"][0].pop("minReplicas"), "required"),
    ("RayCluster", lambda each: _rename(ray(each)["lifecycle"], "preStop", "prestop"), "unexpected"),
    ("RayCluster", lambda each: ray(each).update(ports=[{"containerPort": "8265"}]), "integer"),
    (
        "RayJob",
        lambda each: _rename(each["spec"], "shutdownAfterJobFinishes", "shutdownAfterJobFinished"),
        "unexpected",
    ),
    ("RayJob", lambda each: each["spec"]["rayClusterSpec"].update(authOptions={"mode": "tokens"}), "is not one of"),
    ("PodMonitor", lambda each: _rename(each["spec"], "podMetricsEndpoints", "endpoints"), "unexpected"),
    ("Deployment", lambda each: each["spec"].pop("selector"), "required"),
    ("StatefulSet", lambda each: _rename(pods(each)[0], "securityContext", "podSecurityContext"), "unexpected"),
    ("Deployment", lambda each: each.update(apiVersion="apps/v1beta1"), "no kind"),
]


def ray(cluster: dict[str, Any]) -> dict[str, Any]:
    return cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(("kind", "break_it", "said"), BROKEN)
def test_a_typo_is_refused(kind: str, break_it: Callable[[dict[str, Any]], None], said: str) -> None:
    manifest = copy.deepcopy(of(kind))
    break_it(manifest)
    assert [fault for fault in faults(manifest) if said in fault]


def test_no_pod_runs_as_root_or_may_become_it() -> None:
    assert len(pods(all_manifests())) == 9
    for pod in pods(all_manifests()):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_every_server_has_probes_and_limits() -> None:
    for pod in pods(all_manifests()):
        for container in pod["containers"]:
            assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
            if container["name"] != "ray-job-submitter":
                assert {"readinessProbe", "livenessProbe"} <= set(container)


def test_the_two_kuberay_files_have_the_same_cluster() -> None:
    assert of("RayCluster")["spec"] == of("RayJob")["spec"]["rayClusterSpec"]


def test_a_pod_lives_until_the_driver_has_saved() -> None:
    head, *workers = ray_pods("RayCluster")
    env = {one["name"]: one["value"] for one in head["containers"][0]["env"]}
    for role, pod in [("head", head), *(("worker", pod) for pod in workers)]:
        assert pod["terminationGracePeriodSeconds"] > int(env["RAY_JOB_STOP_WAIT_TIME_S"])
        python, script, argument = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert (python, argument) == ("python", role)
        assert f"COPY cluster/{Path(script).name} {script}" in (CLUSTER / "Containerfile").read_text()


def test_every_head_gives_a_lost_node_up_after_the_same_time() -> None:
    names = ("raycluster.yaml", "rayjob.yaml", "ray_up.yaml", "ray_up_aws.yaml", "slurm.sbatch")
    for text in (*((CLUSTER / name).read_text() for name in names), text_of("on_a_cluster.md")):
        assert re.findall(r"RAY_health_check_timeout_ms(?:=|, value: \")(\d+)", text) == ["3000"]


def test_data_nodes_come_and_go_and_gpu_nodes_are_all_there_before_a_run() -> None:
    cluster = of("RayCluster")["spec"]
    data, train = cluster["workerGroupSpecs"]
    assert cluster["enableInTreeAutoscaling"] is True
    assert 1 <= data["minReplicas"] < data["maxReplicas"]
    assert train["minReplicas"] == train["replicas"] == train["maxReplicas"]
    asks = [pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0) for pod in ray_pods("RayCluster")]
    assert asks == [0, 0, 1]


def test_prometheus_scrapes_ports_that_the_head_has() -> None:
    ports = {port["name"]: port["containerPort"] for port in ray_pods("RayCluster")[0]["containers"][0]["ports"]}
    asked = [ports[endpoint["port"]] for endpoint in of("PodMonitor")["spec"]["podMetricsEndpoints"]]
    assert asked == [8080, 44217, 44227]


def test_services_and_policies_select_pods_that_are_there() -> None:
    there = [of(kind)["spec"]["template"]["metadata"]["labels"] for kind in ("Deployment", "StatefulSet")]
    for each in all_manifests():
        if each["kind"] == "Service":
            assert each["spec"]["selector"] in there
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["podSelector"]["matchLabels"] in there


def test_no_secret_is_written_down() -> None:
    assert [each for each in all_manifests() if each["kind"] == "Secret"] == []
    assert "password: " not in (CLUSTER / "mlflow.yaml").read_text().lower()
