"""Imports point down: the layers of the package, and the few files that may know a heavy library."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.rules.tree import PACKAGE, ROOT, imports, is_within, python_files

LAYERS = [
    {"work/credentials", "private"},
    {"errors", "work/status_line"},
    {"work/file_checks"},
    {"work/artifacts", "work/process", "work/storage"},
    {"work/locks", "work/run_folder"},
    {"work/mirror"},
    {"config"},
    {"results/difference"},
    {"results/aggregate"},
    {"shards/counter_random"},
    {"shards/rows", "shards/order"},
    {"vocabulary"},
    {"streams", "demo", "track"},
    {"work"},
    {"models", "sources"},
    {"demo/first_use"},
    {"vocabulary/tokenizer_folder"},
    {"vocabulary/surgery"},
    {"clean", "align", "derive"},
    {"shards", "objectives"},
    {"tokens", "feed", "models/export"},
    {"train"},
    {"tasks"},
    {"finetune"},
    {"results", "planning"},
    {"exports", "checks"},
    {"pretraining"},
    {"evaluation"},
    {"continuing"},
    {"studies"},
    {"verbs"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# What may be imported, and by whom (folders or files below the package).
HOMES = {
    "ray.data": ["sources/stage.py", "feed/on_ray.py", "private/ray.py"],
    "ray.train": ["train/on_ray.py", "train/worker.py", "private/ray.py"],
    "ray.tune": ["studies/workers.py"],
    "deepspeed": ["private/deepspeed.py"],
    "mlflow": ["track", "results"],
    "matplotlib": ["results"],
    "tensorboardX": ["track/trackers.py"],
    "wandb": ["track/trackers.py"],
}
WITHOUT_TORCH = [
    "vocabulary",
    "streams",
    "shards",
    "sources",
    "derive",
    "demo",
    "track",
    "config",
    "errors.py",
    "work/file_checks.py",
    "work/artifacts.py",
    "work/locks.py",
    "work/run_folder.py",
    "work/storage.py",
    "work/mirror.py",
    "work/process.py",
]
WITHOUT_TORCH += [
    "train/cluster_address.py",
    "train/devices.py",
    "cli.py",
    "planning",
    "verbs",
    "__init__.py",
]
WITHOUT_RAY = [
    "vocabulary",
    "streams",
    "shards",
    "align",
    "derive",
    "demo",
    "track",
    "config",
    "models",
    "objectives",
    "results",
    "feed/batches.py",
    "data/sources",
]
WITHOUT_RAY += [
    "train/loop.py",
    "train/engine.py",
    "cli.py",
    "planning",
]
WITHOUT_RAY += [f"sources/{path.name}" for path in python_files(PACKAGE / "sources") if path.name != "stage.py"]
WITHOUT_RAY += ["exports.py", "checks.py", "pretraining.py", "__init__.py"]
WITHOUT_RAY += [f"verbs/{path.name}" for path in python_files(PACKAGE / "verbs") if path.name != "submit.py"]


def layer_of(path: Path) -> str:
    return find_layer(path.relative_to(PACKAGE).with_suffix("").parts)


def find_layer(parts: Sequence[str]) -> str:
    """A file that has a layer of its own, else the folder or file at the top."""
    own = "/".join(parts[:2])
    return own if own in LEVEL else parts[0]


def lies_in(path: Path, homes: list[str]) -> bool:
    return any(path == PACKAGE / home or (PACKAGE / home) in path.parents for home in homes)


def test_every_folder_and_module_of_the_package_has_a_layer() -> None:
    there = {layer_of(path) for path in python_files(PACKAGE)} - {"__init__", "__main__"}
    assert there == set(LEVEL)


def test_a_folder_imports_itself_and_lower_layers_only() -> None:
    wrong = []
    for path in python_files(PACKAGE):
        own = layer_of(path)
        for one in imports(path):
            name = find_layer(one.module.split(".")[1:]) if one.module.startswith("xalign_ray.") else own
            if name in LEVEL and own in LEVEL and name != own and LEVEL[name] >= LEVEL[own]:
                wrong.append(f"{one}: {name} is not below {own}")
    assert wrong == []


def test_jobs_import_nothing_of_the_package_but_the_command_line_errors_and_credentials() -> None:
    allowed = ("xalign_ray.cli.main", "xalign_ray.errors", "xalign_ray.work.credentials")
    wrong = [
        str(one)
        for path in python_files(ROOT / "jobs")
        for one in imports(path)
        if is_within(one.module, "xalign_ray") and not any(is_within(one.module, name) for name in allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_is_known_in_its_home_only(library: str) -> None:
    wrong = [
        str(one)
        for path in python_files(PACKAGE)
        if not lies_in(path, HOMES[library])
        for one in imports(path)
        if is_within(one.module, library)
    ]
    assert wrong == []


def test_only_a_job_locks_a_folder_or_mirrors_it() -> None:
    taken = {
        "work.locks.hold",
        "work.locks.hold_stored",
        "work.mirror.published",
        "work.mirror.publish_file",
        "track.follower.Follower",
    }
    homes = [PACKAGE / "work/job.py", PACKAGE / "work/mirror.py"]
    wrong = [
        str(one)
        for path in python_files(PACKAGE)
        if path not in homes
        for one in imports(path)
        if one.module.removeprefix("xalign_ray.") in taken
    ]
    assert wrong == []


@pytest.mark.parametrize(("library", "places"), [("torch", WITHOUT_TORCH), ("ray", WITHOUT_RAY)], ids=["torch", "ray"])
def test_what_must_run_without_a_library_does_not_name_it(library: str, places: list[str]) -> None:
    wrong = [
        str(one)
        for path in python_files(PACKAGE)
        if lies_in(path, places)
        for one in imports(path)
        if is_within(one.module, library)
    ]
    assert wrong == []


def modules(*folders: str) -> list[str]:
    files = [path for path in python_files(*(PACKAGE / folder for folder in folders)) if path.name != "__init__.py"]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        (["xalign_ray.train.loop", "xalign_ray.train.engine", "xalign_ray.feed.batches"], ["ray"]),
        (["xalign_ray.feed.batches", "xalign_ray.feed.on_ray"], ["mwparserfromhell", "xalign_ray.sources.formats"]),
        (modules("vocabulary", "streams", "shards", "derive", "sources", "demo"), ["torch", "ray", "transformers"]),
        (["xalign_ray.results.card"], ["matplotlib"]),
        (["xalign_ray.tasks.registry"], ["torch", "transformers"]),
        (["xalign_ray.finetune.tune", "xalign_ray.tasks.registry"], ["datasets", "transformers.trainer", "ray"]),
        (["xalign_ray.studies.study", "xalign_ray.train.on_ray"], ["torch", "transformers", "mlflow"]),
    ],
    ids=[
        "loop, engine and local feed",
        "the feed, which reads shards and no sources",
        "what hundreds of CPU workers run",
        "the model card",
        "names, files and metrics of tasks",
        "what a driver of trials imports",
        "what drives jobs, whose workers alone open models",
    ],
)
def test_nothing_they_import_brings_it_in(imported: list[str], absent: list[str]) -> None:
    code = f"import sys, {', '.join(imported)}; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {canonicalize_name(Requirement(line).name) for lines in listed for line in lines} | {"pydantic-core"}
    known = packages_distributions()
    used = {one.module.split(".")[0] for path in python_files(PACKAGE) for one in imports(path)}
    foreign = used - sys.stdlib_module_names - {PACKAGE.name}
    brought = {name: {canonicalize_name(one) for one in known.get(name, [name])} for name in foreign}
    assert sorted(name for name, by in brought.items() if not by & declared) == []
