"""Sentence contrast over a whole global step, in two passes, is one large batch in plain torch: loss and gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.train import synthetic
from tests.parity.train.plain import build, copy_of, masked_lm
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_step import Watched
from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.objectives.objective import MicroStep, compare_alone
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import set_up
from xalign_ray.train.step import Stepper

CONTENT = np.array(
    [0, 4, 1, 2, 3, 5, 6, 7]
)  # rows with 0, 0, 1, 2, 3, 1, 2, 3 pairs: the first of four workers has none
ROWS = len(CONTENT)
CONTRAST = {"kind": "sentence_contrast", "temperature": 0.2}
MULTI = CONTRAST | {"positives": "multi"}
SETTINGS: dict[str, Any] = {
    "model__hidden_dropout_prob": 0.0,
    "train__global_batch_size": ROWS,
    "train__max_grad_norm": 0.0,
    "objectives": [CONTRAST],
}
MIXED = {"objectives": [{"kind": "masked_lm", "weight": [[0, 0.25], [4, 1.0]]}, CONTRAST | {"weight": 3.0}]}
Taken = tuple[dict[str, float], dict[str, Tensor], dict[str, float]]  # losses, gradient, metrics
RowsOf = Callable[[np.ndarray], dict[str, np.ndarray]]


def rows_of(positions: np.ndarray) -> dict[str, np.ndarray]:
    """Sentences over six words, so that some pairs have one in common."""
    rows = synthetic.rows(CONTENT[positions]) | {"position": positions}
    for name in ("query_input_ids", "key_input_ids"):
        rows[name] = np.where(rows[name] >= 5, 5 + rows[name] % 6, rows[name])
    return rows


def build_as_asked(config: RunConfig, workers: Workers) -> EncoderWithLosses:
    """The module, with the encoder run as the recipe asks."""
    objectives = build(config)
    set_up(cast(AlignedEncoder, objectives.encoder), config.train, workers.device)
    return objectives


def step_of(workers: Workers, settings: dict[str, Any], rows_of: RowsOf = rows_of) -> Taken:
    """A run's first step on the rows at these positions."""
    gpus = int(workers.on_gpu)
    config = synthetic.config(parallel__workers=workers.size, parallel__gpus_per_worker=gpus, **settings)
    objectives = build_as_asked(config, workers)
    engine = Watched(objectives, config, workers)
    stepper = Stepper(engine, objectives, config, workers)
    stepper.take(0, rows_of(np.arange(*derive_batch(config).rows_of(workers.rank))))
    taken = stepper.fetch()
    return dict(taken.losses), engine.gradients, dict(taken.metrics)


# --- the plain reference --------------------------------------------------------------------------------------------
def sentences_of(rows: dict[str, np.ndarray], side: str) -> list[list[int]]:
    """The ids of every sentence of a side, row by row."""
    found = []
    for ids, examples in zip(rows[f"{side}_input_ids"], rows[f"{side}_example_ids"], strict=True):
        found += [ids[examples == number].tolist() for number in range(1, examples.max() + 1)]
    return found


def alone(objectives: EncoderWithLosses, ids: list[int], language: int, asked: Any) -> Tensor:
    """The vector of one sentence, encoded by itself, as a loss's settings ask for it."""
    row = torch.tensor([ids])
    batch = {"input_ids": row, "position_ids": torch.arange(len(ids))[None], "segment_ids": row * 0}
    batch |= {"language_ids": row * 0 + language, "example_ids": row * 0 + 1}
    states = objectives.encoder.encode(batch, asked.layer)[0]
    vector = {"cls": states[0], "lasttoken": states[-1], "mean": states.mean(dim=0)}[asked.pooling]
    return vector / vector.norm()


def plain_contrast(
    queries: list[Tensor], keys: list[Tensor], texts: list[Any], margin: float, positives: str = "single"
) -> Tensor:
    """The terms of the pairs, one by one; `texts` are the query's and the key's."""
    terms = []
    everyone = range(len(queries))
    for i in everyone:
        rivals = [j for j in everyone if not {*texts[i]} & {*texts[j]}]
        related = [j for j in everyone if j not in rivals and j != i] if positives == "multi" else []
        for own, others, side in ((queries[i], keys, 0), (keys[i], queries, 1)):
            found = [j for j in everyone if j == i or (j in related and texts[i][side] != texts[j][1 - side])]
            each = []
            for j in found:
                cosines = torch.stack([own @ others[j] - margin, *(own @ others[k] for k in rivals)])
                each.append(-(cosines / CONTRAST["temperature"]).log_softmax(0)[0])
            terms.append(torch.stack(each).mean() / 2)
    return torch.stack(terms).view(-1, 2).sum(1)


def plain_step(settings: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The losses of the first step's rows as one batch, and the gradient of their weighted sum."""
    config = synthetic.config(**settings)
    objectives, rows = build(config), rows_of(np.arange(ROWS))
    asked = config.objectives[-1]
    sides = [sentences_of(rows, side) for side in ("query", "key")]
    texts = [(tuple(query), tuple(key)) for query, key in zip(*sides, strict=True)]
    assert sum(bool({*one} & {*other}) for one in texts for other in texts) > len(texts), "no pairs share a sentence"
    vectors = [[alone(objectives, ids, n, asked) for ids in side] for n, side in enumerate(sides)]
    cut = [[[one[:width] / one[:width].norm() for one in side] for side in vectors] for width in asked.matryoshka_dims]
    terms = [plain_contrast(*sides, texts, asked.margin, asked.positives).mean() for sides in cut or [vectors]]
    losses = {"sentence_contrast": torch.stack(terms).sum()}
    total = losses["sentence_contrast"] * asked.weight
    if len(config.objectives) > 1:
        losses["masked_lm"] = masked_lm(objectives, rows).mean()
        total = total + 0.25 * losses["masked_lm"]
    total.backward()
    gradients = {name: parameter.grad for name, parameter in objectives.named_parameters()}
    return {kind: value.item() for kind, value in losses.items()}, copy_of(gradients)


def assert_same(taken: list[Taken], losses: dict[str, float], gradients: dict[str, Tensor], atol: float = 1e-6) -> None:
    for told, found, _ in taken:
        assert told == pytest.approx(losses, abs=atol)
        for name, expected in gradients.items():
            torch.testing.assert_close(
                found[name], expected, rtol=1e-5, atol=atol, msg=lambda said, n=name: f"{n} {said}"
            )
        unread = found.keys() - gradients.keys()  # what a masked language model has besides, such as its head
        assert all(found[name].abs().max() == 0 for name in unread)


# --- one batch ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {"margin": 0.3},
        {"pooling": "cls"},
        {"pooling": "lasttoken"},
        {"layer": 1},
        {"matryoshka_dims": [3, 16, 8]},
        {"positives": "multi", "margin": 0.3, "matryoshka_dims": [3, 8]},
    ],
)
def test_margin_pooling_layer_and_widths_are_those_of_one_batch(two: Pool, changes: dict[str, Any]):
    settings = SETTINGS | {"objectives": [CONTRAST | changes], "model__num_hidden_layers": 2}
    assert_same(two.call(step_of, settings | {"train__per_device_batch_size": 2}), *plain_step(settings))


@pytest.mark.parametrize(("stage", "micro_batch"), [(0, 4), (1, 2), (2, 4), (3, 2)])
def test_in_bf16_loss_and_gradient_stay_within_its_rounding(two: Pool, stage: int, micro_batch: int):
    settings = SETTINGS | MIXED | {"parallel__zero_stage": stage, "train__bf16": True}
    settings |= {"train__per_device_batch_size": micro_batch}
    losses, gradients = plain_step(SETTINGS | MIXED)
    for told, found, _ in two.call(step_of, settings):
        assert told == pytest.approx(losses, rel=0.02)
        apart = sum(float((found[name] - expected).square().sum()) for name, expected in gradients.items())
        whole = sum(float(expected.square().sum()) for expected in gradients.values())
        assert 0 < apart < 0.05**2 * whole


# --- dropout --------------------------------------------------------------------------------------------------------
def one_graph(workers: Workers, settings: dict[str, Any], ranks: int) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The step of so many ranks in this process: all micro-batches with their own dropout, and one backward pass."""
    config = synthetic.config(parallel__workers=ranks, **settings)
    objectives, embedded = build_as_asked(config, workers).to(workers.device), []
    half = torch.autocast(workers.device.type, torch.bfloat16, enabled=config.train.bf16)
    for rank in range(ranks):
        stepper = Stepper(None, objectives, config, Workers(rank, ranks, 0, workers.device))  # type: ignore[arg-type]
        share = rows_of(np.arange(*derive_batch(config).rows_of(rank)))
        for micro, batch in enumerate(stepper._on_device(share)):
            stepper._reseed(0, micro)
            micro_step = MicroStep(objectives.encoder, batch, (0, 1), 0, compare_alone)
            with half:
                embedded.append(objectives.losses["sentence_contrast"].embed(micro_step)[0])
    rows = rows_of(np.arange(ROWS))
    texts = [
        (tuple(query), tuple(key))
        for query, key in zip(*(sentences_of(rows, side) for side in ("query", "key")), strict=True)
    ]
    queries, keys = torch.cat(embedded).chunk(2, dim=1)
    loss = plain_contrast(list(queries), list(keys), texts, 0.0).mean()
    loss.backward()
    return {"sentence_contrast": loss.item()}, copy_of({n: p.grad for n, p in objectives.named_parameters()})


@pytest.mark.parametrize(
    ("workers", "stage", "changes"),
    [
        ("one", 0, {}),
        ("two", 2, {}),
        ("two", 3, {}),
        ("two", 2, {"train__gradient_checkpointing": True}),
        ("two", 3, {"train__attention": "dense"}),
    ],
)
def test_both_passes_draw_the_same_dropout(
    request: pytest.FixtureRequest, one: Pool, workers: str, stage: int, changes: dict[str, Any]
):
    pool: Pool = request.getfixturevalue(workers)
    settings = SETTINGS | changes | {"model__hidden_dropout_prob": 0.3, "parallel__zero_stage": stage}
    settings |= {"train__per_device_batch_size": 2}
    ((losses, gradients),) = one.call(one_graph, settings, 1 if workers == "one" else 2)
    assert losses["sentence_contrast"] != pytest.approx(plain_step(SETTINGS)[0]["sentence_contrast"], abs=1e-3)
    assert_same(pool.call(step_of, settings), losses, gradients)


def test_both_passes_draw_the_same_dropout_beside_other_losses_that_draw_some(one: Pool):
    """A gradient of a step of two micro-steps is that of both losses apart: the other draws nothing before it."""
    settings = SETTINGS | {"model__hidden_dropout_prob": 0.3, "train__per_device_batch_size": 4}
    beside = [{"kind": "masked_lm", "weight": 1e-30}, CONTRAST]
    ((_, expected, _),) = one.call(step_of, settings)
    ((_, found, _),) = one.call(step_of, settings | {"objectives": beside})
    for name, gradient in expected.items():
        with_a_head = name.replace("encoder.hf.", "encoder.hf.bert.")
        torch.testing.assert_close(found[with_a_head], gradient, rtol=1e-5, atol=1e-7)


def test_compiled_both_passes_draw_the_same_dropout():
    alone = Pool(1)  # others are to show that a worker does without the compiler
    settings = SETTINGS | {"model__hidden_dropout_prob": 0.3, "train__torch_compile": True}
    settings |= {"train__per_device_batch_size": 4}
    try:
        ((losses, gradients),) = alone.call(one_graph, settings, 1)
        assert_same(alone.call(step_of, settings), losses, gradients)
    finally:
        alone.close()


# --- a run ----------------------------------------------------------------------------------------------------------
def test_a_step_without_any_pair_moves_nothing_and_is_no_error(two: Pool):
    for micro_batch in (1, 2):
        taken = two.call(empty_step, SETTINGS | {"train__per_device_batch_size": micro_batch})
        for losses, gradients in taken:
            assert losses == {"sentence_contrast": 0.0}
            assert all(gradient.abs().max() == 0 for gradient in gradients.values())


def empty_step(workers: Workers, settings: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """A step of two rows a worker that hold no pair."""
    config = synthetic.config(parallel__workers=workers.size, **settings | {"train__global_batch_size": 4})
    objectives = build_as_asked(config, workers)
    engine = Watched(objectives, config, workers)
    stepper = Stepper(engine, objectives, config, workers)
    share = synthetic.rows(np.array([0, 4]))  # every fourth row has none
    stepper.take(0, share | {"position": np.arange(2) + 2 * workers.rank})
    return dict(stepper.fetch().losses), engine.gradients
