"""The files in dashboards/ are what their generator gives, and each metric of the list is shown or left out by name."""

from __future__ import annotations

from collections import Counter

from dashboards.generate import HERE, dashboard, files
from dashboards.panels import NOT_SHOWN, PANELS, RAY
from xalign_ray.track.events import GAUGES, METRICS, gauge_of


def test_the_files_are_what_the_generator_gives() -> None:
    there = {path.relative_to(HERE).as_posix() for path in HERE.rglob("*") if path.suffix in (".json", ".yaml", ".yml")}
    assert there == set(files())
    for name, text in files().items():
        assert (HERE / name).read_text(encoding="utf-8") == text, "renew it: python -m dashboards.generate"


def test_each_metric_is_shown_or_left_out_with_a_reason() -> None:
    asked = " ".join(query.expr for panel in PANELS for query in panel.queries)
    shown = {metric for metric in METRICS if f"{RAY}{gauge_of(metric)[0]}{{" in asked}
    assert shown | set(NOT_SHOWN) == set(METRICS)
    assert shown & set(NOT_SHOWN) == set()


def test_each_gauge_that_is_no_metric_is_shown_or_judged() -> None:
    text = "".join(files().values())
    own = set(GAUGES) - {gauge_of(metric)[0] for metric in METRICS}
    assert [gauge for gauge in sorted(own) if RAY + gauge not in text] == ["xalign_attempt"]


def test_panels_do_not_overlap_and_have_titles_and_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    for key in ("id", "title"):
        assert [value for value, count in Counter(panel[key] for panel in panels).items() if count > 1] == []
    cells = Counter(
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert set(cells.values()) == {1}
    assert max(x for x, _ in cells) == 23
