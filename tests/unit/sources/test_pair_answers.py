"""Pairs whose form is not clear: the answer names what settles it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.pair_texts import (
    DE,
    EN,
    FR,
    IDS,
    PAIRS,
    SCORES,
    csv_text,
    table,
    tmx_text,
    write_texts,
)
from xalign_ray.errors import XalignError
from xalign_ray.sources import language_id
from xalign_ray.sources.pair_forms import look_at_pairs

# name: the file, its content, options, and the answer after the path.
ANSWERS: dict[str, tuple[str, str | bytes, dict[str, Any], str]] = {
    "three text columns": (
        "x.csv",
        csv_text(table("foo,bar,baz", EN, DE, FR)),
        {},
        ": foo, bar and baz hold text (columns: foo, bar, baz), and pairs need two. Name them with --columns.",
    ),
    "alike": (
        "x.csv",
        csv_text(table("foo,bar", EN, EN[::-1])),
        {},
        " has foo (en), bar (en): two are in 'en'. Name two columns with --columns, or their languages in this order "
        "with --languages.",
    ),
    "unknown language": (
        "x.csv",
        csv_text(table("foo,bar", list("stuvwxyz"), list("STUVWXYZ"))),
        {},
        " has 1 (unknown), 2 (unknown): not every language can be told by name or text. Name two columns with "
        "--columns, or their languages in this order with --languages.",
    ),
    "empty column": (
        "x.csv",
        csv_text(table("en,de", EN, [""] * 8)),
        {},
        ": column de is empty in the first 8 rows. Fill it, or name two others with --languages or --columns.",
    ),
    "nan column": (
        "x.csv",
        csv_text(table("en,de", EN, ["NaN"] * 8)),
        {},
        ": column de is empty in the first 8 rows. Fill it, or name two others with --languages or --columns.",
    ),
    "equal": (
        "x.csv",
        csv_text(table("en,de", EN, EN)),
        {},
        ": en and de are the same in 8 of 8 rows, so one is no translation of the other. Name other columns with "
        "--columns, or give another file.",
    ),
    "header only": ("x.csv", "en,de\n", {}, " has no rows below its header (en, de)."),
    "one column": (
        "x.csv",
        csv_text(table("en,id", EN, IDS)),
        {},
        ": en holds text (columns: en, id), and pairs need two. Name them with --columns.",
    ),
    "one column of a csv": (
        "x.csv",
        csv_text(table("en", EN)),
        {},
        ": en holds text (columns: en), and pairs need two. Name them with --columns.",
    ),
    "numbers": (
        "x.csv",
        csv_text(table("a,b", SCORES, IDS)),
        {},
        ": no column holds text (columns: 1, 2), and pairs need two. Name them with --columns.",
    ),
    "no such column": (
        "x.csv",
        csv_text(table("en,de", EN, DE)),
        {"columns": ["en", "fr"]},
        " has no column 'fr'; its columns are en, de.",
    ),
    "no such language": (
        "x.csv",
        csv_text(table("en,de", EN, DE)),
        {"languages": ["en", "fr"]},
        " has en, de: none is in 'fr'. Name two columns with --columns, or their languages in this order with "
        "--languages.",
    ),
    "double name": (
        "x.csv",
        csv_text(table("text,text", EN, DE)),
        {},
        ": two columns are called 'text'. Rename one of them.",
    ),
    "ragged": (
        "x.csv",
        "en,de\n" + "".join(f"{en},{de},x,y\n" for en, de in zip("abcdefgh", "ABCDEFGH", strict=True)),
        {},
        ": no row below its first can be read (too many columns: 8). Quote fields that hold the delimiter, or write it "
        "as TSV.",
    ),
    "less than half of the rows": (
        "x.csv",
        "en,de\na,A\nb\nc\n",
        {},
        ": only 1 of 3 rows below its first can be read (too few columns: 2). Quote fields that hold the delimiter, or "
        "write it as TSV.",
    ),
    "latin-1": (
        "x.csv",
        csv_text(table("de,fr", DE, FR)).replace("„", "").encode("latin-1"),
        {},
        ":2 is not in UTF-8. Convert it: iconv -f ENCODING -t UTF-8 x.csv",
    ),
    "plain text": (
        "x.txt",
        "\n".join(EN),
        {},
        ": plain text, and no file is its translation by name. Give two files, call them alike but for the language "
        "(x.en, x.de), or give a table with a column for each language.",
    ),
    "empty": ("x.csv", "", {}, " is empty."),
    "one language of a tmx": (
        "x.tmx",
        tmx_text([{"en": en} for en in EN]),
        {},
        " holds one language only (en); pairs need two.",
    ),
    "one object": (
        "x.json",
        json.dumps({"en": EN, "de": DE}),
        {},
        " has no column of text; it has en (list), de (list). Write a row with a text of each language.",
    ),
    "an object over lines": (
        "x.json",
        json.dumps({"en": EN, "de": DE}, indent=2),
        {},
        " has no column of text; it has none. Write a row with a text of each language.",
    ),
    "lists": (
        "x.jsonl",
        "".join(json.dumps(pair) + "\n" for pair in PAIRS),
        {},
        " holds JSON, but no objects. Write an object each, with a text of both languages.",
    ),
    "objects of lists": (
        "x.jsonl",
        "".join(json.dumps({"translation": {"language": ["en", "de"], "translation": pair}}) + "\n" for pair in PAIRS),
        {},
        " has no column of text; it has translation.language (list), translation.translation (list). Write a row "
        "with a text of each language.",
    ),
    "utf-16 without a mark": (
        "x.csv",
        csv_text(table("en,de", EN, DE)).encode("utf-16-le"),
        {},
        " is UTF-16 without a byte-order mark. Convert it: iconv -f UTF-16LE -t UTF-8 OLD > NEW",
    ),
    "NULs in each row": (
        "x.csv",
        "en,de\n" + "".join(f"{en}\0,{de}\n" for en, de in zip("abcdefgh", "ABCDEFGH", strict=True)),
        {},
        ": no row below its first can be read (line holds NUL characters: 8).",
    ),
    "a quote within each row": (
        "x.csv",
        'en,de\n"a" b,"A" B\n',
        {},
        ": no row below its first can be read (a quote stands inside a field: 1).",
    ),
    "lists of texts": (
        "x.jsonl",
        "".join(json.dumps({"query": en, "links": [de]}) + "\n" for en, de in PAIRS),
        {},
        ": query holds text (columns: query; lists, of which each text needs a row: links), and pairs "
        "need two. Name them with --columns.",
    ),
    "a column of lists that is named": (
        "x.jsonl",
        "".join(json.dumps({"query": en, "links": [de]}) + "\n" for en, de in PAIRS),
        {"columns": ["query", "links"]},
        " has no column 'links'; its columns are query; lists, of which each text needs a row: links.",
    ),
    "columns of pandas": (
        "x.json",
        json.dumps({"en": dict(enumerate(EN * 9)), "de": dict(enumerate(DE * 9))}),
        {},
        " is one JSON object of all texts. Write an object a line with a text of both languages.",
    ),
    "many columns": (
        "x.csv",
        csv_text(table(",".join(f"c{n}" for n in range(300)), EN, *[IDS] * 299)),
        {"columns": ["en", "fr"]},
        " has no column 'en'; its columns are c0, c1, c2, c3, c4, c5, c6, c7 and 292 more.",
    ),
    "labels": (
        "x.csv",
        csv_text(table("sentence1,sentence2,label", EN, DE, ["0", "1"] * 4)),
        {"where": ""},
        ": column label holds 0 to 1, so not each row may be a translation. Say which rows are read: --where 'label>=1'"
        ", or --where all.",
    ),
    "scores": (
        "x.jsonl",
        "".join(json.dumps({"en": en, "de": de, "laser_score": n / 4}) + "\n" for n, (en, de) in enumerate(PAIRS)),
        {"where": ""},
        ": column laser_score holds 0 to 1.75, so not each row may be a translation. Say which rows are read: "
        "--where 'laser_score>=1', or --where all.",
    ),
    "a condition on no column": (
        "x.csv",
        csv_text(table("en,de", EN, DE)),
        {"where": "label=1"},
        "--where label=1: no table has a column 'label'.",
    ),
    "a condition of no row": (
        "x.csv",
        csv_text(table("en,de,label", EN, DE, ["0"] * 8)),
        {"where": "label=1"},
        ": no row fulfils --where label=1.",
    ),
    "a language without a code": (
        "x.tmx",
        tmx_text([{"en": en, "x-none": de} for en, de in zip(EN, DE, strict=True)]),
        {},
        " calls a language 'x-none', which is no code. Write a code (xml:lang) in its place.",
    ),
    "pointer": (
        "x.csv",
        "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n",
        {},
        " is a pointer to the file, a web page or a server's message, not the file itself. Fetch the file again, and "
        "check its address and your access to it. `git lfs pull` and `dvc pull` get what their pointers name. It "
        "begins: 'version https://git-lfs.github.com/spec/v1 oid sha256:12 size 3'",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_not_clear_is_answered_in_a_sentence(tmp_path: Path, name: str) -> None:
    file, content, options, answer = ANSWERS[name]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(XalignError) as caught:
        look_at_pairs([str(path)], **options)
    assert str(caught.value) == (answer if answer.startswith("--") else f"{path}{answer}")


GSW = ["D Chind spiled im Garte Fuessball, und s isch schön.", "Mir träffed eus morn z Abig wider am Bahnhof."] * 4
# The names of two columns, the file's, their texts, options; languages, and what is said of texts in another language.
WRITTEN: dict[str, tuple[str, str, list[str], list[str], dict[str, list[str]], list[str], str]] = {
    "gsw": ("en,gsw", "x", EN, GSW, {}, ["en", "gsw"], ""),
    "reads like another": ("en,gsw", "x", EN, FR, {}, ["en", "gsw"], "gsw reads like fr: taken as gsw"),
    "pcm": ("eng,pcm", "x", DE, EN, {}, ["en", "pcm"], "pcm reads like en: taken as pcm"),
    "private": ("en,qcr", "x", EN, DE, {}, ["en", "qcr"], "qcr reads like de: taken as qcr"),
    "swapped": ("de,en", "x", EN, DE, {}, ["de", "en"], "de reads like en: taken as de"),
    "--languages": ("source,target", "x", EN, EN[::-1], {"languages": ["en", "pcm"]}, ["en", "pcm"], "reads like en"),
    "over names": (
        "en,als", "x", EN, GSW, {"languages": ["en", "gsw"], "columns": ["en", "als"]}, ["en", "gsw"], "",
    ),
    "beside a name": ("en,text", "x", EN, GSW, {"languages": ["gsw", "en"]}, ["en", "gsw"], ""),
    "als is Albanian": ("en,als", "x", EN, FR, {}, ["en", "sq"], "als reads like fr: taken as sq"),
    "in the file's name, turned": ("source,target", "x.de-en", EN, DE, {}, ["en", "de"], ""),
    "in the file's name": ("source,target", "x.en-pcm", EN, EN[::-1], {}, ["en", "pcm"], "reads like en"),
    "words in the file's name": ("source,target", "my-id", EN, DE, {}, ["en", "de"], ""),
    "words of three letters": ("foo,bar", "x", EN, DE, {}, ["en", "de"], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_code_that_is_written_holds(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    names, file, first, second, options, languages, said = WRITTEN[name]
    path = tmp_path / f"{file}.csv"
    path.write_text(csv_text(table(names, first, second)))
    (corpus,) = look_at_pairs([str(path)], **options)
    assert [*corpus.languages] == languages
    told = capfd.readouterr().err
    assert ("reads like" in told) == bool(said)
    assert said in told


def test_languages_and_columns_settle_what_is_not_clear(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(csv_text(table("foo,bar,baz", EN, DE, FR)))
    (corpus,) = look_at_pairs([str(path)], columns=["baz", "foo"])
    assert (corpus.languages, corpus.columns) == (("fr", "en"), ("baz", "foo"))
    corpora = look_at_pairs([str(path)], languages=["en", "de", "fr"])
    assert [one.languages for one in corpora] == [("en", "de"), ("en", "fr")]
    (corpus,) = look_at_pairs([str(path)], ["en", "de"], ["bar", "foo"])
    assert (corpus.languages, corpus.columns) == (("de", "en"), ("bar", "foo")), "the texts show the order"
    (corpus,) = look_at_pairs([str(path)], ["sw", "yo"], ["bar", "foo"])
    assert (corpus.languages, corpus.columns) == (("sw", "yo"), ("bar", "foo"))


def test_without_the_identifier_languages_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_id, "PACKAGE", "no-such-package")
    path = tmp_path / "x.csv"
    path.write_text(csv_text(table("source,target", EN, DE)))
    with pytest.raises(XalignError, match=r"or their languages in this order with --languages, or install"):
        look_at_pairs([str(path)])
    (corpus,) = look_at_pairs([str(path)], languages=["en", "de"])
    assert corpus.languages == ("en", "de")


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        (["a.txt", "b.txt", "c.txt"], "plain text, and no file is its translation by name"),
        (["en.txt", "english.txt"], "are both 'en' by their names. Give one of them."),
        (["x.en", "x.de", "z.fr"], "plain text, and no file is its translation by name"),
    ],
)
def test_texts_that_do_not_belong_together(tmp_path: Path, files: list[str], answer: str) -> None:
    for file in files:
        (tmp_path / file).write_text("\n".join(EN))
    with pytest.raises(XalignError, match=answer):
        look_at_pairs([str(tmp_path / file) for file in files])


def test_subtitles_are_no_line_aligned_text(tmp_path: Path) -> None:
    for file in ("x.en", "x.de"):
        (tmp_path / file).write_text("1\n00:00:01,000 --> 00:00:02,000\nHi\n")
    with pytest.raises(XalignError, match=r"x\.en is no text of a sentence a line"):
        look_at_pairs([str(tmp_path / "x.en"), str(tmp_path / "x.de")])


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(XalignError, match=r"^no/such\.csv does not exist\."):
        look_at_pairs(["no/such.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(XalignError, match=r"empty is a folder without files of pairs\."):
        look_at_pairs([str(tmp_path / "empty")])
    write_texts(tmp_path / "x", dev_en=EN, dev_de=DE, test_en=EN, test_de=DE)
    with pytest.raises(XalignError, match=r"x has the splits dev, test, none of which is 'train'\."):
        look_at_pairs([str(tmp_path / "x")])
    with pytest.raises(XalignError, match=r"^No pairs are given\."):
        look_at_pairs([])
