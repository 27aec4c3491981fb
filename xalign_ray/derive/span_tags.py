"""Carries the tags of spans (IOB1, IOB2, IOBES, BILOU) over to words in another order, in the scheme they came in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Tags = Sequence[str]
_TAG = re.compile(r"([BIESLU])-(.+)")
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")
OUTSIDE = "O"


@dataclass(frozen=True)
class Scheme:
    """How a run of words of one span is tagged.

    Attributes:
        name: what it is called.
        inner: first and last letter of a run of two or more, and the letter of a run of one.
        first_if_alone: the first letter where no span of the same kind stands right before, if that is another.
    """

    name: str
    inner: tuple[str, str, str]
    first_if_alone: str = ""


IOB2 = Scheme("IOB2", ("B", "I", "B"))
IOB1 = Scheme("IOB1", ("B", "I", "B"), first_if_alone="I")
IOBES = Scheme("BIOES", ("B", "E", "S"))
BILOU = Scheme("BILOU", ("B", "L", "U"))


def find_scheme(sentences: Sequence[Tags]) -> Scheme | None:
    """The scheme of a file's tags; None if they are not of spans."""
    letters: set[str] = set()
    for tag in (tag for tags in sentences for tag in tags if tag != OUTSIDE):
        if not (found := _TAG.fullmatch(tag)):
            return None
        letters.add(found[1])
    if not letters:
        return None
    if letters & {"L", "U"}:
        return BILOU
    if letters & {"E", "S"}:
        return IOBES
    begins = [(tags, at) for tags in sentences for at in _first_words(tags)]
    needless = any(tags[at][0] == "B" and not (at and tags[at - 1][2:] == tags[at][2:]) for tags, at in begins)
    return IOB1 if any(tags[at][0] == "I" for tags, at in begins) and not needless else IOB2


def reorder_tags(tags: Tags, order: Sequence[int], scheme: Scheme) -> list[str]:
    """The tags of the words in a new order: a span that is torn apart by it becomes several.

    Args:
        tags: of the words as they stood.
        order: for each new place the old one.
    """
    spans = _spans(tags)
    moved = [(spans[place], tags[place][2:]) for place in order]
    first, last, only = scheme.inner
    found: list[str] = []
    for at, (span, kind) in enumerate(moved):
        if not span:
            found.append(OUTSIDE)
            continue
        is_first = not at or moved[at - 1][0] != span
        is_last = at + 1 == len(moved) or moved[at + 1][0] != span
        follows_its_kind = at > 0 and moved[at - 1][0] > 0 and moved[at - 1][1] == kind
        if is_first and scheme.first_if_alone and not follows_its_kind:
            letter = scheme.first_if_alone
        elif is_first:
            letter = only if is_last else first
        else:
            letter = last if is_last else "I"
        found.append(f"{letter}-{kind}")
    return found


def tag_mover(sentences: Sequence[Tags]) -> Callable[[Tags, Sequence[int]], list[str]]:
    """What gives the tags of a sentence in another order, for a file of these sentences: tags of words move alone."""
    scheme = find_scheme(sentences)
    if scheme is None:
        return lambda tags, order: [tags[place] for place in order]
    return lambda tags, order: reorder_tags(tags, order, scheme)


def _spans(tags: Tags) -> list[int]:
    """The number of the span of each word, from 1; 0 outside. Another kind, or I- after an end, opens a new one."""
    numbers: list[int] = []
    count, before = 0, OUTSIDE
    for tag in tags:
        if tag == OUTSIDE:
            numbers.append(0)
        else:
            opens = tag[0] in _BEGINS or before == OUTSIDE or before[0] in _ENDS or before[2:] != tag[2:]
            count += opens
            numbers.append(count)
        before = tag
    return numbers


def _first_words(tags: Tags) -> list[int]:
    """The place of the first word of each span."""
    spans = _spans(tags)
    return [at for at, span in enumerate(spans) if span and (not at or spans[at - 1] != span)]
