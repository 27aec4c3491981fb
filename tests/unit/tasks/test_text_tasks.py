"""XNLI, PAWS-X, SIB-200 and MLDoc as their files are: names, columns, languages, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.text_classification import LabelledText

NAMES = ("afrisenti", "masakhanews", "mldoc", "mldoc_h", "pawsx", "sib", "xnli")
AFRISENTI, MASAKHANEWS, MLDOC, MLDOC_H, PAWSX, SIB, XNLI = (TUNED_TASKS[name] for name in NAMES)

OFFICIAL_XNLI = """\
language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpromptID\tmatch
de\tneutral\t\tUnd er sagte, Mama.\tEr rief an.\t1\tTrue
en\tneutral\t\tAnd he said, Mama.\tHe called.\t1\tTrue
de\tcontradiction\t\tUnd er sagte, Mama.\tEr schwieg.\t1\tTrue
en\tcontradiction\t\tAnd he said, Mama.\tHe was silent.\t1\tTrue
"""


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="")
    return path


def texts(examples: Sequence[LabelledText]) -> list[tuple[str, ...]]:
    return [example.texts for example in examples]


def test_the_official_xnli_file_holds_fifteen_languages_and_is_read_one_at_a_time(tmp_path: Path):
    path = write(tmp_path / "xnli.test.tsv", OFFICIAL_XNLI)
    found = XNLI.find([tmp_path])
    assert found["test"] == dict.fromkeys(XNLI.codes[""], path)
    german, english = XNLI.read(path, "de"), XNLI.read(path, "en")
    assert texts(german) == [("Und er sagte, Mama.", "Er rief an."), ("Und er sagte, Mama.", "Er schwieg.")]
    assert [(one.key, one.label) for one in german] == [(one.key, one.label) for one in english]
    with pytest.raises(DataError, match=r"xnli.test.tsv holds no example"):
        XNLI.read(path, "fr")


def test_the_training_file_of_xnli_has_a_header_and_another_word_for_contradiction(tmp_path: Path):
    path = write(tmp_path / "multinli.train.en.tsv", "premise\thypo\tlabel\nIt is .\tIt is not .\tcontradictory\n")
    assert XNLI.read(path, "en") == [LabelledText("0", ("It is .", "It is not ."), ("en", "en"), "contradiction")]


@pytest.mark.parametrize(
    "header", ["premise\thypothesis\tlabel", "sentence1\tsentence2\tlabel", "sentence1\tsentence2\tgold_label", ""]
)
def test_xnli_in_columns_of_other_tables_and_pairs_without_a_gold_label(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str
):
    rows = "Er geht.\tJa.\t-\nEr geht.\tEr bleibt.\tcontradiction\nEr geht.\tEr.\tentailment\nJa.\tSo.\tneutral\n"
    path = write(tmp_path / "dev-de.tsv", f"{header}\n{rows}".removeprefix("\n"))
    assert [(one.key, one.label) for one in XNLI.read(path, "de")] == [
        ("1", "contradiction"), ("2", "entailment"), ("3", "neutral"),
    ]  # fmt: skip
    assert caplog.messages == [f"{path}: 1 rows with the label - are left out"]


def test_pawsx_is_read_with_ids_and_without(tmp_path: Path):
    own = write(tmp_path / "dev_2k.tsv", "id\tsentence1\tsentence2\tlabel\n7\tA B\tB A\t1\n9\tC\tD\t0\n")
    assert [(one.key, one.texts, one.label) for one in PAWSX.read(own, "en")] == [
        ("7", ("A B", "B A"), "1"),
        ("9", ("C", "D"), "0"),
    ]
    xtreme = write(tmp_path / "dev-en.tsv", "A B\tB A\t1\r\nC\tD\t0\r\n")
    assert texts(PAWSX.read(xtreme, "en")) == [("A B", "B A"), ("C", "D")]


def test_sib_is_joined_by_its_ids(tmp_path: Path):
    path = write(tmp_path / "dev.tsv", "index_id\tcategory\ttext\n548\tsports\tSpeed matters.\n824\ttravel\tLook.\n")
    assert SIB.read(path, "en") == [
        LabelledText("548", ("Speed matters.",), ("en",), "sports"),
        LabelledText("824", ("Look.",), ("en",), "travel"),
    ]
    with pytest.raises(DataError, match=r"wrong.tsv, line 2: the label 'weather' is none of entertainment, geography,"):
        SIB.read(write(tmp_path / "wrong.tsv", "index_id\tcategory\ttext\n1\tweather\tRain.\n"), "en")


def test_mldoc_texts_are_read_as_python_2_and_python_3_wrote_them(tmp_path: Path):
    path = write(
        tmp_path / "french.dev",
        "CCAT\tL'été est là.\nECAT\tb'L\\'\\xc3\\xa9t\\xc3\\xa9\\nest  l\\xc3\\xa0.'\nGCAT\tb\"l'an\"\nMCAT\tbon\n",
    )
    assert MLDOC.read(path, "fr") == [
        LabelledText("fr/1", ("L'été est là.",), ("fr",), "CCAT"),
        LabelledText("fr/2", ("L'été est là.",), ("fr",), "ECAT"),
        LabelledText("fr/3", ("l'an",), ("fr",), "GCAT"),
        LabelledText("fr/4", ("bon",), ("fr",), "MCAT"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "FDG54-397782",
            "not a label, a tab and a text: 'FDG54-397782'. The texts are Reuters' (RCV1, RCV2): write this file with",
        ),
        ("CCAT no tab here", "not a label, a tab and a text: 'CCAT no tab here'."),
        ("C15\tText.", "the label 'C15' is none of CCAT, ECAT, GCAT, MCAT."),
        ("CCAT\t ", "there is no text."),
        ("CCAT\tb'\\xc3'", "the text's escapes cannot be read ('utf-8' codec can't decode"),
    ],
)
def test_rows_of_mldoc_that_cannot_be_read_are_named(tmp_path: Path, line: str, message: str):
    path = write(tmp_path / "german.dev", f"GCAT\tGut.\n{line}\n")
    with pytest.raises(DataError, match=re.escape(f"{path}, line 2: {message}")):
        MLDOC.read(path, "de")


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ("Acme Inc. fell in U.S. trade on Friday. Analysts said so.", "Acme Inc. fell in U.S. trade on Friday."),
        ('"Prices will rise." That is what he said.', '"Prices will rise."'),
        ("Gold up 3.5 pct", "Gold up 3.5 pct"),
        ("gold rises. silver falls.", "gold rises."),
        ("Цены растут. Рынок закрыт.", "Цены растут."),
        ("股市上涨。投资者乐观。", "股市上涨。"),
    ],
)  # fmt: skip
def test_the_headline_is_the_first_sentence(tmp_path: Path, text: str, headline: str):
    path = write(tmp_path / "english.dev", f"MCAT\t{text}\n")
    assert texts(MLDOC_H.read(path, "en")) == [(headline,)]
    assert texts(MLDOC.read(path, "en")) == [(text,)]


def test_masakhanews_reads_quoted_articles_of_several_lines(tmp_path: Path) -> None:
    (tmp_path / "eng").mkdir()
    path = tmp_path / "eng" / "dev.tsv"
    path.write_text('category\theadline\ttext\turl\nhealth\tA "b"\t"One ""two"".\nThree\tfour."\thttp://x\n')
    assert MASAKHANEWS.find([tmp_path])["dev"] == {"en": path}
    (example,) = MASAKHANEWS.read(path, "en")
    assert (example.texts, example.label) == (('A "b" One "two". Three four.',), "health")
    path.write_text('category\theadline\ttext\turl\nhealth\tA\t"never closed\thttp://x\n')
    with pytest.raises(DataError, match=r"dev\.tsv, line 2: a quoted field is malformed \(unexpected end of data\)\."):
        MASAKHANEWS.read(path, "en")


def test_afrisenti_is_read_from_both_of_its_releases(tmp_path: Path) -> None:
    for name, content in {
        "hau/train.tsv": "tweet\tlabel\nSannu duniya\tneutral\n",
        "kr_dev.tsv": "ID\ttweet\tlabel\nkr_dev_1\tAmakuru\tpositive\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = AFRISENTI.find([tmp_path])
    assert found["train"] == {"ha": tmp_path / "hau/train.tsv"}
    assert found["dev"] == {"rw": tmp_path / "kr_dev.tsv"}
    assert [one.texts for one in AFRISENTI.read(found["dev"]["rw"], "rw")] == [("Amakuru",)]
