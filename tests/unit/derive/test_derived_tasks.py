"""Task files of a derived language: tags and spans move with words, pairs keep labels, what is malformed is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.derive.changes import Sentence, invert
from xalign_ray.derive.tasks import derive_task_files
from xalign_ray.errors import DataError
from xalign_ray.sources.conllu import MERGE
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import strict_spans

NER, POS, XNLI = (TUNED_TASKS[name] for name in ("ner", "pos", "xnli"))

INV = ("inv",)


def write_task(task: str, paths: list[Path], out: Path) -> Path:
    """The files in English and the inverted language, where a task finds them."""
    folder = out / task
    folder.mkdir(parents=True)
    for file in derive_task_files(task, paths, invert, INV):
        (folder / file.name("en")).write_text(file.english(), encoding="utf-8")
        (folder / file.name("en-x-inv")).write_text(file.derived(" ".join), encoding="utf-8")
    return folder


def test_tags_move_with_their_words_in_both_formats(tmp_path: Path) -> None:
    (tmp_path / "train-en.tsv").write_text("The\tDET\ncat\tNOUN\n.\tPUNCT\n\nGo\tVERB\n", encoding="utf-8")
    rows = ["# text = It's me", "1-2\tIt's" + "\t_" * 8, "1\tIt\tit\tPRON" + "\t_" * 6, "2\t's\tbe\tAUX" + "\t_" * 6,
            "2.1\tnot" + "\t_" * 8, "3\tme\tI\tPRON" + "\t_" * 6, ""]  # fmt: skip
    (tmp_path / "en_ewt-ud-dev.conllu").write_text("\n".join(rows) + "\n", encoding="utf-8")
    folder = write_task("pos", [tmp_path / "train-en.tsv", tmp_path / "en_ewt-ud-dev.conllu"], tmp_path / "out")
    found = POS.find((folder,))
    assert {split: sorted(files) for split, files in found.items()} == {
        "train": ["en", "en-x-inv"], "dev": ["en", "en-x-inv"], "test": [],
    }  # fmt: skip
    (first, second), (third,) = (POS.read(found[split]["en-x-inv"], "en-x-inv") for split in ("train", "dev"))
    assert (first.words, first.tags) == (("cat", "The", "."), ("NOUN", "DET", "PUNCT"))
    assert second.words == ("Go",)
    assert (third.words, third.tags) == (("me", "'s", "It"), ("PRON", "AUX", "PRON"))
    (natural, _) = POS.read(found["train"]["en"], "en")
    assert natural.words == ("The", "cat", ".")


@pytest.mark.parametrize("form", ["train-en.tsv", "en/train", "en/train.conllu", "en_x-ud-train.iob2"])
def test_spans_are_whole_and_begin_anew_in_every_form_of_names(form: str, tmp_path: Path) -> None:
    words = ["in", "New", "York", "Paris", "saw", "Bob", "Lee", "."]
    tags = ["O", "B-LOC", "I-LOC", "B-LOC", "O", "B-PER", "I-PER", "O"]
    row = {"": "en:{1}\t{2}", ".tsv": "{1}\t{2}", ".conllu": "{0}\t{1}\t{2}", ".iob2": "{0}\t{1}\t{2}\t-\t-"}
    lines = [row[Path(form).suffix].format(n, *pair) for n, pair in enumerate(zip(words, tags, strict=True), 1)]
    path = tmp_path / form
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder = write_task("ner", [path], tmp_path / "out")
    (sentence,) = NER.read(folder / "train-en-x-inv.tsv", "en-x-inv")
    assert sentence.words == ("Lee", "Bob", "saw", "Paris", "York", "New", "in", ".")
    assert sentence.tags == ("B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "O", "O")
    assert strict_spans(sentence.tags) == {("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 6)}


@pytest.mark.parametrize("header", ["", "premise\thypo\tlabel\n", "gold_label\tsentence1\tsentence2\n"])
def test_both_texts_of_an_inference_are_derived_sentence_by_sentence(header: str, tmp_path: Path) -> None:
    cells = ["A cat sat. It slept!", "He didn't go.", "neutral"]
    row = "\t".join(cells[-1:] + cells[:-1] if header.startswith("gold") else cells)
    (tmp_path / "multinli.train.en.tsv").write_text(f"{header}{row}\n", encoding="utf-8")
    folder = write_task("xnli", [tmp_path / "multinli.train.en.tsv"], tmp_path / "out")
    found = XNLI.find((folder,))
    (derived,), (natural,) = (XNLI.read(found["train"][code], code) for code in ("en-x-inv", "en"))
    assert derived.texts == ("sat cat A . slept It !", "go n't did He .")
    assert natural.texts == ("A cat sat . It slept !", "He did n't go .")
    assert derived.label == natural.label == "neutral"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "train-en.tsv",
            "one\tNOUN\ntwo\n",
            "XTREME's own test files lack the tag: take those of the data set itself.",
        ),
        ("train-en.tsv", "one\t\n", "line 1: the word has no tag."),
        ("train-en.tsv", b"\xff\tNOUN\n", "line 1: bytes are not UTF-8."),
        ("train-en.tsv", "\n", " holds no sentence."),
        ("train-en.tsv", "a\tX\n\n_\tX\n__\tX\n", f": the words of 1 of 2 sentences are withheld (all are _). {MERGE}"),
        ("train-de.tsv", "a\tNOUN\n", ": a file of pos is called like train-en.tsv, en/train or en_ewt-ud-dev.conllu."),
        ("en.tsv", "a\tNOUN\n", ": a file of pos is called like train-en.tsv, en/train or en_ewt-ud-dev.conllu."),
    ],
)
def test_a_bad_tagged_file_is_named_with_its_line(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        derive_task_files("pos", [path], invert, INV)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith(message)


def test_a_missing_file_two_of_one_split_and_a_pair_without_label_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-en\.tsv is missing; give a file of English rows\."):
        derive_task_files("ner", [tmp_path / "train-en.tsv"], invert, INV)
    for name in ("dev-en.tsv", "en.dev.tsv"):
        (tmp_path / name).write_text("a\tO\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev-en\.tsv and .*en\.dev\.tsv are both dev of ner; give one\."):
        derive_task_files("ner", [tmp_path / "dev-en.tsv", tmp_path / "en.dev.tsv"], invert, INV)
    with pytest.raises(DataError, match=r"line 1: not two sentences and a label, parted by tabs: 'a\\tO'\."):
        derive_task_files("xnli", [tmp_path / "dev-en.tsv"], invert, INV)


def flip(sentence: Sentence) -> list[int] | None:
    """In place of a word order: turned round; None for what begins with `bad`. It needs trees, as `syn` does."""
    assert sentence.tree is not None
    return None if sentence.words[0] == "bad" else list(range(len(sentence.words)))[::-1]


def parsed(*words: str) -> str:
    rows = [f"{n}\t{word}\t_\tX\t_\t_\t{n - 1}\tdep\t_\t_" for n, word in enumerate(words, 1)]
    return "\n".join(rows) + "\n\n"


def test_trees_stand_in_the_file_or_beside_it_and_rows_without_an_order_are_in_neither_language(tmp_path: Path) -> None:
    (tmp_path / "en.dev.conllu").write_text(parsed("bad", "one") + parsed("good", "one"), encoding="utf-8")
    (tmp_path / "train-en.tsv").write_text("good\tB-X\none\tI-X\n\nbad\tO\n", encoding="utf-8")
    (tmp_path / "train-en.tsv.conllu").write_text(parsed("good", "one") + parsed("bad"), encoding="utf-8")
    (dev,) = derive_task_files("pos", [tmp_path / "en.dev.conllu"], flip, ("syn",))
    assert (dev.english(), dev.derived(" ".join), dev.dropped) == ("good\tX\none\tX\n\n", "one\tX\ngood\tX\n\n", 1)
    (train,) = derive_task_files("ner", [tmp_path / "train-en.tsv"], flip, ("syn",))
    assert (train.derived(" ".join), train.dropped) == ("one\tB-X\ngood\tI-X\n\n", 1)


def test_the_trees_of_an_inference_follow_its_texts_a_document_each(tmp_path: Path) -> None:
    new = "# newdoc\n"
    (tmp_path / "dev-en.tsv").write_text("Go on. Now!\tHe can't.\tneutral\nbad one\tb\tneutral\n", encoding="utf-8")
    trees = [new, parsed("Go", "on", "."), parsed("Now", "!"), new, parsed("He", "ca", "n't", "."),
             new, parsed("bad", "one"), new, parsed("b")]  # fmt: skip
    (tmp_path / "dev-en.tsv.conllu").write_text("".join(trees), encoding="utf-8")
    (file,) = derive_task_files("xnli", [tmp_path / "dev-en.tsv"], flip, ("syn",))
    assert file.english() == "Go on . Now !\tHe ca n't .\tneutral\n"
    assert file.derived(" ".join) == ". on Go ! Now\t. n't ca He\tneutral\n"
    assert file.dropped == 1


def test_trees_of_other_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-en.tsv"
    for given, content, message in (
        ("ab\tO\n", parsed("ac"), "the next tree is of 'ac', the next text 'ab'; both follow one order."),
        ("ab\tO\n", parsed("a", "b"), "its trees cut 'ab' into other words."),
        ("bad\tO\n", parsed("bad"), "holds no sentence that can be used (1 dropped)."),
    ):
        path.write_text(given, encoding="utf-8")
        path.with_name("train-en.tsv.conllu").write_text(content, encoding="utf-8")
        with pytest.raises(DataError) as caught:
            derive_task_files("pos", [path], flip, ("syn",))
        assert str(caught.value).endswith(message)
