"""Writes panels and alerts as Prometheus and Grafana read them; `python -m dashboards.generate` renews the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dashboards.alerts import ALERTS
from dashboards.panels import RAY, ROWS, Panel

HERE = Path(__file__).parent
WIDTH, HEIGHT, ACROSS = 8, 8, 3  # of a panel, in the grid of 24 columns
SOURCE = {"type": "prometheus", "uid": "xalign-prometheus"}
TARGETS = "/tmp/ray/prom_metrics_service_discovery.json"  # written by Ray's head, with every node
EVERY = "10s"  # Ray shows a value for 20 s after its process has ended: scraped twice
HEAD = "# Written by python -m dashboards.generate from panels.py and alerts.py.\n"


def files() -> dict[str, str]:
    """The text of each file, by its name in this folder."""
    return {
        "grafana/dashboards/xalign.json": json.dumps(dashboard(), indent=1) + "\n",
        "grafana/provisioning/datasources/xalign.yaml": _yaml(_data_sources()),
        "grafana/provisioning/dashboards/xalign.yaml": _yaml(_providers()),
        "prometheus/prometheus.yml": _yaml(_scraping()),
        "prometheus/alerts.yml": _yaml(_rules()),
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON."""
    query = f"label_values({RAY}xalign_step, run)"
    run = {
        "name": "run", "label": "Run", "type": "query", "datasource": SOURCE, "definition": query,
        "query": {"query": query, "refId": "run"}, "refresh": 2, "includeAll": True, "allValue": ".*", "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip
    return {
        "uid": "xalign", "title": "xalign-ray", "tags": ["xalign", "ray"], "schemaVersion": 39, "editable": True,
        "refresh": EVERY, "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "templating": {"list": [run]}, "panels": list(_grid()),
    }  # fmt: skip


def _grid() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}  # fmt: skip
        top += 1
        for index, panel in enumerate(panels):
            number += 1
            down, right = divmod(index, ACROSS)
            at = {"x": right * WIDTH, "y": top + down * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel(panel) | {"id": number, "gridPos": at}
        top += -(-len(panels) // ACROSS) * HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "expr": query.expr, "legendFormat": query.legend, "datasource": SOURCE}
        for index, query in enumerate(panel.queries)
    ]
    about = f"{panel.about} Empty where there is no GPU." if panel.needs_gpu else panel.about
    return {
        "type": "timeseries", "title": panel.title, "description": about, "datasource": SOURCE, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"showPoints": "auto"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }  # fmt: skip


def _data_sources() -> dict[str, Any]:
    source = {"name": "xalign Prometheus", "access": "proxy", "url": "http://localhost:9090", "isDefault": True}
    return {"apiVersion": 1, "datasources": [source | SOURCE]}


def _providers() -> dict[str, Any]:
    provider = {"name": "xalign", "type": "file", "folder": "xalign-ray", "disableDeletion": True}
    return {"apiVersion": 1, "providers": [provider | {"options": {"path": "/etc/grafana/dashboards"}}]}


def _scraping() -> dict[str, Any]:
    return {
        "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "ray", "file_sd_configs": [{"files": [TARGETS]}]}],
    }


def _rules() -> dict[str, Any]:
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.hold,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "xalign", "rules": rules}]}


def _yaml(tree: dict[str, Any]) -> str:
    return HEAD + yaml.safe_dump(tree, sort_keys=False, width=1000)


if __name__ == "__main__":
    for name, text in files().items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
