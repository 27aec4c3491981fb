"""Every panel over several hosts: Prometheus on the head, with the files that dashboards/ ships as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dashboards.generate import HERE
from dashboards.panels import PANELS
from tests.ray.hosts import needs_hosts
from tests.ray.prometheus import asked, program, shipped_panels
from tests.ray.site import PLACED, site
from tests.ray.small import TESTS, batches, write_world

pytestmark = [pytest.mark.ray, pytest.mark.long, needs_hosts]
STEPS, EVERY = 900, 300  # longer than the ten seconds between two looks of Prometheus
ASK = """
import json, sys, time, urllib.parse, urllib.request
found = {}
for query in json.loads(sys.argv[1]):
    words = urllib.parse.urlencode({"query": query, "start": time.time() - 1200, "end": time.time(), "step": 5})
    with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query_range?" + words, timeout=60) as answer:
        found[query] = len(json.load(answer)["data"]["result"])
print(json.dumps(found))
"""


def test_no_panel_is_empty_over_a_study_on_several_hosts(tmp_path: Path) -> None:
    world = [text for text in write_world(tmp_path, sentences=300) if not text.startswith(("output=", "track."))]
    with (tmp_path / "demo" / "wiki" / "en.jsonl").open("ab") as text:
        text.write(b"\xff\xfe is not UTF-8\n")
    tree = {"name": "watched", "encoders": [{"recipe": "tiny/mlm"}], "evaluations": [{"task": "alignment"}]}
    (tmp_path / "watched.yaml").write_text(yaml.safe_dump(tree | {"mlflow": "off"}))
    settings = [*world, *batches(24, 12, STEPS, EVERY, EVERY), *PLACED, "data.held_out_fraction=0.05", TESTS]
    words = [word for setting in settings for word in ("--set", setting)]
    queries = {panel.title: asked(shipped_panels()[panel.title]) for panel in PANELS if not panel.needs_gpu}
    with site(tmp_path) as four:
        config, series = HERE / "prometheus" / "prometheus.yml", tmp_path / "series"
        server = four.start("head", program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={series}")
        server.wait_for(lambda: "Server is ready" in server.said())
        four.submit("study", tmp_path / "watched.yaml", "--out", tmp_path / "runs", *words)
        every = json.dumps([query for own in queries.values() for query in own])
        said = four.hosts["head"].run("python", "-c", ASK, every, environment=four.environment)
    found = json.loads(re.findall(r"^\{.*\}$", said, re.M)[-1])
    assert [title for title, own in queries.items() if not all(map(found.get, own))] == []
