"""Language codes: one spelling for each language, and help for a wrong one."""

from __future__ import annotations

import pytest

from xalign_ray.config.language_codes import check_language, explain_unknown, is_language, is_unknown, take_language
from xalign_ray.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("en", "en"), ("EN", "en"), ("eng", "en"), ("deu", "de"), ("ger", "de"), ("fra", "fr"), ("spa", "es"),
        ("cmn", "zh"), ("zho", "zh"), ("ara", "ar"), ("arb", "ar"), ("hin", "hi"), ("rus", "ru"), ("bul", "bg"),
        ("ell", "el"), ("tur", "tr"), ("tha", "th"), ("vie", "vi"), ("heb", "he"), ("ita", "it"), ("jpn", "ja"),
        ("kor", "ko"), ("nld", "nl"), ("por", "pt"), ("urd", "ur"), ("swa", "sw"), ("swh", "sw"), ("pes", "fa"),
        ("arz", "arz"), ("yue", "yue"), ("kmb", "kmb"), ("zh-hans", "zh-Hans"), ("SR-LATN", "sr-Latn"),
        ("pt-br", "pt-BR"), ("qaa", "qaa"), ("qtz", "qtz"), ("en-x-inv", "en-x-inv"),
        ("tl", "tl"), ("tgl", "tl"), ("TL-latn", "tl-Latn"), ("fil", "fil"), ("sh", "sh"),
        ("hbs", "sh"), ("pnb", "pnb"), ("tl-ph", "tl-PH"),
        ("yor", "yo"), ("yor_Latn", "yo-Latn"), ("yo-Latn", "yo-Latn"), ("zho_Hans", "zh-Hans"), ("fra_Latn", "fr"),
        ("twi", "tw"), ("tw", "tw"), ("twi_Latn", "tw-Latn"), ("fat", "fat"), ("aka", "ak"),
    ],
)  # fmt: skip
def test_every_spelling_of_a_language_becomes_one(written: str, canonical: str) -> None:
    assert check_language(written) == canonical
    assert check_language(canonical) == canonical
    assert is_language(written)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("english", "'english' is not a language code such as 'en', 'swa' or 'zh-Hans'. Did you mean 'en' (English)?"),
        (
            "swahilli",
            "'swahilli' is not a language code such as 'en', 'swa' or 'zh-Hans'. Did you mean 'sw' (Swahili)?",
        ),
        ("zh_CN", "'zh_CN' is not a language code such as 'en', 'swa' or 'zh-Hans'. Did you mean 'zh-CN'?"),
        ("", "'' is not a language code such as 'en', 'swa' or 'zh-Hans'."),
        (
            "xx",
            "'xx' is not a known language code (BCP-47, ISO 639). For a language without a code use one of qaa to qtz.",
        ),
        ("und", "'und' stands for no particular language; name the language of the text."),
    ],
)
def test_a_wrong_code_is_refused_with_the_nearest_right_one(written: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_language(written)
    assert str(caught.value) == message
    assert not is_language(written)


def test_an_unknown_code_of_the_right_shape_gets_a_guess() -> None:
    with pytest.raises(ConfigError, match=r"'dex' is not a known language code .* Did you mean 'de'\?"):
        check_language("dex")


def test_an_unknown_code_is_taken_and_said_and_what_is_no_code_is_not():
    assert (take_language("TOK"), take_language("eml"), take_language("yor_Latn")) == ("tok", "eml", "yo-Latn")
    assert [code for code in ("tok", "yo", "und", "english", "zh_CN") if is_unknown(code)] == ["tok"]
    assert explain_unknown("dex") == (
        "'dex' is not a known language code (BCP-47, ISO 639). Did you mean 'de'? It is used unchanged."
    )
    for code, message in (("english", "is not a language code"), ("und", "stands for no particular language")):
        with pytest.raises(ConfigError, match=message):
            take_language(code)
