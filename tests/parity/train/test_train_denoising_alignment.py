"""Denoising word alignment is in plain torch pair by pair; test_train_over_a_step.py has all cuts of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.slow_links import slow_links
from tests.parity.train import synthetic
from tests.parity.train.plain import build, copy_of
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import assert_same, step_of
from xalign_ray.objectives.denoising_alignment import self_labelled, translated_by

KIND = "denoising_alignment"
CLS, SEP, MASK, ROWS = 1, 2, 3, 8
PAIRS = (0, 0, 1, 2, 1, 2, 1, 2)  # of each row of a step: the first of four workers has none
SETTINGS: dict[str, Any] = {
    "streams": [{"kind": "masked_text"}, {"kind": "masked_pairs"}],
    "model__hidden_dropout_prob": 0.0,
    "model__num_hidden_layers": 2,
    "train__global_batch_size": ROWS,
    "train__max_grad_norm": 0.0,
    "objectives": [{"kind": KIND}],
}


def rows_of(positions: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of no, one or two pairs, one of a text alone, and two words of five masked."""
    rows = synthetic.rows(positions)
    for name in ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids"):
        rows[name] = np.zeros_like(rows[name])
    rows["labels"] = np.full_like(rows["labels"], -100)
    for row, position in enumerate(positions):
        draw, at, count = np.random.default_rng([55, int(position)]), 0, PAIRS[position % ROWS]
        for example in range(1, count + 1):
            sides = draw.integers(2, 5, 2) if count == 1 else (draw.integers(1, 3), 1)
            words = [draw.integers(5, synthetic.VOCAB, size) for size in sides]
            if position % ROWS == 4:  # a text alone: nothing to point at
                words = [np.concatenate(words)]
            ids = np.concatenate([[CLS], *(np.append(side, SEP) for side in words)])
            place = (row, slice(at, at + len(ids)))
            asked = (ids >= 5) & (draw.random(len(ids)) < 0.4)
            rows["labels"][place] = np.where(asked, ids, -100)
            rows["input_ids"][place] = np.where(asked, MASK, ids)
            rows["position_ids"][place], rows["example_ids"][place] = np.arange(len(ids)), example
            rows["language_ids"][place] = np.arange(len(ids)) > len(words[0]) + 1
            at += len(ids)
    return rows


def plain_step(settings: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor], float]:
    """Pair by pair, each encoded by itself: loss, gradients, and the share of labels that are linked."""
    config, rows = synthetic.config(**settings), rows_of(np.arange(ROWS))
    objectives = build(config)
    loss: Any = objectives.losses[KIND]
    terms, several, labels = [], 0, int((rows["labels"] != -100).sum())
    for row in range(ROWS):
        for example in range(1, rows["example_ids"][row].max() + 1):
            at = rows["example_ids"][row] == example
            names = ("input_ids", "position_ids", "segment_ids", "language_ids")
            batch = {name: torch.from_numpy(rows[name][row][at].astype(np.int64))[None] for name in names}
            batch["example_ids"] = torch.ones_like(batch["input_ids"])
            label, ids = torch.from_numpy(rows["labels"][row][at]), batch["input_ids"][0]
            ends = (ids == SEP).nonzero()[:, 0].tolist()
            if len(ends) < 2:
                continue
            first, second = range(1, ends[0]), range(ends[0] + 1, ends[1])
            whole = batch | {"input_ids": torch.where(label == -100, ids, label.long())[None]}
            layer = config.objectives[0].layer or 1  # of two
            states = objectives.encoder.encode(whole, layer)[0].detach().numpy()
            links = slow_links(states[first.start : first.stop], states[second.start : second.stop])
            hidden = objectives.encoder.encode(batch)[0]
            for i in [i for i in (*first, *second) if label[i] != -100]:
                others = second if i in first else first
                scores = torch.stack([loss.query(hidden[i]) @ loss.key(hidden[j]) / 4 for j in others])  # sqrt(16)
                linked = [(b if i in first else a) for a, b in links if i == (first[a] if i in first else second[b])]
                several += len(linked) > 1
                if linked:
                    terms.append(-scores.log_softmax(0)[linked].mean())
    assert several, "no masked word has several links"
    total = torch.stack(terms).sum() / labels
    total.backward()
    gradients = copy_of({name: parameter.grad for name, parameter in objectives.named_parameters()})
    return {KIND: total.item()}, gradients, len(terms) / labels


def test_layer_says_whose_states_are_linked(one: Pool) -> None:
    deep = SETTINGS | {"model__num_hidden_layers": 6}
    early, late = (deep | {"objectives": [{"kind": KIND, "layer": layer}]} for layer in (1, 6))
    losses, gradients, share = plain_step(late)
    assert losses != plain_step(early)[0]
    (taken,) = one.call(step_of, late, rows_of)
    assert_same([taken], losses, gradients)
    assert 0.4 < share < 1
    assert taken[2]["train/self_aligned_label_share"] == pytest.approx(share)


def test_links_of_packed_pairs_are_those_of_each_pair_by_itself() -> None:
    """Of 200 rows of up to three pairs, with a double separator in some; words that stay free are linked once more."""
    draw, again = np.random.default_rng(5), 0
    for number in range(200):
        ids, examples, words = [], [], []
        for example in range(1, draw.integers(2, 5)):
            sides = draw.integers(1, 9, 2)
            begin = len(ids)
            ids += [CLS, *[9] * sides[0], SEP, *[SEP] * (number % 2), *[9] * sides[1], SEP]
            examples += [example] * (len(ids) - begin)
            second = begin + 2 + sides[0] + number % 2
            words.append((range(begin + 1, begin + 1 + sides[0]), range(second, second + sides[1])))
        ids, examples = [*ids, 0, 0], [*examples, 0, 0]
        states = draw.random(size=(len(ids), 6), dtype=np.float32)
        batch = {"input_ids": torch.tensor([ids]), "example_ids": torch.tensor([examples])}
        special: Any = synthetic.SyntheticRows().special
        found = self_labelled(torch.from_numpy(states)[None], translated_by(batch, special), batch["example_ids"])[0]
        wanted = set()
        for first, second in words:
            links = slow_links([states[i] for i in first], [states[j] for j in second])
            again += len(links) > len({i for i, _ in links})
            wanted |= {(first[i], second[j]) for i, j in links}
        assert {(i, j) for i, j in found.nonzero().tolist()} == wanted
    assert again > 50, "the second round links words that share a partner"


def test_rows_without_pairs_call_the_same_modules_and_ask_nothing() -> None:
    objectives = build(synthetic.config(**SETTINGS))
    names = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")
    batch = {name: torch.from_numpy(values) for name, values in synthetic.rows(np.arange(3)).items() if name in names}
    for rows in (slice(None), slice(0, 0)):
        objectives.zero_grad()
        loss = objectives({name: values[rows] for name, values in batch.items()}, (0, 1), 0)[KIND]
        loss.backward()
        assert loss.item() == 0.0
        assert all(p.grad is not None and not p.grad.any() for p in objectives.losses.parameters())
    assert objectives.encoder.training
