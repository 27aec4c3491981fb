"""Writing a derived language: aligned texts, disjoint dictionaries, tags that move with words, plain refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.data.conftest import make_config, prepare_here, write_inputs
from xalign_ray.data.derived_corpus import MIN_COUNT, write_derived
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.pos import POS
from xalign_ray.text.derived import derive, transliterate

WORDS = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """One hundred words, each MIN_COUNT times, and one that occurs once."""
    path = tmp_path / "en.txt"
    lines = [f"{' '.join(WORDS[start : start + 10])}. Twice {' '.join(WORDS[start : start + 10])}!"
             for start in range(0, 100, 10) for _ in range(MIN_COUNT)]  # fmt: skip
    path.write_text("\n".join(["hapax", *lines]) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def pairs(path: Path) -> list[tuple[str, str]]:
    return [(left, right) for left, right in (line.split(" ") for line in read(path))]


def test_line_i_of_the_derived_text_is_derived_from_line_i(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], [], tmp_path / "out")
    natural, derived = (read(tmp_path / "out" / "text" / name) for name in ("en.txt", "en-x-inv.txt"))
    assert natural[:5] == ["hapax", "", "ak al am an ao ap aq ar as at .", "Twice ak al am an ao ap aq ar as at !", ""]
    assert derived == [" ".join(derive(line.split())) for line in natural]


def test_the_dictionary_is_a_quarter_of_the_types_and_the_held_out_one_shares_none_of_them(
    text: Path, tmp_path: Path
) -> None:
    write_derived([str(text)], [], tmp_path / "out")
    folder = tmp_path / "out" / "dictionaries"
    trained, held_out = (pairs(folder / name) for name in ("en-en-x-inv.txt", "en-en-x-inv.held_out.txt"))
    types = {*WORDS, "twice", ".", "!"}
    assert len(trained) == len(held_out) == len(types) // 4
    words = [word for word, _ in trained + held_out]
    assert len(set(words)) == len(words)
    assert set(words) <= types
    assert all(right == transliterate(left) for left, right in trained + held_out)


def test_the_same_seed_draws_the_same_types_and_another_seed_others(text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_derived([str(text)], [], tmp_path / name, dictionary_share=0.1, seed=seed)
    drawn = [read(tmp_path / name / "dictionaries" / "en-en-x-inv.txt") for name in "abc"]
    assert len(drawn[0]) == 10
    assert drawn[0] == drawn[1] != drawn[2]


def test_tags_move_with_their_words_in_both_formats(text: Path, tmp_path: Path) -> None:
    (tmp_path / "train-en.tsv").write_text("The\tDET\ncat\tNOUN\n.\tPUNCT\n\nGo\tVERB\n", encoding="utf-8")
    rows = ["# text = It's me", "1-2\tIt's" + "\t_" * 8, "1\tIt\tit\tPRON" + "\t_" * 6, "2\t's\tbe\tAUX" + "\t_" * 6,
            "2.1\tnot" + "\t_" * 8, "3\tme\tI\tPRON" + "\t_" * 6, ""]  # fmt: skip
    (tmp_path / "en_ewt-ud-dev.conllu").write_text("\n".join(rows) + "\n", encoding="utf-8")
    tagged = [tmp_path / "train-en.tsv", tmp_path / "en_ewt-ud-dev.conllu"]
    write_derived([str(text)], tagged, tmp_path / "out")
    found = POS.find((tmp_path / "out" / "pos",))
    assert {split: sorted(files) for split, files in found.items()} == {
        "train": ["en", "en-x-inv"], "dev": ["en", "en-x-inv"], "test": [],
    }  # fmt: skip
    (first, second), (third,) = (POS.read(found[split]["en-x-inv"], "en-x-inv") for split in ("train", "dev"))
    assert first.words == tuple(map(transliterate, ("cat", "The", ".")))
    assert first.tags == ("NOUN", "DET", "PUNCT")
    assert second.words == (transliterate("go"),)
    assert third.words == tuple(map(transliterate, ("me", "'s", "It")))
    assert third.tags == ("PRON", "AUX", "PRON")
    assert (tmp_path / "out" / "pos" / "train-en.tsv").read_bytes() == tagged[0].read_bytes()


def test_tags_of_spans_are_those_of_the_spans_turned_round(text: Path, tmp_path: Path) -> None:
    tags = ["O", "B-LOC", "I-LOC", "O", "I-PER", "O"]
    words = ["in", "New", "York", "saw", "Bob", "."]
    rows = "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
    (tmp_path / "train-en.tsv").write_text(rows, encoding="utf-8")
    write_derived([str(text)], [tmp_path / "train-en.tsv"], tmp_path / "out")
    derived = [line.split("\t") for line in read(tmp_path / "out" / "pos" / "train-en-x-inv.tsv") if line]
    assert [tag for _, tag in derived] == ["B-PER", "O", "B-LOC", "I-LOC", "O", "O"]
    assert [word for word, _ in derived] == derive(words)


def test_both_texts_are_a_parallel_corpus(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], [], tmp_path / "out")
    parallel = "{format: moses, languages: [en, en-x-inv], paths: [out/text/en.txt, out/text/en-x-inv.txt]}"
    write_inputs(tmp_path)
    settings = (
        "data.corpora=[{format: text, language: en, paths: [en.txt]}]", "data.dictionaries=[]",
        f"data.parallel=[{parallel}]", "streams=[{kind: masked_text}, {kind: masked_pairs}]", "data.max_seq_length=64",
    )  # fmt: skip
    prepared = prepare_here(make_config(tmp_path, *settings))
    assert prepared.manifest["bad_rows"] == {}
    counts = prepared.manifest["counts"]
    sentences = json.loads((tmp_path / "out" / "manifest.json").read_text())["sentences"]
    assert counts["pairs"] == sentences
    assert counts["skipped: both sides are empty"] > sentences / 3


def test_the_manifest_counts_what_was_made(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], [], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    counts = {key: manifest[key] for key in manifest if key.startswith(("types", "sentences", "words"))}
    trained = [word for word, _ in pairs(tmp_path / "out" / "dictionaries" / "en-en-x-inv.txt")]
    often = {"twice": 10 * MIN_COUNT, ".": 10 * MIN_COUNT, "!": 10 * MIN_COUNT}
    assert counts == {
        "sentences": 1 + 20 * MIN_COUNT,
        "words": 1 + 10 * MIN_COUNT * 23,
        "types": 104,
        "types_drawn_from": 103,
        "types_trained": 25,
        "types_held_out": 25,
        "words_in_dictionary": sum(often.get(word, 2 * MIN_COUNT) for word in trained),
    }


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    line = " ".join(WORDS).encode() + b"\n"
    (tmp_path / "en.txt").write_bytes(line * MIN_COUNT + b"\xff\n")
    write_derived([str(tmp_path / "en.txt")], [], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["bad_rows"] == {"bytes are not UTF-8": 1}
    assert manifest["sentences"] == MIN_COUNT


def test_several_sources_follow_each_other_and_a_source_may_name_its_format(text: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"id": 1, "text": "Last one."}\n', encoding="utf-8")
    write_derived([f"text:{text}", f"jsonl:{tmp_path / 'more.jsonl'}"], [], tmp_path / "out")
    assert read(tmp_path / "out" / "text" / "en.txt")[-2:] == ["Last one .", ""]


def test_an_unfinished_folder_has_no_manifest(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], [], tmp_path / "out")
    text.write_text("too few words\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"The text has 0 words that occur at least {MIN_COUNT} times; too few"):
        write_derived([str(text)], [], tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("wikipeda:x.xml", "--from wikipeda:x.xml: unknown format 'wikipeda'. Did you mean 'wikipedia'? Known here: "
         "text, jsonl, wikipedia."),
        ("moses:x.en", "--from moses:x.en: unknown format 'moses'. Known here: text, jsonl, wikipedia."),
    ],
)  # fmt: skip
def test_a_format_without_documents_is_refused(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        write_derived([source], [], tmp_path / "out")
    assert str(caught.value) == message


@pytest.mark.parametrize("share", [0.0, 0.6, -1.0])
def test_a_share_that_leaves_nothing_to_hold_out_is_refused(share: float, text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"--dictionary-share is {share:g}; it must be above 0 and at most 0.5"):
        write_derived([str(text)], [], tmp_path / "out", dictionary_share=share)


def test_a_missing_text_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        write_derived([str(tmp_path / "nothing.txt")], [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-en.tsv", "one\tNOUN\ntwo\n", "line 2: not 2 columns with a word: 'two'."),
        ("train-en.tsv", "\tNOUN\n", "line 1: not 2 columns with a word: '\\tNOUN'."),
        ("en.dev.conllu", "1\ta\tNOUN\n", "line 1: not 10 columns with a word: '1\\ta\\tNOUN'."),
        ("train-en.tsv", b"\xff\tNOUN\n", "line 1: bytes are not UTF-8."),
        ("train-en.tsv", "\n", " holds no sentence."),
        ("train-de.tsv", "a\tNOUN\n", ": a tagged file is called like train-en.tsv or en_ewt-ud-dev.conllu."),
        ("train-en.txt", "a\tNOUN\n", ": a tagged file is called like train-en.tsv or en_ewt-ud-dev.conllu."),
    ],
)
def test_a_bad_tagged_file_is_named_with_its_line(
    name: str, content: str | bytes, message: str, text: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        write_derived([str(text)], [path], tmp_path / "out")
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith(message)
    assert not (tmp_path / "out").exists()


def test_a_missing_tagged_file_is_named(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-en\.tsv is missing; give a file of tagged English sentences\."):
        write_derived([str(text)], [tmp_path / "train-en.tsv"], tmp_path / "out")
