"""A run that two workers began goes on under Ray with one; a report shows it."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.ray.runs import ONCE, Curve, actors, calm, check_rows, events, facts, on_ray, started_since, starts
from tests.ray.small import batches, recipe
from tests.unit.results.run_folders import open_folders, report_on
from xalign_ray.config.identity import inputs_of
from xalign_ray.config.load import Recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import StoppedError
from xalign_ray.feed.batches import open_local
from xalign_ray.private.ray import local_node
from xalign_ray.results.charts import RESTARTED, loss_frame, training_chart
from xalign_ray.results.run import TOTAL
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tokens.prepare import prepare
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import train
from xalign_ray.verbs.opened_run import open_run
from xalign_ray.work.job import Job

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, SAVED_EVERY, STOPPED_AT = 24, 8, 7
SIZES = batches(24, 12, STEPS, SAVED_EVERY)


def stopped(workers: Workers, config: RunConfig, folder: Path, prepared_folder: Path) -> None:
    """Trains without Ray until it is asked to stop in the step `STOPPED_AT`."""
    prepared = Prepared.open(prepared_folder)
    words = chain([""] * (STOPPED_AT - 1), repeat("SIGTERM"))
    with pytest.raises(StoppedError):
        train(
            Job(folder, facts(config, prepared), stop_asked=lambda: next(words)),
            config,
            prepared,
            lambda at, rank, _: open_local(prepared, config, at, rank),
            workers,
        )


def rescale(two: Pool, settings: list[str], folder: Path, expected: Curve) -> None:
    """Two workers until they are asked to stop, then one, on Ray: the same rows and losses as the calm run's."""
    config = recipe(settings, "parallel.workers=2")
    before = actors()  # other files' tests share the cluster
    two.call(stopped, config, folder, prepare(config).folder)
    moved = on_ray(recipe(settings, "parallel.workers=1", "parallel.data_cpus=null"), folder)
    assert starts(folder) == [0, STOPPED_AT]
    check_rows(folder, expected)
    assert [loss for _, loss in moved] == pytest.approx([loss for _, loss in expected], rel=1e-4)
    assert set(local_node().all_processes) - {"reaper"} == {"gcs_server", "raylet"}
    assert local_node().dashboard_agent_listen_port != 52365, "Ray's own, which another cluster may have"
    asked = {"RayTrainWorker", "SynchronizationActor"}  # few rows: the worker makes its own
    assert asked <= started_since(before) <= asked | ONCE


def write_config(folder: Path, config: RunConfig) -> None:
    saved = describe_saved(Recipe("tiny/align-mlm", config, {}), inputs_of(config, prepare(config).fingerprint))
    assert saved["fingerprint"] == events(folder)[0]["fingerprint"]
    write_saved(folder, saved)


def test_two_workers_then_one_take_the_same_steps_and_a_report_says_so(
    world: list[str], two: Pool, tmp_path: Path
) -> None:
    """At stage 3; each stage is resharded, and back again, in tests/parity/train, without Ray."""
    settings = [*world, *SIZES, "parallel.zero_stage=3"]
    folders = [tmp_path / name for name in ("plain", "rescaled")]
    expected = calm(two, recipe(settings), folders[0])
    rescale(two, settings, folders[1], expected)
    for folder in folders:
        write_config(folder, recipe(settings))
    runs = open_folders(folders)
    losses = loss_frame(runs)
    chart = training_chart(runs, losses)
    assert chart is not None
    resumed = [tuple(starts(folder)[1:]) for folder in folders]
    assert [len(steps) for steps in resumed] == [0, 1]
    labels = [f"tiny/align-mlm ({folder.name})" for folder in folders]
    assert (list(chart.styles), chart.rings) == (labels, {labels[1]: list(resumed[1])})
    assert losses[losses.series == TOTAL].groupby("label").step.agg(list).to_dict() == {
        label: list(range(1, STEPS + 1)) for label in labels
    }
    page = report_on(folders, tmp_path / "report").read_text(encoding="utf-8")
    assert RESTARTED in page
    plain, rescaled = (open_run(folder).losses.set_index("step").batch_hash for folder in folders)
    assert plain.equals(rescaled)
