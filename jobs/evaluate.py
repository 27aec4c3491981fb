"""Scoring a model on a cluster: `python jobs/evaluate.py` in a submitted job is `xalign evaluate`."""

from xalign_ray.cli import main

main("evaluate")
