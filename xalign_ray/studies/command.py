"""An encoder of a study that another program makes: its command, its folder, its costs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from glob import glob
from pathlib import Path

from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.evaluation import find_encoder
from xalign_ray.studies.cells import COMMAND, Cell
from xalign_ray.track.scored_encoder import origin
from xalign_ray.work.artifacts import hash_file, whole_manifest
from xalign_ray.work.job import open_job

MADE, PRINTED, COSTS = "made", "printed.txt", "costs.json"  # in the folder of the cell
LAST_LINES = 3  # of the printed ones, in an error


def paths_in(command: str) -> list[str]:
    """The files and folders that a command names, patterns as the shell reads them; none that hold the current one."""
    words = (os.path.expandvars(os.path.expanduser(word.rpartition("=")[2])) for word in shlex.split(command))
    named = (path for word in words for path in sorted(glob(word)))
    return [path for path in named if not Path.cwd().is_relative_to(Path(path).resolve())]


def find_made(cell: Cell, study: Path) -> Path | None:
    """The folder of the encoder that the command of a cell has made; None if it has not ended, or is not whole."""
    folder = cell.folder(study)
    with suppress(ConfigError, DataError):
        return Path(find_encoder(str(folder / MADE))[0]) if whole_manifest(folder, "kind") else None
    return None


def run_command(cell: Cell, study: Path) -> None:
    """Runs the command of a cell from its beginning, in the folder where the study was started.

    A command that needs Ray starts a cluster: the cores of the cluster of the study are lent to the cell.

    Raises:
        TrainingError: it failed, or left no encoder.
    """
    folder = cell.folder(study)
    made, costs = folder / MADE, folder / COSTS
    identity = {
        "fingerprint": cell.name,
        "title": cell.title,
        "params": {"encoder": cell.label, "command": cell.command, "pretraining_seed": cell.seed},
        "origin": origin(),
    }
    with open_job(folder, COMMAND, identity, upload=None) as job:  # the study uploads it
        shutil.rmtree(made, ignore_errors=True)
        measured = [sys.executable, "-m", "xalign_ray.studies.measured", str(costs)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment.setdefault("OMP_NUM_THREADS", str(max(1, int(cell.resources.cpus))))
        with (
            open(folder / PRINTED, "wb") as printed,
            subprocess.Popen(
                [*measured, cell.command.replace("{out}", shlex.quote(str(made)))],
                stdin=subprocess.PIPE,  # closes when this process ends, and ends the command
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=cell.source.root,
                env=environment,
                start_new_session=True,
            ) as child,
        ):
            child.wait()
        if child.returncode or not made.is_dir():
            how = f"ended with {child.returncode}" if child.returncode else "left no folder {out}"
            lines = (folder / PRINTED).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise TrainingError(f"the command {how}: {' '.join(lines[-LAST_LINES:])} ({folder / PRINTED})")
        find_encoder(str(made))
        measured_costs = json.loads(costs.read_text(encoding="utf-8"))
        job.finish(
            {"kind": COMMAND, "command": cell.command, "files": {COSTS: hash_file(costs)}}, metrics=measured_costs
        )
