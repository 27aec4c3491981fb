"""The dictionary: what is dropped, what is held out, and what the arrays say."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_ray.vocabulary.dictionary import Key, Translations, add_entries, build_lexicon, pair_arrays, separate

EN, DE, FR, IT = 0, 1, 2, 3


def links_of(*dictionaries: list[tuple[Key, Key]], pivot: int | None = EN, share: float = 0.0) -> Translations:
    translations = Translations()
    for entries in dictionaries:
        add_entries(translations, entries, pivot, share, held_out=False)
    return translations


def test_identity_pairs_are_dropped_and_counted() -> None:
    translations = links_of([((EN, "2024"), (DE, "2024")), ((EN, "dog"), (DE, "hund"))])
    assert list(translations.trained) == [((EN, "dog"), (DE, "hund"))]
    assert translations.counts == {"lines": 2, "identical": 1}


def test_a_pair_counts_once_whichever_way_round() -> None:
    translations = links_of([((EN, "dog"), (DE, "hund"))] * 2, [((DE, "hund"), (EN, "dog"))])
    assert list(translations.trained) == [((EN, "dog"), (DE, "hund"))]
    assert translations.counts["duplicates"] == 2


def test_a_concept_is_held_out_in_all_languages_at_once() -> None:
    words = [f"word{n}" for n in range(2000)]
    forward = [((EN, w), (DE, f"de-{w}")) for w in words]
    backward = [((FR, f"fr-{w}"), (EN, w)) for w in words]
    translations = links_of(forward, backward, share=0.25)
    out = {translation[0][1] for translation in translations.held_out if translation[0][0] == EN}
    assert out == {translation[1][1] for translation in translations.held_out if translation[1][0] == EN}
    assert abs(len(out) - 500) < 4.5 * np.sqrt(2000 * 0.25 * 0.75)
    assert len(translations.trained) + len(translations.held_out) == 4000
    separate(translations)
    assert translations.counts["held_out_dropped_seen_in_training"] == 0


def test_the_choice_depends_on_the_word_alone() -> None:
    entries = [((EN, f"w{n}"), (DE, f"d{n}")) for n in range(200)]
    one, other = links_of(entries, share=0.3), links_of(entries[::-1][:150], share=0.3)
    assert set(other.held_out) == set(one.held_out) & set(entries[50:])


def test_a_growing_share_holds_out_a_growing_set() -> None:
    entries = [((EN, f"w{n}"), (DE, f"d{n}")) for n in range(200)]
    assert set(links_of(entries, share=0.1).held_out) < set(links_of(entries, share=0.4).held_out)


def test_without_a_pivot_the_left_word_is_the_concept() -> None:
    entries = [((DE, f"d{n}"), (FR, f"{n}-{m}")) for n in range(50) for m in range(3)]
    out = links_of(entries, pivot=None, share=0.4).held_out
    assert 0 < len(out) < 150
    assert len(out) == 3 * len({translation[0] for translation in out})


def test_a_held_out_dictionary_is_held_out_whole() -> None:
    translations = Translations()
    add_entries(translations, [((EN, "dog"), (DE, "hund"))], EN, 0.0, held_out=True)
    assert (len(translations.trained), len(translations.held_out)) == (0, 1)


def test_held_out_pairs_with_a_trained_word_are_dropped() -> None:
    translations = links_of([((EN, "dog"), (DE, "hund"))])
    leaked = [((EN, "hound"), (DE, "hund")), ((EN, "dog"), (FR, "chien"))]
    clean = ((EN, "cat"), (DE, "katze"))
    add_entries(translations, [*leaked, clean], EN, 0.0, held_out=True)
    separate(translations)
    assert list(translations.held_out) == [clean]
    assert translations.counts["held_out_dropped_seen_in_training"] == 2


def test_the_same_form_in_another_language_is_another_word() -> None:
    translations = links_of([((EN, "gift"), (FR, "cadeau"))])
    add_entries(translations, [((DE, "gift"), (IT, "veleno"))], None, 0.0, held_out=True)
    separate(translations)
    assert len(translations.held_out) == 1


PIECES = {
    (EN, "walk"): (10,),
    (EN, "walking"): (10, 11),
    (IT, "camminare"): (20,),
    (FR, "marcher"): (30, 31, 32),
    (DE, "gehen"): None,
    (DE, "andar"): (40,),
}


def test_lexicon_groups_synonyms_by_language_both_ways() -> None:
    andar = (DE, "andar")
    trained = [(andar, (EN, "walking")), (andar, (IT, "camminare")), ((EN, "walk"), andar), (andar, (FR, "marcher"))]
    entries, lexicon = build_lexicon(trained, PIECES.get)
    assert list(entries) == [(EN, "walk"), (EN, "walking"), andar, (FR, "marcher"), (IT, "camminare")]
    assert lexicon.entry_groups.tolist() == [1, 1, 3, 1, 1]
    assert lexicon.group_language.tolist() == [DE, DE, EN, FR, IT, DE, DE]
    assert lexicon.group_synonyms.tolist() == [1, 1, 2, 1, 1, 1, 1]
    assert lexicon.synonym_length.tolist() == [1, 1, 1, 2, 3, 1, 1, 1]
    assert lexicon.pieces.tolist() == [40, 40, 10, 10, 11, 30, 31, 32, 20, 40, 40]
    assert lexicon.first_group.tolist() == [0, 1, 2, 5, 6]
    assert lexicon.first_synonym.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert lexicon.first_piece.tolist() == [0, 1, 2, 3, 5, 8, 9, 10]


def test_a_word_without_pieces_is_no_label_but_may_have_one() -> None:
    entries, lexicon = build_lexicon([((EN, "walk"), (DE, "gehen"))], PIECES.get)
    assert entries == {(DE, "gehen"): 0}
    assert lexicon.pieces.tolist() == [10]


def test_lexicon_does_not_depend_on_the_order_of_lines() -> None:
    trained = [((DE, "andar"), key) for key in PIECES if key[0] != DE]
    a, b = build_lexicon(trained, PIECES.get), build_lexicon(trained[::-1], PIECES.get)
    assert a[0] == b[0]
    for name, values in vars(a[1]).items():
        np.testing.assert_array_equal(values, getattr(b[1], name))


def test_pairs_are_padded_and_keep_their_languages() -> None:
    pairs = pair_arrays([((EN, "walking"), (FR, "marcher")), ((EN, "walk"), (DE, "gehen"))], PIECES.get)
    assert len(pairs) == 1
    assert pairs.left.tolist() == [[10, 11, -1]]
    assert pairs.right.tolist() == [[30, 31, 32]]
    assert (pairs.left_language.tolist(), pairs.right_language.tolist()) == ([EN], [FR])
    assert len(pair_arrays([], PIECES.get)) == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all_are_possible_shares(share: float) -> None:
    translations = links_of([((EN, f"w{n}"), (DE, f"d{n}")) for n in range(50)], share=share)
    assert len(translations.held_out) == 50 * share
