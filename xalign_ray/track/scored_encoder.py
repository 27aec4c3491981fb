"""Start events of evaluations and fine-tunings: the encoder, the run that made it, the settings."""

from __future__ import annotations

import getpass
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from xalign_ray.track.events import run_identity
from xalign_ray.work.artifacts import read_json

_PACKAGES = ("xalign-ray", "torch", "transformers", "tokenizers", "deepspeed", "ray", "numpy", "pandas", "scipy")


@cache
def origin() -> dict[str, Any]:
    """User, host, commit and versions, for start events."""
    fields = {"host": socket.gethostname(), "python": platform.python_version(), "versions": versions()}
    with suppress(OSError, KeyError):  # a container's user may have no name
        fields["user"] = getpass.getuser()
    if commit := _commit(Path.cwd()) or _commit(Path(__file__).parent):
        fields["commit"] = commit
    return fields


def versions() -> dict[str, str]:
    """Of this package, and of those installed that its results may depend on."""
    numbers = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers


def _commit(folder: Path) -> str | None:
    """Of the git checkout around a folder, None outside of one or without git."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return asked.stdout.strip()
    return None


def scoring_identity(
    fingerprint: str,
    title: str,
    model: str,
    label: str,
    languages: Sequence[str] | None,
    params: Mapping[str, Any],
    parent: dict[str, str] | None = None,
    steps: int = 0,
    is_run: bool = False,
) -> dict[str, Any]:
    """The fields of the event.

    Args:
        fingerprint: hash of all that the scores follow from.
        title: its name in MLflow.
        model: folder or hub id of the encoder.
        label: the user's name for the encoder.
        languages: those that are scored; all that are found if None.
        params: the settings, as MLflow shows them.
        parent: identity of the study below which MLflow shows it; below the encoder's run if None.
        steps: epochs of a fine-tuning.
        is_run: whether the scores also belong to the encoder's run. A search in MLflow by method or scale is to
            find them once, so the parameters that it uses are left to the run.
    """
    made_by = run_identity(run := Path(model).parent) if Path(model).is_dir() else None
    path = Path(model) / "config.json"
    config = read_json(path, "Export the run again.") if path.is_file() else {}
    searched = ("step",) if is_run else ("objective", "recipe", "step")  # the names that a search in MLflow uses
    of_encoder = {name: config.get(f"xalign_{name}") for name in searched}
    of_encoder |= {"encoder": label, "pretraining_seed": config.get("xalign_seed")}
    of_encoder |= {"pretraining_run": run.name if made_by else None}
    return {
        "fingerprint": fingerprint,
        "steps": steps,
        "title": title,
        "parent": parent or made_by,
        "pretraining": {"run": run.name, **made_by} if made_by else {},
        "params": {name: value for name, value in of_encoder.items() if value is not None} | dict(params),
        "labels": {"languages": ",".join(languages)} if languages else {},
        "origin": origin(),
    }
