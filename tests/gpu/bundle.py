"""Packs what a GPU machine without network lacks: `make gpu-bundle PYTHON=3.12`; then `tests/gpu/run.sh` there.

Into build/gpu-bundle: wheels of what the package needs for that Python, without torch (the machine's own, with CUDA),
without what such machines hold beside it, and without what only a cluster or a figure needs; with TEXT=FILE, an English
text, also the derived language over it and its prepared shards. The package itself runs from the checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OUT = Path("build/gpu-bundle")
THERE = "torch triton numpy setuptools pyarrow pandas sympy networkx"  # the machine's own, as torch for CUDA is
TESTS = ("pytest", "pytest-xdist")  # what the part `right` runs
LEFT_OUT = {"ray", "mlflow", "matplotlib", "scikit-learn", "scipy"}  # training and scoring one model do without
BUILT = {"deepspeed": {"DS_BUILD_OPS": "0"}}  # no wheel in the index: made here, without compiled operators
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def closure(python: str) -> dict[str, str]:
    """Name and version, as installed here, of all that the package needs on that Python and that is not there."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    left_out = {*THERE.split(), *LEFT_OUT}
    found: dict[str, str] = {}
    left = [("xalign-ray", ""), *((name, "") for name in TESTS)]
    seen = set(left)
    while left:
        name, extra = left.pop()
        found[name] = version(name)
        for line in requires(name) or ():
            needed = Requirement(line)
            wanted = needed.marker is None or needed.marker.evaluate(environment | {"extra": extra})
            key = canonicalize_name(needed.name)
            if wanted and key not in left_out:
                new = {(key, given) for given in ("", *needed.extras)} - seen
                left, seen = [*left, *new], seen | new
    return {name: number for name, number in sorted(found.items()) if name != "xalign-ray"}


def collect(python: str, wheels: Path) -> None:
    """Downloads or builds the wheels."""
    pip = [sys.executable, "-m", "pip"]
    needed = closure(python)
    for name, environment in BUILT.items():
        build = [*pip, "wheel", "-q", "--no-deps", "-w", str(wheels), f"{name}=={needed.pop(name)}"]
        subprocess.run(build, check=True, env={**os.environ, **environment})
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    given = ["--python-version", python, "--only-binary=:all:", *platforms, "--no-deps", "-d", str(wheels)]
    versions = [f"{name}=={number}" for name, number in needed.items()]
    subprocess.run([*pip, "download", "-q", *given, *versions], check=True)


def prepare(text: Path, folder: Path) -> None:
    """The language derived from the text, and its shards as the recipes `derived/*` read them."""
    xalign = [sys.executable, "-m", "xalign_ray"]
    subprocess.run([*xalign, "data", "derive", "--from", str(text.absolute()), "--out", "data"], check=True, cwd=folder)
    settings = ("--set", "data.root=data", "--set", "data.tokenizer.path=data/tokenizer", "--set", "output=runs")
    subprocess.run([*xalign, "prepare", "derived/mlm", *settings], check=True, cwd=folder)


def main() -> None:
    """Makes the bundle anew."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--python", default="3.12", help="version of the other machine's Python")
    given.add_argument("--text", type=Path, help="an English text, a sentence a line, for the part `true`")
    asked = given.parse_args()
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked.text and own != asked.python:
        raise SystemExit(f"TEXT: shards depend on Python's Unicode tables, and this is {own}; use {asked.python}")
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "wheels").mkdir(parents=True)
    collect(asked.python, OUT / "wheels")
    if asked.text:
        prepare(asked.text, OUT)
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    sys.stdout.write(f"{OUT}: {len(list((OUT / 'wheels').iterdir()))} wheels, {size / 2**20:.1f} MiB in all\n")


if __name__ == "__main__":
    main()
