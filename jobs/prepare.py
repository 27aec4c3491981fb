"""Token shards of a recipe on a cluster: `ray job submit ... -- python jobs/prepare.py ...` is `xalign prepare ...`."""

from xalign_ray.cli import main

main("prepare")
