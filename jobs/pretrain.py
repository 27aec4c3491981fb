"""Training on a cluster: `ray job submit ... -- python jobs/pretrain.py ...` is `xalign pretrain ...`."""

from xalign_ray.cli import main

main("pretrain")
