"""The derived language: its code, words, sentences, inversion, and changes of order one after the other."""

from __future__ import annotations

import pytest

from xalign_ray.config.language_codes import check_language
from xalign_ray.derive.changes import (
    Sentence,
    Tree,
    check_changes,
    compose,
    derived_language,
    invert,
    split_sentences,
    split_words,
)
from xalign_ray.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (["trans"], "en-x-trans"),
        (["inv", "trans"], "en-x-inv"),
        (["trans", "inv"], "en-x-inv"),
        (["syn", "trans"], "en-x-syn"),
        (["inv", "syn", "trans"], "en-x-inv-syn"),
        (["syn", "inv"], "en-x-syn-inv-latn"),
    ],
)
def test_the_code_of_a_language_is_a_valid_one_that_says_its_changes(changes: list[str], code: str) -> None:
    assert derived_language(changes) == code == check_language(code)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["inf"], "--changes inf: unknown change 'inf'. Did you mean 'inv'? Known: inv, syn, trans."),
        (["inv", "inv"], "--changes inv,inv: name each of inv, syn, trans at most once, and one."),
        ([], "--changes : name each of inv, syn, trans at most once, and one."),
    ],
)
def test_changes_that_cannot_be_are_refused(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_changes(changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ('He said, "Go!"', ["He", "said", ",", '"', "Go", "!", '"']),
        ("I don't know the dog's name", ["I", "do", "n't", "know", "the", "dog", "'s", "name"]),
        ("she 's here", ["she", "'s", "here"]),
        ("U.S. law of Mr. J. Smith.", ["U.S.", "law", "of", "Mr.", "J.", "Smith", "."]),
        ("well-known (1990) $5.50", ["well-known", "(", "1990", ")", "$", "5.50"]),
        ("wait ...", ["wait", ".", ".", "."]),
        ("\u201cyes\u201d\u2014", ["\u201c", "yes", "\u201d", "\u2014"]),
        ("  ", []),
    ],
)
def test_a_line_is_cut_into_words(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_words_are_reversed_and_the_final_mark_stays_last() -> None:
    assert invert(Sentence(("the", "cat", "sat", "."))) == [2, 1, 0, 3]
    assert invert(Sentence(("the", "cat", "sat"))) == [2, 1, 0]
    assert invert(Sentence(("go", "!"))) == [0, 1]
    assert invert(Sentence(())) == []


def test_each_sentence_of_a_text_is_reversed_on_its_own() -> None:
    words = ["a", "b", ".", "c", "d", "?", "!", "e", "f"]
    assert [words[place] for place in invert(Sentence(tuple(words)))] == ["b", "a", ".", "d", "c", "?", "!", "f", "e"]
    assert split_sentences(words) == [["a", "b", "."], ["c", "d", "?"], ["!"], ["e", "f"]]


def test_inverting_the_sentences_one_by_one_is_inverting_the_text() -> None:
    words = split_words("One two three. Four five! Six")
    whole = [words[place] for place in invert(Sentence(tuple(words)))]
    assert [s[place] for s in split_sentences(words) for place in invert(Sentence(tuple(s)))] == whole


def test_a_sentence_in_another_order_takes_its_tree_along() -> None:
    sentence = Sentence(("the", "cat", "sat"), Tree(("DET", "NOUN", "VERB"), (1, 2, -1), ("det", "nsubj", "root")))
    moved = sentence.in_order([2, 0, 1])
    assert moved.words == ("sat", "the", "cat")
    assert moved.tree == Tree(("VERB", "DET", "NOUN"), (-1, 2, 0), ("root", "det", "nsubj"))


def test_changes_of_order_follow_one_another() -> None:
    def rotate(sentence: Sentence) -> list[int]:
        return [*range(1, len(sentence.words)), 0]

    sentence = Sentence(("a", "b", "c", "d"))
    for orders, expected in (([], "abcd"), ([invert, rotate], "cbad"), ([rotate, invert], "adcb")):
        places = compose(orders)(sentence)
        assert places is not None
        assert "".join(sentence.words[place] for place in places) == expected


def test_a_sentence_that_one_change_cannot_use_has_no_order() -> None:
    assert compose([invert, lambda _: None, invert])(Sentence(("a",))) is None
