"""Files of tagged words: every published form is found by looking at its rows, and an odd row is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from xalign_ray.derive.tasks import read_sentences
from xalign_ray.errors import DataError
from xalign_ray.sources.tagged import find_columns
from xalign_ray.tasks import token_classification
from xalign_ray.tasks.registry import TUNED_TASKS

NER, POS = (TUNED_TASKS[name] for name in ("ner", "pos"))
TASKS = {"ner": NER, "pos": POS}
Tagged = list[list[tuple[str, str]]]  # the rows of each sentence

# The rows of `Karl Ove sees Oslo`, and what a row is called.
FORMS: dict[str, tuple[str, str]] = {
    "MasakhaNER": ("{word} {tag}", "a word, a space and its tag"),
    "a blank at its end": ("{word} {tag} ", "a word, a space and its tag"),
    "XTREME": ("{word}\t{tag}", "a word, a tab and its tag"),
    "CoNLL-2002": ("{word} NP {tag}", "3 columns parted by spaces, a word first and its tag last"),
    "CoNLL-2003": ("{word} NNP I-NP {tag}", "4 columns parted by spaces, a word first and its tag last"),
    "aligned by blanks": ("{word:<9} NNP  I-NP   {tag}", "4 columns parted by spaces, a word first and its tag last"),
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
    "CoNLL-2002": "-DOCSTART- -X- -X- O\n\n",
    "CoNLL-2003": "-DOCSTART- -X- -X- O\n\n",
}
WORDS = ("Karl", "Ove", "sees", "Oslo")
SCHEMES = {
    "IOB2": ("B-PER", "I-PER", "O", "B-LOC"),
    "IOB1": ("I-PER", "I-PER", "O", "I-LOC"),
    "BIOES": ("B-PER", "E-PER", "O", "S-LOC"),
    "BILOU": ("B-PER", "L-PER", "O", "U-LOC"),
}
IOB2 = SCHEMES["IOB2"]


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_classification, "_said", set())


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Tagged]:
    """`read(task, text)`: what the task reads in a file with this text."""

    def read(task: str, text: str, name: str = "a.txt") -> Tagged:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return [[*zip(one.words, one.tags, strict=True)] for one in TASKS[task].read(path, "de")]

    return read


def rows(form: str, tags: Sequence[str] = IOB2, words: Sequence[str] = WORDS) -> str:
    lines = [
        form.format(word=word, tag=tag, place=place, next=place + 1)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True))
    ]
    return "\n".join(lines) + "\n\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", FORMS)
def test_columns_are_found_whatever_the_file_is_called(
    tmp_path: Path, read: Callable[..., Tagged], name: str, end: str, capfd: pytest.CaptureFixture[str]
) -> None:
    row, what = FORMS[name]
    text = ("\ufeff" + HEADS.get(name, "") + rows(row)).replace("\n", end)
    for file in ("a.txt", "b.tsv"):
        assert read("ner", text, file) == [[*zip(WORDS, IOB2, strict=True)]]
    said = f"ner: a row is {what} ({tmp_path / 'a.txt'}, and files like it)\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("name", SCHEMES)
def test_other_schemes_are_read_as_iob2(
    tmp_path: Path, read: Callable[..., Tagged], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [tag for _, tag in read("ner", rows("{word} {tag}", SCHEMES[name]))[0]] == [*IOB2]
    said = "" if name == "IOB2" else f"ner: tags in {name} are read as IOB2 ({tmp_path / 'a.txt'}, and files like it)\n"
    assert capfd.readouterr().err.endswith(said)


CONLLU = "{}\t{}\t_\t{}\t_\t_\t0\troot\t_\t_\n"
READ: dict[str, tuple[str, str, Tagged]] = {
    "a number is no index": ("ner", "1\tCD\tB-NP\tO\nUN\tNNP\tB-NP\tB-ORG\n", [[("1", "O"), ("UN", "B-ORG")]]),
    "nor is 0": ("ner", "0\tCD\tO\nUN\tNNP\tB-ORG\n", [[("0", "O"), ("UN", "B-ORG")]]),
    "nor by blanks": ("ner", "1 CD O\nUN NNP B-ORG\n", [[("1", "O"), ("UN", "B-ORG")]]),
    "an index from 4": ("ner", "4\tUN\tB-ORG\n5\tsees\tO\n6\t1\tO\n", [[("UN", "B-ORG"), ("sees", "O"), ("1", "O")]]),
    "a hash is a word": ("ner", "# O\nUN B-ORG\nsees O\n", [[("#", "O"), ("UN", "B-ORG"), ("sees", "O")]]),
    "a hash and a number": ("ner", "# 1\tO\nUN\tB-ORG\n", [[("# 1", "O"), ("UN", "B-ORG")]]),
    "a no-break space in a word": (
        "ner", "UN NNP B-ORG\nsees VBZ O\n10\u00a0000 CD O\n", [[("UN", "B-ORG"), ("sees", "O"), ("10\u00a0000", "O")]],
    ),
    "IOB1": (
        "ner", "U.N.\tI-ORG\nsees\tO\nPeru\tI-LOC\nChile\tB-LOC\n\nBaghdad\tI-LOC\nNews\tI-ORG\n",
        [[("U.N.", "B-ORG"), ("sees", "O"), ("Peru", "B-LOC"), ("Chile", "B-LOC")],
         [("Baghdad", "B-LOC"), ("News", "B-ORG")]],
    ),
    "CoNLL-2003's four columns among two": (
        "ner",
        "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nsees VBZ I-VP O\n\n"
        "New York B-LOC\n10 000 km O\nin O\nUlm O\n, O\n. O\n",
        [[("U.N.", "I-ORG"), ("sees", "O")],
         [("New York", "B-LOC"), ("10 000 km", "O"), ("in", "O"), ("Ulm", "O"), (",", "O"), (".", "O")]],
    ),
    "PAN-X's prefix": (
        "ner", "en:12:30\tO\nen:\tO\n\nen:Oslo\tB-LOC\n", [[("12:30", "O"), ("", "O")], [("Oslo", "B-LOC")]],
    ),
    "a prefix of some words": ("ner", "en:12\tO\nOslo\tB-LOC\n", [[("en:12", "O"), ("Oslo", "B-LOC")]]),
    "invisible words": (
        "ner", "\u00a0\tO\nUlm\tO\n\u200e\tO\n\u00ad\tO\n\tO\n\n\u3000\tO\n\n\tO\nBonn\tB-LOC\n",
        [[("\u00a0", "O"), ("Ulm", "O"), ("\u200e", "O"), ("\u00ad", "O"), ("", "O")], [("\u3000", "O")],
         [("", "O"), ("Bonn", "B-LOC")]],
    ),
    "a mark where files were joined": (
        "ner", "Ann\tB-PER\n\ufeff\nUlm\tB-LOC\n", [[("Ann", "B-PER")], [("Ulm", "B-LOC")]],
    ),
    "CoNLL-U's ranges and empty nodes": (
        "pos", "# text = zum\n" + "".join(CONLLU.format(*row) for row in [
            ("1-2", "zum", "_"), (1, "zu", "ADP"), ("1.1", "da", "ADV"), (2, "dem", "DET"),
        ]) + "\n# x\n" + CONLLU.format(1, "10 000", "NUM") + "\n\n",
        [[("zu", "ADP"), ("dem", "DET")], [("10 000", "NUM")]],
    ),
    "a line separator of Unicode is text": (
        "pos", "\ufeff#\tSYM\r\n\r\n\r\na\u2028b\tX\r\n", [[("#", "SYM")], [("a\u2028b", "X")]],
    ),
    "MasakhaPOS": (
        "pos", "10 000 NUM\nnyumba NOUN\n. PUNCT\n\n", [[("10 000", "NUM"), ("nyumba", "NOUN"), (".", "PUNCT")]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_words_and_tags_are_read(read: Callable[..., Tagged], case: str) -> None:
    task, text, expected = READ[case]
    assert read(task, text) == expected


FIVE = "# newdoc id = n\n1\tin\tO\t-\ta\n"
REFUSED: list[tuple[str, str, str]] = [
    (
        "ner",
        "in\tO\nOslo\n",
        "line 2: not a word, a tab and its tag: 'Oslo'. XTREME's own test files lack the tag: take",
    ),
    ("ner", "in\tO\nOslo B-LOC\n", "line 2: not a word, a tab and its tag"),
    ("ner", "in\tO\nBonn\tNE\tO\n", "line 2: not a word, a tab and its tag: 'Bonn\\tNE\\tO'."),
    ("ner", "in\tO\nOslo\tNOUN\n", "line 2: 'NOUN' is no tag of IOB, BIOES or BILOU, such as O, B-PER or I-PER."),
    ("ner", "in\tO\nOslo\tM-LOC\n", "line 2: 'M-LOC' is no tag of IOB"),
    ("ner", "0\tin\tO\nOslo\tB-LOC\n", "line 2: not an index, a word and its tag, parted by tabs: 'Oslo"),
    ("ner", "in O\nOslo\n", "line 2: not a word, a space and its tag: 'Oslo'"),
    ("ner", "in O\n# newdoc\n", "line 2: 'newdoc' is no tag of IOB"),
    ("ner", f"{FIVE}1\tOslo\tB-LOC\n", "line 3: not an index, a word and its tag in the five columns of"),
    (
        "ner",
        "UN NNP B-ORG\nsees VBZ O\nit O\n",
        "line 3: not 3 columns parted by spaces, a word first and its tag last",
    ),
    (
        "ner",
        "UN NNP B-ORG\nsees VBZ O\n10 000 CD O\n",
        "'10 000 CD O'. If its word holds a blank, part all columns by t",
    ),
    ("ner", "UN\nUN B-ORG\nsees O\n", "line 1: not a word, a space and its tag: 'UN'. XTREME's own test files lack"),
    (
        "ner",
        "1 UN B-ORG\n2 sees O\nit PRP O\n",
        "line 3: not an index, a word and its tag, parted by spaces: 'it PRP O'.",
    ),
    ("ner", "\n\n", " holds no sentence."),
    ("pos", "# nothing\n\n", " holds no sentence."),
    ("pos", CONLLU.format(1, "a", "X") + "2\tnos\tnosotros\tPRON\n", "line 2: not the ten columns of CoNLL-U: "),
    (
        "pos",
        CONLLU.format(1, "a", "X") + CONLLU.format(2, "b", "PRN"),
        "line 2: 'PRN' is not one of the tags ADJ, ADP,",
    ),
    ("pos", CONLLU.format(1, "a", "X") + CONLLU.format(2, "b", "_"), "line 2: '_' is not one of the tags"),
    ("pos", "one\tNUM\ntwo\tNUM\tx\n", "line 2: not a word, a tab and its tag"),
    ("pos", "one\tNUM\ntwo\tB-NUM\n", "line 2: 'B-NUM' is not one of the tags"),
    ("pos", "nyumba NOUN\nkubwa Adj\n", "line 2: 'Adj' is not one of the tags ADJ, ADP, ADV"),
]


@pytest.mark.parametrize(("task", "text", "message"), REFUSED)
def test_an_odd_row_is_named_by_file_and_line(
    tmp_path: Path, read: Callable[..., Tagged], task: str, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path / 'a.txt'))}.*{re.escape(message)}"):
        read(task, text)


def test_a_line_in_another_encoding_is_shown_as_it_may_read(tmp_path: Path) -> None:
    path = tmp_path / "esp.txt"
    path.write_bytes("La O\nseñora O\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        NER.read(path, "es")
    assert str(caught.value) == (f"{path}, line 2: bytes are not UTF-8; convert the file to UTF-8 with LF line ends.")


def test_an_empty_file_has_no_columns_to_find() -> None:
    assert find_columns(["", " "]).what == "a word, a tab and its tag"


@pytest.mark.parametrize("words", ["__", ["___", "_____"]])  # one underscore for a word, or for each letter
def test_withheld_words_are_neither_scored_nor_learned_from(words: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "ar_nyuad-ud-dev.conllu"
    row = "{}\t{}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"
    path.write_text(row.format(1, "a") + "\n" + row.format(1, words[0]) + row.format(2, words[1]))
    hint = "Merge them with the script that comes with the treebank, or leave these sentences out."
    with pytest.raises(DataError) as caught:
        POS.read(path, "ar")
    assert str(caught.value) == f"{path}: the words of 1 of 2 sentences are withheld (all are _). {hint}"
    with pytest.raises(DataError) as caught:
        list(read_sentences(path))
    assert str(caught.value) == f"{path}, line 3: the words are withheld (all are _). {hint}"


def test_word_of_a_no_break_space_keeps_its_place_in_a_tree(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU.format(1, "a", "X") + CONLLU.format(2, "\u00a0", "X"), encoding="utf-8")
    assert [one.words for one in read_sentences(path)] == [("a", "_")]
