"""A study on a cluster: `python jobs/study.py` in a submitted job is `xalign study`."""

from xalign_ray.cli import main

main("study")
