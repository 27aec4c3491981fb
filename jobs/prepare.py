"""Token shards of a recipe on a cluster: `python jobs/prepare.py` in a submitted job is `xalign prepare`."""

from xalign_ray.cli import main

main("prepare")
