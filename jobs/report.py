"""A page on runs and studies on a cluster: `python jobs/report.py` in a submitted job is `xalign report`."""

from xalign_ray.cli import main

main("report")
