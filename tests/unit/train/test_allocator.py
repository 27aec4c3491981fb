"""What a process keeps of the memory that it frees: all where it was told to, nothing where training did not ask."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Four tensors of 64 MiB are written and freed; then the process says how much of them is resident, in MiB, and how much
# larger its address space has become by 4 GiB that were asked for, never touched, and freed.
SCRIPT = """
import psutil, torch
{first}
own = psutil.Process()
before = own.memory_info()
held = [torch.ones(2**24) for _ in range(4)]
del held
between = own.memory_info()
del (never := [torch.empty(2**30)])[:]
after = own.memory_info()
print((between.rss - before.rss) >> 20, (after.vms - between.vms) >> 20)
"""
KEEP = "from xalign_ray.train.allocator import keep_freed_memory; assert keep_freed_memory()"
TRAINS_HERE = (
    "from xalign_ray.config.schema import ParallelConfig; from xalign_ray.train.distributed import setup_workers; "
    "setup_workers(ParallelConfig(workers=1))"
)


@pytest.mark.parametrize(("first", "keeps"), [(KEEP, True), (TRAINS_HERE, False), ("", False)])
def test_only_a_process_that_was_told_keeps_what_it_frees(first: str, keeps: bool):
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    resident, address_space = (int(word) for word in said.stdout.split())
    assert (resident > 200, address_space > 3500) == (keeps, keeps), said.stdout
