"""Scoring a model on a cluster: `ray job submit ... -- python jobs/evaluate.py ...` is `xalign evaluate ...`."""

from xalign_ray.cli import main

main("evaluate")
