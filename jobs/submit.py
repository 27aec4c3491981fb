"""Submits a verb to a cluster from a clone: `python jobs/submit.py` is `xalign submit`."""

from xalign_ray.cli import main

main("submit")
