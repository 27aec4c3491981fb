"""The families of encoders by the name that a recipe gives them."""

from __future__ import annotations

from collections.abc import Mapping

from xalign_ray.models.bert import Bert
from xalign_ray.models.family import Family
from xalign_ray.models.modernbert import ModernBert
from xalign_ray.models.xlm_r import XlmR

FAMILIES: Mapping[str, Family] = {"bert": Bert(), "xlm-r": XlmR(), "modernbert": ModernBert()}
BY_MODEL_TYPE: Mapping[str, Family] = {family.model_type: family for family in FAMILIES.values()}
