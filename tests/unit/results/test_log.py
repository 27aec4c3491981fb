"""What a report keeps of an event log: exact where the log is short, bounded where it is long."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from tests.unit.results.run_folders import held_out, open_folders, start, step, write_run
from xalign_ray.errors import DataError
from xalign_ray.results.charts import loss_frame
from xalign_ray.results.run import MAX_POINTS, TOTAL, read_log

STEPS = 20_000


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of many steps, the second half of which a resume superseded and did again."""
    path = tmp_path_factory.mktemp("long") / "events.jsonl"
    with path.open("w") as file:
        for attempt, first, loss in ((1, 1, 3.0), (2, STEPS // 2 + 1, 1.0)):
            lines = [start(first - 1, attempt), *(step(n, loss, attempt) for n in range(first, STEPS + 1))]
            file.write("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_of_a_long_log_a_bounded_number_of_points_is_kept_and_no_event(long_log: Path) -> None:
    tracemalloc.start()
    log = read_log(long_log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    total = log.points[log.points.series == TOTAL]
    assert MAX_POINTS / 2 <= len(total) <= MAX_POINTS
    assert total.steps.sum() == STEPS
    assert (total.step.iloc[-1], log.last_step, log.starts[-1]["attempt"]) == (STEPS, STEPS, 2)
    assert set(total.value[total.step <= STEPS // 2]) == {3.0}
    assert set(total.value[total.step > STEPS // 2 + log.width]) == {1.0}
    assert peak < 5e6 < long_log.stat().st_size


def test_runs_of_one_column_that_are_thinned_unequally_are_joined_at_equal_steps(
    long_log: Path, tmp_path: Path
) -> None:
    events = [json.loads(line) for line in long_log.read_text().splitlines()]
    folders = [write_run(tmp_path / f"r{seed}", seed=seed, events=events[: 5000 * seed]) for seed in (1, 2)]
    runs = open_folders(folders)
    assert ({run.label for run in runs}, len({run.log.width for run in runs})) == ({"tiny/mlm"}, 2)
    frame = loss_frame(runs)
    total = frame[frame.series == TOTAL].pivot(index="step", columns="run", values="value")
    assert len(total.dropna()) == 4999 // 8
    assert set(total.dropna().to_numpy().ravel()) == {3.0}


def test_a_short_log_is_kept_as_it_is(tmp_path: Path) -> None:
    events = [start(), step(1, 6.0), step(2, 5.0), held_out(2, {"en": 4.0, "qgr": 5.0})]
    log = read_log(write_run(tmp_path / "run", events=events) / "events.jsonl")
    points = {(row.series, row.language, row.step): (row.value, row.steps) for row in log.points.itertuples()}
    assert points[TOTAL, "", 1] == (6.0, 1)
    assert points["held_out/loss", "qgr", 2] == (5.0, 1)
    assert (len(points), log.width, log.waiting, log.end) == (2 * 2 + 3, 1, 0.05, None)


def test_a_line_that_is_no_event_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", events=[start(), step(1, 6.0)])
    path = run / "events.jsonl"
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(DataError, match=f"{path} line 3 is not an event"):
        read_log(path)
