"""Every published form of tagged words is found by looking at its rows, is said once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.tasks import token_classification
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import find_columns

AFRISENTI, MASAKHANEWS, NER, POS = (TUNED_TASKS[name] for name in ("afrisenti", "masakhanews", "ner", "pos"))

# The rows of `Karl Ove sees Oslo`, and what a row is called.
FORMS: dict[str, tuple[str, str]] = {
    "MasakhaNER": ("{word} {tag}", "a word, a space and its tag"),
    "a blank at its end": ("{word} {tag} ", "a word, a space and its tag"),
    "XTREME": ("{word}\t{tag}", "a word, a tab and its tag"),
    "CoNLL-2002": ("{word} NP {tag}", "3 columns parted by spaces, a word first and its tag last"),
    "CoNLL-2003": ("{word} NNP I-NP {tag}", "4 columns parted by spaces, a word first and its tag last"),
    "aligned by blanks": (
        "{word:<9} NNP  I-NP   {tag}",
        "4 columns parted by spaces, a word first and its tag last",
    ),
    "two columns aligned by blanks": ("{word:<9} {tag}", "a word, a space and its tag"),
    "MultiCoNER": ("{word} _ _ {tag}", "4 columns parted by spaces, a word first and its tag last"),
    "an index and blanks": ("{place} {word} {tag}", "an index, a word and its tag, parted by spaces"),
    "CoNLL-2003 by tabs": ("{word}\tNNP\tI-NP\t{tag}", "4 columns parted by tabs, a word first and its tag last"),
    "WikiAnn": ("{place}\t{word}\t{tag}", "an index, a word and its tag, parted by tabs"),
    "GermEval": ("{next}\t{word}\t{tag}\tO", "an index, a word and its tag in 4 columns, parted by tabs"),
    "Universal NER": (
        "{next}\t{word}\t{tag}\t-\tann",
        "an index, a word and its tag in the five columns of Universal NER, parted by tabs",
    ),
}
HEADS = {  # comments, empty nodes and ranges of words
    "Universal NER": "# newdoc id = 1\n1-2\tKarlOve\t_\t-\t-\n0.1\tO\tO\t-\t-\n",
    "MultiCoNER": "# id 123-abc\tdomain=en\n",
    "XTREME": "# sent_id = 1\n# text\n",
    "MasakhaNER": "# newdoc\n# text = vitamin O\n",
}
WORDS = ("Karl", "Ove", "sees", "Oslo")
IOB2 = ("B-PER", "I-PER", "O", "B-LOC")
SCHEMES = {
    "IOB1": ("I-PER", "I-PER", "O", "I-LOC"),
    "BIOES": ("B-PER", "E-PER", "O", "S-LOC"),
    "BILOU": ("B-PER", "L-PER", "O", "U-LOC"),
}


def write(path: Path, row: str, tags: tuple[str, ...], head: str = "") -> Path:
    rows = [
        row.format(word=word, tag=tag, place=place, next=place + 1)
        for place, (word, tag) in enumerate(zip(WORDS, tags, strict=True))
    ]
    path.write_text(head + "\n".join(rows) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_classification, "_said", set())


@pytest.mark.parametrize("name", FORMS)
def test_columns_are_found_whatever_the_file_is_called(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    row, what = FORMS[name]
    head = "-DOCSTART- -X- -X- O\n\n" if name.startswith("CoNLL") else ""
    head = HEADS.get(name, head)
    for file in ("a.txt", "b.tsv"):
        (sentence,) = NER.read(write(tmp_path / file, row, IOB2, head), "de")
        assert (sentence.words, sentence.tags) == (WORDS, IOB2)
    said = f"ner: a row is {what} ({tmp_path / 'a.txt'}, and files like it)\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1\tCD\tB-NP\tO\nUN\tNNP\tB-NP\tB-ORG\n", [("1", "O"), ("UN", "B-ORG")]),  # a number is no index
        ("0\tCD\tO\nUN\tNNP\tB-ORG\n", [("0", "O"), ("UN", "B-ORG")]),
        ("1 CD O\nUN NNP B-ORG\n", [("1", "O"), ("UN", "B-ORG")]),
        ("4\tUN\tB-ORG\n5\tsees\tO\n6\t1\tO\n", [("UN", "B-ORG"), ("sees", "O"), ("1", "O")]),
        ("# O\nUN B-ORG\nsees O\n", [("#", "O"), ("UN", "B-ORG"), ("sees", "O")]),
        ("UN NNP B-ORG\nsees VBZ O\n10\u00a0000 CD O\n", [("UN", "B-ORG"), ("sees", "O"), ("10\u00a0000", "O")]),
        ("UN NNP B-ORG\nsees VBZ O\nit O\n", "line 3: not 3 columns parted by spaces, a word first and its tag last"),
        ("UN NNP B-ORG\nsees VBZ O\n10 000 CD O\n", "'10 000 CD O'. If its word holds a blank, part all columns by t"),
        ("UN\nUN B-ORG\nsees O\n", "line 1: not a word, a space and its tag: 'UN'. XTREME's own test files lack"),
        ("1 UN B-ORG\n2 sees O\nit PRP O\n", "line 3: not an index, a word and its tag, parted by spaces: 'it PRP O'."),
    ],
)
def test_most_rows_decide_the_form_and_an_odd_one_is_named(
    tmp_path: Path, text: str, read: list[tuple[str, str]] | str
) -> None:
    path = tmp_path / "dev-de.tsv"
    path.write_text(text, encoding="utf-8")
    if isinstance(read, str):
        with pytest.raises(DataError, match=re.escape(read)):
            NER.read(path, "de")
    else:
        (sentence,) = NER.read(path, "de")
        assert [*zip(sentence.words, sentence.tags, strict=True)] == read


def test_ranges_and_empty_nodes_of_conllu_are_no_words_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "dev-de.tsv"
    rows = ("1-2\tzum\t_\t_", "1\tzu\t_\tADP", "1.1\tda\t_\tADV", "2\tdem\t_\tDET")
    path.write_text("".join(row + "\t_" * 6 + "\n" for row in rows))
    assert [one.words for one in POS.read(path, "de")] == [("zu", "dem")]


@pytest.mark.parametrize("name", SCHEMES)
def test_other_schemes_are_read_as_iob2(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "dev.txt", "{word} {tag}", SCHEMES[name])
    (sentence,) = NER.read(path, "de")
    assert sentence.tags == IOB2
    assert capfd.readouterr().err.endswith(f"ner: tags in {name} are read as IOB2 ({path}, and files like it)\n")


def test_parts_of_speech_of_masakhapos(tmp_path: Path) -> None:
    (tmp_path / "swa").mkdir()
    path = tmp_path / "swa" / "dev.txt"
    path.write_text("10 000 NUM\nnyumba NOUN\n. PUNCT\n\n", encoding="utf-8")
    assert POS.find([tmp_path])["dev"] == {"sw": path}
    (sentence,) = POS.read(path, "sw")
    assert (sentence.words, sentence.tags) == (("10 000", "nyumba", "."), ("NUM", "NOUN", "PUNCT"))
    path.write_text("nyumba NOUN\nkubwa Adj\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev\.txt, line 2: 'Adj' is not one of the tags ADJ, ADP, ADV"):
        POS.read(path, "sw")


def test_a_line_in_another_encoding_is_shown_as_it_may_read(tmp_path: Path) -> None:
    path = tmp_path / "esp.txt"
    path.write_bytes("La O\nseñora O\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        NER.read(path, "es")
    assert str(caught.value) == (
        f"{path}, line 2: bytes are not UTF-8, as windows-1252 it reads 'señora O'; convert the file to UTF-8 with LF "
        "line ends."
    )


def test_an_empty_file_has_no_columns_to_find() -> None:
    assert find_columns(["", " "]).what == "a word, a tab and its tag"


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
