"""The word order of another language for English trees: a model of precedence among siblings (T_syn of ALIGN-MLM).

A small form of Galactic Dependencies (Wang and Eisner 2016), which the paper uses: the head and its dependents are put
in another order wherever the head is a noun or a verb, by what a treebank of the other language shows of pairs.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

# Sentences with their dependency trees, which can be put in another order.

ROOT = -1


@dataclass(frozen=True, slots=True)
class Tree:
    """A dependency tree over N words.

    Attributes:
        tags: universal parts of speech [N].
        heads: place of each word's head from 0, ROOT for the root [N].
        relations: universal relations, without what languages add behind a colon [N].
    """

    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and their tree where it is known."""

    words: tuple[str, ...]
    tree: Tree | None = None

    def in_order(self, places: Sequence[int]) -> Sentence:
        """The sentence with its words in another order; `places` says for each new place the old one."""
        words = tuple(self.words[place] for place in places)
        if self.tree is None:
            return Sentence(words)
        new = {old: place for place, old in enumerate(places)} | {ROOT: ROOT}
        return Sentence(
            words,
            Tree(
                tuple(self.tree.tags[place] for place in places),
                tuple(new[self.tree.heads[place]] for place in places),
                tuple(self.tree.relations[place] for place in places),
            ),
        )


MAX_DEPENDENTS = 6  # of a noun or verb; a sentence with more is left out, as in the paper
SMOOTHING = 1.0
# Pairs alone overshoot, because what agrees is counted for each pair: docs/explanation/methods.md, Derived languages.
TEMPER = 0.8
PUNCTUATION = "punct"
HEAD_CLASSES = {"NOUN": "noun", "PROPN": "noun", "PRON": "noun", "VERB": "verb"}

Label = tuple[str, str]  # tag and relation of a dependent
HEAD: Label = ("HEAD", "HEAD")


@dataclass(frozen=True)
class WordOrder:
    """Scores of pairs: a positive one says that the first stands before the second.

    Attributes:
        counts: how often label a stood before label b under a head of a class, by (class, a, b); of labels, of their
            relations alone, and of their tags alone, each as labels with the other part empty.
        seed: of the draw of each sentence's order, which depends on its words and nothing else.
    """

    counts: Counter[tuple[str, Label, Label]]
    seed: int = 0
    temper: float = TEMPER

    def __call__(self, sentence: Sentence) -> list[int] | None:
        """The order of T_syn, drawn from the model; None for a tree that is not projective or has too many dependents.

        Subtrees move whole. Punctuation keeps its place among its siblings.
        """
        assert sentence.tree is not None
        siblings = siblings_of(sentence.tree)
        if any(
            sum(place != head and sentence.tree.relations[place] != PUNCTUATION for place in places) > MAX_DEPENDENTS
            for head, places in siblings.items()
            if sentence.tree.tags[head] in HEAD_CLASSES
        ):
            return None
        if read_out(siblings) != list(range(len(sentence.words))):
            return None
        source = random.Random(f"{self.seed}/{' '.join(sentence.words)}")
        tree = sentence.tree
        return read_out({head: self._draw(tree, head, siblings[head], source) for head in sorted(siblings)})

    def score(self, kind: str, first: Label, second: Label) -> float:
        """log((n(first, second) + s) / (n(second, first) + s)); of relations, then tags, where the pair is unseen."""
        for left, right in zip(_coarser(first), _coarser(second), strict=True):
            before, after = self.counts[kind, left, right], self.counts[kind, right, left]
            if before + after:
                return math.log((before + SMOOTHING) / (after + SMOOTHING))
        return 0.0

    def _draw(self, tree: Tree, head: int, places: Sequence[int], source: random.Random) -> list[int]:
        kind = HEAD_CLASSES.get(tree.tags[head])
        free = [place for place in places if place == head or tree.relations[place] != PUNCTUATION]
        if kind is None or len(free) < 2:
            return list(places)
        labels = [label_of(tree, place, head) for place in free]
        scores = [[self.temper * self.score(kind, a, b) for b in labels] for a in labels]
        drawn = iter([free[item] for item in draw_order(scores, source)])
        moved = set(free)
        return [next(drawn) if place in moved else place for place in places]


def fit_word_order(treebank: Iterable[Sentence], seed: int = 0) -> WordOrder:
    """Counts the order of siblings under the nouns and verbs of a treebank, punctuation left out."""
    counts: Counter[tuple[str, Label, Label]] = Counter()
    for sentence in treebank:
        assert sentence.tree is not None
        for head, places in siblings_of(sentence.tree).items():
            if kind := HEAD_CLASSES.get(sentence.tree.tags[head]):
                labels = [
                    label_of(sentence.tree, place, head)
                    for place in places
                    if place == head or sentence.tree.relations[place] != PUNCTUATION
                ]
                for pair in combinations(labels, 2):
                    counts.update((kind, *coarse) for coarse in zip(*map(_coarser, pair), strict=True))
    return WordOrder(counts, seed)


def label_of(tree: Tree, place: int, head: int) -> Label:
    """Tag and relation of a dependent, or HEAD."""
    return HEAD if place == head else (tree.tags[place], tree.relations[place])


def _coarser(label: Label) -> tuple[Label, Label, Label]:
    tag, relation = label
    return label, ("", relation), (tag, "")


def siblings_of(tree: Tree) -> dict[int, list[int]]:
    """For each word that has dependents: itself and them, in the order of the sentence; ROOT has those without head."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for place, head in enumerate(tree.heads):
        found[head].append(place)
    return {head: sorted([*places, head]) if head != ROOT else places for head, places in found.items()}


def read_out(siblings: dict[int, list[int]]) -> list[int]:
    """The words of a tree whose siblings stand in these orders: every subtree is one run of words.

    With the siblings in the order of the sentence it gives back the sentence if and only if the tree is projective.
    Words on a cycle are in none.
    """
    found: list[int] = []
    todo = [(place, False) for place in reversed(siblings.get(ROOT, []))]
    while todo:
        place, is_word = todo.pop()
        if is_word or place not in siblings:
            found.append(place)
        else:
            todo += [(item, item == place) for item in reversed(siblings[place])]
    return found


def draw_order(scores: Sequence[Sequence[float]], source: random.Random) -> list[int]:
    """An order pi of n items, drawn with probability proportional to exp(sum over i < j of scores[pi_i][pi_j]).

    Exact, by sums over the 2^n sets of items that may stand first, in place of the n! orders.
    """
    number = len(scores)
    whole = (1 << number) - 1
    rest = [0.0] * (whole + 1)  # log of the sum over all orders of what is not in the set, the set standing before
    steps: list[list[tuple[int, float]]] = [[] for _ in range(whole + 1)]
    for placed in range(whole - 1, -1, -1):
        for item in range(number):
            if not placed >> item & 1:
                gained = sum(scores[before][item] for before in range(number) if placed >> before & 1)
                steps[placed].append((item, gained + rest[placed | 1 << item]))
        most = max(value for _, value in steps[placed])
        rest[placed] = most + math.log(sum(math.exp(value - most) for _, value in steps[placed]))
    order, placed = [], 0
    while placed != whole:
        weights = [math.exp(value - rest[placed]) for _, value in steps[placed]]
        (item,) = source.choices([item for item, _ in steps[placed]], weights)
        order.append(item)
        placed |= 1 << item
    return order
