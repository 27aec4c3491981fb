"""CoNLL-U as text: the sentence as it was written, documents where they are marked, bad lines set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.sources.conllu import WITHHELD_WORDS
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import BadRow, Document


def word(number: str, form: str, misc: str = "_") -> str:
    return "\t".join([number, form, *["_"] * 7, misc])


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_sentence_is_its_text_or_its_words_as_they_were_written(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conllu",
        *(
            "# sent_id = 1",
            "# text = Im Haus.",
            word("1-2", "Im"),
            word("1", "In"),
            word("2", "dem"),
            word("3", "Haus"),
            "",
        ),
        *(word("1-2", "Im"), word("1", "In"), word("2", "dem"), word("2.1", "x"), word("3", "Haus", "SpaceAfter=No")),
        *(word("4", "."), "", ""),
    )
    assert list(read("conllu", [path], ["de"])) == [
        Document("de", ("Im Haus.",), path, 1),
        Document("de", ("Im Haus.",), path, 8),
    ]


def test_documents_begin_where_they_are_marked(tmp_path: Path) -> None:
    blocks = [("# newdoc id = a", "# text = One."), ("# text = Two.",), ("# newdoc", "# text = Three.")]
    path = write(tmp_path / "a.conllu", *(line for block in blocks for line in (*block, word("1", "x"), "")))
    assert list(read("conllu", [path], ["en"])) == [
        Document("en", ("One.", "Two."), path, 1),
        Document("en", ("Three.",), path, 8),
    ]


def test_a_sentence_with_a_bad_line_is_set_aside_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    good = word("1", "x").encode()
    path.write_bytes(
        b"# text = One.\n"
        + good
        + b"\n\nno table\n\n# text = Bad\n"
        + good.replace(b"1", b"one")
        + b"\n\n\xff\n\n"
        + good
    )
    assert list(read("conllu", [str(path)], ["en"])) == [
        Document("en", ("One.",), str(path), 1),
        BadRow(str(path), 4, "line has 1 columns, not 10"),
        BadRow(str(path), 7, "line has no word number"),
        BadRow(str(path), 9, "bytes are not UTF-8"),
        Document("en", ("x",), str(path), 11),
    ]


def test_sentence_of_withheld_words_is_set_aside(tmp_path: Path) -> None:
    withheld = ["# text = _ _", word("1", "_"), word("2", "_", "SpaceAfter=No"), ""]
    path = write(tmp_path / "part.conllu", *withheld, word("1", "_"), word("2", "a"))
    assert list(read("conllu", [path], ["ar"])) == [
        BadRow(path, 1, WITHHELD_WORDS),
        Document("ar", ("_ a",), path, 5),
    ]
    path = write(tmp_path / "all.conllu", *withheld, *withheld[1:])
    with pytest.raises(DataError) as caught:
        list(read("conllu", [path], ["ar"]))
    assert str(caught.value).startswith(
        f"{path}: no row can be read as format conllu. All 2 were set aside (the words are withheld (all are _): merge "
        "them with the treebank's script: 2). Its first row is '1\\t_"
    )
