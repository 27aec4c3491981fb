"""Every panel and alert under a real Prometheus, which scrapes Ray while a small study trains and evaluates."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from dashboards.alerts import ALERTS
from dashboards.generate import HERE
from dashboards.panels import PANELS, Panel
from tests.ray.prometheus import Prometheus, asked, program, shipped_panels
from tests.ray.small import TESTS, batches, recipe, write_world
from tests.unit.conftest import prepare_here
from xalign_ray.studies.study import run_study
from xalign_ray.track.events import EVENT_LOG, Event, read_events
from xalign_ray.train.ray_gauges import CellGauges, RunGauges

pytestmark = pytest.mark.ray
STEPS = 12
SHOWN_WITHIN_S = 30  # after which what has not come will not
AGAIN = "again"
PLANNED, FORGOTTEN_S = f'ray_xalign_planned_token_share{{run="{AGAIN}"}}', 10  # a node forgets after two reports, 6 s
ON_GPUS = ["MFU", "Memory of GPUs", "Use of GPUs"]  # the exception: nothing here has a GPU


@dataclass(frozen=True)
class Watched:
    """The server, and the run that it watched, with its events."""

    prometheus: Prometheus
    run: str
    events: list[Event]


@pytest.fixture(scope="module")
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    request.getfixturevalue("cluster")
    folder = tmp_path_factory.mktemp("watched")
    settings = [*write_world(folder, sentences=300), *batches(24, 12, STEPS, 6, 6), "parallel.workers=2"]
    settings += ["parallel.cpus_per_worker=0.5", "data.held_out_fraction=0.05", TESTS]
    with (folder / "demo" / "wiki" / "en.jsonl").open("ab") as text:
        text.write(b"\xff\xfe is not UTF-8\n")
    prepare_here(recipe(settings, name="tiny/mlm"))
    tree = {"name": "watched", "encoders": [{"recipe": "tiny/mlm"}], "evaluations": [{"task": "alignment"}]}
    (folder / "watched.yaml").write_text(yaml.safe_dump(tree | {"mlflow": "off"}))
    settings = [text for text in settings if not text.startswith(("output=", "track.mlflow="))]
    port = ray.nodes()[0]["MetricsExportPort"]
    prometheus = Prometheus(folder, [f"127.0.0.1:{port}"])
    try:
        prometheus.wait_until_up()
        # The data were prepared with the recipe's own limit; that of the run is below what they have.
        run_study(str(folder / "watched.yaml"), folder / "runs", [*settings, "data.max_bad_fraction=0"])
        (log,) = (folder / "runs").glob(f"tiny-mlm-*/{EVENT_LOG}")
        events = read_events(log)
        # Nodes forget what an ended driver has set, within seconds: the same events again, of a run that does not end.
        with closing(RunGauges(Path(AGAIN), events[0])) as gauges, closing(CellGauges(AGAIN)) as cells:
            for event in events:
                gauges.show(event)
            cells.show({"finished": 2})
            yield Watched(prometheus, log.parent.name, events)
    finally:
        prometheus.kill()


def wait_for(what: Callable[[], Any]) -> Any:
    """Until there is something: Ray shows a gauge some seconds after it is set."""
    until = time.monotonic() + SHOWN_WITHIN_S
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.3)
    return found


def newest(series: dict[str, Any]) -> float:
    return float(series["values"][-1][1])


def test_the_panels_that_may_be_empty_here_are_those_of_gpus() -> None:
    assert [panel.title for panel in PANELS if panel.needs_gpu] == ON_GPUS


@pytest.mark.parametrize("panel", [panel for panel in PANELS if not panel.needs_gpu], ids=lambda panel: panel.title)
def test_no_panel_is_empty(watched: Watched, panel: Panel) -> None:
    empty = [
        expr
        for expr in asked(shipped_panels()[panel.title])
        if not wait_for(lambda q=expr: watched.prometheus.query(q))
    ]
    assert empty == []


@pytest.mark.parametrize("title", ON_GPUS)
def test_the_queries_of_gpu_panels_are_understood(watched: Watched, title: str) -> None:
    assert all(isinstance(watched.prometheus.query(expr), list) for expr in asked(shipped_panels()[title]))


def test_gauges_have_what_the_log_of_the_run_says(watched: Watched) -> None:
    def of(gauge: str) -> list[dict[str, Any]]:
        return watched.prometheus.query(f'ray_xalign_{gauge}{{run="{AGAIN}"}}')

    assert wait_for(lambda: [newest(one) for one in of("step")] == [STEPS])
    last = {kind: [event for event in watched.events if event["event"] == kind][-1] for kind in ("step", "data")}
    assert wait_for(
        lambda: [newest(one) for one in of("train_loss")] == [pytest.approx(last["step"]["metrics"]["train/loss"])]
    )
    (loss,) = of("train_loss")
    assert {name: loss["metric"][name] for name in ("recipe", "method", "seed")} == {
        "recipe": "tiny/mlm",
        "method": "mlm",
        "seed": "0",
    }
    waits = pytest.approx(dict(zip("01", last["data"]["data_wait_ms"], strict=True)))
    assert wait_for(lambda: {one["metric"]["rank"]: newest(one) for one in of("data_wait_ms_by_rank")} == waits)


def test_the_drivers_of_the_run_and_of_the_study_set_theirs_while_they_work(watched: Watched) -> None:
    query = watched.prometheus.query
    assert query(f'ray_xalign_running{{run="{watched.run}"}}')
    states = {one["metric"]["state"] for one in query('ray_xalign_study_cells{study="watched"}')}
    assert states == {"waiting", "running", "finished", "stopped", "failed", "not chosen"}


def test_what_is_set_once_is_shown_as_long_as_the_run_lasts(watched: Watched) -> None:
    def lasts() -> bool:
        times = [time for one in watched.prometheus.query(PLANNED) for time, _ in one["values"]]
        return bool(times) and max(times) - min(times) > FORGOTTEN_S

    assert wait_for(lasts)


def test_the_tokens_of_languages_add_up_and_are_near_their_plan(watched: Watched) -> None:
    (start,) = (event for event in watched.events if event["event"] == "start")
    data = [event for event in watched.events if event["event"] == "data"][-1]
    assert data["step"] == STEPS
    assert sum(data["language_tokens"].values()) == data["metrics"]["data/tokens"]
    assert data["metrics"]["data/rows"] == 24 * STEPS
    assert sum(start["planned_shares"].values()) == pytest.approx(1)
    shares = {code: tokens / data["metrics"]["data/tokens"] for code, tokens in data["language_tokens"].items()}
    assert shares == pytest.approx(start["planned_shares"], abs=0.05)


def test_each_alert_sees_its_series_and_the_one_that_is_due_fires(watched: Watched) -> None:
    query = watched.prometheus.query
    assert [one for alert in ALERTS for one in alert.watched if not wait_for(partial(query, one))] == []
    for alert in ALERTS:
        assert isinstance(query(alert.expr), list)

    assert wait_for(lambda: "XalignBadLinesAboveLimit" in fired(watched.prometheus)), fired(watched.prometheus)
    (group,) = watched.prometheus.ask("rules")["groups"]
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == {alert.name: "ok" for alert in ALERTS}


def fired(prometheus: Prometheus) -> set[str]:
    return {one["metric"]["alertname"] for one in prometheus.query('ALERTS{alertstate="firing"}')}


ENDED = {"running": "0x400"}
TRAINS = {"running": "1x400"}
QUIET = TRAINS | {"event_time_seconds;event=step": "60x400"}
WAITING = TRAINS | {"train_step_ms": "100x400", "data_wait_ms_by_rank;rank=0": "1x400"}
UNSAVED = TRAINS | {"event_time_seconds;event=start": "0x400"}
# Of each alert: a minute, gauges by the minute that make it fire then, and others that must not.
CASES: dict[str, tuple[int, dict[str, str], dict[str, str]]] = {
    "XalignStalledStep": (
        9,
        QUIET | {"step_event_interval_seconds": "10x400"},
        QUIET | {"step_event_interval_seconds": "200x400"},
    ),
    "XalignDataStarvation": (
        15,
        WAITING | {"data_wait_ms_by_rank;rank=1": "60x400"},
        WAITING | {"data_wait_ms_by_rank;rank=1": "40x400"},
    ),
    "XalignLossNotFinite": (
        12,
        {"loss_not_finite": "0 0 0 1 _x400"},  # the driver has ended
        {"loss_not_finite": "0x400"},
    ),
    "XalignBadLinesAboveLimit": (
        5,
        {"data_bad_line_share": "0.02x400", "data_bad_line_limit": "0.01x400"},
        {"data_bad_line_share": "0.01x400", "data_bad_line_limit": "0.01x400"},
    ),
    "XalignNoCheckpoint": (
        65,
        UNSAVED | {"event_time_seconds;event=step": "0+60x400"},
        UNSAVED | {"event_time_seconds;event=checkpoint": "0+60x400"},
    ),
}


def series(gauges: dict[str, str]) -> list[dict[str, str]]:
    """As promtool takes them, of one run; `gauge;tag=value` is a gauge with a further tag."""
    written = []
    for name, values in gauges.items():
        gauge, _, tag = name.partition(";")
        key, _, value = tag.partition("=")
        tags = f'run="a", {key}="{value}"' if tag else 'run="a"'
        written.append({"series": f"ray_xalign_{gauge}{{{tags}}}", "values": values})
    return written


def test_each_alert_fires_when_it_must_and_not_else(tmp_path: Path) -> None:
    assert set(CASES) == {alert.name for alert in ALERTS}
    tests = []
    for alert in ALERTS:
        minute, fires, silent = CASES[alert.name]
        for gauges in (fires, silent, *([fires | ENDED] if "running" in fires else [])):
            expected = [{"exp_labels": {"run": "a", "severity": alert.severity}}] if gauges is fires else []
            judged = {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": expected}
            tests.append({"interval": "1m", "input_series": series(gauges), "alert_rule_test": [judged]})
    tree = yaml.safe_load((HERE / "prometheus" / "alerts.yml").read_text())
    for rule in tree["groups"][0]["rules"]:
        del rule["annotations"]  # promtool wants them word for word
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(tree))
    (tmp_path / "cases.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}))
    done = subprocess.run(
        [program("promtool"), "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_for_prometheus_are_right() -> None:
    promtool(HERE / "prometheus", "check", "rules", "alerts.yml")
    promtool(HERE / "prometheus", "check", "config", "prometheus.yml")


def promtool(folder: Path, *words: str) -> None:
    done = subprocess.run([program("promtool"), *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
