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
        ("tt-Latn", "I\u015fek", "\u0131\u015fek"),
        ("tt", "IT", "it"),  # Cyrillic: what is Latin is foreign
        ("ku", "\xcemam I", "\xeemam i"),
        ("lt", "i\u0307\u0301", "\xed"),
        ("lt", "\u012f\u0307\u0301", "\u012f\u0301"),
        ("ro", "\u015fcoal\u0103", "\u0219coal\u0103"),
        ("ro-MD", "\u0162AR\u0102", "\u021bar\u0103"),
        ("tr", "\u015fehir", "\u015fehir"),  # a letter of its own
        ("uz", "o\u02bbzbek", "o'zbek"),
        ("uz", "O\u2018zbek", "o'zbek"),
        ("uz", "o`zbek", "o'zbek"),
        ("uk", "\u043f\xb4\u044f\u0442\u044c", "\u043f'\u044f\u0442\u044c"),
        ("fa", "\u0643\u062a\u0627\u0628\u064a", "\u06a9\u062a\u0627\u0628\u06cc"),
        ("ar", "\u0643\u062a\u0627\u0628\u064a", "\u0643\u062a\u0627\u0628\u064a"),
        ("ckb", "\u06be\u064a\u0643", "\u0647\u06cc\u06a9"),
        ("ur", "\u0643\u0647", "\u06a9\u06c1"),
        ("vi", "\xd0i", "\u0111i"),
        ("is", "\xd0", "\xf0"),
        ("he", "\u05e6\u05d4\u05f4\u05dc", '\u05e6\u05d4"\u05dc'),
        ("he", "\u05d1\u05d9\u05ea\u05be\u05e1\u05e4\u05e8", "\u05d1\u05d9\u05ea-\u05e1\u05e4\u05e8"),
        ("he", "\u05e6\u05f3", "\u05e6'"),
        ("ca", "co\u0140lecci\xf3", "col\xb7lecci\xf3"),
        ("af", "\u0149", "'n"),
        ("hy", "\u0587", "\u0565\u0582"),
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
        ("\u015ecoal\u0103", "\u015ecoal\u0103"),  # folded to be looked up, and asked for as it is written
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
        ("\u03c0\u03bf\u03b9\u03bf\u03c2\u037e", "\u03c0\u03bf\u03b9\u03bf\u03c2"),
        ("\u300a\u4e66\u300b", "\u4e66"),
        ("\u3010\u5bb6\u3011", "\u5bb6"),
        ("\uff62\u5bb6\uff63", "\u5bb6"),
        ("...", "..."),
        (",", ","),
        ("cat", "cat"),
    ],
)
def test_punctuation_around_a_dictionary_word_is_taken_off(written: str, trimmed: str) -> None:
    assert trim_punctuation(written) == trimmed
