"""What events set the gauges of a run to, through a real log."""

from __future__ import annotations

import math
import re
from pathlib import Path

from xalign_ray.config.choices import OBJECTIVES
from xalign_ray.track.events import GAUGES, METRICS, PREFIX, EventGauges, EventLog, begun, gauge_of, read_events

LANGUAGES = {"de": 30, "en": 50}
BAD = {"count": 2, "share": 0.02, "limit": 0.05, "reasons": {"not UTF-8": 2}}


def values(folder: Path) -> dict[tuple[str, ...], float]:
    """After all events of a log: the value of each gauge and its tags."""
    gauges = EventGauges()
    points = [point for event in read_events(folder / "events.jsonl") for point in gauges.points(event)]
    assert all(set(point.tags) == set(GAUGES[point.gauge].tags) for point in points)
    return {(point.gauge.removeprefix("xalign_"), *point.tags.values()): point.value for point in points}


def write_log(folder: Path) -> EventLog:
    """A start, two steps, and what comes with them."""
    log = EventLog(folder / "events.jsonl", 3)
    log.write("start", 4, steps=9, planned_shares={"de": 0.4, "en": 0.6}, bad_rows=BAD)
    log.write("step", 5, {"train/loss": 3.5, "train/loss_masked_lm": 3.25})
    log.write("data", 5, {"data/tokens": 80}, language_tokens=LANGUAGES, data_wait_ms=[5.0, 6.0], held_up_ms=[0.5, 9.0])
    log.write("step", 6, {"train/loss": 3.0, "train/gradient_norm": math.nan})
    return log


def test_each_metric_has_a_gauge_whose_name_prometheus_takes() -> None:
    assert {gauge_of(metric)[0] for metric in METRICS} <= set(GAUGES)
    assert [name for name in GAUGES if not re.fullmatch(r"xalign_[a-z_]+", name)] == []
    assert all(gauge.meaning for gauge in GAUGES.values())


def test_only_losses_of_objectives_are_losses_by_objective() -> None:
    by_kind = {gauge_of(metric)[1]["objective"] for metric in METRICS if gauge_of(metric)[1]}
    assert by_kind == set(OBJECTIVES)


def test_gauges_have_what_the_newest_events_say(tmp_path: Path) -> None:
    write_log(tmp_path).close()
    found = values(tmp_path)
    assert (found["attempt",], found["step",], found["steps",]) == (3, 6, 9)
    assert (found["train_loss",], found["train_loss_by_objective", "masked_lm"]) == (3.0, 3.25)
    assert [found["data_wait_ms_by_rank", rank] for rank in "01"] == [5, 6]
    assert [found["held_up_ms_by_rank", rank] for rank in "01"] == [0.5, 9]
    assert {code: found["tokens_by_language", code] for code in LANGUAGES} == LANGUAGES
    assert (found["planned_token_share", "de"], found["planned_token_share", "en"]) == (0.4, 0.6)
    assert (found["data_bad_lines",], found["data_bad_line_share",], found["data_bad_line_limit",]) == (2, 0.02, 0.05)
    assert found["data_bad_lines_by_reason", "not UTF-8"] == 2


def test_a_number_that_is_not_finite_sets_nothing(tmp_path: Path) -> None:
    write_log(tmp_path).close()
    assert ("train_gradient_norm",) not in values(tmp_path)


def test_the_time_between_step_events_begins_anew_with_an_attempt(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    first, second = (event["time"] for event in read_events(log.path) if event["event"] == "step")
    assert values(tmp_path)["step_event_interval_seconds",] == second - first
    assert values(tmp_path)["event_time_seconds", "step"] == second
    log.write("start", 6)
    log.write("step", 7, {"train/loss": 2.0})
    log.close()
    assert values(tmp_path)["step_event_interval_seconds",] == second - first  # not the pause before the new attempt


def test_a_run_that_never_comes_to_an_event_is_seen_to_stand_still() -> None:
    found = {(point.gauge.removeprefix(PREFIX), *point.tags.values()): point.value for point in begun(1000.0)}
    assert found == {("running",): 1, ("event_time_seconds", "driver"): 1000, ("step_event_interval_seconds",): 0}


def test_no_interval_is_known_before_the_second_step_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", 1)
    log.write("start", 0, steps=9)
    log.write("step", 1, {"train/loss": 3.5})
    log.close()
    assert ("step_event_interval_seconds",) not in values(tmp_path)  # the alert of a stalled step is silent so long


def test_a_loss_that_is_not_finite_is_shown_until_the_next_attempt(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    assert values(tmp_path)["loss_not_finite",] == 0
    log.write("not_finite", 6, text="The loss of step 7 is not finite")
    assert values(tmp_path)["loss_not_finite",] == 1
    log.write("start", 4)
    log.close()
    assert values(tmp_path)["loss_not_finite",] == 0
