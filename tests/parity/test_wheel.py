"""What is installed is what is needed: the built wheel carries every file of the package that is not code."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: building in place would leave build/ behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    command = [*build, "--disable-pip-version-check", "-w", str(source / "dist"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (built,) = (source / "dist").glob("xalign_ray-*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name for name in expected if name.startswith("xalign_ray/recipes/")}
    assert held == expected


def test_the_installed_wheel_finds_its_recipes_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    code = "from xalign_ray.cli import main; main()"
    command = [sys.executable, "-c", code, "config", "list"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=elsewhere,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "tiny/mlm" in done.stdout.split()


def test_the_wheel_brings_the_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "xalign = xalign_ray.cli:main" in archive.read(entry).decode()
