"""Moses, TSV, JSON lines and MUSE: pairs and dictionary entries, and what is set aside."""

from __future__ import annotations

import bz2
import json
import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.sources.broken import read_until_broken
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import check_contents, read
from xalign_ray.sources.records import BadRow, Entry, Pair


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_moses_pairs_line_i_with_line_i(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.en", " a  cat\r\na\t dog\n"), write(tmp_path / "a.de", "eine Katze\nein Hund")]
    assert list(read("moses", paths, ["en", "deu"])) == [
        Pair(("en", "de"), ("a cat", "eine Katze"), paths[0], 1),
        Pair(("en", "de"), ("a dog", "ein Hund"), paths[0], 2),
    ]


def test_moses_takes_a_third_file_with_alignments(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.en", "a cat\nb\nc\nd\n"),
        write(tmp_path / "a.de", "eine Katze\nB\nC\nD\n"),
        write(tmp_path / "a.align", "0-0\t 1-1\n\n0-1\n0:0\n"),
    ]
    assert list(read("moses", paths, ["en", "de"])) == [
        Pair(("en", "de"), ("a cat", "eine Katze"), paths[0], 1, "0-0 1-1"),
        Pair(("en", "de"), ("b", "B"), paths[0], 2, ""),
        BadRow(paths[0], 3, "alignment points beyond the sentence"),
        BadRow(paths[0], 4, "alignment is not of the form i-j i-j"),
    ]


def test_moses_sets_empty_sides_and_unreadable_lines_aside(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.en", "one\n\n\nfour\nfive\n"), str(tmp_path / "a.de")]
    Path(paths[1]).write_bytes(b" \n\nzwei\nvi\xe9r\nf\xc3\xbcnf\n")
    assert list(read("moses", paths, ["en", "de"])) == [
        BadRow(paths[0], 1, "one side is empty"),
        BadRow(paths[0], 2, "both sides are empty"),
        BadRow(paths[0], 3, "one side is empty"),
        BadRow(paths[1], 4, "bytes are not UTF-8"),
        Pair(("en", "de"), ("five", "f\u00fcnf"), paths[0], 5),
    ]


@pytest.mark.parametrize(("first", "second"), [(1200, 1198), (3, 4)])
def test_moses_files_of_different_length_are_refused_with_names_and_the_first_row(
    tmp_path: Path, first: int, second: int
) -> None:
    paths = [write(tmp_path / "a.en", "x\n" * first), write(tmp_path / "a.de", "y\n" * second)]
    with pytest.raises(DataError) as caught:
        list(read("moses", paths, ["en", "de"]))
    assert str(caught.value) == (
        f"{paths[0]} and {paths[1]} do not have the same rows (from row {min(first, second) + 1:,} on), so that no row "
        "can be trusted to translate the other. Fetch or write them together again."
    )


def test_moses_with_a_truncated_side_reads_up_to_there(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [rng.randbytes(45).hex() for _ in range(12_000)]
    packed = bz2.compress("\n".join(lines).encode(), compresslevel=1)
    paths = [write(tmp_path / "a.en", "\n".join(lines)), str(tmp_path / "a.de.bz2")]
    Path(paths[1]).write_bytes(packed[: len(packed) // 2])
    pairs, broken = read_until_broken(read("moses", paths, ["en", "de"]))
    assert len(pairs) > 4_000
    assert all(isinstance(pair, Pair) and pair.texts[0] == pair.texts[1] for pair in pairs)
    assert (broken.path, broken.reason) == (paths[1], "truncated archive")


def test_tsv_without_a_header_takes_its_languages_from_the_caller(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a cat\teine Katze\n\none\tzwei\tdrei\nalone\n\tleer\n")
    skipped: Counter[str] = Counter()
    assert list(read("tsv", [path], ["en", "de"], skipped)) == [
        Pair(("en", "de"), ("a cat", "eine Katze"), path, 1),
        BadRow(path, 3, "too many columns"),
        BadRow(path, 4, "too few columns"),
        BadRow(path, 5, "one side is empty"),
    ]
    assert skipped == {"blank line": 1}


def test_tsv_header_names_the_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\ufeffen\tswa\r\na cat\tpaka\r\n")
    assert list(read("tsv", [path], ["sw", "en"])) == [Pair(("sw", "en"), ("paka", "a cat"), path, 2)]


def test_tsv_of_many_languages_gives_the_two_that_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "en\tde\tfr\na cat\teine Katze\tun chat\n")
    assert list(read("tsv", [path], ["fr", "en"])) == [Pair(("fr", "en"), ("un chat", "a cat"), path, 2)]


@pytest.mark.parametrize(
    ("content", "languages", "message"),
    [
        (
            "en\tde\na\tb\n",
            ["en", "fr"],
            "{path} has no column 'fr'; its first row has 'en', 'de'.",
        ),
        (
            "English\tDeutsch\nThe house.\tDas Haus.\n",
            ["de", "en"],
            "{path} has no column 'de'; its first row has 'English', 'Deutsch'.",
        ),
    ],
)
def test_tsv_without_the_languages_is_refused(tmp_path: Path, content: str, languages: list[str], message: str) -> None:
    path = write(tmp_path / "a.tsv", content)
    with pytest.raises(DataError) as caught:
        list(read("tsv", [path], languages))
    assert str(caught.value).startswith(message.format(path=path))


@pytest.mark.parametrize(
    "keys", [("en", "zh"), ("english", "chinese"), ("translation.en", "translation.chinese"), ("src", "tgt")]
)
def test_json_lines_hold_a_pair_under_codes_or_names(tmp_path: Path, keys: tuple[str, str]) -> None:
    def row(*texts: str | int | None) -> str:
        pair = dict(zip([key.rpartition(".")[2] for key in keys], texts, strict=False))
        return json.dumps({"translation": pair} if "." in keys[0] else pair)

    lines = [
        row("a cat", " \u732b\n"), "", row("a bird"), row("", "\u9e1f"), row("a dog", None), row("a dog", 3),
        '{"other": "a dog"}', "[1]", '{"english": "cut', row("half \ud83d pair", "\u9e1f"),
    ]  # fmt: skip
    path = write(tmp_path / "a.json", "\n".join(lines))
    assert list(read("jsonl", [path], ["en", "zh"])) == [
        Pair(("en", "zh"), ("a cat", "\u732b"), path, 1),
        BadRow(path, 3, "one side is empty"),
        BadRow(path, 4, "one side is empty"),
        BadRow(path, 5, "one side is empty"),
        BadRow(path, 6, f"'{keys[1]}' holds no text"),
        BadRow(path, 7, "object lacks the keys of its texts"),
        BadRow(path, 8, "line is no JSON object"),
        BadRow(path, 9, "line is not JSON"),
        BadRow(path, 10, f"'{keys[0]}' holds half a surrogate pair"),
    ]


def test_muse_splits_on_any_white_space(tmp_path: Path) -> None:
    path = write(tmp_path / "en-de.txt", "\ufeffcat Katze\ncat\tKater\r\ndog   Hund \n\n")
    skipped: Counter[str] = Counter()
    assert list(read("muse", [path], ["en", "de"], skipped)) == [
        Entry(("en", "de"), ("cat", "Katze"), path, 1),
        Entry(("en", "de"), ("cat", "Kater"), path, 2),
        Entry(("en", "de"), ("dog", "Hund"), path, 3),
    ]
    assert skipped == {"blank line": 1}


def test_a_no_break_space_is_within_a_muse_term(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "ice\u00a0cream glace\n\u732b\u3000cat\n")
    found = [record.words for record in read("muse", [path], ["en", "fr"]) if isinstance(record, Entry)]
    assert found == [("ice cream", "glace"), ("\u732b", "cat")]


@pytest.mark.parametrize("form", ["tsv", "csv"])
@pytest.mark.parametrize("header", ["id,rus,kaz", "id,Russian,Kazakh", "id,text_ru,text_kk", "id,ru-RU,kk_Cyrl"])
def test_columns_are_called_by_languages_in_any_spelling(tmp_path: Path, form: str, header: str) -> None:
    text = f"{header}\n1,\u043a\u043e\u0442,\u043c\u044b\u0441\u044b\u049b\n"
    path = write(tmp_path / "a", text if form == "csv" else text.replace(",", "\t"))
    (pair,) = read(form, [path], ["kk", "ru"])
    assert isinstance(pair, Pair)
    assert pair.texts == ("\u043c\u044b\u0441\u044b\u049b", "\u043a\u043e\u0442")


def test_muse_sets_lines_with_another_number_of_columns_aside(tmp_path: Path) -> None:
    path = tmp_path / "en-de.txt"
    path.write_bytes(b"cat\nnew york Neuyork\n\xff x\ndog Hund\n")
    assert list(read("muse", [str(path)], ["en", "de"])) == [
        BadRow(str(path), 1, "dictionary line has one column"),
        BadRow(str(path), 2, "dictionary line has more than two columns"),
        BadRow(str(path), 3, "bytes are not UTF-8"),
        Entry(("en", "de"), ("dog", "Hund"), str(path), 4),
    ]


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2009", "\u202f", "\x85", "\x0c"])
def test_alignment_counts_words_between_spaces_and_tabs_only(tmp_path: Path, blank: str) -> None:
    paths = [
        write(tmp_path / "a.en", "Hello! The cat\n\tone two\n"),
        write(tmp_path / "a.fr", f"Bonjour{blank}! Le chat\n{blank}un deux\tx\n"),
        write(tmp_path / "a.align", "0-0 2-2\n1-2\n"),
    ]
    assert [r.alignment if isinstance(r, Pair) else r for r in read("moses", paths, ["en", "fr"])] == ["0-0 2-2", "1-2"]
    write(tmp_path / "a.align", "0-0 2-3\n1-3\n")
    with pytest.raises(DataError, match="alignment points beyond the sentence: 2"):
        list(read("moses", paths, ["en", "fr"]))


@pytest.mark.parametrize(
    ("link", "lines", "counts_from_1"),
    [("1-1 2-3", 20, True), ("1-0 2-3", 20, False), ("1-1 2-3", 19, False), ("", 40, False), ("x-1", 40, False)],
)
def test_links_that_count_from_1_are_found_though_none_names_a_word_beyond_the_last(
    tmp_path: Path, link: str, lines: int, counts_from_1: bool
) -> None:
    for side in ("en", "fr"):
        write(tmp_path / f"a.{side}", "one two three four\n" * 2 * lines)
    path = write(tmp_path / "a.align", f"{link}\n\n" * lines)
    files = [str(tmp_path / "a.en"), str(tmp_path / "a.fr"), path]
    message = rf"a\.align: no link of its first {lines} aligned lines names word 0, so it counts words from 1\."
    with pytest.raises(DataError, match=message) if counts_from_1 else nullcontext():
        check_contents("moses", files)


def test_punctuation_around_dictionary_words_is_taken_off_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "de-en.txt", "haus house,\nhund dog\n\u00abkatze\u00bb (cat)\n")
    skipped: Counter[str] = Counter()
    entries = [record.words for record in read("muse", [path], ["de", "en"], skipped) if isinstance(record, Entry)]
    assert entries == [("haus", "house"), ("hund", "dog"), ("katze", "cat")]
    assert skipped == {"noted: dictionary lines with punctuation around a word, taken off": 2}
