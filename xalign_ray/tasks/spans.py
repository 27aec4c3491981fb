"""Spans of tags and their F1: lenient IOB (XTREME), strict IOB2, and runs of equal tags."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

OUTSIDE = "O"
Span = tuple[str, int, int]  # kind, first word, the word behind the last
Cut = Callable[[Sequence[str]], set[Span]]


def lenient_spans(tags: Sequence[str]) -> set[Span]:
    """Spans as conlleval and seqeval read them, and so XTREME: an I- that continues nothing opens a span."""
    return _cut(tags, lambda tag, kind: (tag == f"I-{kind}", tag[2:]))


def strict_spans(tags: Sequence[str]) -> set[Span]:
    """Spans of IOB2 to the letter: only B- opens one, and an I- that continues nothing is none."""
    return _cut(tags, lambda tag, kind: (tag == f"I-{kind}", tag[2:] if tag.startswith("B-") else ""))


def runs(tags: Sequence[str]) -> set[Span]:
    """Maximal runs of one tag: what XTREME's F1 counts where tags have no B- and I-; it is no accuracy."""
    return _cut(tags, lambda tag, kind: (tag == kind, tag))


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], cut: Cut) -> float:
    """Micro-averaged F1 over the spans of all sentences; 0 where neither side has any.

    Args:
        gold: tags of each sentence.
        predicted: as many for each.
        cut: how tags are read as spans.
    """
    hits = spans = 0
    for right, said in zip(gold, predicted, strict=True):
        assert len(right) == len(said), "a tag for each word"
        right_spans, said_spans = cut(right), cut(said)
        hits += len(right_spans & said_spans)
        spans += len(right_spans) + len(said_spans)
    return 2 * hits / spans if spans else 0.0


def count_spans(gold: Sequence[Sequence[str]], cut: Cut) -> int:
    """Number of spans in all sentences."""
    return sum(len(cut(tags)) for tags in gold)


def shuffled_tags(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """A sentence's own tags in an order that depends on its words alone: what the chance level is measured on.

    The majority class is no baseline for spans: for names it is O, which scores 0. Tags in random order know how many
    names of which kind there are and nothing of where, and being hashed they make the level a fact of the file, the
    same in every run.
    """
    return random.Random("\t".join(words)).sample(list(tags), len(tags))


def _cut(tags: Sequence[str], follow: Callable[[str, str], tuple[bool, str]]) -> set[Span]:
    """Spans of all kinds but ""; `follow` says of a tag whether it continues a span, else the kind that it opens."""
    found: set[Span] = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, ""]):
        continues, opened = follow(tag, kind)
        if continues and kind:
            continue
        if kind:
            found.add((kind, start, place))
        start, kind = place, opened
    return found
