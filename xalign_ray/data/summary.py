"""Adds up what became of the rows of each source, read, kept and set aside by reason, and says it in lines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from xalign_ray.data.bad_rows import merge_counts
from xalign_ray.data.inputs import Input
from xalign_ray.data.sources.broken import BrokenFile
from xalign_ray.data.sources.formats import NOTED

KEPT = "kept"  # lines or pairs of which something is trained on or held out
NO_WORDS = "no words"
OVER_MAX_PAIRS = "over max_pairs"
LEFT_FILES = "files_not_read_on"
_SET_ASIDE = ("dropped: ", "skipped: ")


@dataclass(frozen=True)
class SourceSummary:
    """What became of one source; `rows` is `kept` and all of `set_aside`.

    A row is a line of text, a pair or an entry; what cannot be cut into lines (a bad record, a skipped page) is one.
    """

    name: str  # the pool, or the languages of a dictionary
    files: list[str]  # their names: the same inputs elsewhere make the same manifest
    rows: int
    kept: int
    set_aside: dict[str, int]
    noted: dict[str, int] = field(default_factory=dict)  # what takes no row away
    files_not_read_on: int = 0  # files left when they had given data.max_pairs

    def __str__(self) -> str:
        files = self.files[0] + (f" and {len(self.files) - 1} more" if len(self.files) > 1 else "")
        aside = sorted(self.set_aside.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{reason} {count:,}" for reason, count in aside)
        noted = "".join(f"; {what}: {count:,}" for what, count in self.noted.items())
        left = f"; not read on after max_pairs: {self.files_not_read_on} files" if self.files_not_read_on else ""
        listed = listed and f"; set aside: {listed}"
        return f"{self.name} ({files}): {self.rows:,} rows in, {self.kept:,} kept{listed}{noted}{left}"


def summarize(one: Input, records: Sequence[Mapping[str, Any]]) -> SourceSummary:
    """Of a source of text or pairs, from what its parts say of themselves."""
    counts = merge_counts([record["counts"] for record in records])
    bad = merge_counts([record["bad_rows"] for record in records])
    aside: Counter[str] = Counter(bad)
    for key, count in counts.items():
        if (prefix := next((prefix for prefix in _SET_ASIDE if key.startswith(prefix)), None)) is not None:
            aside[key.removeprefix(prefix)] += count
    skipped = sum(count for key, count in counts.items() if key.startswith("skipped: "))
    return SourceSummary(
        name=one.pool,
        files=file_names(one),
        rows=counts.get("lines", 0) + counts.get("pairs", 0) + sum(bad.values()) + skipped,
        kept=counts.get(KEPT, 0),
        set_aside={reason: count for reason, count in sorted(aside.items()) if count},
        noted={key.removeprefix(NOTED): count for key, count in counts.items() if key.startswith(NOTED)},
        files_not_read_on=counts.get(LEFT_FILES, 0),
    )


def file_names(one: Input) -> list[str]:
    """Of a source, in its order."""
    return list(dict.fromkeys(path.rpartition("/")[2] for part in one.parts for path in part.paths))


def missing_held_out(pools: Mapping[str, Mapping[str, Any]], held_out: Mapping[str, Any]) -> dict[str, int]:
    """Lines of each language of which none was drawn to be held out."""
    texts = {name.removeprefix("text/"): pool for name, pool in pools.items() if name.startswith("text/")}
    return {
        language: pool["counts"].get("lines", 0)
        for language, pool in sorted(texts.items())
        if f"text/{language}" not in held_out
    }


def lines(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What `prepare` ends with: a line a source, then what else is left out."""
    for source in manifest["sources"]:
        yield str(SourceSummary(**source))
    for broken in manifest["broken_files"]:
        yield f"warning: {BrokenFile(**broken)}"
    if missing := manifest["held_out_missing"]:
        yield explain_missing(missing)


def say_lines(manifest: Mapping[str, Any]) -> None:
    """The same for the user, on the standard error of the process that asked."""
    sys.stderr.writelines(f"prepare: {line}\n" for line in lines(manifest))


def explain_missing(missing: Mapping[str, int]) -> str:
    """The sentence for languages without held-out rows."""
    listed = ", ".join(f"{language} ({count:,} lines)" for language, count in missing.items())
    return f"held-out loss: no rows of {listed}: none of so few was drawn by data.held_out_fraction"


def as_fields(sources: Sequence[SourceSummary]) -> list[dict[str, Any]]:
    """For the manifest."""
    return [asdict(source) for source in sources]
