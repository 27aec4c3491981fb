"""Continuing an encoder on a cluster: `python jobs/continue.py` in a submitted job is `xalign continue`."""

from xalign_ray.cli import main

main("continue")
