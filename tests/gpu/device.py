"""Where tests of this folder run: on the GPU, or in a rehearsal on the CPU."""

from __future__ import annotations

import os

DEVICE = "cpu" if os.environ.get("XALIGN_GPU_TESTS") == "cpu" else "cuda"
