"""What worker processes of the tests import, once for all: the fork server loads it and forks."""

from xalign_ray.train import consolidate, loop  # noqa: F401
from xalign_ray.train.engine import load_deepspeed

load_deepspeed(on_gpu=False)
