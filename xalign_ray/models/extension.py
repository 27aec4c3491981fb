"""Gives an encoder rows for pieces that its vocabulary lacks, or another vocabulary, made of rows that it has.

Formulas, and how the papers were read: docs/explanation/methods.md, New pieces for a vocabulary, Another vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xalign_ray.private.torch import own_parameters
from xalign_ray.vocabulary.exchange import StartRows


def add_rows(hf: Any, new_rows: Mapping[int, Sequence[int]]) -> None:
    """Grows the word embeddings, and the decoder's table and bias with them, in place; nothing is drawn at random.

    A tie of decoder and words stays, as does every other row. A row that the table already has beyond the old
    vocabulary (tables are padded to round sizes) is written over.

    Args:
        hf: an encoder of transformers, with a masked-LM head or without.
        new_rows: for each new id the ids of old pieces, at least one, whose mean it starts as; the new ids leave no
            gap behind the table's last row.
    """
    words = hf.get_input_embeddings()
    size = max(len(words.weight), max(new_rows) + 1)
    assert all(number in new_rows for number in range(len(words.weight), size)), "a new id without a row to start as"
    assert not new_rows.keys() & {old for olds in new_rows.values() for old in olds}, "a new row starts from old ones"
    _replace(hf, size, lambda old: _grow(old, size, new_rows))


def exchange_rows(hf: Any, rows: StartRows, pad_id: int | None, *, draw: bool = True) -> None:
    """Gives an encoder another vocabulary, in place: its word embeddings, and the decoder's table and bias with them.

    Args:
        hf: an encoder of transformers, with a masked-LM head or without.
        rows: what each row of the new tables is of the old ones.
        pad_id: of the new vocabulary; None where it has none.
        draw: draw rows that start from none with mean and spread of the old ones, by torch's global generator; else
            they are the mean.
    """
    counts, olds, weights = (torch.from_numpy(array) for array in (rows.counts, rows.olds, rows.weights))
    first = counts.cumsum(0) - counts
    drawn = counts == 0

    def combine(old: Tensor) -> nn.Parameter:
        table = old.detach().view(len(old), -1)
        new = nn.functional.embedding_bag(
            olds.long(), table, first.long(), mode="sum", per_sample_weights=weights.to(table.dtype)
        )
        new[drawn] = table.mean(dim=0)
        if draw and old.dim() > 1:
            new[drawn] += table.std(dim=0) * torch.randn(int(drawn.sum()), table.shape[1], dtype=table.dtype)
        return nn.Parameter(new.view(len(new), *old.shape[1:]))

    _replace(hf, len(counts), combine)
    hf.get_input_embeddings().padding_idx = hf.config.pad_token_id = pad_id


def _replace(hf: Any, size: int, made_of: Callable[[Tensor], nn.Parameter]) -> None:
    """Replaces the tables of a vocabulary by tables of `size` rows, and whatever is tied to them."""
    words, decoder = hf.get_input_embeddings(), hf.get_output_embeddings()  # without a head no decoder
    tables = (words.weight, *(() if decoder is None else (decoder.weight, decoder.bias)))
    made = {old: made_of(old) for old in dict.fromkeys(tables) if old is not None}
    for module in hf.modules():
        for name, parameter in own_parameters(module):
            if parameter in made:
                module.register_parameter(name, made[parameter])
    words.num_embeddings = hf.config.vocab_size = size
    if decoder is not None:
        decoder.out_features = size


def _grow(old: Tensor, size: int, new_rows: Mapping[int, Sequence[int]]) -> nn.Parameter:
    table = old.new_zeros(size, *old.shape[1:])
    with torch.no_grad():
        table[: len(old)] = old
        for number, olds in new_rows.items():
            table[number] = old[list(olds)].mean(dim=0)
    return nn.Parameter(table)
