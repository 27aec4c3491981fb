"""What worker processes of the tests import, once for all: the fork server loads it and forks."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # they train on the CPU; a GPU that the server has looked at no fork can use

import transformers.models.bert.modeling_bert
import transformers.models.modernbert.modeling_modernbert  # noqa: F401

from xalign_ray.private.deepspeed import load_deepspeed
from xalign_ray.train import checkpoint, loop  # noqa: F401

load_deepspeed(on_gpu=False)
