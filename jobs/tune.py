"""Fine-tuning on a cluster: `ray job submit ... -- python jobs/tune.py ...` is `xalign tune ...`."""

from xalign_ray.cli import main

main("tune")
