"""The word order of another language: counts by hand, draws against all orders, subtrees whole, marks in place."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import permutations

import pytest

from xalign_ray.derive.changes import (
    HEAD,
    Sentence,
    Tree,
    WordOrder,
    draw_order,
    fit_word_order,
    read_out,
    siblings_of,
)


def tree(text: str) -> Sentence:
    """A sentence of `word/TAG/head/relation`, heads from 1, 0 the root."""
    words, tags, heads, relations = zip(*(item.split("/") for item in text.split()), strict=True)
    return Sentence(words, Tree(tags, tuple(int(head) - 1 for head in heads), relations))


CAT = tree(
    "the/DET/3/det black/ADJ/3/amod cat/NOUN/4/nsubj saw/VERB/0/root a/DET/6/det bird/NOUN/4/obj ./PUNCT/4/punct"
)
# Adjectives behind, objects before the verb, and nothing of subjects.
OTHER = [tree("kato/NOUN/0/root nigra/ADJ/1/amod")] * 20 + [tree("birdon/NOUN/2/obj vidas/VERB/0/root")] * 20


def order(model: WordOrder, sentence: Sentence) -> str | None:
    places = model(sentence)
    return None if places is None else " ".join(sentence.words[place] for place in places)


def test_what_stands_before_what_is_counted_by_class_of_the_head_with_coarser_labels() -> None:
    model = fit_word_order([CAT, *OTHER])
    amod, obj, det = ("ADJ", "amod"), ("NOUN", "obj"), ("DET", "det")
    assert model.counts["noun", amod, HEAD] == 1
    assert model.counts["noun", HEAD, amod] == 20
    assert model.counts["noun", det, amod] == 1
    assert model.counts["noun", det, HEAD] == 2
    assert model.counts["verb", HEAD, obj] == 1
    assert model.counts["verb", obj, HEAD] == 20
    assert not any("PUNCT" in label or "punct" in label for _, *labels in model.counts for label in labels)
    assert model.score("noun", HEAD, amod) == pytest.approx(math.log(21 / 2)) == -model.score("noun", amod, HEAD)
    assert model.score("noun", HEAD, ("VERB", "amod")) == model.score("noun", HEAD, amod), "the relation is known"
    assert model.score("noun", HEAD, ("ADJ", "compound")) == model.score("noun", HEAD, amod), "the tag is known"
    assert model.score("noun", HEAD, ("X", "dep")) == 0.0


def test_an_unseen_pair_is_judged_by_its_relation_before_its_tag() -> None:
    relation = tree("kato/NOUN/0/root nigra/ADJ/1/amod")  # amod behind
    tag = tree("tri/NUM/2/nummod katoj/NOUN/0/root")  # NUM in front
    model = fit_word_order([relation, tag])
    assert model.score("noun", HEAD, ("NUM", "amod")) == pytest.approx(math.log(2.0)), "amod stands behind"
    assert model.score("noun", HEAD, ("NUM", "dep")) == pytest.approx(-math.log(2.0)), "then the tag decides"
    both = fit_word_order([relation, relation, tag, tree("nigra/NUM/2/amod kato/NOUN/0/root")])
    assert both.score("noun", HEAD, ("NUM", "amod")) == pytest.approx(-math.log(2.0)), "what was seen comes first"


@pytest.mark.parametrize(("temper", "orders"), [(0.0, 2), (1.0, 1)])
def test_temper_scales_what_the_treebank_shows(temper: float, orders: int) -> None:
    counts = fit_word_order(OTHER * 50).counts
    phrase = tree("black/ADJ/2/amod cat/NOUN/0/root")
    assert len({order(WordOrder(counts, seed, temper), phrase) for seed in range(20)}) == orders


def test_draws_are_as_frequent_as_enumeration_says() -> None:
    source = random.Random(7)
    scores = [[0.0] * 4 for _ in range(4)]
    for one in range(4):
        for other in range(one):
            scores[one][other] = source.uniform(-1.5, 1.5)
            scores[other][one] = -scores[one][other]
    weights = {
        items: math.exp(sum(scores[items[i]][items[j]] for i in range(4) for j in range(i + 1, 4)))
        for items in permutations(range(4))
    }
    total, draws = sum(weights.values()), 20_000
    found = Counter(tuple(draw_order(scores, source)) for _ in range(draws))
    for items, weight in weights.items():
        share = weight / total
        assert found[items] / draws == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / draws))


def test_a_sentence_takes_the_order_of_the_other_language_with_its_subtrees_whole() -> None:
    model = fit_word_order(OTHER * 50)
    drawn = {order(WordOrder(model.counts, seed), CAT) for seed in range(30)}
    # What the treebank does not show, where the article and the subject stand, is free.
    assert all(text is not None and text.endswith(".") for text in drawn)
    for text in drawn:
        assert text is not None
        words = text.split()
        assert words.index("cat") < words.index("black")
        assert max(words.index("a"), words.index("bird")) < words.index("saw")
        assert sorted(abs(words.index(word) - words.index("cat")) for word in ("the", "black")) in ([1, 1], [1, 2])
    assert len(drawn) > 1


def test_the_order_depends_on_the_words_and_the_seed_alone() -> None:
    model = fit_word_order(OTHER)
    again = fit_word_order(reversed(OTHER))
    assert [order(model, CAT) for _ in range(3)] == [order(again, CAT)] * 3


def test_marks_keep_their_place_among_their_siblings() -> None:
    sentence = tree(
        '"/PUNCT/2/punct go/VERB/0/root ,/PUNCT/2/punct Bob/PROPN/2/obj now/ADV/2/advmod '
        '"/PUNCT/2/punct !/PUNCT/2/punct'
    )
    moved = {order(WordOrder(fit_word_order(OTHER * 50).counts, seed), sentence) for seed in range(20)}
    assert moved <= {'" Bob , go now " !', '" Bob , now go " !', '" now , Bob go " !'}
    assert len(moved) > 1


def test_heads_that_are_neither_nouns_nor_verbs_keep_their_dependents_where_they_are() -> None:
    sentence = tree("very/ADV/2/advmod old/ADJ/0/root indeed/ADV/2/advmod")
    assert order(fit_word_order([*OTHER, tree("old/ADJ/0/root very/ADV/1/advmod")]), sentence) == "very old indeed"


def test_crossing_trees_cycles_and_more_than_six_dependents_are_left_out() -> None:
    model = fit_word_order(OTHER)
    assert order(model, tree("a/DET/3/det b/VERB/0/root c/NOUN/2/obj d/ADJ/1/dep")) is None
    assert order(model, tree("a/NOUN/2/dep b/NOUN/1/dep c/VERB/0/root")) is None
    for number, usable in ((6, True), (7, False)):
        text = " ".join(["v/VERB/0/root", *(f"n{i}/NOUN/1/obl" for i in range(number)), "./PUNCT/1/punct"])
        assert (order(model, tree(text)) is not None) == usable


def test_reading_out_the_siblings_as_they_stand_gives_projective_sentences_back() -> None:
    source = random.Random(3)
    projective = 0
    for _ in range(300):
        heads = [source.choice([h for h in range(5) if h != place]) for place in range(5)]
        heads[source.randrange(5)] = -1
        given = Tree(("X",) * 5, tuple(heads), ("dep",) * 5)

        def covered(place: int, heads: list[int] = heads) -> set[int] | None:
            """The place and what hangs below it, by climbing from every word."""
            found = set()
            for word in range(5):
                at, steps = word, 0
                while at not in (place, -1) and steps < 6:
                    at, steps = heads[at], steps + 1
                if steps == 6:
                    return None
                if at == place:
                    found.add(word)
            return found

        below = [covered(place) for place in range(5)]
        whole = all(found is not None and max(found) - min(found) + 1 == len(found) for found in below)
        projective += whole
        assert (read_out(siblings_of(given)) == list(range(5))) == whole
    assert 20 < projective < 280
