"""What happens between hosts: a cable pulled for 20 s, a node that goes and comes back, a head that is started anew."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ray.train import ScalingConfig

from tests.parity.train.pool import Pool
from tests.ray.head import Job
from tests.ray.hosts import needs_hosts
from tests.ray.runs import TRAIN_WORKER, Curve, calm, check_rows, curve, events, reached, starts
from tests.ray.site import PLACED, Site, site
from tests.ray.small import batches, recipe

pytestmark = [pytest.mark.ray, pytest.mark.long, needs_hosts]
STEPS, SAVED_EVERY, CUT_AT, CUT_S = 400, 40, 100, 20
SIZES = batches(24, 12, STEPS, SAVED_EVERY)


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def expected(world: list[str], two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    return calm(two, recipe([*world, *SIZES, "parallel.workers=2"]), tmp_path_factory.mktemp("calm"))


def pretrain(four: Site, world: list[str], run: Path, *more: str) -> Job:
    settings = [*world, *SIZES, *PLACED, *more]
    words = [word for setting in settings for word in ("--set", setting)]
    return four.start("desk", *four.submitted("pretrain", "tiny/align-mlm", *words, "--out", run))


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[None]:
    """Afterwards says how long the run stood still: the longest time between two steps, the fault's own included."""
    yield
    times = [(event["time"], event["step"]) for event in events(tmp_path / "run") if event["event"] == "step"]
    still, step = max(
        ((after - before, step) for (before, step), (after, _) in itertools.pairwise(times)), default=(0, 0)
    )
    with capsys.disabled():
        sys.stderr.write(f"{still:.1f} s from step {step} to the next one\n")


def sizes(run: Path) -> list[int]:
    """With how many workers each attempt at a run began."""
    return [event["workers"] for event in events(run) if event["event"] == "start"]


@pytest.mark.usefixtures("report")
def test_a_cable_that_is_pulled_for_20_s_costs_no_row(
    four: Site, world: list[str], expected: Curve, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = pretrain(four, world, run)
    job.wait_for(reached(run, CUT_AT))
    four.network.plug("train-2", into=False)
    time.sleep(CUT_S)
    four.network.plug("train-2", into=True)
    assert job.end() == 0, job.said()
    assert curve(run, STEPS) == expected
    check_rows(run, expected)


@pytest.mark.usefixtures("report")
def test_a_run_goes_on_smaller_when_a_host_is_lost_and_grows_when_it_is_back(
    four: Site, world: list[str], expected: Curve, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = pretrain(four, world, run, "parallel.min_workers=1")
    job.wait_for(reached(run, CUT_AT))
    four.hosts["train-2"].power_off()
    job.wait_for(reached(run, CUT_AT - SAVED_EVERY + 1, attempt=2))
    (alone,) = four.hosts["train-1"].pids(TRAIN_WORKER)
    psutil.Process(alone).suspend()  # a run of seconds would be over before the host is back
    four.network.power_on("train-2")
    node = four.start_node("train-2")
    node.wait_for(lambda: "Ray runtime started" in node.said())
    time.sleep(ScalingConfig().elastic_resize_monitor_interval_s + 5)
    psutil.Process(alone).resume()
    assert job.end() == 0, job.said()
    assert sizes(run) == [2, 1, 2]
    assert "the workers start again: room for more workers" in job.said()
    check_rows(run, expected)
    losses = [loss for _, loss in curve(run, STEPS)]
    assert losses == pytest.approx([loss for _, loss in expected], rel=1e-3)


@pytest.mark.usefixtures("report")
def test_a_head_that_is_lost_ends_the_job_in_words_and_the_same_command_goes_on(
    four: Site, world: list[str], expected: Curve, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    job = pretrain(four, world, run)
    job.wait_for(reached(run, CUT_AT))
    four.hosts["head"].power_off()
    assert job.end() == 1
    assert "Traceback" not in job.said()
    assert (
        "\nxalign: The cluster at http://head:8265 has not answered for 60 s what has become of pretrain-" in job.said()
    )
    four.network.power_on("head")
    four.start_head()
    again = pretrain(four, world, run, "parallel.nodes_timeout_s=200")  # nodes join again as they find the new head
    assert again.end() == 0, again.said()
    assert curve(run, STEPS) == expected
    check_rows(run, expected)
    assert starts(run)[1] >= CUT_AT - SAVED_EVERY
