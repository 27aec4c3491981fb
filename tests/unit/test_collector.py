"""The collector of cycles comes seldom while a process imports, sees new objects as it trains, and ends with it."""

from __future__ import annotations

import subprocess
import sys

from xalign_ray.work.process import USUAL

PROCESS = """
import atexit, gc
from xalign_ray.work import process
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # runs last: it was the first to be registered
process.spare_imports()
print(gc.get_threshold()[0])
process.collect_as_usual()
print(gc.get_threshold())
made = [[] for _ in range(10_000)]
made.append(made)
process.keep_what_lives()
print(len(gc.get_objects()) < 1_000)
cycle = []
cycle.append(cycle)
del cycle
print(gc.collect() > 0)
"""


def test_a_process_imports_trains_and_ends() -> None:
    said = subprocess.run([sys.executable, "-c", PROCESS], check=True, capture_output=True, text=True).stdout
    importing, training, kept, collected, ending = said.splitlines()
    assert int(importing) > 10 * USUAL[0]
    assert (training, ending) == (str(USUAL), "True")
    assert (kept, collected) == ("True", "True")
