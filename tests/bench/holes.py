"""Counts the holes that templates leave in sentences of Wikipedia dumps, with the rule for unknown ones and without.

A hole is a place on a line of text where a template showed nothing and what stands around it shows that a word is
missing: a blank (or an opening bracket) before it, and a blank, a closing mark or a lower-case letter behind it. A mark
that touches the word before it (a footnote), or stands behind the sentence's end, is none.

    python -m tests.bench.holes [--without-lists] DUMP...

Without lists every dump is of a language that no list was made for.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mwparserfromhell.parser import ParserError

from xalign_ray.sources import markup
from xalign_ray.sources.open import Chunks, held_back
from xalign_ray.sources.xml import local_name, stream_elements

HOLE = re.compile(r"(?<=[\w,;] |.[(\[\u201e\u201c\u00ab])\x02+(?=$|[ \w,.;:!?)\]\u201d\u00bb])")
SENTENCE = re.compile(r"[.!?\u3002\u0964\u061f](?=\s|$|[^\x00-\x7f])")
OFFERED = re.compile("\x03[^\x03\x04]*\x04")


def measure(path: str) -> tuple[int, int, int, int]:
    """Sentences, holes without the rule, holes with it, and templates that the rule showed."""
    sentences = before = after = 0
    noted: Counter[str] = Counter()
    for text in _articles(path):
        try:
            lines = markup.rendered_lines(text, markup.Page())
        except (ParserError, RecursionError):
            continue
        for line in lines:
            bare = OFFERED.sub("\x02", line)
            if not any(map(str.isalpha, bare)):
                continue
            sentences += max(1, len(SENTENCE.findall(bare)))
            before += len(HOLE.findall(bare))
            after += len(HOLE.findall(markup.fill(line, noted)))
    return sentences, before, after, noted[markup.SHOWN]


def _articles(path: str) -> Iterator[str]:
    for page in held_back(stream_elements(Chunks(path), ("page",)), []):
        fields = {local_name(element): element.text or "" for element in page.iter()}
        if fields.get("ns", "0") == "0" and "redirect" not in fields:
            yield fields.get("text", "")


def main() -> None:
    """A line a dump."""
    sys.stdout.write(f"{'dump':<34}{'sentences':>10}{'holes per 1,000 before':>24}{'after':>8}{'shown':>8}" + "\n")
    if "--without-lists" in sys.argv:
        markup.words_of_template = lambda *_: None
    for path in (argument for argument in sys.argv[1:] if argument != "--without-lists"):
        sentences, before, after, shown = measure(path)
        scale = 1000 / max(sentences, 1)
        sys.stdout.write(
            f"{Path(path).name[:33]:<34}{sentences:>10,}{before * scale:>24.2f}{after * scale:>8.2f}{shown:>8,}" + "\n"
        )


if __name__ == "__main__":
    main()
