"""The decoder gives what torch's linear layer gives, and its weight's gradient is added to where it lies."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.profiler import profile

from xalign_ray.models.heads import PADDED_TO, Decoder
from xalign_ray.objectives.objective import summed_cross_entropy

PIECES, WIDTH, POSITIONS = 50, 8, 6


@pytest.fixture
def layers() -> tuple[nn.Embedding, nn.Linear]:
    """A table and a layer that share it."""
    torch.manual_seed(0)
    table, layer = nn.Embedding(PIECES, WIDTH), nn.Linear(WIDTH, PIECES)
    layer.weight = table.weight
    return table, layer


def _gradients(table: nn.Embedding, layer: nn.Linear) -> list[torch.Tensor]:
    ids = torch.arange(POSITIONS) % 4
    loss = layer(torch.tanh(table(ids))).square().sum()
    return list(torch.autograd.grad(loss, [table.weight, *([] if layer.bias is None else [layer.bias])]))


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_a_linear_layer(layers: tuple[nn.Embedding, nn.Linear], bias: bool) -> None:
    table, layer = layers
    if not bias:
        layer.bias = None  # type: ignore[assignment]
    decoder = Decoder.of(layer)
    assert decoder.weight is table.weight
    assert list(decoder.state_dict()) == list(layer.state_dict())
    for given, wanted in zip(_gradients(table, decoder), _gradients(table, layer), strict=True):
        torch.testing.assert_close(given, wanted)


def test_no_positions_give_zero_gradients(layers: tuple[nn.Embedding, nn.Linear]) -> None:
    table, layer = layers
    Decoder.of(layer)(table(torch.zeros(0, dtype=torch.long))).sum().backward()
    assert table.weight.grad is not None
    assert not table.weight.grad.any()


def test_under_autocast_it_is_the_linear_layer(layers: tuple[nn.Embedding, nn.Linear]) -> None:
    table, layer = layers
    with torch.autocast("cpu", torch.bfloat16):
        given, wanted = (_gradients(table, one) for one in (Decoder.of(layer), layer))
    assert all(torch.equal(one, other) for one, other in zip(given, wanted, strict=True))


@pytest.mark.parametrize("half", [False, True])
def test_padded_logits_give_the_same_loss_and_gradients(
    monkeypatch: pytest.MonkeyPatch, layers: tuple[nn.Embedding, nn.Linear], half: bool
) -> None:
    table, layer = layers
    ids, labels = torch.arange(POSITIONS), torch.arange(POSITIONS) * 7

    def learned(decoder: nn.Linear) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = summed_cross_entropy(decoder(torch.tanh(table(ids))), labels)
        return [loss, *torch.autograd.grad(loss, [table.weight, layer.bias])]

    expected = learned(Decoder.of(layer))
    monkeypatch.setitem(PADDED_TO, "cpu", 64)
    assert Decoder.of(layer)(table(ids)).shape == (POSITIONS, 64)
    for given, wanted in zip(learned(Decoder.of(layer)), expected, strict=True):
        torch.testing.assert_close(given, wanted)


def test_no_third_array_is_made(layers: tuple[nn.Embedding, nn.Linear]) -> None:
    table, layer = layers

    def of_its_size(layer: nn.Linear) -> int:
        """Additions that make an array of the table's size."""
        loss = layer(torch.tanh(table(torch.arange(POSITIONS)))).square().sum()
        with profile(record_shapes=True) as seen:
            loss.backward()
        added = [event for event in seen.events() or [] if event.name == "aten::add"]
        return sum([PIECES, WIDTH] in event.input_shapes for event in added)

    assert of_its_size(layer) == 1, "torch has learned it: the class can go"
    assert of_its_size(Decoder.of(layer)) == 0
