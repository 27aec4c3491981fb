"""An export of another step on a cluster: `python jobs/export.py` in a submitted job is `xalign export`."""

from xalign_ray.cli import main

main("export")
