"""The choice of settings: by development scores of manifests alone, over as many seeds as there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.studies.cells import FINETUNING, Cell, Choice, Encoder, write_choices
from xalign_ray.studies.cells import choose as choose_setting
from xalign_ray.studies.declared import Resources
from xalign_ray.studies.rates import rates_at_an_end

LOW, HIGH = 1e-5, 1e-3


def plan(*seeds: int, encoder: str = "a", pretrained: int | None = None) -> list[Cell]:
    return [
        Cell(
            kind=FINETUNING,
            source=Encoder(encoder, Path(), pretrained, model=f"/{encoder}-{pretrained}"),
            label=encoder,
            resources=Resources(),
            task="pos",
            data=("/pos",),
            settings=FineTuning(learning_rate=rate, seed=seed),
            training=Training(),
        )
        for seed in seeds
        for rate in (LOW, HIGH)
    ]


def key_of(cell: Cell) -> tuple[str, float, int]:
    return cell.encoder, cell.settings.learning_rate, cell.seed


def choose(cells: list[Cell], scores: Mapping[tuple[str, float, int], float]) -> list[Choice]:
    """Chooses where fine-tunings, by encoder, learning rate and seed, have these development scores; others none."""
    return choose_setting(cells, {one.name: scores[key_of(one)] for one in cells if key_of(one) in scores})


def rates(choices: list[Choice]) -> dict[str, float | None]:
    return {one.encoder: one.kept["setting"]["learning_rate"] if one.kept else None for one in choices}


def test_the_best_mean_over_seeds_is_kept():
    scores = {("a", LOW, 0): 0.9, ("a", LOW, 1): 0.1, ("a", HIGH, 0): 0.6, ("a", HIGH, 1): 0.5}
    (made,) = choose(plan(0, 1), scores)
    assert rates([made]) == {"a": HIGH}
    assert made.kept
    assert sorted(made.kept["development"].values()) == [0.5, 0.6]


def test_seeds_of_pretraining_count_as_those_of_fine_tuning_do():
    cells = [*plan(0, pretrained=1), *plan(0, pretrained=2)]
    low, high = (0.9, 0.1), (0.6, 0.5)
    found = dict(zip([one.name for one in cells], [low[0], high[0], low[1], high[1]], strict=True))
    (made,) = choose_setting(cells, found)
    assert rates([made]) == {"a": HIGH}


def test_fine_tunings_of_one_encoder_are_averaged_before_encoders_are():
    """As in the report: three seeds on the first encoder weigh no more than one on the second."""
    cells = [*plan(0, 1, 2, pretrained=1), *plan(0, 1, 2, pretrained=2)]
    done = {(1, 0): (0.9, 0.5), (1, 1): (0.9, 0.5), (1, 2): (0.9, 0.5), (2, 0): (0.1, 0.6)}
    found = {
        one.name: done[place][one.settings.learning_rate == HIGH]
        for one in cells
        if (place := (one.source.seed, one.seed)) in done
    }
    (made,) = choose_setting(cells, found)
    assert rates([made]) == {"a": HIGH}  # 0.5 and 0.55; over cells 0.7 and 0.525


def test_the_first_of_equals_is_kept():
    assert rates(choose(plan(0), {("a", LOW, 0): 0.5, ("a", HIGH, 0): 0.5})) == {"a": LOW}


def test_a_setting_that_lacks_a_seed_does_not_compete_with_one_that_has_all():
    scores = {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6, ("a", HIGH, 1): 0.5}
    assert rates(choose(plan(0, 1), scores)) == {"a": HIGH}


def test_each_encoder_has_its_own_choice_and_none_where_nothing_finished():
    both = plan(0) + plan(0, encoder="b") + plan(0, encoder="c")
    scores = {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6, ("b", LOW, 0): 0.1, ("b", HIGH, 0): 0.2}
    assert rates(choose(both, scores)) == {"a": LOW, "b": HIGH, "c": None}


def test_choices_are_written_with_all_candidates(tmp_path: Path):
    cells = plan(0)
    write_choices(tmp_path, choose(cells, {("a", LOW, 0): 0.9, ("a", HIGH, 0): 0.6}))
    (told,) = json.loads((tmp_path / "choices.json").read_text())
    assert (told["encoder"], told["task"], told["training"], told["chosen"]) == ("a", "pos", "english", 0)
    assert told["candidates"][0]["setting"]["learning_rate"] == LOW
    names = [one.name for one in cells]
    assert [candidate["development"] for candidate in told["candidates"]] == [{names[0]: 0.9}, {names[1]: 0.6}]


def test_a_rate_at_an_end_of_those_tried_is_said() -> None:
    chosen = {"mlm": 1e-5, "weam": 5e-5, "ppa": 2e-5, "xlm": 1e-5}
    assert list(rates_at_an_end(chosen, [1e-5, 2e-5, 5e-5])) == [
        "1e-05 is the lowest rate tried: a lower one may be better for mlm, xlm.",
        "5e-05 is the highest rate tried: a higher one may be better for weam.",
    ]
    assert list(rates_at_an_end(chosen, [1e-5])) == []
