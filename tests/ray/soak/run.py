"""`make soak`: an hour of training over two hosts with something killed every three minutes, and what it cost.

`python -m tests.ray.soak.run [MINUTES] [FOLDER]` writes soak.json (each fault with the seconds that the run stood
still; memory, handles and threads of what lives through it) and soak.png, and fails if a row was lost or done twice
with other numbers, or MLflow lacks a step. Needs root on Linux: hosts are namespaces.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.ray.hosts import Host
from tests.ray.runs import BLOCK_SERVER, TRAIN_WORKER, check_batches, events, starts
from tests.ray.site import PLACED, Site, site
from tests.ray.small import batches, recipe, write_world
from tests.unit.conftest import prepare_here
from xalign_ray.feed.batches import open_local
from xalign_ray.tokens.prepare import prepare
from xalign_ray.track.events import EVENT_LOG, EventReader, Thinning

EVERY_S, LOOK_S, CUT_S, AWAY_S = 180, 10, 20, 30
STAYS = ("gcs_server", "dashboard.py", "-m xalign_ray pretrain", "mlflow")  # on the head, from the beginning to the end
STEPS_PER_S = 12  # about what two cores do; the run is longer than the soak and is stopped, saved, at its end
TRAINERS = ("train-1", "train-2")
HISTORY = """
import json, mlflow
client = mlflow.MlflowClient("http://127.0.0.1:5000")
(run,) = client.search_runs([client.get_experiment_by_name("xalign").experiment_id])
steps = {point.step for point in client.get_metric_history(run.info.run_id, "train/loss")}
print(json.dumps([run.info.status, sorted(steps)]))
"""


def kill(title: str) -> Callable[[Site, Host], None]:
    """Kills one process as the system does when memory is gone."""

    def fault(four: Site, host: Host) -> None:  # noqa: ARG001 - one signature for all faults
        found = [pid for one in four.hosts.values() for pid in one.pids(title)]
        if found:
            psutil.Process(random.choice(found)).kill()

    return fault


def cut(four: Site, host: Host) -> None:
    four.network.plug(host.name, into=False)
    time.sleep(CUT_S)
    four.network.plug(host.name, into=True)


def power_off(four: Site, host: Host) -> None:
    host.power_off()
    time.sleep(AWAY_S)
    four.network.power_on(host.name)
    four.start_node(host.name)


FAULTS: dict[str, Callable[[Site, Host], None]] = {
    "a training process is killed": kill(TRAIN_WORKER),
    "the feed is killed": kill(BLOCK_SERVER),
    "a raylet is killed": kill("/raylet "),
    f"a cable is pulled for {CUT_S} s": cut,
    f"a host is off for {AWAY_S} s": power_off,
}


def measured(four: Site) -> dict[str, list[float]]:
    """MiB of memory, open handles and threads of the processes that stay, by what they are."""
    found: dict[str, list[float]] = {}
    for title in STAYS:
        processes = [psutil.Process(pid) for pid in four.hosts["head"].pids(title)]
        found[title] = [
            sum(one.memory_info().rss for one in processes) / 2**20,
            sum(one.num_fds() for one in processes),
            sum(one.num_threads() for one in processes),
        ]
    return found


def soak(four: Site, run: Path, settings: list[str], minutes: float) -> dict[str, Any]:
    """Trains with a fault every three minutes, in turn, on hosts drawn by a fixed seed; then stops the run, saved."""
    drawn, began = random.Random(0), time.monotonic()
    words = [word for setting in settings for word in ("--set", setting)]
    command = four.submitted("--name", "soak", "pretrain", "tiny/align-mlm", *words, "--out", run)
    job, log = four.start("desk", *command), EventReader(run / EVENT_LOG)
    faults: list[dict[str, Any]] = []
    samples: list[list[Any]] = []
    due, step = began + EVERY_S, 0
    kinds = list(FAULTS)
    while (now := time.monotonic()) < began + 60 * minutes:
        assert not job.has_ended, job.said()
        for event in log.read():
            step = max(step, event["step"] if event["event"] == "step" else 0)
        if now >= due:
            kind, host = kinds[len(faults) % len(kinds)], four.hosts[drawn.choice(TRAINERS)]
            faults.append({"minute": (now - began) / 60, "fault": kind, "host": host.name, "time": time.time()})
            sys.stderr.write(f"step {step:,}: {kind}, {host.name}\n")
            FAULTS[kind](four, host)
            due = now + EVERY_S
        if not samples or now - began > samples[-1][0] + LOOK_S:
            samples.append([now - began, step, measured(four)])
        time.sleep(0.5)
    four.hosts["desk"].run(
        "xalign", "submit", "--address", "http://head:8265", "stop", "soak", environment=four.environment
    )
    return {"minutes": minutes, "faults": faults, "samples": samples, "said": job.said()[-2000:]}


def stood_still(run: Path, faults: list[dict[str, Any]]) -> None:
    """Adds to each fault the longest time between two steps until the next fault, in seconds, redone steps included."""
    steps = [event["time"] for event in events(run) if event["event"] == "step"]
    ends = [*(fault["time"] for fault in faults[1:]), steps[-1]]
    for fault, end in zip(faults, ends, strict=True):
        after = [at for at in steps if fault["time"] - 1 < at <= end]
        fault["seconds_still"] = max((later - at for at, later in itertools.pairwise(after)), default=None)


def check(four: Site, run: Path, settings: list[str]) -> dict[str, Any]:
    """Each step had its planned rows, whenever it was done or done again; MLflow has each step and the run's end."""
    config = recipe([*settings, "parallel.workers=1"])
    done = max(event["step"] for event in events(run) if event["event"] == "step")
    rows = open_local(prepare(config), config, 0, 0)
    check_batches(run, [int(next(rows)["row_hash"].sum(dtype="uint64")) for _ in range(done)])
    said = four.hosts["head"].run("python", "-c", HISTORY, environment=four.environment)
    status, steps = json.loads(said.strip().splitlines()[-1])
    assert status == "KILLED", status
    place = Thinning(config.train.max_steps).place  # of so many steps MLflow keeps some
    assert set(map(place, steps)) == set(map(place, range(1, done + 1)))
    return {"steps": done, "starts": starts(run), "mlflow": status}


def draw(result: dict[str, Any], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True)
    minutes = [at / 60 for at, _, _ in result["samples"]]
    axes[0].plot(minutes, [step for _, step, _ in result["samples"]])
    for row, name in enumerate(("memory, MiB", "open handles", "threads")):
        for title in STAYS:
            axes[row + 1].plot(minutes, [found[title][row] for _, _, found in result["samples"]], label=title)
        axes[row + 1].set_ylabel(name)
    for fault in result["faults"]:
        for one in axes:
            one.axvline(fault["minute"], color="0.85", zorder=0)
    axes[0].set_ylabel("step")
    axes[1].legend()
    axes[3].set_xlabel("minutes; a line is a fault")
    figure.savefig(file, dpi=100)


def main(length: str = "60", folder: str = "soak") -> None:
    minutes, out = float(length), Path(folder).resolve()
    out.mkdir(parents=True)
    world = write_world(out)
    sizes = batches(24, 12, int(minutes * 60 * STEPS_PER_S * 4), saved_every=200)
    prepare_here(recipe([*world, *sizes]))
    with site(out) as four:
        server = four.start("head", *four.of_page("mlflow server"))
        server.wait_for(lambda: "Application startup complete" in server.said())
        followed = ["track.mlflow=http://127.0.0.1:5000", "parallel.max_failures=1000", "parallel.min_workers=1"]
        settings = [*world, *sizes, *PLACED, *followed]
        result = soak(four, out / "run", settings, minutes)
        stood_still(out / "run", result["faults"])
        draw(result, out / "soak.png")
        (out / "soak.json").write_text(json.dumps(result))
        result |= check(four, out / "run", [*world, *sizes])
        (out / "soak.json").write_text(json.dumps(result))
    sys.stderr.write(f"{result['steps']:,} steps, {len(result['starts'])} starts, {len(result['faults'])} faults\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
