"""Look-up forms: lower case by language, printed forms and vowel marks folded, punctuation off dictionary words."""

from __future__ import annotations

import pytest

from xalign_ray.vocabulary.dictionary import label_form, look_up_form, trim_punctuation


@pytest.mark.parametrize(
    ("language", "written", "form"),
    [
        ("", " Stra\u00dfe ", "stra\u00dfe"),
        ("", "CAFE\u0301", "caf\u00e9"),
        ("tr", "I\u015f\u0131k", "\u0131\u015f\u0131k"),
        ("tr", "\u0130STANBUL", "istanbul"),
        ("tr", "I\u0307nsan", "insan"),
        ("tr-TR", "ISI", "\u0131s\u0131"),
        ("az-Latn", "I\u015eIQ", "\u0131\u015f\u0131q"),
        ("en", "\u0130stanbul", "istanbul"),
        ("en", "INDIA", "india"),
        ("de", "Insel", "insel"),
        ("el", "\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2"),
        ("ar", "\u0643\u064e\u062a\u064e\u0628\u064e", "\u0643\u062a\u0628"),
        ("ar", "\u0643\u0640\u062a\u0640\u0628", "\u0643\u062a\u0628"),
        ("ar", "\ufedb\ufe98\ufe90", "\u0643\u062a\u0628"),
        ("ar", "\ufefb", "\u0644\u0627"),
        ("he", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("ja", "\uff21\uff22\uff11\uff12", "ab12"),
        ("ja", "\uff8a\uff9e", "\u30d0"),
        ("en", "\ufb01n", "fin"),
        ("de", "co\u00adop", "coop"),
        ("nl", "\u0132s", "ijs"),
        ("hr", "\u01c8ubav", "ljubav"),
        ("uk", "\u043f\u2019\u044f\u0442\u044c", "\u043f'\u044f\u0442\u044c"),
        ("uk", "\u043f\u2018\u044f\u0442\u044c", "\u043f'\u044f\u0442\u044c"),
        ("en", "e\u2011mail", "e-mail"),
        ("ru", "\u0441\u043b\u043e\u0432\u0430\u0301\u0440\u044c", "\u0441\u043b\u043e\u0432\u0430\u0440\u044c"),
        ("mk", "\u043a\u0301", "\u045c"),  # a letter of Macedonian, no stress
        ("uk", "\u043f\u02bc\u044f\u0442\u044c", "\u043f'\u044f\u0442\u044c"),
        ("fa", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("th", "\u0e19\u0e49\u0e33", "\u0e19\u0e49\u0e33"),  # its vowel is not taken apart: no text writes it so
        ("hi", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0940"),
    ],
)
def test_look_up_form(language: str, written: str, form: str) -> None:
    assert look_up_form(written, language) == form
    assert look_up_form(form, language) == form
    assert look_up_form(label_form(written), language) == form


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("Haus", "Haus"),
        ("\uff28aus ", "Haus"),  # full-width H
        ("\u0627\u0644\u0643\u064e\u062a\u0628", "\u0627\u0644\u0643\u062a\u0628"),  # a vowel mark
        ("\u041c\u043e\u0441\u043a\u0432\u0430\u0301", "\u041c\u043e\u0441\u043a\u0432\u0430"),  # stress
        ("St\u2019s", "St's"),
    ],
)
def test_a_label_keeps_the_case_of_its_dictionary(written: str, label: str) -> None:
    assert label_form(written) == label


@pytest.mark.parametrize(
    ("written", "trimmed"),
    [
        ("house,", "house"),
        ("\u00abmaison\u00bb", "maison"),
        ("(dog)", "dog"),
        ("etc.", "etc"),
        ("u.s.", "u.s."),
        ("\u00bfqu\u00e9?", "qu\u00e9"),
        ("\u0915\u0941\u0924\u094d\u0924\u093e\u0964", "\u0915\u0941\u0924\u094d\u0924\u093e"),
        ("-ing", "-ing"),
        ("'s", "'s"),
        ("c#", "c#"),
        ("\u2018house\u2019", "house"),
        ("\u201aHaus\u2018", "Haus"),
        ("`cat`", "cat"),
        ("rock 'n'", "rock 'n'"),
        ("dogs'", "dogs'"),
        ("\u1264\u1275\u1362", "\u1264\u1275"),
        ("\u057f\u0578\u0582\u0576\u0589", "\u057f\u0578\u0582\u0576"),
        ("\u1795\u17d2\u1791\u17c7\u17d4", "\u1795\u17d2\u1791\u17c7"),
        ("\u05d1\u05d9\u05ea\u05c3", "\u05d1\u05d9\u05ea"),
        ("...", "..."),
        (",", ","),
        ("cat", "cat"),
    ],
)
def test_punctuation_around_a_dictionary_word_is_taken_off(written: str, trimmed: str) -> None:
    assert trim_punctuation(written) == trimmed
