"""The CamemBERT family: RoBERTa over a SentencePiece vocabulary of French (Martin et al. 2020)."""

from __future__ import annotations

from typing import ClassVar

from xalign_ray.models.family import Values
from xalign_ray.models.roberta import Roberta


class Camembert(Roberta):
    """CamemBERT: RoBERTa over a SentencePiece vocabulary of French (Martin et al. 2020)."""

    model_type: ClassVar[str] = "camembert"
    defaults: ClassVar[Values] = {**Roberta.defaults, "model_type": "camembert", "vocab_size": 30522}
    stock: ClassVar[str] = "Camembert"
