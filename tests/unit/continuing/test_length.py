"""How long a continued run is: one pass within bounds, or what fits into hours and money."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xalign_ray.config.load import load_recipe
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.continuing.length import choose_steps, steps_of_time
from xalign_ray.errors import ConfigError

E5 = "continue/e5-contrast"


@pytest.mark.parametrize(
    ("pairs", "steps", "said"),
    [
        (
            1280,
            200,
            "200 steps: 10 passes over 1,280 pairs in steps of 64, at least 200 (--steps sets another number).",
        ),
        (
            100,
            16,
            "16 steps: 10 passes over 100 pairs in steps of 64, at most 10 passes (--steps sets another number).",
        ),
        (3, 1, "1 step: 21 passes over 3 pairs in steps of 64 (--steps sets another number)."),
        (64_000, 1000, "1,000 steps: 1 pass over 64,000 pairs in steps of 64 (--steps sets another number)."),
        (1_000_000, 2000, "2,000 steps: 0.13 passes over 1,000,000 pairs in steps of 64, at most 2,000"),
    ],
)
def test_one_pass_over_the_pairs_within_bounds(pairs: int, steps: int, said: str) -> None:
    found, words = choose_steps(read_five_lines("e5", {}), load_recipe(E5), pairs)
    assert found == steps
    assert words.startswith(said)


def test_one_pass_over_text_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_bytes(b"a" * (500 * 32 * 128 * 4))
    text = f"data.corpora=[{{format: text, language: de, paths: [{tmp_path / 'de.txt'}]}}]"
    recipe = load_recipe("continue/mlm", [text, "data.max_seq_length=128", "train.global_batch_size=32"])
    assert choose_steps(read_five_lines("e5", {}), recipe, 0)[0] == 500


def test_money_is_hours_of_the_device(tmp_path: Path) -> None:
    recipe = load_recipe(E5, ["parallel.gpus_per_worker=1"])
    hours = steps_of_time(read_five_lines("e5", {"hours": 2.0, "price": ["H100=2"]}), recipe, tmp_path, 200)
    money = steps_of_time(read_five_lines("e5", {"budget": 4.0, "price": ["H100=2"]}), recipe, tmp_path, 200)
    assert hours[0] == money[0] > 1000
    assert "assumed, not measured" in money[1]
    assert list(tmp_path.iterdir()) == []


def test_longer_pairs_leave_fewer_steps(tmp_path: Path) -> None:
    recipe = load_recipe(E5)
    lines = read_five_lines("e5", {"hours": 5.0})
    short, long = (steps_of_time(lines, recipe, tmp_path, size)[0] for size in (50, 200))
    assert short == pytest.approx(4 * long, rel=0.1)


def test_measured_rate_is_kept_so_that_the_same_command_has_the_same_steps(tmp_path: Path) -> None:
    recipe = load_recipe(E5)
    lines = read_five_lines("e5", {"hours": 1.0})
    first = steps_of_time(lines, recipe, tmp_path, 200)
    assert first == steps_of_time(lines, recipe, tmp_path, 200)
    assert (tmp_path / "rate.json").is_file()
    assert re.search(r"measured on this machine, kept in .*rate\.json", first[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hours": 1e-6}, "is less than one step"),
        ({"budget": 1.0, "price": ["H100=2"]}, "needs the price of an hour of CPU: --price CPU=2."),
    ],
)
def test_lengths_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        steps_of_time(read_five_lines("e5", options), load_recipe(E5), tmp_path, 200)
