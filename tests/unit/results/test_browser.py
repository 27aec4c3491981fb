"""The page in a real browser: nothing hangs over at a phone's width, and text can be read in light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import report_on, score, start, step, write_run, write_study

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium in PATH")

# Each page stands in a frame of its own, since a window has a least width.
HARNESS = """<!doctype html><meta charset="utf-8"><body>%s<script>
function channels(colour) { const c = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  c.fillStyle = colour; c.fillRect(0, 0, 1, 1); return c.getImageData(0, 0, 1, 1).data; }
function luminance(colour) { const [r, g, b] = [...channels(colour)].slice(0, 3).map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }
function behind(view, node) { for (; node; node = node.parentElement) { const own = view.getComputedStyle(node)
  .backgroundColor; if (channels(own)[3] > 250) return own; } return "white"; }
function measure(frame) { const view = frame.contentWindow, page = view.document, found = [];
  const over = [...page.querySelectorAll("body *")].filter(n => n.getBoundingClientRect().right > frame.width &&
    !n.closest(".scroll, pre, details:not([open])")).map(n => n.outerHTML.slice(0, 80));
  for (const node of page.querySelectorAll("h1, h2, h3, p, li, th, td, small, a, figcaption, summary, svg text")) {
    if (!node.textContent.trim()) continue;
    const style = view.getComputedStyle(node), ink = node.tagName == "text" ? style.fill : style.color;
    const pair = [luminance(ink), luminance(behind(view, node))].sort((a, b) => a - b);
    found.push([(pair[1] + 0.05) / (pair[0] + 0.05), node.textContent.slice(0, 40)]); }
  const lines = [...page.querySelectorAll(".panels svg path")].map(n => view.getComputedStyle(n).stroke);
  const boxes = [...page.querySelectorAll(".scroll")].map(n => [n.scrollWidth > n.clientWidth,
    n.clientWidth <= frame.width]);
  return {width: frame.width, paper: view.getComputedStyle(page.body).backgroundColor, over, boxes,
    hang: page.documentElement.scrollWidth - page.documentElement.clientWidth, texts: found.length,
    worst: found.sort((a, b) => a[0] - b[0])[0], colours: [...new Set(lines)]}; }
window.onload = () => { const told = document.createElement("pre"); told.id = "told";
  told.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(measure));
  document.body.append(told); };
</script>"""
FRAME = '<iframe width="{width}" height="800" srcdoc="{page}"></iframe>'


def look(pages: list[Path], folder: Path, scheme: str) -> list[dict[str, Any]]:
    """What a browser makes of pages at 390 and 1,280 px, in turn."""
    assert BROWSER
    texts = [html.escape(page.read_text(encoding="utf-8")) for page in pages]
    frames = [FRAME.format(width=width, page=text) for text in texts for width in (390, 1280)]
    path = folder / f"{scheme}.html"
    path.write_text(HARNESS % "".join(frames), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / scheme}"]
    options += [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", "--dump-dom"]
    done = subprocess.run([BROWSER, *options, path.as_uri()], capture_output=True, text=True, timeout=120)
    (told,) = re.findall(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(html.unescape(told))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A page on one run without scores, and one on a study of eight encoders with everything that a page may have."""
    folder = tmp_path_factory.mktemp("browser")
    alone = report_on([write_run(folder / "alone")], folder / "one")
    cells: list[dict[str, Any]] = []
    for number in range(8):
        label = f"tiny/a-rather-long-name-of-a-recipe-{number}"
        events = [start(data=folder / "data"), step(1, 5.0 - number / 9), start(1, 2), step(2, 4.0, attempt=2)]
        run = write_run(
            folder / f"run{number}", settings=[f"train.optimizer.learning_rate=0.00{number + 1}"], events=events
        )
        own = [score(value=0.1 + number / 20, language=code, run=run.name) for code in ("de", "fr", "hi", "qgr")]
        own += [score(value=layer / 20, layer=layer, language="de", run=run.name) for layer in range(9)]
        cells.append({"kind": "pretraining", "label": label, "folder": str(run)})
        cells.append({"kind": "evaluation", "label": label, "scores": own})
    cells.append({"kind": "finetuning", "label": cells[0]["label"], "state": "failed", "reason": "out of memory " * 20})
    study = write_study(folder / "study", cells)
    return [alone, report_on([study], folder / "many")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_a_phone_and_can_be_read_in_both_schemes(scheme: str, pages: list[Path], tmp_path: Path) -> None:
    views = look(pages, tmp_path, scheme)
    assert [view["width"] for view in views] == ["390", "1280"] * 2
    for view in views:
        assert (view["hang"], view["over"]) == (0, [])
        assert view["texts"] > 20
        assert view["worst"][0] >= 4.5, view["worst"]
        assert all(fits for _, fits in view["boxes"])
    assert any(scrolls for scrolls, _ in views[2]["boxes"])  # a wide table in its own box
    papers = {view["paper"] for view in views}
    assert papers == ({"rgb(255, 255, 255)"} if scheme == "light" else {"rgb(21, 24, 28)"})
    assert len(views[2]["colours"]) >= 8
