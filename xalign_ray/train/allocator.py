"""Lets a process that trains on a CPU keep the memory that a step frees, for the next step to use."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt, in malloc.h

# In a thread that is not the first, such as Ray Train's, glibc takes what is large from the system each time and gives
# it back, whatever `keep_freed_memory` says, unless the process began with one arena for all threads.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def keep_freed_memory() -> bool:
    """Makes the C library keep what is freed instead of giving it back to the system.

    The table's gradient and the logits of a large vocabulary are some hundred MB each. By default they are mapped anew
    in each step, and zeroing those pages is a third of it (4 layers of 256, 119,000 pieces); kept, they are there. In
    exchange the resident memory of the process stays at its peak, which is larger by a third, and its address space at
    its own, with what was asked for and never touched: after some trainings the system refuses to fork it. So this is
    for processes that train once and end, never for a program that calls us.

    Returns:
        Whether the C library can: glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))
