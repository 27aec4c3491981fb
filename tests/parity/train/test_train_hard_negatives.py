"""Contrast with hard negatives is one batch in plain torch, of any width; test_train_over_a_step.py has all cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.train import synthetic
from tests.parity.train.plain import build, copy_of
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import (
    CONTRAST,
    ROWS,
    SETTINGS,
    alone,
    assert_same,
    rows_of,
    sentences_of,
    step_of,
)

FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
ROLES = ("query", "key", "hard_key", "hard_query")


def rows_with_negatives(positions: np.ndarray, roles: Sequence[str] = ROLES[2:]) -> dict[str, np.ndarray]:
    """The rows of the contrast, and as negatives the sentences with some words changed: some are a text of the pair."""
    rows = rows_of(positions)
    for role in roles:
        side = role.removeprefix("hard_")
        rows |= {f"{role}_{name}": rows[f"{side}_{name}"] for name in FIELDS}
        ids = rows[f"{side}_input_ids"].copy()
        for number, position in enumerate(positions):
            draw = np.random.default_rng([len(role), int(position)])
            changed = (ids[number] >= 5) & (draw.random(ids.shape[1]) < 0.6)
            ids[number] = np.where(changed, draw.integers(5, 11, ids.shape[1]), ids[number])
        rows[f"{role}_input_ids"] = ids
    return rows


def rows_with_given_negatives(positions: np.ndarray) -> dict[str, np.ndarray]:
    """Those of queries alone."""
    return rows_with_negatives(positions, ["hard_key"])


def plain_step(settings: dict[str, Any], roles: Sequence[str] = ROLES) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Each term by itself: the translation against all other keys and all hard keys, and the other way round."""
    config = synthetic.config(**settings)
    objectives, rows = build(config), rows_with_negatives(np.arange(ROWS))
    asked = config.objectives[-1]
    texts = {role: [tuple(one) for one in sentences_of(rows, role)] if role in roles else [] for role in ROLES}
    own_text = sum(
        hard in (q, k)
        for role in roles[2:]
        for q, k, hard in zip(texts["query"], texts["key"], texts[role], strict=True)
    )
    assert own_text, "no hard negative is a text of its pair"
    whole = {
        role: [alone(objectives, list(one), int(role in ("key", "hard_key")), asked) for one in texts[role]]
        for role in ROLES
    }
    total = torch.zeros(())
    for width in asked.matryoshka_dims or (len(whole["query"][0]),):
        of = {role: [one[:width] / one[:width].norm() for one in side] for role, side in whole.items()}
        terms = []
        for i, (query, key) in enumerate(zip(texts["query"], texts["key"], strict=True)):
            for one, other, hard in (("query", "key", "hard_key"), ("key", "query", "hard_query")):
                pairs = [*zip(texts["query"], texts["key"], strict=True)]
                related = [j for j, pair in enumerate(pairs) if {query, key} & {*pair}]
                rivals = [vector for j, vector in enumerate(of[other]) if j not in related]
                if asked.positives == "single":
                    related = [i]
                known = {text for j in related for text in pairs[j]}
                rivals += [vector for vector, text in zip(of[hard], texts[hard], strict=True) if text not in known]
                positives = [j for j in related if j == i or texts[one][i] != texts[other][j]]
                for j in positives:
                    cosines = torch.stack([of[one][i] @ vector for vector in (of[other][j], *rivals)])
                    cosines[0] -= asked.margin
                    entropy = -(cosines / CONTRAST["temperature"]).log_softmax(0)[0]
                    terms.append(entropy / 2 / len(positives))
        total = total + torch.stack(terms).sum() / len(texts["query"])
    total.backward()
    gradients = {name: parameter.grad for name, parameter in objectives.named_parameters()}
    return {"sentence_contrast": total.item()}, copy_of(gradients)


@pytest.mark.parametrize("workers", ["one", "two"])
def test_given_negatives_are_rivals_of_the_keys_alone(request: pytest.FixtureRequest, workers: str) -> None:
    pool: Pool = request.getfixturevalue(workers)
    settings = SETTINGS | {"train__per_device_batch_size": 2}
    assert_same(pool.call(step_of, settings, rows_with_given_negatives), *plain_step(SETTINGS, ROLES[:3]))


@pytest.mark.parametrize(
    "changes",
    [{"margin": 0.3}, {"pooling": "cls"}, {"matryoshka_dims": [3, 16, 8]}, {"positives": "multi", "margin": 0.1}],
)
def test_margin_pooling_and_widths_are_those_of_one_batch(two: Pool, changes: dict[str, Any]) -> None:
    settings = SETTINGS | {"objectives": [CONTRAST | changes]}
    asked = settings | {"train__per_device_batch_size": 2}
    assert_same(two.call(step_of, asked, rows_with_negatives), *plain_step(settings))


def test_negatives_make_the_question_harder(one: Pool) -> None:
    ((plain, _, _),) = one.call(step_of, SETTINGS)
    ((harder, _, _),) = one.call(step_of, SETTINGS, rows_with_negatives)
    assert harder["sentence_contrast"] > plain["sentence_contrast"]
