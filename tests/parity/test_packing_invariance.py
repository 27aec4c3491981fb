"""A packed row is the same as its examples one by one, whatever else stands in the row."""

from __future__ import annotations

import pytest
import torch

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.encoder import build_encoder

FIRST, SECOND, LENGTH = 5, 7, 16


def example(length, seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(high):
        return torch.randint(1, high, (1, length), generator=generator, dtype=torch.int32)

    return {
        "input_ids": draw(50),
        "position_ids": torch.arange(length, dtype=torch.int32)[None],
        "segment_ids": draw(3) - 1,
        "language_ids": draw(4) - 1,
        "example_ids": torch.ones(1, length, dtype=torch.int32),
    }


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    model = ModelConfig(layers=3, width=32, heads=4, feed_forward=64, dropout=0.1, language_embeddings=True)
    return build_encoder(model, 50, ["en", "de", "hi"], LENGTH, pad_id=0).eval()


def packed(one, two):
    two = two | {"example_ids": two["example_ids"] * 2}
    padding = torch.zeros(1, LENGTH - FIRST - SECOND, dtype=torch.int32)
    return {key: torch.cat([one[key], two[key], padding], dim=1) for key in one}


def test_two_examples_in_a_row_give_the_hidden_states_of_each_alone(encoder):
    one, two = example(FIRST, 1), example(SECOND, 2)
    together = encoder.encode(packed(one, two))[0]
    torch.testing.assert_close(together[:FIRST], encoder.encode(one)[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(together[FIRST : FIRST + SECOND], encoder.encode(two)[0], atol=1e-5, rtol=0)


def test_an_example_does_not_see_its_neighbour_change(encoder):
    one, two, other = example(FIRST, 1), example(SECOND, 2), example(SECOND, 3)
    before, after = (encoder.encode(packed(one, second))[0] for second in (two, other))
    assert torch.equal(before[:FIRST], after[:FIRST])
    assert not torch.allclose(before[FIRST : FIRST + SECOND], after[FIRST : FIRST + SECOND])


def test_a_row_of_padding_is_finite_in_value_and_gradient(encoder):
    row = packed(example(FIRST, 1), example(SECOND, 2))
    batch = {key: torch.cat([value, torch.zeros_like(value)]) for key, value in row.items()}
    encoder.zero_grad()
    hidden = encoder.encode(batch)
    hidden[0].sum().backward()
    assert torch.isfinite(hidden).all()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_zero_rows_call_the_same_modules_and_leave_zero_gradients(encoder):
    called: set[str] = set()
    hooks = [
        module.register_forward_hook(lambda *_, name=name: called.add(name))
        for name, module in encoder.named_modules()
        if not list(module.children())
    ]
    full = packed(example(FIRST, 1), example(SECOND, 2))
    encoder.encode(full)
    expected = set(called)
    called.clear()
    encoder.zero_grad()
    hidden = encoder.encode({key: value[:0] for key, value in full.items()})
    hidden.sum().backward()
    for hook in hooks:
        hook.remove()
    assert hidden.shape == (0, LENGTH, 32)
    assert called == expected
    assert all(not p.grad.any() for p in encoder.hf.bert.parameters())
