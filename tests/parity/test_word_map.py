"""The figure of words and their translations: frequent words counted by hand, numbers from tables written by hand."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.align.corpus import write_words
from xalign_ray.cli import main, word_map
from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import Entry

WORDS = {
    "dog": [1, 0], "hund": [2, 0.1],
    "cat": [0, 1], "katze": [1, 0.2],
    "sun": [-1, 0], "sonne": [-0.1, -3],
    "sea": [0, -1], "meer": [-3, 0],
    "mond": [0.1, 1],
}  # fmt: skip
WATER = "\u092a\u093e\u0928\u0940"  # Hindi: two letters with their vowel signs
PAIRS = ["dog hund", "cat katze", "sun sonne", "sea meer"]


def write_aligned(folder: Path) -> ParallelCorpus:
    """Nine pairs of lines with the links of their words."""
    lines = {
        "a.en": ["The dog and the cat", "a dog, Berlin", "the cat", "Dog", "cat 7", "moon", "x", "water", "water"],
        "a.de": [
            "der Hund und die Katze",
            "ein Hund, Berlin",
            "die Mieze",
            "HUND",
            "Katze 7",
            "Hund",
            "",
            WATER,
            WATER,
        ],
        "alignment.txt": ["0-0 1-1 2-2 3-3 4-4", "0-0 1-1 2-2", "0-0 1-1", "0-0", "0-0 1-1", "0-0", "", "0-0", "0-0"],
    }
    for name, rows in lines.items():
        (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    paths = tuple(str(folder / name) for name in ("a.en", "a.de"))
    return ParallelCorpus(format="moses", languages=("en", "de"), paths=paths)


def test_frequent_words_are_those_aligned_most_often_without_stop_words(tmp_path: Path) -> None:
    path, _ = write_words(write_aligned(tmp_path), tmp_path)
    assert path == tmp_path / "en-de.frequent.txt"
    # dog-hund and cat-katze twice each; cat-mieze and moon-hund have a word that is taken; "dog," is no word.
    assert path.read_text().splitlines() == ["dog hund", "cat katze", f"water {WATER}"]


def test_dictionary_of_the_links_of_a_corpus(tmp_path: Path) -> None:
    corpus = write_aligned(tmp_path)
    path = write_words(corpus, tmp_path, min_count=2)[1]
    # hund has 4 links, cat 3, the 3; "dog," is dog.
    table = ["en\tde\tcount\tshare", "dog\thund\t3\t0.750", "cat\tkatze\t2\t0.667", "the\tdie\t2\t0.667"]
    table.append(f"water\t{WATER}\t2\t1.000")
    assert path.read_text().splitlines() == table
    counted: Counter[str] = Counter()
    entries = read("tsv", [str(path)], ["en", "de"], counted, kind="entries")
    words = [one.words for one in entries if isinstance(one, Entry)]
    assert words == [("dog", "hund"), ("cat", "katze"), ("the", "die"), ("water", WATER)]
    assert counted == {"noted: parts of speech and notes, not read": 8}
    write_words(corpus, tmp_path, min_count=2, min_share=0.7)
    assert path.read_text().splitlines() == [*table[:2], table[-1]]


def test_each_encoder_is_drawn_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "en-de.txt").write_text("".join(f"{pair}\n" for pair in [*PAIRS, "moon mond"]))
    right = WORDS | {"katze": [0.1, 2], "sonne": [-2, 0.1], "meer": [0, -2]}
    models = [str(make_bert_in(tmp_path / name, [*WORDS, "moon"], {**vectors, "moon": [1, 1]}))
              for name, vectors in (("before", WORDS), ("after", right))]  # fmt: skip
    out = tmp_path / "out"
    monkeypatch.setattr(
        sys, "argv", ["xalign", "word-map", *models, "--data", f"{tmp_path}/en-de.txt", "--out", str(out)]
    )
    capsys.readouterr()  # what saving models prints
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    rows = pd.read_csv(out / "word_map.csv").set_index(["model", "source"])
    before = rows.loc[models[0]]
    # By cosine: dog has hund first; cat has mond before katze; sun has meer before sonne; sea has sonne before meer.
    assert before.reciprocal_rank.to_dict() == {"dog": 1, "cat": 0.5, "sun": 0.5, "sea": 0.5, "moon": 0.5}
    assert before.cosine["cat"] == pytest.approx(0.2 / (1 + 0.2**2) ** 0.5)
    assert rows.loc[models[1]].cosine.mean() > 0.9
    told = capsys.readouterr()
    assert told.err.splitlines()[-2] == f"{models[0]}: cosine {before.cosine.mean():.3f}, reciprocal rank 0.600"
    assert told.out.splitlines()[-1] == str(out / "word_map.svg")
    assert (out / "word_map.svg").read_text().count("reciprocal rank") == 2, "two panels"
    word_map(models, tmp_path / "en-de.txt", tmp_path / "again")
    assert (tmp_path / "again/word_map.csv").read_bytes() == (out / "word_map.csv").read_bytes()


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    model = str(make_bert_in(tmp_path / "model", list(WORDS), WORDS))
    (tmp_path / "en-de.txt").write_text("dog hund\n")
    with pytest.raises(DataError, match=r"en-de\.txt must hold at least four pairs of words, of two languages;"):
        word_map([model], tmp_path / "en-de.txt", tmp_path)
    (tmp_path / "en-de.txt").write_text("".join(f"{pair}\n" for pair in [*PAIRS[:3], "qq meer"]))
    with pytest.raises(DataError, match=r"model knows no piece of qq \(en\), which would be drawn; leave"):
        word_map([model], tmp_path / "en-de.txt", tmp_path)
