"""The keys of `xalign continue`: from options and YAML, with mistakes in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.continuing.five_lines import options_named, read_five_lines
from xalign_ray.errors import ConfigError, DataError

MODEL = "model: e5\n"


def test_yaml_and_options_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("model: e5\npairs: my.csv\nmethod: contrast\ntest: [test.csv]\noutput: runs/mine\n")
    options = {"pairs": ["my.csv"], "method": "contrast", "test": ["test.csv"], "output": "runs/mine"}
    assert read_five_lines(str(file), {}) == read_five_lines("e5", options)


def test_options_win_over_the_file_and_empty_ones_do_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{MODEL}pairs: my.csv\nsteps: 5\nset: {{train.bf16: true}}\n")
    lines = read_five_lines(str(file), {"steps": 7, "pairs": [], "method": "", "output": None})
    assert (lines.steps, lines.pairs, lines.method, lines.set) == (7, ("my.csv",), "auto", ("train.bf16=true",))


@pytest.mark.parametrize("written", ["{train.bf16: true}", "train.bf16=true", "[train.bf16=true]"])
def test_settings_of_the_file_and_of_the_command_line_count(tmp_path: Path, written: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{MODEL}set: {written}\n")
    assert read_five_lines(str(file), {"set": ["seed=2"]}).set == ("train.bf16=true", "seed=2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{MODEL}pair: a.csv", "unknown key 'pair'. Did you mean 'pairs'?"),
        (f"{MODEL}out: runs/x", "unknown key 'out'. Did you mean 'output'?"),
        (
            f"{MODEL}method: contrst",
            "it must be one of auto, contrast, contrast-tlm, add, distill, align, weam, ppa, mlm. Did you",
        ),
        (f"{MODEL}lr: 1e-5", "'lr' is a key of the recipe: write it as set: {train.optimizer.learning_rate: VALUE}."),
        (f"{MODEL}epochs: 3", "'epochs' is a key of the recipe: write it as set: {train.num_train_epochs: VALUE}."),
        (f"{MODEL}steps: 1.5", "'steps' is 1.5; it must be a whole number."),
        (f"{MODEL}steps: 0", "'steps' is 0; it must be at least 1."),
        (f"{MODEL}steps: 3\nhours: 2", "steps and hours are both a length; keep one."),
        (f"{MODEL}budget: 3", "budget needs the price of an hour of the device, such as price H100=2.5."),
        (f"{MODEL}languages: en", "languages names the two sides of the pairs: give two, as in languages en,de."),
        (
            f"{MODEL}text: [de=t.txt]\nkeep: [t.txt]",
            "keep names t.txt, which is trained on: forgetting is measured on other",
        ),
        ("pairs: my.csv", "'model' is required and not given."),
        ("extends: tiny/mlm", "is a recipe (it has the key extends): run it with xalign pretrain"),
        (f"{MODEL}pairs: [", "is not YAML"),
    ],
)
def test_mistakes_are_answered_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_five_lines(str(file), {})
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_yaml_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"There is no file mien\.yaml\. Name a model, or a YAML file"):
        read_five_lines("mien.yaml", {})


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("A step has 64 rows, fewer than parallel.workers 100.", "A step has 64 rows, fewer than --workers 100."),
        ("Continue with --set parallel.workers=2.", "Continue with --workers 2."),
        ("Pairs are in data.tests and in data.parallel.0.", "Pairs are in --test and in --pairs."),
        ("data.dev.0 is empty; see data.dev_fraction.", "--dev is empty; see data.dev_fraction."),
        ("model.init_from: there is no folder", "MODEL: there is no folder"),
        ("Set train.per_device_batch_size=2.", "Set train.per_device_batch_size=2."),
    ],
)
def test_errors_name_the_option_in_place_of_the_key_that_it_writes(said: str, named: str) -> None:
    with pytest.raises(DataError) as error, options_named():
        raise DataError(said)
    assert str(error.value) == named
