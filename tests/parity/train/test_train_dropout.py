"""Dropout: drawn anew for each step, rank and micro-step, again the same in the same one, none in held-out scoring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from tests.parity.train import synthetic
from tests.parity.train.plain import build, copy_of, masked_lm
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import run, train_until
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.scoring import held_out_losses
from xalign_ray.train.step import Stepper

# The rate is so small that no weight moves: what differs between steps of the same rows is their dropout.
SETTINGS: dict[str, Any] = {
    "model__hidden_dropout_prob": 0.5,
    "objectives": [{"kind": "masked_lm"}],
    "train__optimizer": {"learning_rate": 1e-30, "weight_decay": 0.0},
    "train__global_batch_size": 8,
    "train__per_device_batch_size": 2,
}


class Listening(Engine):
    """Keeps the loss of every micro-step of training."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: list[float] = []
        self._compute, self.forward = self.forward, self._listen

    def _listen(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        sums = self._compute(*arguments, **options)
        self.heard.append(float(sums["masked_lm"].detach()))
        return sums


def losses_of_steps(workers: Workers, settings: dict[str, Any], steps: list[int], seed: int) -> list[list[float]]:
    """The losses of this rank's micro-steps in each of some steps, all on the same two rows again and again."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    objectives = build(config)
    engine = Listening(objectives, config, workers)
    stepper = Stepper(engine, objectives, config.model_copy(update={"seed": seed}), workers)
    share = synthetic.rows(np.tile([0, 1], 2))
    found = []
    for step in steps:
        first = step * 8 + workers.rank * 4
        engine.heard = []
        stepper.take(step, share | {"position": np.arange(first, first + 4)})
        found.append(engine.heard)
    return found


def test_each_step_rank_and_micro_step_has_dropout_of_its_own_and_the_same_when_done_again(two: Pool):
    ranks = two.call(losses_of_steps, SETTINGS, [4, 5, 4], 3)
    masks = [[micro for rank in ranks for micro in rank[step]] for step in range(3)]
    assert [len(step) for step in masks] == [4, 4, 4]
    assert len({*masks[0], *masks[1]}) == 8
    assert masks[2] == masks[0]
    (another, *_) = two.call(losses_of_steps, SETTINGS, [4], 4)[0]
    assert set(another).isdisjoint(masks[0])
    calm = two.call(losses_of_steps, SETTINGS | {"model__hidden_dropout_prob": 0.0}, [4, 5], 3)
    assert len({micro for rank in calm for step in rank for micro in step}) == 1


def score_and_train(
    workers: Workers, settings: dict[str, Any], scores: int
) -> tuple[list[dict[str, float]], float, dict[str, torch.Tensor]]:
    """The held-out losses of so many scorings; then a step's loss, and the weights after it."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    objectives, prepared = build(config), synthetic.SyntheticRows()
    engine = Engine(objectives, config, workers)
    shares = [
        (language[part], {name: values[part] for name, values in share.items()})
        for language, share in prepared.held_out(workers.rank, workers.size, 8)
        for part in (slice(0, 1), slice(1, None))  # a language comes in several batches
    ]
    found = [held_out_losses(engine, shares, prepared.languages, workers) for _ in range(scores)]
    stepper = Stepper(engine, objectives, config, workers)
    stepper.take(0, next(synthetic.stream(config, 0, workers.rank, workers.size)))
    return found, stepper.fetch().loss, copy_of(dict(objectives.named_parameters()))


@pytest.mark.parametrize("stage", [0, 2])
def test_held_out_rows_are_scored_without_dropout_and_training_goes_on_with_it(two: Pool, stage: int):
    settings = SETTINGS | {"train__optimizer": {"learning_rate": 1e-2}, "parallel__zero_stage": stage}
    plain = build(synthetic.config(**settings)).eval()
    with torch.no_grad():
        of_language = {
            language: masked_lm(plain, synthetic.rows(10_000 + np.arange(at, 10, 2))).mean().item()
            for at, language in enumerate(("en", "de"))
        }
    scored, not_scored = (two.call(score_and_train, settings, times) for times in (2, 0))
    for (found, loss, weights), (_, same_loss, same_weights) in zip(scored, not_scored, strict=True):
        assert found[0] == pytest.approx(of_language, abs=1e-5)
        assert found[1] == found[0]
        assert loss == same_loss
        assert [name for name in weights if not torch.equal(weights[name], same_weights[name])] == []
    calm_loss = two.call(score_and_train, settings | {"model__hidden_dropout_prob": 0.0}, 0)[0][1]
    assert abs(scored[0][1] - calm_loss) > 1e-3


def test_continued_encoder_has_dropout_from_its_first_step_scored_or_not_and_when_resumed(one: Pool, tmp_path: Path):
    """`from_pretrained` opens a model for evaluation, without dropout."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=synthetic.VOCAB, **sizes)).save_pretrained(tmp_path / "encoder")
    start = {"init_from": str(tmp_path / "encoder"), "hidden_dropout_prob": 0.5}
    settings: dict[str, Any] = {"model": start, "objectives": [{"kind": "masked_lm"}], "checkpoint__save_steps": 3}
    losses = run(one, tmp_path / "straight", **settings)
    assert run(one, tmp_path / "scored", **settings, train__eval_steps=2) == losses
    with pytest.raises(synthetic.Interrupted):
        one.call(train_until, tmp_path / "cut", settings, 4)
    assert run(one, tmp_path / "cut", **settings) == losses
    calm = run(one, tmp_path / "calm", **settings | {"model": start | {"hidden_dropout_prob": 0.0}})
    assert calm[0] != losses[0]
