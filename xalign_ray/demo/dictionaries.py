"""Bilingual dictionaries of the embedded world: all concepts, noise entries, and a shuffled copy as a control."""

from __future__ import annotations

import random

from xalign_ray.demo.concepts import load_concepts
from xalign_ray.demo.languages import Language

NOISE_SHARE = 0.1  # wrong entries, as a share of the right ones


def list_entries(source: Language, target: Language, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All right entries and, apart, the wrong ones: a word with the translation of another."""
    rng = random.Random(f"noise/{source.code}/{target.code}/{seed}")
    words = [concept.word for concept in load_concepts()]
    right = [(source.words[word], target.words[word]) for word in words]
    wrong = [(source.words[word], target.words[other]) for word, other in _mismatches(words, rng)]
    return right, wrong


def _mismatches(words: list[str], rng: random.Random) -> list[tuple[str, str]]:
    chosen = rng.sample(words, 2 * round(NOISE_SHARE * len(words)))
    return list(zip(chosen[::2], chosen[1::2], strict=True))


def shuffle_targets(entries: list[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """The same source words and target words, no source word with a target that the entries give it."""
    sources = [source for source, _ in entries]
    targets = [target for _, target in entries]
    forbidden = set(entries)
    while True:
        rng.shuffle(targets)
        for position in range(len(targets)):
            if (sources[position], targets[position]) in forbidden:
                other = rng.randrange(len(targets))
                targets[position], targets[other] = targets[other], targets[position]
        shuffled = list(zip(sources, targets, strict=True))
        if forbidden.isdisjoint(shuffled):
            return shuffled
