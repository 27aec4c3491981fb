"""What a submission would upload: the code and nothing else, counted before anything is sent."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from xalign_ray.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def submit() -> ModuleType:
    """The script as a module: jobs/ is no package."""
    spec = importlib.util.spec_from_file_location("submit", ROOT / "jobs" / "submit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, size in {
        "xalign_ray/cli.py": 10,
        "xalign_ray/recipes/tiny/mlm.yaml": 20,
        "xalign_ray/__pycache__/cli.pyc": 5_000_000,
        "jobs/pretrain.py": 5,
        "runs/model.safetensors": 90_000_000,
        ".gitignore": 3,
    }.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)  # sparse: the size counts, not the bytes
    return tmp_path / "repository"


def test_only_the_package_and_the_jobs_are_taken(submit: ModuleType, repository: Path, tmp_path: Path) -> None:
    files = submit.find_code(repository)
    assert sorted(map(str, files)) == ["jobs/pretrain.py", "xalign_ray/cli.py", "xalign_ray/recipes/tiny/mlm.yaml"]
    assert submit.check_size(repository, files) == 35
    submit.copy_code(repository, files, tmp_path / "upload")
    copied = [path for path in (tmp_path / "upload").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "upload") for path in copied) == sorted(files)


def test_an_upload_above_50_mb_is_refused_with_its_five_largest_files(submit: ModuleType, repository: Path) -> None:
    for number in range(1, 8):
        with (repository / f"xalign_ray/dump-{number}.bin").open("wb") as file:
            file.truncate(number * 2_000_000)
    with pytest.raises(ConfigError) as caught:
        submit.check_size(repository, submit.find_code(repository))
    assert str(caught.value) == (
        "The upload is 56.0 MB, more than 50 MB. The largest files: xalign_ray/dump-7.bin (14.0 MB), "
        "xalign_ray/dump-6.bin (12.0 MB), xalign_ray/dump-5.bin (10.0 MB), xalign_ray/dump-4.bin (8.0 MB), "
        "xalign_ray/dump-3.bin (6.0 MB). Move them out of the code: data and models go to storage that all nodes see."
    )


def test_this_repository_can_be_submitted_and_every_verb_has_its_script(submit: ModuleType) -> None:
    files = submit.find_code(ROOT)
    assert submit.check_size(ROOT, files) < 5_000_000
    assert {Path("jobs", f"{verb}.py") for verb in submit.VERBS} <= set(files)
    assert Path("xalign_ray/recipes/tiny/mlm.yaml") in files
