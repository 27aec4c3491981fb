"""Sweeps as they are declared: what YAML may say, which trials it means, and that they outlive their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.tasks.sweep import SWEEPS, LogUniform, RandomSearch, load_sweep
from xalign_ray.tasks.sweep_plan import SWEEP, PlannedTrial, plan_trials, read_plan, settings_of, write_plan

ENCODERS = {"a": "hub/a", "b": "hub/b"}


def write(folder: Path, **changes: Any) -> Path:
    """A sweep over two encoders on tagging, with changes at the top level, and the files that it needs."""
    (folder / "pos").mkdir(exist_ok=True)
    for split in ("train", "dev"):
        (folder / "pos" / f"en.{split}.conllu").touch()
    tree = {
        "root": str(folder),
        "encoders": [{"model": path, "label": label} for label, path in ENCODERS.items()],
        "tasks": [{"task": "pos", "data": ["pos"]}],
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree | changes))
    return folder / "mine.yaml"


def planned(folder: Path, **changes: Any) -> list[PlannedTrial]:
    return plan_trials(load_sweep(str(write(folder, **changes))), ENCODERS, folder)


POS = {"task": "pos", "data": ["pos"]}
RATES = "write a list of numbers above 0, or {log_uniform: [lowest, highest]}."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"serch": {}}, "unknown key 'serch'. Did you mean 'search'?"),
        ({"search": {"kind": "gird"}}, "'search': kind 'gird' is not one of grid, random, asha. Did you mean 'grid'?"),
        ({"search": {"kind": "random"}}, "'search.num_samples' is required and not given."),
        ({"search": {"kind": "random", "num_samples": 1, "learning_rate": [0]}}, f"'search.learning_rate': {RATES}"),
        (
            {"search": {"kind": "random", "num_samples": 1, "learning_rate": {"log_uniform": [1, 0.1]}}},
            "'search.learning_rate': log_uniform is [lowest, highest].",
        ),
        ({"tasks": [POS | {"task": "poss"}]}, "'tasks.0': task 'poss' is not known here. Did you mean 'pos'? Known: "),
        ({"tasks": [POS, {**POS, "data": ["pos"]}]}, "tasks has pos (en) twice; remove one, or give it another name."),
        (
            {"tasks": [POS | {"options": {"num_train_epoch": 2}}]},
            "unknown key 'tasks.0.options.num_train_epoch'. Did you mean 'tasks.0.options.num_train_epochs'?",
        ),
        (
            {"tasks": [POS | {"training": [{"kind": "word_switch"}]}]},
            "'tasks.0.training.0': training.dictionaries is for word_switch, which needs at least one",
        ),
        ({"encoders": [{"label": "a"}]}, "'encoders.0': an encoder is given either by model or by recipe."),
        ({"baseline": "c"}, "baseline 'c' is no label of an encoder. Labels are a, b."),
        (
            {"evaluate": [{"task": "pos", "data": "pos"}]},
            "'evaluate.0': task 'pos' is not known here. Known: alignment",
        ),
        ({"resources": {"cpus_per_trial": 0}}, "'resources.cpus_per_trial' is 0: input should be greater than 0."),
    ],
)
def test_what_a_sweep_cannot_mean_is_said_with_file_key_and_fix(tmp_path: Path, changes: dict[str, Any], said: str):
    file = write(tmp_path, **changes)
    with pytest.raises(ConfigError) as caught:
        load_sweep(str(file))
    assert str(caught.value).startswith(f"{file}: {said}")


def test_an_unknown_sweep_is_told_apart_from_a_model_without_a_task():
    with pytest.raises(
        ConfigError, match=r"no sweep 'reel', .* Did you mean 'real'\? .* tuned with --task and --data\."
    ):
        load_sweep("reel")


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sweeps_of_the_package_are_valid_and_named_as_their_files(path: Path):
    assert load_sweep(path.stem).name == path.stem


def test_settings_of_the_command_line_go_over_the_files(tmp_path: Path):
    sweep = load_sweep(str(write(tmp_path)), ["seeds=[4]", "resources.cpus_per_trial=0.5"])
    assert (sweep.seeds, sweep.resources.cpus_per_trial) == ((4,), 0.5)


def test_a_grid_has_every_combination_once_seed_by_seed(tmp_path: Path):
    search = {"kind": "grid", "learning_rate": [0.1, 0.2], "num_train_epochs": [1, 2]}
    trials = planned(tmp_path, search=search, seeds=[0, 1])
    told = [
        (one.trial.settings.seed, one.encoder, one.setting["learning_rate"], one.setting["num_train_epochs"])
        for one in trials
    ]
    grid = [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    assert told == [(seed, encoder, *setting) for seed in (0, 1) for encoder in ENCODERS for setting in grid]
    assert {one.trial.data for one in trials} == {(str(tmp_path / "pos"),)}


def test_a_tasks_own_option_takes_the_place_of_what_is_searched(tmp_path: Path):
    search = {"kind": "grid", "learning_rate": [0.1, 0.2]}
    trials = planned(tmp_path, search=search, tasks=[POS | {"options": {"learning_rate": 0.5}}])
    assert [(one.encoder, one.setting["learning_rate"]) for one in trials] == [("a", 0.5), ("b", 0.5)]


def test_a_random_search_draws_the_same_for_every_encoder_and_another_seed_draws_otherwise(tmp_path: Path):
    search = {
        "kind": "random",
        "num_samples": 5,
        "learning_rate": {"log_uniform": [1e-5, 1e-3]},
        "num_train_epochs": [1, 2, 3],
    }
    trials = planned(tmp_path, search=search)
    drawn = {label: [one.setting for one in trials if one.encoder == label] for label in ENCODERS}
    assert drawn["a"] == drawn["b"]
    rates = [setting["learning_rate"] for setting in drawn["a"]]
    assert len(set(rates)) == 5
    assert all(1e-5 <= rate <= 1e-3 for rate in rates)
    other = settings_of(RandomSearch(num_samples=5, seed=1, learning_rate=LogUniform((1e-5, 1e-3))))
    assert {setting["learning_rate"] for setting in other}.isdisjoint(rates)


def test_halving_searches_under_the_first_seed_and_other_seeds_wait_for_its_choice(tmp_path: Path):
    search = {"kind": "asha", "num_samples": 2, "learning_rate": {"log_uniform": [1e-5, 1e-3]}}
    trials = planned(tmp_path, search=search, seeds=[7, 8])
    assert {(one.trial.settings.seed, one.repeats) for one in trials} == {(7, False), (8, True)}


def test_kinds_of_training_are_columns_of_their_own_and_english_has_the_plain_name(tmp_path: Path):
    tasks = [POS | {"training": [{"kind": "english"}, {"kind": "translate_train", "languages": ["de"]}]}]
    sweep = load_sweep(str(write(tmp_path, tasks=tasks, baseline="b")))
    assert sweep.labels == ["a", "a translate_train", "b", "b translate_train"]
    trials = plan_trials(sweep, ENCODERS, tmp_path)
    assert [one.label for one in trials] == sweep.labels
    assert len({one.search for one in trials}) == 4


def test_a_trial_that_asks_for_a_gpu_runs_on_it(tmp_path: Path):
    trials = planned(tmp_path, resources={"gpus_per_trial": 0.5})
    assert {one.trial.device for one in trials} == {"cuda"}


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path):
    search = {"kind": "random", "num_samples": 2, "learning_rate": {"log_uniform": [1e-5, 1e-3]}}
    dictionary = {"kind": "word_switch", "dictionaries": ["en-de.txt"]}
    tasks = [POS | {"languages": ["en", "de"], "training": [dictionary]}]
    sweep = load_sweep(str(write(tmp_path, search=search, tasks=tasks)))
    (tmp_path / "pos" / "de.dev.conllu").touch()
    trials = plan_trials(sweep, ENCODERS, tmp_path)
    write_plan(tmp_path, sweep, trials)
    assert read_plan(tmp_path) == (sweep, trials)
    assert trials[0].trial.training.dictionaries == (str(tmp_path / "en-de.txt"),)


def test_a_plan_with_another_trial_in_it_than_it_was_written_with_is_refused(tmp_path: Path):
    sweep = load_sweep(str(write(tmp_path)))
    write_plan(tmp_path, sweep, plan_trials(sweep, ENCODERS, tmp_path))
    tree = json.loads((tmp_path / SWEEP).read_text())
    tree["trials"][0]["trial"]["settings"]["num_train_epochs"] = 99
    (tmp_path / SWEEP).write_text(json.dumps(tree))
    with pytest.raises(
        DataError, match=r"sweep\.json is not a sweep of this version\. Give the sweep without --resume"
    ):
        read_plan(tmp_path)


def test_missing_files_are_found_before_anything_runs(tmp_path: Path):
    file = write(tmp_path)
    (tmp_path / "pos" / "en.dev.conllu").unlink()
    with pytest.raises(DataError, match=r"/pos: no dev file in en, such as en\.dev\.conllu; pos needs it\."):
        plan_trials(load_sweep(str(file)), ENCODERS, tmp_path)


def test_files_that_no_task_reads_are_named_before_a_cluster_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from xalign_ray import sweeps  # imports Ray

    def connect(*_: object) -> None:
        raise TrainingError("no cluster is wanted here")

    monkeypatch.setattr(sweeps, "connect", connect)
    file = write(tmp_path)
    for name in ("de.test.conllu", "german.conllu"):
        (tmp_path / "pos" / name).touch()
    with pytest.raises(TrainingError, match="no cluster is wanted here"):
        sweeps.run(str(file), tmp_path / "runs", ['mlflow="off"'])
    assert capsys.readouterr().err == (
        f"pos: Not read, since no name of the task fits: 1 file, {tmp_path / 'pos' / 'german.conllu'}.\n"
    )
