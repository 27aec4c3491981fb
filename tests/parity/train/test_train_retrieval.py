"""Retrieval while training: equal on any number of workers and at every ZeRO stage, and without effect on training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import TIGHT, run, train_until
from xalign_ray.track.events import read_events
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.loop import build_model
from xalign_ray.train.scoring import MAX_PAIRS, Scoring, retrieval_accuracies

SETTINGS = {"model__hidden_dropout_prob": 0.1, "train__eval_steps": 4, "parallel__zero_stage": 0}


def scored(folder: Path) -> dict[int, dict[str, float]]:
    """The accuracies by step and language of a run."""
    events = [event for event in read_events(folder / "events.jsonl") if event["event"] == "retrieval"]
    for event in events:
        mean = sum(event["languages"].values()) / len(event["languages"])
        assert event["metrics"] == {"retrieval/accuracy": pytest.approx(mean)}
    return {event["step"]: event["languages"] for event in events}


@torch.no_grad()
def slow_accuracies(config: Any) -> dict[str, float]:
    """Of the untrained model, a sentence at a time."""
    encoder = build_model(config, synthetic.SyntheticRows()).eval().encoder
    found = {}
    for name, test in zip(("de", "qaa"), synthetic.SyntheticRows().read_tests("tests", ("", "")), strict=True):
        vectors = []
        for code, texts in ((test.language, test.first), (test.other_language, test.second)):
            language = ["en", "de"].index(code) if code in ("en", "de") else 0
            for ids in texts:
                row = torch.from_numpy(ids.astype(np.int64))[None]
                places, ones = torch.arange(row.shape[1])[None], torch.ones_like(row)
                batch = {"input_ids": row, "position_ids": places, "segment_ids": ones * 0, "example_ids": ones}
                hidden = encoder.encode(batch | {"language_ids": ones * language})
                vectors.append(torch.nn.functional.normalize(hidden[0].mean(dim=0), dim=0))
        first, second = torch.stack(vectors).double().chunk(2)
        similar, own = first @ second.T, torch.arange(len(first))
        right = [(similar.argmax(dim=1) == own).double().mean(), (similar.argmax(dim=0) == own).double().mean()]
        found[name] = float(sum(right) / 2)
    return found


def test_the_untrained_model_equals_a_slow_reference_and_workers_agree(one: Pool, two: Pool, tmp_path: Path) -> None:
    settings = SETTINGS | {"train__retrieval_steps": 3, "model__hidden_dropout_prob": 0.0}
    run(one, tmp_path / "one", **settings, train__per_device_batch_size=8)
    run(two, tmp_path / "two", **settings, train__per_device_batch_size=4)
    alone, apart = scored(tmp_path / "one"), scored(tmp_path / "two")
    assert [*alone] == [0, 3, 6]
    assert alone[0] == pytest.approx(slow_accuracies(synthetic.config(**settings)))
    assert alone[0] != alone[6]
    assert apart == alone


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_zero_stage_scores_alike(two: Pool, tmp_path: Path, stage: int) -> None:
    settings = SETTINGS | {"train__retrieval_steps": 2, "train__max_steps": 4}
    run(two, tmp_path / "0", **settings)
    overrides = TIGHT if stage == 3 else {}
    run(two, tmp_path / "n", **settings | {"parallel__zero_stage": stage}, parallel__deepspeed_overrides=overrides)
    assert scored(tmp_path / "n") == scored(tmp_path / "0")
    assert scored(tmp_path / "n")[0] == pytest.approx(slow_accuracies(synthetic.config(**settings)))


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_losses_are_bit_identical_with_and_without_it(two: Pool, tmp_path: Path, stage: int) -> None:
    settings = SETTINGS | {"parallel__zero_stage": stage, "train__eval_steps": 0}
    without = run(two, tmp_path / "without", **settings, train__retrieval_steps=0)
    assert run(two, tmp_path / "with", **settings, train__retrieval_steps=1) == without
    states = [synthetic.weights(tmp_path / name) for name in ("without", "with")]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert scored(tmp_path / "without") == {}


def test_a_resumed_run_does_not_score_its_beginning_again(one: Pool, tmp_path: Path) -> None:
    settings = SETTINGS | {"train__retrieval_steps": 3, "checkpoint__save_steps": 3}
    with pytest.raises(synthetic.Interrupted):
        one.call(train_until, tmp_path, settings, 4)
    run(one, tmp_path, **settings)
    events = [event for event in read_events(tmp_path / "events.jsonl") if event["event"] == "retrieval"]
    assert [(event["attempt"], event["step"]) for event in events] == [(1, 0), (1, 3), (2, 6)]


@pytest.mark.parametrize(
    ("max_steps", "of_row", "steps"),
    [
        (20, 10_000, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (3, 10_000, [0, 1, 2, 3]),
        (11, 10_000, [0, 2, 4, 6, 8, 10, 11]),
        (20, 30, [0, 10, 20]),  # 20 steps of 8 rows cost 3 x 4,800 passes of a token; the tests have 379 tokens
        (20, 20, [10, 20]),
        (20, 2, [20]),
    ],
)
def test_a_tenth_of_the_run_is_the_default_or_of_its_cost(max_steps: int, of_row: int, steps: list[int]) -> None:
    config = synthetic.config(train__max_steps=max_steps, train__retrieval_steps=None)
    rows: Any = synthetic.SyntheticRows()
    rows.manifest["pools"]["text/en"]["tokens"] = of_row
    nothing: Any = SimpleNamespace(losses={})
    scoring = Scoring(nothing, nothing, config, rows, Workers(0, 1, 0, torch.device("cpu")))
    assert [step for step in range(max_steps + 1) if scoring.is_due(step)] == steps
    assert bool(scoring.notes()) == (of_row < 100)


def accuracies(workers: Workers, tests: list[Any]) -> dict[str, float]:
    config = synthetic.config(parallel__zero_stage=0, parallel__workers=workers.size)
    engine = Engine(build_model(config, synthetic.SyntheticRows(), workers.device), config, workers)
    return retrieval_accuracies(engine, tests, ["en", "de"], workers, "cls", 64)


def test_a_pair_that_stands_twice_is_not_wrong(one: Pool, two: Pool) -> None:
    test = synthetic.retrieval_test("de", "en", 1, 3)
    test = test._replace(first=test.first * 5, second=test.second * 5)
    assert one.call(accuracies, [test])[0] == {"de": 1.0}
    assert two.call(accuracies, [test]) == [{"de": 1.0}] * 2


def test_long_tests_are_thinned_evenly(one: Pool) -> None:
    many = synthetic.retrieval_test("de", "en", 2 * MAX_PAIRS - 1, 4)
    few = synthetic.retrieval_test("de", "en", 1, 4)
    few = few._replace(first=many.first[::2], second=many.second[::2])
    found = one.call(accuracies, [many])[0]
    assert found == one.call(accuracies, [few])[0]
