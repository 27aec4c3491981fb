"""Training on a cluster: `python jobs/pretrain.py` in a submitted job is `xalign pretrain`."""

from xalign_ray.cli import main

main("pretrain")
