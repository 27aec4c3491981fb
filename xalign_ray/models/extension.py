"""Gives an encoder rows for pieces that its vocabulary lacks, each the mean of rows that it has.

Formulas, and how the papers were read: docs/explanation/methods.md, New pieces for a vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xalign_ray.private.torch import own_parameters


def add_rows(hf: Any, new_rows: Mapping[int, Sequence[int]]) -> None:
    """Grows the word embeddings, and the decoder's table and bias with them, in place; nothing is drawn at random.

    A tie of decoder and words stays, as does every other row. A row that the table already has beyond the old
    vocabulary (tables are padded to round sizes) is written over.

    Args:
        hf: an encoder of transformers, with a masked-LM head or without.
        new_rows: for each new id the ids of old pieces, at least one, whose mean it starts as; the new ids leave no
            gap behind the table's last row.
    """
    words, decoder = hf.get_input_embeddings(), hf.get_output_embeddings()  # without a head no decoder
    size = max(len(words.weight), max(new_rows) + 1)
    assert all(number in new_rows for number in range(len(words.weight), size)), "a new id without a row to start as"
    assert not new_rows.keys() & {old for olds in new_rows.values() for old in olds}, "a new row starts from old ones"
    tables = (words.weight, *(() if decoder is None else (decoder.weight, decoder.bias)))
    grown = {old: _grow(old, size, new_rows) for old in dict.fromkeys(tables) if old is not None}
    for module in hf.modules():  # whatever is tied to one of them
        for name, parameter in own_parameters(module):
            if parameter in grown:
                module.register_parameter(name, grown[parameter])
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
