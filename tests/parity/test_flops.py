"""The operations that we count of a step are those that torch's own counter sees, on rows without padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from xalign_ray.config.choices import MaskedLm, MomentumContrast, SentenceContrast
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.sizes import seen_pairs
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.train.devices import peak_tflops
from xalign_ray.train.step import Flops, example_lengths

ROWS, LENGTH, LABELS, VOCABULARY = 3, 32, 17, 900
SHAPE = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")


def batch(*prefixes: str) -> dict[str, torch.Tensor]:
    """Rows that are one example each, whole; of the rows themselves, and of the sides of sentence pairs."""
    ones = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    given = {f"{prefix}{field}": ones * 0 for prefix in ("", *prefixes) for field in FIELDS}
    given |= {f"{prefix}example_ids": ones for prefix in ("", *prefixes)}
    given |= {f"{prefix}position_ids": torch.arange(LENGTH) * ones for prefix in ("", *prefixes)}
    labels = torch.full((ROWS, LENGTH), -100).flatten()
    labels[:LABELS] = 5
    return given | {"labels": labels.view(ROWS, LENGTH), "pair_hash": torch.arange(ROWS)[:, None] * ones}


@pytest.mark.parametrize(
    ("family", "choices", "prefixes"),
    [
        ("bert", [MaskedLm()], ()),
        ("xlm-r", [MaskedLm()], ()),
        ("roberta", [MaskedLm()], ()),
        ("modernbert", [MaskedLm()], ()),
        ("eurobert", [MaskedLm()], ()),
        ("bert", [MaskedLm(), MomentumContrast(queue_size=8, projection=4)], ("query_", "key_")),
        ("bert", [SentenceContrast()], ("query_", "key_")),
    ],
)
def test_counted_operations_are_those_that_are_done(family: str, choices: list, prefixes: tuple[str, ...]) -> None:
    model = ModelConfig(family=family, hidden_dropout_prob=0.0, **SHAPE)
    objectives = EncoderWithLosses(build_encoder(model, VOCABULARY, ["en"], LENGTH, pad_id=0), choices, None, 0)
    rows = batch(*prefixes)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        torch.stack([*objectives(rows, (0, 1), 0).values()]).sum().backward()
    plain = {name: values.numpy() for name, values in rows.items()}
    counts = objectives.counts(plain, [(0, 1)], 0)
    ours = Flops(objectives).of_rows(plain) + Flops(objectives).of_labels(counts)
    assert ours == pytest.approx(counter.get_total_flops(), rel=0.03)  # torch leaves out biases and LayerNorm


def test_lengths_of_packed_examples() -> None:
    packed = np.array([[1, 1, 2, 2, 2, 0], [0, 0, 0, 0, 0, 0], [1, 2, 3, 3, 3, 3]])
    assert example_lengths(packed).tolist() == [2, 3, 1, 1, 4]
    assert example_lengths(packed[1:2]).tolist() == []
    assert example_lengths(packed[:0]).tolist() == []


@pytest.mark.parametrize("window", [None, 0, 1, 3, 64])
def test_pairs_within_a_window_counted_one_by_one(window: int | None) -> None:
    lengths = np.array([1, 2, 4, 9])
    slow = [
        sum(window is None or abs(i - j) <= window for i in range(length) for j in range(length)) for length in lengths
    ]
    assert seen_pairs(lengths, window).tolist() == slow


def test_local_layers_see_half_of_their_window_to_either_side() -> None:
    encoder = build_encoder(ModelConfig(family="modernbert", **SHAPE), VOCABULARY, ["en"], LENGTH, pad_id=0)
    assert encoder.family.windows(encoder.hf.config.to_dict()) == [None, 64, 64, None]


@pytest.mark.parametrize(
    ("name", "bf16", "tf32", "fp32"),
    [
        ("NVIDIA H100 80GB HBM3", 989, 494, 67),
        ("NVIDIA H100 PCIe", 756, 378, 51),
        ("NVIDIA GH200 480GB", 989, 494, 67),
        ("NVIDIA A100-SXM4-80GB", 312, 156, 19.5),
        ("NVIDIA A10", 125, 62.5, 31.2),
        ("NVIDIA L40S", 362, 183, 91.6),
        ("Tesla V100-SXM2-16GB", None, None, None),
    ],
)
def test_peak_of_a_gpu_in_the_precision_of_the_recipe(
    name: str, bf16: float | None, tf32: float | None, fp32: float | None
) -> None:
    for settings, expected in (
        (["train.bf16=true"], bf16),
        (["train.bf16=false", "train.tf32=true"], tf32),
        (["train.bf16=false", "train.tf32=false"], fp32),
    ):
        assert peak_tflops(name, load_recipe("tiny/mlm", settings).config.train) == expected
