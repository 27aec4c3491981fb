"""The RoBERTa family (Liu et al. 2019): XLM-R's layers and head over other vocabularies."""

from __future__ import annotations

from typing import ClassVar

from xalign_ray.models.family import Values
from xalign_ray.models.xlm_r import XlmR


class Roberta(XlmR):
    """RoBERTa, of one language in its released models."""

    model_type: ClassVar[str] = "roberta"
    defaults: ClassVar[Values] = {**XlmR.defaults, "model_type": "roberta", "vocab_size": 50265}
    stock: ClassVar[str] = "Roberta"
