"""A micro-step never asks the device where something stands or how much of it: a GPU would be waited for.

Of tensors on the device `meta` nobody can know what they hold: what asks raises. Numbers that are made into a tensor
there (`new_tensor`) are not seen here but in tests/gpu.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.unit.objectives.test_combine import dictionary, share
from tests.unit.rules.tree import PACKAGE
from xalign_ray.config.choices import (
    DenoisingAlignment,
    DictionaryAlignment,
    Distillation,
    MaskedLm,
    MomentumContrast,
    SentenceContrast,
    WordExchange,
)
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models import attention
from xalign_ray.models.encoder import build_encoder
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.train.step import tensors


class NoCopies(TorchDispatchMode):
    """Refuses copies from the host: from memory that is not pinned they wait for the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.name().startswith(("aten::_to_copy", "aten::copy")):
            given = [one for one in (*args, made) if isinstance(one, torch.Tensor)]
            assert len({one.is_meta for one in given}) == 1, f"{func} copies from the host"
        return made


def rows() -> dict[str, np.ndarray]:
    given = share()
    sides = {f"{role}_{name}": given[name] for role in ("query", "key") for name in given if name != "labels"}
    own = {"pair_hash": np.arange(40).reshape(5, 8), "aligned": np.ones((5, 8, 1), np.uint8)}
    return given | sides | own | {"teacher": np.ones((5, 3, 16), np.float16).view(np.uint8)}


def step(monkeypatch: pytest.MonkeyPatch, settings: Sequence[Any]) -> None:
    monkeypatch.setattr(attention, "attention_by_example", lambda q, *_: q)  # the kernel of CPUs, which no GPU takes
    # `meta` cannot autocast
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    model = ModelConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=16)
    encoder = build_encoder(model, 100, ["en", "de", "hi"], 8, pad_id=0)
    encoder.attend(attention.implementation("varlen"))
    objectives = EncoderWithLosses(encoder, settings, dictionary(), seed=0, special=SimpleNamespace(cls=2, sep=3))
    given = tensors(rows(), torch.device("cpu"), objectives.extra_columns)
    objectives.to("meta")
    batch = {key: value.to("meta") for key, value in given.items()}
    with NoCopies():
        sums = objectives(batch, (0, 1), 0)
        torch.stack([*sums.values()]).sum().backward()
    assert all(value.is_meta for both in objectives.metrics.values() for value in both)


@pytest.mark.parametrize(
    "settings",
    [
        MaskedLm(),
        MaskedLm(labels_at_once=3),
        WordExchange(unaligned="literal"),
        SentenceContrast(),
        SentenceContrast(pooling="mean", layer=1),
        MomentumContrast(queue_size=64),
        MomentumContrast(queue_size=64, pooling="mean", queue_start="fill"),
        SentenceContrast(matryoshka_dims=(4,)),
        Distillation(),
        Distillation(distance="cosine", pooling="cls", normalize=True, layer=1),
        DenoisingAlignment(),
        DictionaryAlignment(),
        DictionaryAlignment(layer=1),
    ],
)
def test_a_micro_step_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    step(monkeypatch, [settings])


def test_what_waits_is_what_the_page_on_gpus_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotImplementedError, match="nonzero") as caught:  # torch's, for it cannot know
        step(monkeypatch, [WordExchange()])
    assert [entry.path.name for entry in caught.traceback if PACKAGE in entry.path.parents][-1] == "word_exchange.py"
    page = (PACKAGE.parent / "docs" / "how-to" / "gpus.md").read_text(encoding="utf-8")
    assert "`weam`'s loss, which asks which labels have a partner" in page
