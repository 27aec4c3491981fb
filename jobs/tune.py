"""Fine-tuning on a cluster: `python jobs/tune.py` in a submitted job is `xalign tune`."""

from xalign_ray.cli import main

main("tune")
