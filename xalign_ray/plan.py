"""What a run will need, from the recipe alone: parameters, batch, memory, the DeepSpeed dict. Imports neither torch nor Ray."""

from __future__ import annotations

import json

from xalign_ray.config.choices import BpeTokenizer
from xalign_ray.config.derive import deepspeed_config, derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.models.sizes import count_parameters

GIB = 2**30
