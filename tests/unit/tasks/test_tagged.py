"""Reading CoNLL-U and XTREME's two columns, with the traps that real files hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import Sentence

POS = TUNED_TASKS["pos"]

CONLLU = """# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
2.1\tluego\tluego\tADV\t_\t_\t_\t_\t1:advmod\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No

# sent_id = 2
1\t10 000\t10 000\tNUM\t_\t_\t0\troot\t_\t_
"""
EXPECTED = [
    Sentence("0", ("Vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN"), "es"),
    Sentence("1", ("10 000",), ("NUM",), "es"),
]


@pytest.mark.parametrize("last", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_words_are_read_but_not_multiword_ranges_or_empty_nodes(tmp_path: Path, mark: str, end: str, last: str):
    path = tmp_path / "es.test.conllu"
    path.write_text((mark + CONLLU.rstrip("\n") + last).replace("\n", end), encoding="utf-8", newline="")
    assert POS.read(path, "es") == EXPECTED


def test_two_columns_are_read_and_a_hash_is_a_word_there(tmp_path: Path):
    path = tmp_path / "dev-en.tsv"
    path.write_bytes("\ufeff#\tSYM\r\none\tNUM\r\n\r\n\r\na\u2028b\tX\r\n".encode())
    assert POS.read(path, "es") == [
        Sentence("0", ("#", "one"), ("SYM", "NUM"), "es"),
        Sentence("1", ("a\u2028b",), ("X",), "es"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2\tnos\tnosotros\tPRON", "line 3: not the ten columns of CoNLL-U: "),
        ("2\tnos\t_\tPRN\t_\t_\t1\tobj\t_\t_", "line 3: 'PRN' is not one of the tags ADJ, ADP, ADV, AUX,"),
        ("2\tnos\t_\t_\t_\t_\t1\tobj\t_\t_", "line 3: '_' is not one of the tags"),
    ],
)
def test_a_malformed_conllu_row_is_named_by_file_and_line(tmp_path: Path, row: str, message: str):
    path = tmp_path / "es.test.conllu"
    path.write_text(f"# sent_id = 1\n1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}, {message}")):
        POS.read(path, "es")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("two", "line 2: not a word, a tab and its tag: 'two'."),
        ("two\tNUM\tx", "line 2: not a word, a tab and its tag"),
        ("two\tB-NUM", "line 2: 'B-NUM' is not one of the tags"),
    ],
)
def test_a_malformed_row_of_two_columns_is_named_by_file_and_line(tmp_path: Path, row: str, message: str):
    path = tmp_path / "dev-en.tsv"
    path.write_text(f"one\tNUM\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}, {message}")):
        POS.read(path, "es")


def test_a_file_without_sentences_is_refused(tmp_path: Path):
    path = tmp_path / "es.test.conllu"
    path.write_text("# nothing\n\n")
    with pytest.raises(DataError, match=re.escape(f"{path} holds no sentence.")):
        POS.read(path, "es")


def test_files_are_found_by_all_three_names_and_over_several_folders(tmp_path: Path):
    names = [
        "qgr.test.conllu",
        "de_pud-ud-test.conllu",
        "train-en.tsv",
        "dev-en.tsv",
        "README.md",
        "en.train.conllu.bak",
    ]
    for name in names[:3]:
        (tmp_path / name).touch()
    (tmp_path / "more").mkdir()
    for name in names[3:]:
        (tmp_path / "more" / name).touch()
    found = POS.find((tmp_path, tmp_path / "more"))
    assert {split: {code: path.name for code, path in files.items()} for split, files in found.items()} == {
        "train": {"en": "train-en.tsv"},
        "dev": {"en": "dev-en.tsv"},
        "test": {"de": "de_pud-ud-test.conllu", "qgr": "qgr.test.conllu"},
    }


def test_two_files_of_one_split_are_ambiguous(tmp_path: Path):
    (tmp_path / "de_gsd-ud-test.conllu").touch()
    (tmp_path / "de_pud-ud-test.conllu").touch()
    with pytest.raises(DataError, match=r"de_pud-ud-test.conllu and .*de_gsd-ud-test.conllu are both test of de; keep"):
        POS.find((tmp_path,))


def test_a_folder_without_tagged_files_says_what_they_are_called(tmp_path: Path):
    with pytest.raises(DataError, match=rf"{tmp_path}: no pos files; they are called en.train.conllu, en_\*-ud-"):
        POS.find((tmp_path,))
    with pytest.raises(DataError, match="missing is not a folder; give the folder of pos files such as"):
        POS.find((tmp_path / "missing",))
