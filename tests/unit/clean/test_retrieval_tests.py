"""Retrieval tests of a recipe: read, tokenized, kept out of training, or kept out of the pairs by hash."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.unit.clean.test_held_out_lines import trained_and_held_out
from tests.unit.conftest import make_config, prepare_here
from xalign_ray.clean.kept_out import comparable, hash_lines, kept_out_lines
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources.summary import TEST_LINE, TEST_PAIR
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer

PAIRS = 400
TESTS = "data.tests=[{format: tsv, languages: [en, de], paths: [test.tsv]}]"
NO_TEXT = ("data.corpora=[]", "streams=[{kind: masked_pairs}]", "data.dictionaries=[]")


def sentences(language: str, count: int = PAIRS, seed: str = "") -> list[str]:
    draw = random.Random(language + seed)
    return [" ".join(f"{language}{draw.randrange(90)}" for _ in range(6)) for _ in range(count)]


def write(folder: Path, tests: list[tuple[str, str]]) -> None:
    """400 pairs, their two sides as text, and tests."""
    for language in ("en", "de"):
        (folder / f"pairs.{language}").write_text("\n".join(sentences(language)) + "\n")
        (folder / f"{language}.txt").write_text("\n".join(sentences(language)) + "\n")
    (folder / "en-de.txt").write_text("".join(f"en{n} de{n}\n" for n in range(90)))
    (folder / "test.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in tests))


def squeezed(line: str) -> str:
    return line.replace(" ", "")


def test_no_line_of_a_test_is_trained_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    english, german = sentences("en"), sentences("de")
    fresh = list(zip(sentences("en", 20, "new"), sentences("de", 20, "new"), strict=True))
    tests = [*fresh, *((line.upper() + " .", "de1 de2 de3") for line in english[:30]), ("en1 en2 en3", german[50])]
    write(tmp_path, tests)
    prepared = prepare_here(make_config(tmp_path, TESTS, "data.held_out_fraction=0.1"))
    left, _ = trained_and_held_out(prepared, "pairs/de-en")
    for language, lines in (("en", english[:30]), ("de", [german[50]])):
        trained, held_out = trained_and_held_out(prepared, f"text/{language}")
        asked = {squeezed(line) for line in lines}
        assert not [line for line in asked if line in "|".join([*trained, *held_out, *left])]
    assert squeezed(english[60]) in "|".join([*left, *trained_and_held_out(prepared, "text/en")[1]])
    counts = prepared.manifest["counts"]
    assert (counts[f"dropped: {TEST_PAIR}"], counts[f"dropped: {TEST_LINE}"]) == (31, 31)
    said = capfd.readouterr().err
    assert "tests/de-en (test.tsv): 51 rows in, 51 kept\n" in said
    assert f"set aside: {TEST_PAIR} 31" in said or f", {TEST_PAIR} 31" in said


def test_tests_are_tokenized_as_transformers_does(tmp_path: Path) -> None:
    tests = [*zip(sentences("en", 5, "new"), sentences("de", 5, "new"), strict=True), ("en7 " * 60, "de7 " * 60)]
    write(tmp_path, tests)
    prepared = prepare_here(make_config(tmp_path, TESTS))
    (found,) = prepared.read_tests()
    assert (found.language, found.other_language) == ("en", "de")
    tokenizer = open_tokenizer(str(prepared.tokenizer_folder))
    for side, ids in enumerate((found.first, found.second)):
        expected = tokenizer([pair[side].strip() for pair in tests], truncation=True, max_length=24)["input_ids"]
        assert [one.tolist() for one in ids] == expected
        assert {one.dtype for one in ids} == {np.dtype(np.int32)}
        assert max(map(len, ids)) == 24
    (prompted,) = prepared.read_tests(prompts=("en3 ", "en3 "))
    for side, ids in enumerate((prompted.first, prompted.second)):
        expected = tokenizer([f"en3 {pair[side].strip()}" for pair in tests], truncation=True, max_length=24)
        assert [one.tolist() for one in ids] == expected["input_ids"]
    assert Prepared.open(prepared.folder).read_tests()[0].first[0].tolist() == found.first[0].tolist()


def test_without_tests_there_are_none(prepared: Prepared) -> None:
    assert prepared.retrieval_part is None
    assert prepared.read_tests() == []


def test_pairs_alone_need_no_text(tmp_path: Path) -> None:
    write(tmp_path, [("en1 en2", "de1 de2")])
    prepared = prepare_here(make_config(tmp_path, TESTS, *NO_TEXT))
    assert list(prepared.manifest["pools"]) == ["pairs/de-en"]
    assert prepared.held_out(0, 1, 8) == []


def test_a_stream_of_text_asks_for_it(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(ConfigError, match=r"stream masked_text needs data\.corpora; stream code_switched_labels needs"):
        make_config(tmp_path, "data.corpora=[]")


@pytest.mark.parametrize("copy", ["same file", "other spelling"])
def test_tests_that_are_all_pairs_leave_nothing(tmp_path: Path, copy: str) -> None:
    write(tmp_path, [])
    pairs = zip(sentences("en"), sentences("de"), strict=True)
    lines = [f"{first}\t{second}" for first, second in pairs]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.tsv").write_text(
        "\n".join(line.upper() if copy != "same file" else line for line in lines) + "\n"
    )
    trained = "data.parallel=[{format: tsv, languages: [en, de], paths: [train.tsv]}]"
    with pytest.raises(DataError) as told:
        prepare_here(make_config(tmp_path, TESTS, trained, *NO_TEXT))
    if copy == "same file":
        assert str(told.value) == (
            "test.tsv: all 400 pairs are in data.tests and in data.parallel, so none is left to train on. "
            "Give other tests, or leave data.tests out."
        )
    else:
        assert str(told.value) == (
            "pairs/de-en (train.tsv): 400 of 400 rows have a line of the tests, so none is left to train on. "
            "Give other tests, or leave data.tests out."
        )


def test_bad_rows_of_a_test_are_refused(tmp_path: Path) -> None:
    write(tmp_path, [("en1", "de1"), ("en2", ""), ("", ""), ("en3", "de3")])
    with pytest.raises(
        DataError, match=r"data\.tests\.0: 1 of 3 rows \(33\.33%\) cannot be used, .* The first is .*test\.tsv:2\."
    ):
        prepare_here(make_config(tmp_path, TESTS))
    prepared = prepare_here(make_config(tmp_path, TESTS, "data.max_bad_fraction=0.5"))
    assert len(prepared.read_tests()[0].first) == 2


def test_tests_are_kept_out_by_hash(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [])
    settings = ("data.test_fraction=0.1", *NO_TEXT, "data.held_out_fraction=0.1")
    prepared = prepare_here(make_config(tmp_path, *settings))
    (path,) = (prepared.folder / "tests").glob("*.jsonl")
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    pairs = set(zip(sentences("en"), sentences("de"), strict=True))
    assert len(kept) == 40 == len(prepared.read_tests()[0].first)
    assert all((one["en"], one["de"]) in pairs for one in kept)
    left, _ = trained_and_held_out(prepared, "pairs/de-en")
    assert not [one for one in kept if squeezed(one["en"]) in left or squeezed(one["de"]) in left]
    assert not kept_out_lines([one["en"] for one in kept], 0.1, np.zeros(0, np.uint64))[0].any()
    assert len(left) == 2 * (PAIRS - 40)
    assert "tests/de-en (pairs.en and 1 more): 400 rows in, 40 kept; set aside: left to train on 360\n" in (
        capfd.readouterr().err
    )
    again = prepare_here(make_config(tmp_path, *settings, "data.max_test_pairs=7", "seed=5"))
    assert [one.tolist() for one in again.read_tests()[0].first] == [
        one.tolist() for one in prepared.read_tests()[0].first[:7]
    ]


def test_kept_out_tests_hold_each_sentence_once_and_the_same_in_every_language(tmp_path: Path) -> None:
    write(tmp_path, [])
    english = sentences("en")
    doubled = [*zip(english, sentences("de"), strict=True), *zip(english, sentences("de", PAIRS, "2"), strict=True)]
    (tmp_path / "de.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in doubled))
    (tmp_path / "fr.tsv").write_text("".join(f"{second}\t{first.upper()}\n" for first, second in doubled[:PAIRS]))
    parallel = (
        "data.parallel=[{format: tsv, languages: [en, de], paths: [de.tsv]}, "
        "{format: tsv, languages: [fr, en], paths: [fr.tsv]}]"
    )
    prepared = prepare_here(make_config(tmp_path, "data.test_fraction=0.05", parallel, *NO_TEXT))
    kept = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (prepared.folder / "tests").glob("*.jsonl")
    }
    assert {name: len(rows) for name, rows in kept.items()} == {"en-de": 40, "fr-en": 20}
    lines = {name: [comparable(row["en"]) for row in rows] for name, rows in kept.items()}
    assert len(set(lines["en-de"])) == 40
    assert lines["fr-en"] == lines["en-de"][:20]


def test_a_share_of_queries_with_several_negatives_is_of_queries(tmp_path: Path) -> None:
    write(tmp_path, [])
    rows = [(query, passage, text) for query, passage in zip(sentences("en"), sentences("de"), strict=True)
            for text in sentences("de")[:8]]  # fmt: skip
    (tmp_path / "rows.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    source = "{format: tsv, languages: [en, de], paths: [rows.tsv], columns: ['1', '2'], negatives: ['3']}"
    streams = "streams=[{kind: contrasted_pairs, text: none, random_order: false}]"
    contrast = (f"data.parallel=[{source}]", "data.corpora=[]", streams, "objectives=[{kind: sentence_contrast}]")
    prepared = prepare_here(make_config(tmp_path, "data.test_fraction=0.1", *contrast))
    assert len(prepared.read_tests()[0].first) == PAIRS // 10
    assert prepared.manifest["pools"]["pairs/de-en"]["examples"] == 8 * (PAIRS - PAIRS // 10)


def test_dev_pairs_are_neither_trained_on_nor_tested(tmp_path: Path) -> None:
    write(tmp_path, [])
    shares = ("data.test_fraction=0.1", "data.dev_fraction=0.05", *NO_TEXT)
    prepared = prepare_here(make_config(tmp_path, *shares))
    files = {part: [*(prepared.folder / part).glob("*.jsonl")] for part in ("tests", "dev")}
    rows = {part: path.read_text().splitlines() for part, (path,) in files.items()}
    lines = {part: {squeezed(text) for row in own for text in json.loads(row).values()} for part, own in rows.items()}
    left, _ = trained_and_held_out(prepared, "pairs/de-en")
    assert {part: len(own) for part, own in lines.items()} == {"tests": 80, "dev": 40}
    assert not lines["dev"] & lines["tests"]
    assert not {*left} & (lines["dev"] | lines["tests"])
    assert prepared.retrieval_part == "dev"
    without = prepare_here(make_config(tmp_path, shares[0], *NO_TEXT))
    assert [one.tolist() for one in without.read_tests()[0].first] == [
        one.tolist() for one in prepared.read_tests()[0].first
    ]


def test_given_dev_pairs_lose_those_of_the_test(tmp_path: Path) -> None:
    write(tmp_path, [*zip(sentences("en")[:3], sentences("de")[:3], strict=True)])
    rows = [f"{sentences('en')[n].upper()}\t{sentences('de')[n]}\n" for n in range(5)]
    (tmp_path / "dev.tsv").write_text("".join(rows))
    dev = "data.dev=[{format: tsv, languages: [en, de], paths: [dev.tsv]}]"
    prepared = prepare_here(make_config(tmp_path, TESTS, dev, *NO_TEXT))
    assert len(prepared.read_tests("dev")[0].first) == 2
    (tmp_path / "dev.tsv").write_text("".join(rows[:3]))
    with pytest.raises(DataError, match=r"data.dev.0: each of its 3 pairs has a line of data.tests. Give others"):
        prepare_here(make_config(tmp_path, TESTS, dev, *NO_TEXT))


def test_too_few_pairs_to_keep_tests_out(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(DataError, match=r"pairs/de-en has 400 pairs, too few to keep data\.test_fraction 0\.002 of"):
        prepare_here(make_config(tmp_path, "data.test_fraction=0.002", *NO_TEXT))
    with pytest.raises(ConfigError, match=r"test_fraction keeps tests out of parallel where tests is empty; keep one"):
        make_config(tmp_path, "data.test_fraction=0.1", TESTS)


def test_lines_of_tests_are_found_as_a_set_finds_them() -> None:
    tests, lines = sentences("en", 300, "asked"), sentences("en", 500, "read") + sentences("en", 300, "asked")[::3]
    for asked in (tests, tests[:1], []):
        known = set(map(comparable, asked))
        _, found = kept_out_lines(lines, 0, np.unique(hash_lines(asked)))
        assert found.tolist() == [comparable(line) in known for line in lines]
