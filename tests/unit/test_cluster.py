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
import mlflow.cli
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


def pinned(package: str, by: str = "==") -> str:
    """`2.60` of `ray[...]==2.60.*`; with `by` another, that version of `mlflow>=3.17,<3.18`."""
    (found,) = (
        re.fullmatch(rf"{package}(\[.*\])?{by}([\d.]+?)(\.\*|,.*)?", each)
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
def test_every_container_is_our_image_with_shared_storage(name: str) -> None:
    for container in containers(name):
        assert container["image"] == f"REGISTRY/xalign-ray:{PROJECT['version']}"
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]


def test_a_job_frees_its_cluster_has_a_deadline_and_is_not_started_over() -> None:
    spec = read("rayjob.yaml")["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["backoffLimit"] == 0


def test_the_job_runs_a_verb_that_fits_its_cluster_and_writes_to_shared_storage() -> None:
    python, flag, module, verb, recipe, *rest = shlex.split(read("rayjob.yaml")["spec"]["entrypoint"])
    assert (python, flag, module, verb) == ("python", "-m", "xalign_ray", "pretrain")
    assert importlib.util.find_spec(f"{module}.__main__")
    assert set(rest[::2]) == {"--set"}
    config = load_recipe(recipe, rest[1::2]).config
    assert config.output.startswith("/shared/")
    data, train = cluster_spec("rayjob.yaml")["workerGroupSpecs"]
    (container,) = train["template"]["spec"]["containers"]
    limits, parallel = container["resources"]["limits"], config.parallel
    each = int(limits["cpu"]) // parallel.cpus_per_worker  # workers that fit a node
    assert parallel.workers <= train["replicas"] * each
    assert parallel.workers * parallel.gpus_per_worker == train["replicas"] * limits["nvidia.com/gpu"]
    assert json.loads(json.loads(data["rayStartParams"]["resources"])) == {parallel.data_resource: 1}


@pytest.mark.parametrize("name", ["ray_up.yaml", "ray_up_aws.yaml"])
def test_ray_up_fits_rays_schema_and_sets_the_authentication(name: str) -> None:
    config = read(name)
    jsonschema.validate(config, ray_up_schema())
    starts = [line for key in ("head", "worker") for line in config[f"{key}_start_ray_commands"] if "ray start" in line]
    assert len(starts) == 2
    assert [line for line in starts if "RAY_AUTH_MODE=token" not in line] == []


def test_a_typo_in_a_ray_up_file_is_refused() -> None:
    config = read("ray_up_aws.yaml")
    config["available_node_types"]["data"]["min_worker"] = 1
    with pytest.raises(jsonschema.ValidationError, match="min_worker"):
        jsonschema.validate(config, ray_up_schema())


def ray_up_schema() -> dict[str, Any]:
    package = importlib.util.find_spec("ray")
    assert package
    assert package.origin
    return json.loads((Path(package.origin).parent / "autoscaler" / "ray-schema.json").read_text())


def test_the_cluster_on_aws_is_that_on_kubernetes() -> None:
    config = read("ray_up_aws.yaml")
    assert config["docker"]["image"] == f"REGISTRY/xalign-ray:{PROJECT['version']}"
    assert any("/shared:/shared" in option for option in config["docker"]["run_options"])
    sizes = {name: (node.get("min_workers"), node.get("max_workers")) for name, node in nodes(config).items()}
    groups = cluster_spec("raycluster.yaml")["workerGroupSpecs"]
    assert sizes == {"head": (None, None)} | {
        group["groupName"]: (group["minReplicas"], group["maxReplicas"]) for group in groups
    }
    assert config["max_workers"] == sum(group["maxReplicas"] for group in groups)
    assert nodes(config)["head"]["resources"] == {"CPU": 0}
    assert nodes(config)["data"]["resources"] == {"data": 1}


def nodes(config: dict[str, Any]) -> dict[str, Any]:
    return config["available_node_types"]


def test_the_slurm_script_parses_and_has_its_nodes_and_its_token_alone() -> None:
    script = CLUSTER / "slurm.sbatch"
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    lines = script.read_text().splitlines()
    assert "export RAY_AUTH_MODE=token" in lines
    assert {"#SBATCH --ntasks-per-node=1", "#SBATCH --exclusive", "#SBATCH --signal=B:TERM@300"} <= set(lines)
    code = " ".join(line for line in lines if not line.lstrip().startswith("#"))
    assert "ray stop" not in code  # it ends every Ray of a machine
    assert "symmetric-run" not in code  # which ends with it


def server_options() -> set[str]:
    """Of `mlflow server`."""
    return {option for parameter in mlflow.cli.server.params for option in parameter.opts}


def test_the_mlflow_unit_starts_a_server_that_mlflow_knows() -> None:
    unit = configparser.ConfigParser(strict=False)  # a key may come twice
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CLUSTER / "mlflow.service")
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[0].endswith("/mlflow")
    assert command[1] == "server"
    assert {word for word in command if word.startswith("--")} <= server_options()
    assert "Environment=MLFLOW_BACKEND_STORE_URI=sqlite:" in (CLUSTER / "mlflow.service").read_text()
    assert unit["Service"]["EnvironmentFile"].startswith("-")  # it need not be there
    assert command[command.index("--host") + 1] == "127.0.0.1" or "--app-name" in command  # else open to everybody


def test_mlflow_on_kubernetes_is_started_as_mlflow_knows_and_answers_to_its_services_name() -> None:
    parts = list(yaml.safe_load_all((CLUSTER / "mlflow.yaml").read_text()))
    (server,) = (each for each in parts if each["kind"] == "Deployment")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    verb, *arguments = container["args"]
    given = dict(argument.split("=", 1) for argument in arguments)
    assert verb == "server"
    assert set(given) <= server_options()
    assert "--backend-store-uri" not in given  # it has a password: from the secret, not on a command line
    assert parts[0]["metadata"]["name"] == "mlflow"
    assert f"mlflow:{given['--port']}" in given["--allowed-hosts"].split(",")
    assert given["--artifacts-destination"].startswith("s3://")
    assert container["image"].endswith(f":{pinned('mlflow', '>=')}")


def test_the_images_have_our_ray_torch_and_mlflow_and_no_root() -> None:
    text = (CLUSTER / "Containerfile").read_text()
    assert "FROM ${BASE}" in text
    assert re.search(r"^ARG BASE=rayproject/ray:(\d+\.\d+)\.", text, flags=re.MULTILINE)[1] == pinned("ray")  # type: ignore[index]
    (installed,) = re.findall(r'"torch==([\d.]+)\.\*"', (ROOT / "Makefile").read_text())
    assert f'"torch=={installed}.*"' in text
    (torch,) = (Requirement(each) for each in PROJECT["dependencies"] if each.startswith("torch"))
    assert installed in torch.specifier
    assert f'"mlflow=={pinned("mlflow", ">=")}.*"' in text
    mlflow_image, node_image = text.split("FROM ")[1:]
    assert "\nUSER nobody\n" in mlflow_image
    assert node_image.endswith("\nUSER ray\n")
    copied = [word for line in text.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied == ["dist/*.whl", "cluster/prestop.py"]  # nothing that could hold credentials


def test_the_readme_names_every_file() -> None:
    text = (CLUSTER / "README.md").read_text()
    assert [path.name for path in CLUSTER.iterdir() if path.name != "README.md" and f"`{path.name}`" not in text] == []
