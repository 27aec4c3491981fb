"""Groups of languages: families, dictionaries, data, and what they are refused for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.config.language_codes import check_language, family_of, languages_of
from xalign_ray.errors import ConfigError
from xalign_ray.results.compare import Groupings, check_groupings, known_groupings
from xalign_ray.results.run import NO_SCORES, Log, Run

XTREME = (
    "af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt ru sw ta te th tl tr ur vi "
    "yo zh"
)


def grouped(by: str, languages: list[str], known: Groupings) -> dict[str, list[str]]:
    """The languages of each group, in the order of a table."""
    places = sorted((known[by](language), language) for language in languages)
    return {name: [language for (_, other), language in places if other == name] for (_, name), _ in places}


def run_with_dictionaries(label: str, *languages: str) -> Run:
    config: dict[str, Any] = {"data": {"dictionaries": [{"languages": ["en", code]} for code in languages]}}
    return Run(Path(label), config, Log(), NO_SCORES, label=label)


def test_every_language_of_xtreme_has_a_family() -> None:
    codes = XTREME.split()
    assert len(codes) == 40
    families = {code: family_of(code) for code in codes}
    assert "other families" not in families.values()
    assert {code: family_of(check_language(code)) for code in codes} == families


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("de", "Germanic"),
        ("pt-BR", "Romance"),
        ("zh-Hant", "Sino-Tibetan"),
        ("qgr", "invented or derived"),
        ("qu", "other families"),
        ("quz", "other families"),
    ],
)
def test_a_family_is_that_of_the_language_whatever_its_script_or_region(code: str, family: str) -> None:
    assert family_of(code) == family


@pytest.mark.parametrize(
    ("language", "sides"),
    [
        ("de", ("de",)),
        ("en-de", ("en", "de")),
        ("en-DE", ("en-DE",)),
        ("en-zh-Hans", ("en", "zh-Hans")),
        ("zh-Hans-pt-BR", ("zh-Hans", "pt-BR")),
        ("de-x-old-en", ("de-x-old-en",)),
        ("es-419", ("es-419",)),
    ],
)
def test_a_pair_is_told_from_a_region(language: str, sides: tuple[str, ...]) -> None:
    assert languages_of(language) == sides


def test_a_pair_with_english_belongs_to_its_other_language_and_known_families_come_first() -> None:
    languages = ["qgr", "en-hi", "nl", "de", "de-fr", "en"]
    assert grouped("family", languages, known_groupings([])) == {
        "Germanic": ["de", "en", "nl"],
        "Germanic and Romance": ["de-fr"],
        "Indo-Aryan": ["en-hi"],
        "invented or derived": ["qgr"],
    }


def test_dictionaries_count_where_a_run_has_any_and_english_stands_alone() -> None:
    runs = [
        run_with_dictionaries("plain"),
        run_with_dictionaries("one", "de"),
        run_with_dictionaries("two", "de", "hi"),
    ]
    known = known_groupings(runs)
    assert grouped("dictionary", ["de", "en-de", "hi", "yo", "en"], known) == {
        "dictionary": ["de", "en-de"],
        "dictionary in some runs only": ["hi"],
        "no dictionary": ["yo"],
        "English itself": ["en"],
    }


def test_languages_are_told_apart_by_the_tokens_that_training_saw() -> None:
    """The run that has the most of a language counts, and of a pair the language that has fewer tokens."""
    pools = {"text/de": {"tokens": 900_000}, "pairs/de-en": {"tokens": 400_000}, "text/hi": {"tokens": 99_999}}
    runs = [
        replace(run_with_dictionaries("plain"), data={"pools": {"text/de": {"tokens": 5}, "text/es": {"tokens": 7}}}),
        replace(run_with_dictionaries("more"), data={"pools": pools}),
        run_with_dictionaries("gone"),
    ]
    known = known_groupings(runs)
    assert grouped("training", ["ru", "en-ru", "hi", "de", "en-de", "de-hi", "de-ru", "es", "en"], known) == {
        "in no training data": ["de-ru", "en-ru", "ru"],
        "1 to 10 tokens": ["es"],
        "10,000 to 100,000 tokens": ["de-hi", "hi"],
        "1,000,000 to 10,000,000 tokens": ["de", "en-de"],
        "English itself": ["en"],
    }


def test_only_what_is_known_is_a_grouping() -> None:
    assert list(known_groupings([])) == ["task", "language", "family"]
    known = known_groupings([run_with_dictionaries("a", "de")])
    assert list(known) == ["task", "language", "family", "dictionary"]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("famly", r"There is no grouping 'famly'\. Did you mean 'family'\? Known: task, language, family, dictionary"),
        ("dictionary", r"Scores cannot be grouped by dictionary: no compared run had a dictionary"),
        ("training", r"Scores cannot be grouped by training: of no compared run the prepared data are known"),
    ],
)
def test_a_grouping_that_cannot_be_made_is_refused(by: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_groupings([by], known_groupings([]))
