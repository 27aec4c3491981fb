"""In every family a packed row is the same as its examples one by one, also where a window of attention is narrow."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import EuroBertConfig, EuroBertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models import attention
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.families import FAMILIES

FIRST, SECOND, LENGTH = 5, 7, 16
LANGUAGES = ["en", "de", "hi"]
SHAPE = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


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


def packed(one, two):
    two = two | {"example_ids": two["example_ids"] * 2}
    padding = torch.zeros(1, LENGTH - FIRST - SECOND, dtype=torch.int32)
    return {key: torch.cat([one[key], two[key], padding], dim=1) for key in one}


def narrow_modernbert(path):
    """A folder whose local layers see two tokens to either side; every third layer, from the first, is global."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
    config = ModernBertConfig(vocab_size=50, max_position_embeddings=LENGTH, pad_token_id=0, local_attention=4, **sizes)
    assert config.layer_types == ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    ModernBertForMaskedLM(config).save_pretrained(path)
    return ModelConfig(init_from=str(path))


def grouped_eurobert(path):
    """A folder whose query heads share keys and values two by two."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
    config = EuroBertConfig(
        vocab_size=50, max_position_embeddings=LENGTH, pad_token_id=0, num_key_value_heads=2, **sizes
    )
    EuroBertForMaskedLM(config).save_pretrained(path)
    return ModelConfig(init_from=str(path))


MADE = {"narrow modernbert": narrow_modernbert, "grouped eurobert": grouped_eurobert}


@pytest.fixture(scope="module", params=[*FAMILIES, *MADE])
def dense(request, tmp_path_factory):
    torch.manual_seed(0)
    if request.param in MADE:
        model = MADE[request.param](tmp_path_factory.mktemp("folder"))
    else:
        model = ModelConfig(
            family=request.param, language_embeddings=request.param not in ("modernbert", "eurobert"), **SHAPE
        )
    made = build_encoder(model, 50, LANGUAGES, LENGTH, pad_id=0).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


@pytest.fixture(scope="module", params=["dense", "varlen"])
def encoder(request, dense):
    made = copy.deepcopy(dense)
    made.attend(attention.implementation(request.param))
    return made


def test_two_examples_in_a_row_give_the_hidden_states_of_each_alone(encoder):
    one, two = example(FIRST, 1), example(SECOND, 2)
    for layer in (None, 2):
        together = encoder.encode(packed(one, two), layer)[0]
        torch.testing.assert_close(together[:FIRST], encoder.encode(one, layer)[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(together[FIRST : FIRST + SECOND], encoder.encode(two, layer)[0], atol=1e-5, rtol=0)


def test_zero_rows_call_the_same_modules_and_leave_zero_gradients(encoder):
    called: set[str] = set()
    hooks = [
        module.register_forward_hook(lambda *_, name=name: called.add(name))
        for name, module in encoder.named_modules()
        if not list(module.children())
    ]
    full = packed(example(FIRST, 1), example(SECOND, 2))
    encoder.predict(encoder.encode(full)[0], full["language_ids"][0])
    expected = set(called)
    called.clear()
    encoder.zero_grad()
    hidden = encoder.encode({key: value[:0] for key, value in full.items()})
    logits = encoder.predict(hidden.flatten(0, 1), full["language_ids"][:0].flatten())
    (hidden.sum() + logits.sum()).backward()
    for hook in hooks:
        hook.remove()
    assert (hidden.shape, logits.shape) == ((0, LENGTH, 32), (0, 50))
    assert called == expected
    assert all(not p.grad.any() for p in encoder.parameters())


def rows_of_many_lengths():
    """Full rows, short ones, one of padding alone; examples of 1 to 16 tokens."""
    rows = []
    for row, lengths in enumerate([[16], [1, 3, 12], [5, 7], [], [2]]):
        parts = [example(length, 10 * row + number) for number, length in enumerate(lengths, 1)]
        parts = [part | {"example_ids": part["example_ids"] * number} for number, part in enumerate(parts, 1)]
        parts.append(dict.fromkeys(example(1, 0), torch.zeros(1, LENGTH - sum(lengths), dtype=torch.int32)))
        rows.append({key: torch.cat([part[key] for part in parts], dim=1) for key in parts[0]})
    return {key: torch.cat([row[key] for row in rows]) for key in rows[0]}


def states_and_gradients(encoder, batch, layer=None):
    encoder.zero_grad()
    real = batch["example_ids"] > 0
    hidden = encoder.encode(batch, layer)[real]
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return hidden.detach(), {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def test_without_padding_states_and_gradients_are_those_of_the_dense_mask(dense):
    varlen = copy.deepcopy(dense)
    varlen.attend(attention.implementation("varlen"))
    batch = rows_of_many_lengths()
    for layer in (None, 2):
        (hidden, gradients), (expected, wanted) = (states_and_gradients(one, batch, layer) for one in (varlen, dense))
        torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)
        assert gradients.keys() == wanted.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, wanted[name], atol=2e-5, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        half, expected = (states_and_gradients(one, batch)[0] for one in (varlen, dense))
    torch.testing.assert_close(half, expected, atol=0.1, rtol=0)


def test_a_copy_of_an_encoder_and_its_export_know_nothing_of_our_attention(dense, tmp_path):
    varlen = copy.deepcopy(dense)
    varlen.attend(attention.implementation("varlen"))
    varlen.hf.save_pretrained(tmp_path)
    assert attention.VARLEN not in (tmp_path / "config.json").read_text()
    assert dense.hf.config._attn_implementation == attention.DENSE
