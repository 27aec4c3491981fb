"""Files of tagged words: words of invisible characters, words that are withheld, and the hint for a missing tag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from xalign_ray.derive.tasks import read_sentences
from xalign_ray.errors import DataError
from xalign_ray.tasks.registry import TUNED_TASKS

NER, POS = (TUNED_TASKS[name] for name in ("ner", "pos"))


def test_invisible_words_are_words(tmp_path: Path) -> None:
    path = tmp_path / "dev-de.tsv"
    words = [("\u00a0", "Berlin", "\u200e", "\u00ad", ""), ("\u3000",), ("", "Bonn")]  # XTREME's script strips words
    for parting in "\t ":
        blocks = ["".join(f"{word}{parting}O\n" for word in sentence) for sentence in words]
        path.write_text("\n".join(blocks), encoding="utf-8")
        assert [one.words for one in NER.read(path, "de")] == words


def test_mark_of_a_joined_file_parts_sentences(tmp_path: Path) -> None:
    path = tmp_path / "dev-en.tsv"
    path.write_text("Ann\tB-PER\n\ufeff\nBerlin\tB-LOC\n", encoding="utf-8")
    assert [one.words for one in NER.read(path, "en")] == [("Ann",), ("Berlin",)]


def test_hint_on_missing_tags_is_given_where_tags_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "test-de.tsv"
    for row, hint in (
        ("Berlin", " XTREME's own test files lack the tag: take those of the data set itself."),
        ("Bonn\tNE\tO", ""),
    ):
        path.write_text(f"Ulm\tB-LOC\nsees\tO\n{row}\n")
        with pytest.raises(DataError) as caught:
            NER.read(path, "de")
        assert str(caught.value).startswith(f"{path}, line 3: not a word, a tab and its tag: {row!r}.{hint}")


@pytest.mark.parametrize("words", ["__", ["___", "_____"]])  # one underscore for a word, or for each letter
def test_withheld_words_are_neither_scored_nor_learned_from(words: Sequence[str], tmp_path: Path) -> None:
    row = "{}\t{}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"
    path = tmp_path / "ar_nyuad-ud-dev.conllu"
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
    path.write_text("1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\t\u00a0\t_\tX\t_\t_\t1\tdep\t_\t_\n", encoding="utf-8")
    assert [one.words for one in read_sentences(path)] == [("a", "_")]
