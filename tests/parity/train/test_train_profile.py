"""A profile of some steps: its parts are those of the step, fill it, and change nothing that is learned."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.parity.train.pool import Pool
from tests.parity.train.test_train_losses import TOGETHER
from tests.parity.train.test_train_steps import run
from xalign_ray.track.events import read_events

PARTS = {
    "data wait", "counts of the global step", "copy to the device", "forward masked_lm", "forward dictionary_alignment",
    "backward", "optimizer", "encoder", "checkpoint",
}  # fmt: skip


def parts_of(summary: str) -> dict[str, tuple[float, float]]:
    """Milliseconds and share of each line of the first table."""
    lines = summary.splitlines()[2:]
    found = (re.fullmatch(r"(.+?) +([\d.]+) +(-?[\d.]+)%", line) for line in lines)
    return {one[1]: (float(one[2]), float(one[3])) for one in found if one}


def test_a_profile_says_where_the_time_of_a_step_goes(two: Pool, tmp_path: Path) -> None:
    settings = {"train__max_steps": 8, "checkpoint__save_steps": 5, "objectives": TOGETHER}
    plain = run(two, tmp_path / "plain", **settings)
    assert run(two, tmp_path / "profiled", **settings, track={"profile_steps": 4}) == plain
    assert not (tmp_path / "plain" / "profile").exists()
    folder = tmp_path / "profiled" / "profile"
    summary = (folder / "summary.txt").read_text()
    assert summary.startswith("4 steps of rank 0, ")
    parts = parts_of(summary)
    assert parts.keys() >= PARTS
    assert 70 < sum(share for name, (_, share) in parts.items() if name != "encoder") < 101
    for name in ("forward masked_lm", "backward", "optimizer", "checkpoint", "encoder"):
        assert parts[name][0] > 0, name
    assert len(summary.splitlines()) < 40
    assert "aten::" in (folder / "operations.txt").read_text()
    assert max(map(len, summary.splitlines())) <= 80
    spans = {event.get("name") for event in json.loads((folder / "trace.json").read_text())["traceEvents"]}
    assert {"step/backward", "step/forward masked_lm"} <= spans
    (event,) = (one for one in read_events(tmp_path / "profiled" / "events.jsonl") if one["event"] == "profile")
    assert (event["step"], event["steps"]) == (7, 4)
    assert event["text"].startswith(summary.strip())


def test_a_run_shorter_than_its_profile_gives_one_of_what_there_was(one: Pool, tmp_path: Path) -> None:
    run(one, tmp_path, train__max_steps=5, track={"profile_steps": 50})
    assert (tmp_path / "profile" / "summary.txt").read_text().startswith("2 steps of rank 0, ")
