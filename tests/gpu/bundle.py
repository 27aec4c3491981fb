"""Packs what a GPU machine without network lacks: `make gpu-bundle PYTHON=3.12`, then `tests/gpu/run.sh OUT` there.

Into build/gpu-bundle: wheels of this package and of all that it needs, for that Python, but for torch (the machine's
own, with CUDA) and what only a cluster or a figure needs; with TEXT=FILE, an English text, also the derived language
over it and its prepared shards. All of it is cut into parts that pass a limit on transfers; `run.sh` joins them again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OUT = Path("build/gpu-bundle")
PART = 60 * 2**20  # bytes: a limit of 64 MB on transfers is common
THERE = {"torch", "numpy", "setuptools"}  # on every machine with torch
LEFT_OUT = {"ray", "mlflow", "matplotlib", "scikit-learn"}  # training, scoring, fine-tuning of one model do without
NEEDED = ("xalign-ray", "pytest")
BUILT = {"deepspeed": {"DS_BUILD_OPS": "0"}}  # no wheel in the index: made here, without compiled operators
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def closure(python: str) -> dict[str, str]:
    """Name and version, as installed here, of all that the package needs on that Python, itself left out."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    found: dict[str, str] = {}
    left = [(name, "") for name in NEEDED]
    seen = set(left)
    while left:
        name, extra = left.pop()
        found[name] = version(name)
        for line in requires(name) or ():
            one = Requirement(line)
            wanted = one.marker is None or one.marker.evaluate(environment | {"extra": extra})
            key = canonicalize_name(one.name)
            if wanted and key not in THERE | LEFT_OUT:
                new = {(key, given) for given in ("", *one.extras)} - seen
                left, seen = [*left, *new], seen | new
    return {name: number for name, number in sorted(found.items()) if name != "xalign-ray"}


def collect(python: str, wheels: Path) -> None:
    """The wheels of the package and of what it needs."""
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "-q", "--no-deps", "-w", str(wheels)]
    subprocess.run([*build, "."], check=True)
    needed = closure(python)
    for name, environment in BUILT.items():
        subprocess.run([*build, f"{name}=={needed.pop(name)}"], check=True, env={**os.environ, **environment})
    for name, number in needed.items():
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        given = ["--python-version", python, "--only-binary=:all:", *platforms, "--no-deps", "-d", str(wheels)]
        subprocess.run([*pip, "download", "-q", *given, f"{name}=={number}"], check=True)


def prepare(text: Path, folder: Path) -> None:
    """The language derived from the text, and its shards as the recipes `derived/*` read them."""
    xalign = [sys.executable, "-m", "xalign_ray"]
    subprocess.run([*xalign, "data", "derive", "--from", str(text.absolute()), "--out", "data"], check=True, cwd=folder)
    settings = ("--set", "data.root=data", "--set", "data.tokenizer.path=data/tokenizer", "--set", "output=runs")
    subprocess.run([*xalign, "prepare", "derived/mlm", *settings], check=True, cwd=folder)


def cut(folder: Path) -> list[Path]:
    """All of the folder in one archive, in parts."""
    whole = folder / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        for path in sorted(folder.iterdir()):
            if path != whole:
                archive.add(path, path.name)
    parts = []
    with whole.open("rb") as file:
        while piece := file.read(PART):
            parts.append(folder / f"part.{len(parts):02}")
            parts[-1].write_bytes(piece)
    whole.unlink()
    return parts


def main() -> None:
    """Makes the bundle anew."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--python", default="3.12", help="version of the other machine's Python")
    given.add_argument("--text", type=Path, help="an English text, a sentence a line, for the part `true`")
    asked = given.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "wheels").mkdir(parents=True)
    collect(asked.python, OUT / "wheels")
    if asked.text:
        prepare(asked.text, OUT)
    for part in cut(OUT):
        sys.stdout.write(f"{part}  {part.stat().st_size / 2**20:.1f} MiB\n")


if __name__ == "__main__":
    main()
