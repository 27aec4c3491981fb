"""Recipes of the papers on generated files, shrunk: prepared, seen as often as printed, trained three steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.paper_files import CAP, PAIRS, shrunk, write_encoder, write_files
from tests.unit.conftest import prepare_here
from xalign_ray.config.derive import settle
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import open_saved
from xalign_ray.feed.batches import open_local
from xalign_ray.pretraining import find_run, pretrain
from xalign_ray.shards.planned import count_steps
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.tokens.stats import measure
from xalign_ray.track.events import read_events
from xalign_ray.train.distributed import Workers, setup_workers
from xalign_ray.train.loop import train
from xalign_ray.work.artifacts import read_manifest
from xalign_ray.work.job import Job
from xalign_ray.work.run_folder import RunFolder

# One of each method, start and kind of data. The others differ in languages, sizes or a share: all are planned by
# tests/unit/test_cli.py, and their files are looked up by test_catalogue.py.
PAPERS = ("align-mlm", "align-mlm-baseline-trans", "align-mlm-dict-50-syn", "align-xlm-overlap-50", "xlm", "mbert-mlm")
PAPERS += ("dict-mlm-50-unconditioned", "dict-mlm-90", "dict-tlm", "weam-de", "weam-tlm-zh")
PAPERS += ("ppa-250k", "ppa-600k-mlm", "ppa-250k-no-moco", "ppa-2m-no-tlm")
FACTS = {"recipe": "test", "fingerprint": "ab" * 32}
STEPS = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and shards of all recipes, many of which share theirs."""
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="module")
def encoder(root: Path) -> Path:
    """In the place of mBERT."""
    write_encoder(root / "mbert", load_recipe("papers/ppa-250k").config.data)
    return root / "mbert"


@pytest.fixture(autouse=True)
def _words_are_aligned_here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_run_tasks", lambda tasks, work, *_: [work(task) for task in tasks])
        yield


@pytest.fixture(scope="module")
def workers() -> Workers:
    return setup_workers(load_recipe("tiny/mlm", ["parallel.workers=1"]).config.parallel)


def prepare(recipe: str, settings: list[str]) -> Prepared:
    loaded = load_recipe(recipe, settings)
    return prepare_here(settle(loaded, loaded.config.model.init_from).config)


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_of_the_papers_is_prepared_and_trains(
    name: str, root: Path, encoder: Path, workers: Workers, tmp_path: Path
) -> None:
    recipe = f"papers/{name}"
    write_files(root, load_recipe(recipe).config.data)
    settings = shrunk(recipe, root, encoder)
    prepared = prepare(recipe, settings)
    loaded = load_recipe(recipe, settings)
    length = loaded.config.train
    if length.num_train_epochs:
        stats, _ = measure(recipe, settings, tmp_path)
        counted = count_steps(settle(loaded, loaded.config.model.init_from).config, prepared).train
        pools = [pool for name, pool in prepared.manifest["pools"].items() if name.startswith("pairs/")]
        rows, pairs = (sum(pool[what] for pool in pools) for what in ("rows", "examples"))
        half_a_step = counted.global_batch_size / 2 / rows
        for draw in stats.sampling:
            assert draw.expected_passes == pytest.approx(length.num_train_epochs, abs=half_a_step)
        assert counted.global_batch_size * pairs / rows == pytest.approx(length.pairs_per_step, abs=pairs / rows / 2)
    short = load_recipe(recipe, [*settings, f"train.max_steps={STEPS}"])
    config = count_steps(settle(short, short.config.model.init_from).config, prepared)
    train(
        Job(tmp_path / "run", FACTS),
        config,
        prepared,
        lambda first, rank, _: open_local(prepared, config, first, rank),
        workers,
    )
    steps = [event["metrics"] for event in read_events(RunFolder(tmp_path / "run").events) if event["event"] == "step"]
    assert len(steps) == STEPS
    assert all(math.isfinite(step["train/loss"]) for step in steps)
    named = {f"train/loss_{one.kind}" for one in config.objectives}
    assert all(named <= step.keys() for step in steps)


def test_ppa_caps_a_language_over_both_of_its_files_after_dropping_what_is_short_or_long(
    root: Path, encoder: Path
) -> None:
    recipe = "papers/ppa-2m"
    write_files(root, load_recipe(recipe).config.data)
    prepared = prepare(recipe, shrunk(recipe, root, encoder))
    pools, counts = prepared.manifest["pools"], prepared.manifest["counts"]
    kept = {name.removeprefix("pairs/"): pool["examples"] for name, pool in pools.items() if name.startswith("pairs/")}
    assert kept.pop("bg-en") == CAP, "Europarl and EUbookshop together have more"
    assert all(0.5 * PAIRS < pairs < PAIRS for pairs in kept.values())
    assert counts["dropped: too few pieces"] > 0
    assert counts["dropped: too many pieces together"] > 0


def test_a_run_keeps_the_steps_that_were_counted_for_it(root: Path, encoder: Path) -> None:
    recipe = "papers/weam-tlm-de"
    write_files(root, load_recipe(recipe).config.data)
    loaded = load_recipe(recipe, [*shrunk(recipe, root, encoder), "train.num_train_epochs=0.5"])
    settled = settle(loaded, loaded.config.model.init_from).config
    prepared = prepare_here(settled)
    run = pretrain(loaded, local=True)
    train, counted = open_saved(run)[0].config.train, count_steps(settled, prepared).train
    assert train == counted
    assert train.is_counted
    assert read_manifest(run, "steps")["steps"] == train.max_steps < 3  # type: ignore[index]
    assert find_run(loaded) == run == pretrain(loaded, local=True), "the same recipe finds its run"
    again = load_recipe(str(run / "config.yaml"))
    assert (again.name, find_run(again)) == (recipe, run), "what a run, and a bundle, keep of its recipe is a recipe"
