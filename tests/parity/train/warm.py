"""What worker processes of the tests import, once for all: the fork server loads it and forks."""

import transformers.models.bert.modeling_bert
import transformers.models.modernbert.modeling_modernbert  # noqa: F401

from xalign_ray.private.deepspeed import load_deepspeed
from xalign_ray.train import checkpoint, loop  # noqa: F401

load_deepspeed(on_gpu=False)
