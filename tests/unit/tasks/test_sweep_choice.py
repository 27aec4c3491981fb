"""The choice of settings: by development scores of manifests alone, over as many seeds as there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from xalign_ray.finetune.settings import FineTuning
from xalign_ray.tasks.grid import Trial
from xalign_ray.tasks.sweep_choice import SettingChoice, choose_settings, write_choices
from xalign_ray.tasks.sweep_plan import PlannedTrial

LOW, HIGH = 1e-5, 1e-3


def plan(*seeds: int, encoder: str = "a") -> list[PlannedTrial]:
    return [
        PlannedTrial(
            encoder, encoder, Trial("pos", f"/{encoder}", ("/pos",), FineTuning(learning_rate=rate, seed=seed))
        )
        for seed in seeds
        for rate in (LOW, HIGH)
    ]


def choose(planned: list[PlannedTrial], scores: Mapping[tuple[str, float, int], float]) -> list[SettingChoice]:
    """Chooses where trials, by encoder, learning rate and seed, have these development scores; others have none."""
    found = {
        (one.encoder, one.trial.settings.learning_rate, one.trial.settings.seed): one.trial.name for one in planned
    }
    return choose_settings(planned, {found[key]: {"development": score} for key, score in scores.items()})


def rates(choices: list[SettingChoice]) -> dict[str, float | None]:
    return {one.encoder: one.chosen.setting["learning_rate"] if one.chosen else None for one in choices}


def test_the_best_mean_over_seeds_is_kept():
    scores = {("a", LOW, 0): 0.9, ("a", LOW, 1): 0.1, ("a", HIGH, 0): 0.6, ("a", HIGH, 1): 0.5}
    (choice,) = choose(plan(0, 1), scores)
    assert rates([choice]) == {"a": HIGH}
    assert choice.chosen
    assert (choice.chosen.mean, choice.chosen.development) == (0.55, {0: 0.6, 1: 0.5})


def test_the_first_of_equals_is_kept():
    assert rates(choose(plan(0), {("a", LOW, 0): 0.5, ("a", HIGH, 0): 0.5})) == {"a": LOW}


def test_a_setting_that_lacks_a_seed_does_not_compete_with_one_that_has_all():
    scores = {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6, ("a", HIGH, 1): 0.5}
    assert rates(choose(plan(0, 1), scores)) == {"a": HIGH}


def test_each_encoder_has_its_own_choice_and_none_where_no_trial_finished():
    both = plan(0) + plan(0, encoder="b") + plan(0, encoder="c")
    scores = {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6, ("b", LOW, 0): 0.1, ("b", HIGH, 0): 0.2}
    assert rates(choose(both, scores)) == {"a": LOW, "b": HIGH, "c": None}


def test_the_choice_reads_no_test_score():
    planned = plan(0)
    manifests = {
        one.trial.name: {"development": score, "score": 1 - score, "test": 1 - score, "scores": [1 - score]}
        for one, score in zip(planned, (0.2, 0.8), strict=True)
    }
    (choice,) = choose_settings(planned, manifests)
    assert choice.chosen
    assert choice.chosen.trials == {0: planned[1].trial.name}


def test_choices_are_written_with_all_candidates(tmp_path: Path):
    write_choices(tmp_path, choose(plan(0), {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6}))
    (told,) = json.loads((tmp_path / "choices.json").read_text())
    assert (told["encoder"], told["task"], told["training"], told["mean_development"]) == ("a", "pos", "english", 0.9)
    assert told["chosen"]["setting"]["learning_rate"] == LOW
    assert [candidate["development"] for candidate in told["candidates"]] == [{"0": 0.9}, {"0": 0.6}]
