"""The manifests in cluster/: they parse, fit Ray's schema and our pins, and call commands that exist."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from xalign_ray.config.load import load_recipe

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KUBERAY = {"raycluster.yaml": "RayCluster", "rayjob.yaml": "RayJob"}


def read(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text())


def cluster_spec(name: str) -> dict[str, Any]:
    spec = read(name)["spec"]
    return spec.get("rayClusterSpec", spec)


def containers(name: str) -> Iterator[dict[str, Any]]:
    spec = cluster_spec(name)
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        yield from group["template"]["spec"]["containers"]


def pinned(package: str) -> str:
    """`2.60` of `ray[...]==2.60.*`."""
    (found,) = (
        re.fullmatch(rf"{package}(\[.*\])?==([\d.]+?)(\.\*)?", each)
        for each in PROJECT["dependencies"]
        if each.startswith(package)
    )
    assert found
    return found[2]


@pytest.mark.parametrize(("name", "kind"), KUBERAY.items())
def test_a_kuberay_manifest_has_our_ray_and_an_explicit_authentication(name: str, kind: str) -> None:
    manifest, spec = read(name), cluster_spec(name)
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", kind)
    assert spec["rayVersion"].startswith(f"{pinned('ray')}.")
    assert spec["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("name", KUBERAY)
def test_every_container_is_our_image_with_limits_and_shared_storage(name: str) -> None:
    for container in containers(name):
        assert container["image"] == f"REGISTRY/xalign-ray:{PROJECT['version']}"
        assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]


def test_a_job_frees_its_cluster_has_a_deadline_and_is_not_started_over() -> None:
    spec = read("rayjob.yaml")["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["backoffLimit"] == 0


def test_the_job_runs_a_verb_that_fits_its_cluster_and_writes_to_shared_storage() -> None:
    python, script, recipe, *rest = shlex.split(read("rayjob.yaml")["spec"]["entrypoint"])
    assert python == "python"
    assert (ROOT / script).is_file()
    assert set(rest[::2]) == {"--set"}
    config = load_recipe(recipe, rest[1::2]).config
    assert config.output.startswith("/shared/")
    workers = cluster_spec("rayjob.yaml")["workerGroupSpecs"]
    cpus = sum(
        group["replicas"] * int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
        for group in workers
    )
    assert config.parallel.workers * config.parallel.cpus_per_worker + 1 <= cpus


def test_ray_up_fits_rays_schema_and_sets_the_authentication() -> None:
    package = importlib.util.find_spec("ray")
    assert package
    assert package.origin
    schema = json.loads((Path(package.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    config = read("ray_up.yaml")
    jsonschema.validate(config, schema)
    starts = [line for key in ("head", "worker") for line in config[f"{key}_start_ray_commands"] if "ray start" in line]
    assert len(starts) == 2
    assert [line for line in starts if "RAY_AUTH_MODE=token" not in line] == []


def test_the_slurm_script_parses_and_sets_the_authentication() -> None:
    script = CLUSTER / "slurm.sbatch"
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    lines = script.read_text().splitlines()
    assert "export RAY_AUTH_MODE=token" in lines
    assert "#SBATCH --ntasks-per-node=1" in lines  # one Ray a node


def test_the_mlflow_unit_starts_a_server_that_mlflow_knows() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CLUSTER / "mlflow.service")
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[0].endswith("/mlflow")
    assert command[1] == "server"
    assert "--backend-store-uri" in command
    assert command[command.index("--host") + 1] == "127.0.0.1" or "--app-name" in command  # else open to everybody


def test_the_image_has_our_ray_and_torch() -> None:
    text = (CLUSTER / "Containerfile").read_text()
    assert "FROM ${BASE}" in text
    assert re.search(r"^ARG BASE=rayproject/ray:(\d+\.\d+)\.", text, flags=re.MULTILINE)[1] == pinned("ray")  # type: ignore[index]
    (installed,) = re.findall(r'"torch==([\d.]+)\.\*"', (ROOT / "Makefile").read_text())
    assert f'"torch=={installed}.*"' in text
    (torch,) = (Requirement(each) for each in PROJECT["dependencies"] if each.startswith("torch"))
    assert installed in torch.specifier


def test_the_readme_names_every_file() -> None:
    text = (CLUSTER / "README.md").read_text()
    assert [path.name for path in CLUSTER.iterdir() if path.name != "README.md" and f"`{path.name}`" not in text] == []
