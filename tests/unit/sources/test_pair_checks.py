"""Faults of pairs that are counted before training, and which of them stop a run."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from tests.unit.sources.pair_texts import DE, EN, FR, csv_text, table
from xalign_ray.config.schema import DataConfig
from xalign_ray.config.sources import ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import pair_checks
from xalign_ray.sources.html import has_markup
from xalign_ray.sources.pair_checks import (
    MARKUP,
    MOJIBAKE,
    REPEATED,
    SAME_LANGUAGE,
    SAME_TEXT,
    SHARED,
    TURNED,
    check_pairs,
    check_sources,
    is_mojibake,
    refuse_doubtful,
)

MANGLED = [text.encode().decode("latin-1") for text in DE]
# Texts of both sides, the languages, and the faults that are counted.
CASES: dict[str, tuple[list[str], list[str], str, dict[str, int]]] = {
    "clean": (EN, DE, "en,de", {}),
    "copies": (EN, [*DE[:6], EN[6].upper(), EN[7]], "en,de", {SAME_TEXT: 2}),
    "one language": (EN, [*DE[:5], *EN[:3]], "en,de", {SAME_LANGUAGE: 3}),
    "mixed directions": ([*EN[:5], *DE[5:]], [*DE[:5], *EN[5:]], "en,de", {TURNED: 3}),
    "names the other way round": (EN, DE, "de,en", {TURNED: 8}),
    "languages that the identifier does not tell apart": (EN, EN[::-1], "en,pcm", {}),
    "repeated": (EN + EN[:2], DE + DE[:2], "en,de", {REPEATED: 2}),
    "several translations": (EN + EN[:2], DE + FR[:2], "en,de", {SHARED: 4}),
    "markup": (EN, [f"<b>{DE[0]}</b>", html.escape(DE[6]), *DE[2:]], "en,de", {MARKUP: 2}),
    "wrong encoding": (EN, MANGLED, "en,de", {MOJIBAKE: sum(not text.isascii() for text in MANGLED)}),
}


def corpus_of(path: Path, first: list[str], second: list[str], languages: str) -> ParallelCorpus:
    path.write_text(csv_text(table("a,b", first, second)), encoding="utf-8")
    tree = {"format": "csv", "languages": languages.split(","), "paths": [str(path)], "columns": ["a", "b"]}
    return ParallelCorpus.model_validate(tree)


@pytest.mark.parametrize("name", CASES)
def test_faults_are_counted_over_all_rows(tmp_path: Path, name: str) -> None:
    first, second, languages, faults = CASES[name]
    checks = check_pairs(corpus_of(tmp_path / "x.csv", first * 100, second * 100, languages))
    found = {kind: count for kind, (count, of) in checks.faults.items() if count and of}
    rows, distinct = 100 * len(first), len({*zip(first, second, strict=True)})
    assert found.pop(REPEATED) == rows - distinct
    assert found.pop(SHARED, 0) == faults.get(SHARED, 0)
    sizes = {kind: checks.faults[kind][1] for kind in found}
    expected = {kind: count for kind, count in faults.items() if kind not in (REPEATED, SHARED)}
    assert {kind: count / sizes[kind] for kind, count in found.items()} == pytest.approx(
        {kind: count / len(first) for kind, count in expected.items()}, abs=0.03
    )


def test_line_names_the_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    corpus = corpus_of(path, [*EN, ""], [*DE[:7], EN[7], "x"], "en,de")
    assert str(check_pairs(corpus)) == (
        "x.csv (en, de): 8 pairs; the same text on both sides 1 (12.5%); bad rows: one side is empty: 1"
    )


def test_rows_of_all_sources_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_checks, "MAX_CHECKED", 8)
    monkeypatch.setattr(pair_checks, "MIN_CHECKED", 2)
    sources = [corpus_of(tmp_path / f"{rows}.csv", EN[:rows], DE[:rows], "en,de") for rows in (3, 8, 1, 8)]
    said = ["3 pairs; ", "5 pairs of its first 5 rows; ", "1 pairs; ", "2 pairs of its first 2 rows; "]
    assert [
        str(checks).partition(": ")[2][: len(line)] for checks, line in zip(check_sources(sources), said, strict=True)
    ] == said


@pytest.mark.parametrize(
    ("first", "second", "filters", "said"),
    [
        (
            EN,
            [*DE[:6], *EN[6:]],
            {},
            "2 of 8 pairs have the same text on both sides, more than 20%. --set ",
        ),
        (EN, [*DE[:6], *EN[6:]], {"drop_identical": True}, ""),
        (EN, [*DE[:7], *EN[7:]], {}, ""),
        (DE, EN, {}, "8 of 8 pairs have the two languages the other way round, more than 20%. Turn these rows;"),
        (EN * 2, DE * 2, {}, "8 of 16 pairs have a pair again, more than 20%. --set data.filters.drop_duplicates=true"),
        (EN * 2, DE + FR, {}, ""),
    ],
)
def test_a_fault_of_a_fifth_of_the_pairs_stops_a_run_unless_it_is_meant(
    tmp_path: Path, first: list[str], second: list[str], filters: dict[str, bool], said: str
) -> None:
    checks = [check_pairs(corpus_of(tmp_path / "x.csv", first, second, "en,de"))]
    refuse_doubtful(checks, DataConfig(), ["doubtful_pairs"])
    if not said:
        refuse_doubtful(checks, DataConfig.model_validate({"filters": filters}), [])
        return
    with pytest.raises(ConfigError) as caught:
        refuse_doubtful(checks, DataConfig.model_validate({"filters": filters}), [])
    assert said in str(caught.value)
    assert str(caught.value).endswith("If it is meant: --set allow=[doubtful_pairs].")


def test_a_pair_again_with_another_negative_is_none(tmp_path: Path) -> None:
    rows = table("a,b,c", [*EN, *EN, EN[0]], [*DE, *DE, DE[0]], [*FR, *FR[::-1], FR[0]])
    (tmp_path / "x.csv").write_text(csv_text(rows), encoding="utf-8")
    corpus = corpus_of(tmp_path / "y.csv", EN, DE, "en,de")
    found = check_pairs(corpus.model_copy(update={"paths": (str(tmp_path / "x.csv"),), "negatives": ("c",)}))
    assert (found.faults[REPEATED][0], found.faults[SHARED][0]) == (1, 0)


def test_bad_rows_beyond_the_bound_stop_a_run(tmp_path: Path) -> None:
    checks = [check_pairs(corpus_of(tmp_path / "x.csv", [*EN, ""], [*DE, "x"], "en,de"))]
    refuse_doubtful(checks, DataConfig(max_bad_fraction=0.2), [])
    with pytest.raises(
        DataError, match=r"1 of 9 rows \(11\.11%\) cannot be used, more than data\.max_bad.*: one side is empty: 1"
    ):
        refuse_doubtful(checks, DataConfig(), ["doubtful_pairs"])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("FÃ¼r", True), ("Ã‰tÃ©", True), ("Привет".encode().decode("cp1251"), True), ("a\ufffdb", True),
        ("Für", False), ("Été", False), ("Привет", False), ("A façade, naïve", False), ("plain", False), ("猫", False),
    ],
)  # fmt: skip
def test_text_in_a_wrong_encoding(text: str, is_one: bool) -> None:
    assert is_mojibake(text) == is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a<br/>b", True), ('<a href="x">y</a>', True), ("AT&amp;T", True), ("&#39;", True), ("&quot;x&quot;", True),
        ("a < b > c", False), ("<name> is", False), ("R&D; x", False), ("AT&T", False),
    ],
)  # fmt: skip
def test_markup(text: str, is_one: bool) -> None:
    assert has_markup(text) == is_one
