"""What a process keeps of the memory that it frees: all where it was told to, nothing where training did not ask."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from xalign_ray.train.on_ray import ONE_ARENA

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
KEEP = "from xalign_ray.train.distributed import keep_freed_memory; assert keep_freed_memory()"
TRAINS_HERE = (
    "from xalign_ray.config.schema import ParallelConfig; from xalign_ray.train.distributed import setup_workers; "
    "setup_workers(ParallelConfig(workers=1))"
)


IN_A_THREAD = """
import sys, threading, torch
torch.ones(2)
thread = threading.Thread(target=exec, args=(sys.argv[1], {{"__name__": "thread"}}))
thread.start()
thread.join()
"""


# A table of 20,000 pieces and other labels at each step, in bf16: how many MiB the steps after the 20th add.
LABELS = f"""
{KEEP}
import os, psutil, torch
torch.manual_seed(0)
table, layer = torch.randn(20_000, 64, requires_grad=True), torch.nn.Linear(64, 64)
resident = []
for step in range(60):
    with torch.autocast("cpu", torch.bfloat16):
        states = layer(layer(table[torch.randint(0, 20_000, (int(torch.randint(200, 700, ())),))]))
        logits = states[: len(states) // 2] @ table.T
    logits.float().logsumexp(-1).sum().backward()
    if step % 2:
        table.grad = layer.weight.grad = None
    resident.append(psutil.Process().memory_info().rss >> 20)
print(resident[-1] - resident[20], 0)
"""


def test_what_it_keeps_does_not_grow_with_the_numbers_of_labels_that_it_met():
    grown, _ = run([LABELS])  # 340 where oneDNN keeps all its kernels
    assert grown < 160


@pytest.mark.parametrize(("first", "keeps"), [(KEEP, True), (TRAINS_HERE, False), ("", False)])
def test_only_a_process_that_was_told_keeps_what_it_frees(first: str, keeps: bool):
    resident, address_space = run([SCRIPT.format(first=first)])
    assert (resident > 200, address_space > 3500) == (keeps, keeps)


@pytest.mark.parametrize(("environment", "keeps"), [(ONE_ARENA, True), ({}, False)])
def test_a_thread_of_its_keeps_it_too_where_the_process_has_one_arena(environment: dict[str, str], keeps: bool):
    # Ray Train runs the training function in a thread.
    resident, _ = run([IN_A_THREAD.format(), SCRIPT.format(first=KEEP)], environment)
    assert (resident > 200) == keeps


def run(command: list[str], environment: dict[str, str] | None = None) -> tuple[int, int]:
    """What the script says."""
    given = {**os.environ, **(environment or {})}
    said = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, check=True, env=given)
    resident, address_space = said.stdout.split()
    return int(resident), int(address_space)
