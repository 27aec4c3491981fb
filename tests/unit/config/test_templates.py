"""Entries of many languages: what each stands for, and those that do not tell their files apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.config.load import load_recipe, resolve_tree
from xalign_ray.errors import ConfigError

TRAIN = {"max_steps": 1, "global_batch_size": 2}
TEXT = {"format": "text", "languages": ["de", "yo-Latn"], "paths": ["a/{language}.txt", "b/*.{language}"]}


def data_of(settings: list[str] | None = None, **data: object):
    tree = {"data": {"corpora": [{"format": "text", "language": "en", "paths": ["a"]}], **data}, "train": TRAIN}
    return resolve_tree(tree, "mine.yaml", "mine", settings or []).config.data


def test_text_of_many_languages_is_an_entry_for_each() -> None:
    plain = {"format": "text", "language": "en", "paths": ["{language}.txt"]}
    found = data_of(corpora=[plain, TEXT]).corpora
    assert [(one.language, list(one.paths)) for one in found] == [
        ("en", ["{language}.txt"]),
        ("de", ["a/de.txt", "b/*.de"]),
        ("yo-Latn", ["a/yo-Latn.txt", "b/*.yo-Latn"]),
    ]


def test_codes_of_one_language_are_one_in_a_recipe_and_paths_keep_what_was_written() -> None:
    codes = {
        "format": "text",
        "languages": ["yor", "deu_Latn", "twi", "fat", "SR-LATN", "xqz"],
        "paths": ["{language}.txt"],
    }
    pairs = [{"format": "tsv", "languages": ["eng", ["yor_Latn", "yo"]], "paths": ["{second}.tsv"]}]
    found = data_of(corpora=[codes], parallel=pairs)
    assert [one.language for one in found.corpora] == ["yo", "de", "tw", "fat", "sr-Latn", "xqz"]
    assert [one.paths[0] for one in found.corpora[:2]] == ["yor.txt", "deu_Latn.txt"]
    assert [one.languages for one in found.parallel] == [("en", "yo"), ("en", "yo")]


def test_a_language_has_the_code_of_its_first_source(capfd: pytest.CaptureFixture[str]) -> None:
    pairs = [{"format": "tsv", "languages": ["zh-Hant", "pt-BR"], "paths": ["a.tsv"]}]
    words = [
        {"languages": ["hau_Latn", "pt"], "paths": ["b.txt"]},
        {"languages": ["zh-TW", "zh-Hans"], "paths": ["c.txt"]},
    ]
    text = [{"format": "text", "language": code, "paths": ["a"]} for code in ("ha", "zh", "sr-Latn", "sr")]
    found = data_of(corpora=text, parallel=pairs, dictionaries=words)
    assert [one.language for one in found.corpora] == ["ha", "zh", "sr-Latn", "sr"]
    assert found.parallel[0].languages == ("zh-Hant", "pt-BR")
    assert [one.languages for one in found.dictionaries] == [("ha", "pt"), ("zh-TW", "zh")]
    said = capfd.readouterr().err
    assert "ha-Latn is read as ha: both are in this recipe, and are one language in one script." in said
    assert said.count("is read as") == 2


@pytest.mark.parametrize("key", ["parallel", "tests", "dictionaries"])
@pytest.mark.parametrize(
    ("languages", "path", "expected"),
    [
        (["en", ["de", "fr"]], "{first}-{second}.x", ["en-de", "en-fr"]),
        ([["de", "fr"], "en"], "{first}-en.x", ["de-en", "fr-en"]),
        ([["de", "fr"], ["de", "fr", "it"]], "{first}-{second}.x", ["de-fr", "de-it", "fr-de", "fr-it"]),
        ([["en"], ["de"]], "{second}/{first}-{second}.x", ["de/en-de"]),
        (["en", "de"], "{first}-{second}.x", ["{first}-{second}"]),
    ],
)
def test_pairs_of_many_languages_are_an_entry_for_each_pair(
    key: str, languages: list[object], path: str, expected: list[str]
) -> None:
    form = "muse" if key == "dictionaries" else "tsv"
    found = getattr(data_of(**{key: [{"format": form, "languages": languages, "paths": [path]}]}), key)
    assert [one.paths[0] for one in found] == [f"{name}.x" for name in expected]
    assert all("-".join(one.languages) in one.paths[0] or languages == ["en", "de"] for one in found)


def test_code_of_three_letters_in_a_path() -> None:
    languages = ["en", ["ha", "fon", "zh-Hant", "en-x-inv"]]
    pairs = [{"format": "tsv", "languages": languages, "paths": ["{second3}/{second}.tsv"]}]
    assert [one.paths[0] for one in data_of(parallel=pairs).parallel] == [
        "hau/ha.tsv",
        "fon/fon.tsv",
        "zho/zh-Hant.tsv",
        "eng/en-x-inv.tsv",
    ]


def test_settings_count_the_entries_that_are_written_out_and_may_list_languages_themselves(tmp_path: Path) -> None:
    found = data_of(["data.corpora.1.paths=[c]"], corpora=[TEXT]).corpora
    assert [list(one.paths) for one in found] == [["a/de.txt", "b/*.de"], ["c"]]
    written = "data.corpora=[{format: text, languages: [ha, ig], paths: ['{language}.txt']}]"
    assert [one.paths[0] for one in data_of([written]).corpora] == ["ha.txt", "ig.txt"]
    base = tmp_path / "base.yaml"
    base.write_text("data: {corpora: [{format: text, languages: [sw, zu], paths: ['{language}.txt']}]}\n")
    (tmp_path / "own.yaml").write_text("extends: base\ntrain: {max_steps: 1, global_batch_size: 2}\n")
    recipe = load_recipe(str(tmp_path / "own.yaml"))
    assert [one.language for one in recipe.config.data.corpora] == ["sw", "zu"]
    assert recipe.origins["data.corpora"] == str(base)


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        ("corpora", TEXT | {"paths": ["all.txt"]}, "lists 2 languages, and no path of it holds {language}: each would"),
        ("corpora", TEXT | {"languages": []}, "write language with one code, or languages with a list of codes"),
        ("corpora", TEXT | {"languages": "de"}, "write language with one code, or languages with a list of codes"),
        ("corpora", TEXT | {"languages": ["de", 1]}, "write language with one code, or languages with a list of codes"),
        ("corpora", TEXT | {"language": "de"}, "write language with one code, or languages with a list of codes"),
        ("corpora", TEXT | {"paths": "a/{language}"}, "paths is 'a/{language}'; write a list of paths."),
        ("parallel", {"languages": ["en", ["de", "fr"]], "paths": ["{first}"]}, "no path of it holds {second}"),
        ("parallel", {"languages": ["en", []], "paths": ["{second}"]}, "a code, or a list of codes; it is []."),
        ("dictionaries", {"languages": [["de"], 3], "paths": ["{first}"]}, "a code, or a list of codes; it is 3."),
    ],
)
def test_entries_that_do_not_tell_their_languages_apart_are_refused(
    key: str, entry: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        data_of(**{key: [entry]})
    assert str(refused.value).startswith(f"mine.yaml: data.{key}.0")
    assert message in str(refused.value)
