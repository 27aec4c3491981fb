"""`python -m xalign_ray.studies.measured FILE COMMAND`: runs a command, and writes what all its processes took."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

LOOK_S = 2.0  # the kernel walks all pages of a process to count them
ENDED = 143  # exit code of a stopped command, the same as of SIGTERM
SET_CHILD_SUBREAPER = 36  # prctl: processes whose parent has ended become children of this one


def main(file: str, command: str) -> int:
    """Runs a command in a shell; the exit code is its own.

    CPU seconds are exact: of all processes, also those that a started process leaves behind. All are ended with the
    command, or when the standard input closes, as it does when the process that writes it dies. Peak memory is the
    largest sum that was seen at a look, shared pages counted once (PSS).
    """
    if keeper := os.fork():  # a worker of Ray that ends kills its children, and not theirs
        return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    child, peak = subprocess.Popen(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL), 0
    try:
        while child.returncode is None:
            if select.select([sys.stdin], [], [], 0)[0]:
                return ENDED
            held = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    held += process.memory_full_info().pss
            peak = max(peak, held)
            with suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
    finally:
        while left := psutil.Process().children(recursive=True):
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            with suppress(ChildProcessError):
                os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = {"run/cpu_seconds": used.ru_utime + used.ru_stime, "run/peak_memory_mb": peak / 1e6}
    Path(file).write_text(json.dumps(costs), encoding="utf-8")
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
