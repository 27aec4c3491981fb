"""What every source yields: documents, sentence pairs and dictionary entries, each knowing where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EMPTY_DOCUMENT = "document is empty"


@dataclass(frozen=True, slots=True)
class Document:
    """Monolingual text: its paragraphs or sentences in order. `line` is the first line or the record number, from 1.

    `duplicate` says of each paragraph whether it stood in its pool before, `near_duplicate` whether a document that is
    nearly like this one did; prepare finds both.
    """

    language: str
    paragraphs: tuple[str, ...]
    source: str
    line: int
    duplicate: Sequence[bool] = ()
    near_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences that translate each other; `alignment` is Pharaoh: `i-j` from 0, over words between blanks.

    `duplicate` has one value for the pair, or none; otherwise as in Document.
    """

    languages: tuple[str, str]
    texts: tuple[str, str]
    source: str
    line: int
    alignment: str | None = None
    duplicate: Sequence[bool] = ()
    near_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a bilingual dictionary: a word and one of its translations."""

    languages: tuple[str, str]
    words: tuple[str, str]
    source: str
    line: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """Input that was set aside: it is counted by `reason` and kept in the file of bad rows, never silently lost."""

    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Input that a reader leaves out on purpose (a redirect, a blank line): counted by `reason`, not a fault."""

    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Noted:
    """Something in the input that is worth a count, of a kind that takes no row away."""

    what: str
    count: int


def list_reasons(counts: Mapping[str, int]) -> str:
    """The reasons and how many rows each has, the most frequent first."""
    return ", ".join(
        f"{reason}: {count:,}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item))
    )


Record = Document | Pair | Entry | BadRow
