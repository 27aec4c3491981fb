"""The embedded world on disk: its formats, its promises, and that equal seeds are equal bytes."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path

import pytest

from tests.unit.demo.conftest import SIZES
from xalign_ray.demo import write_demo
from xalign_ray.demo.world import load_concepts, load_languages
from xalign_ray.demo.writer import NOISE_SHARE, list_entries
from xalign_ray.derive.changes import fit_word_order
from xalign_ray.derive.tasks import derive_task_files, read_treebank
from xalign_ray.errors import ConfigError
from xalign_ray.work.artifacts import hash_file, read_manifest

CODES = [language.code for language in load_languages()]
COGNATES = {concept.word for concept in load_concepts() if concept.cognate}


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def read_sentences(world: Path, code: str) -> list[str]:
    documents = [json.loads(line) for line in read_lines(world / f"wiki/{code}.jsonl")]
    return [sentence for document in documents for sentence in document["text"].split("\n")]


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_manifest_lists_every_file_with_its_hash(world: Path) -> None:
    manifest = read_manifest(world)
    assert manifest is not None
    written = contents(world)
    del written["manifest.json"]
    assert manifest["files"] == written
    assert (manifest["seed"], manifest["sentences"]) == (3, 700)


def test_a_file_that_is_not_of_the_world_is_kept(world: Path, tmp_path: Path) -> None:
    for name in ("xnli/dev-en.tsv", "wiki/en.jsonl"):
        (tmp_path / name).parent.mkdir()
    (tmp_path / "wiki/en.jsonl").write_bytes((world / "wiki/en.jsonl").read_bytes())  # of one that was interrupted
    (tmp_path / "xnli/dev-en.tsv").write_text("A man.\tA dog.\tneutral\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"xnli/dev-en\.tsv is there, and is not of the embedded world\. Name "):
        write_demo(tmp_path, seed=3, **SIZES)
    assert (tmp_path / "xnli/dev-en.tsv").read_text(encoding="utf-8") == "A man.\tA dog.\tneutral\n"
    (tmp_path / "xnli/dev-en.tsv").unlink()
    write_demo(tmp_path, seed=3, **SIZES)
    assert contents(tmp_path) == contents(world)
    write_demo(tmp_path, seed=4, **SIZES)
    assert contents(tmp_path)["wiki/en.jsonl"] != contents(world)["wiki/en.jsonl"], "of another seed"


def test_folder_has_no_manifest_while_it_is_rewritten(world: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(world, tmp_path / "world")
    (folder / "wiki/en.jsonl").unlink()
    (folder / "wiki/en.jsonl").mkdir()
    with pytest.raises(OSError, match=r"en\.jsonl"):
        write_demo(folder, seed=3, **SIZES)
    assert read_manifest(folder) is None


def test_documents_have_the_sentences_asked_for_in_groups_of_five_to_eight(world: Path) -> None:
    for code in CODES:
        documents = [json.loads(line) for line in read_lines(world / f"wiki/{code}.jsonl")]
        lengths = [len(document["text"].split("\n")) for document in documents]
        assert sum(lengths) == 700
        assert all(5 <= length <= 8 for length in lengths[:-1])
        assert [document["id"] for document in documents] == list(range(len(documents)))
        assert all(set(document) == {"id", "title", "text"} for document in documents)


def test_only_digits_punctuation_and_declared_cognates_are_shared(world: Path) -> None:
    assert 0 < len(COGNATES) <= 0.05 * len(load_concepts())
    words = {code: {word for s in read_sentences(world, code) for word in s[:-1].split()} for code in CODES}
    for first in CODES:
        for second in CODES:
            if first < second:
                shared = {word for word in words[first] & words[second] if not word.isdigit()}
                assert shared <= COGNATES


def test_each_language_keeps_to_its_script(world: Path) -> None:
    names = {"en": "LATIN", "qgr": "GREEK", "qdv": "DEVANAGARI", "qge": "GEORGIAN", "qhy": "ARMENIAN"}
    for code, script in names.items():
        words = {word for s in read_sentences(world, code) for word in s[:-1].split()} - COGNATES
        letters = {letter for word in words for letter in word if not letter.isdigit()}
        assert {unicodedata.name(letter).split()[0] for letter in letters} == {script}


def test_dictionaries_hold_every_concept_and_ten_percent_noise(world: Path) -> None:
    english, *others = load_languages()
    for language in others:
        entries = {tuple(line.split(" ")) for line in read_lines(world / f"dictionaries/en-{language.code}.txt")}
        right = {(english.words[c.word], language.words[c.word]) for c in load_concepts()}
        assert right <= entries
        assert entries - right == set(list_entries(english, language, 3)[1])
        assert len(entries) == len(right) + round(NOISE_SHARE * len(right))


def test_shuffled_dictionary_has_the_same_words_and_no_right_entry(world: Path) -> None:
    for code in CODES[1:]:
        entries = [line.split() for line in read_lines(world / f"dictionaries/en-{code}.txt")]
        shuffled = [line.split() for line in read_lines(world / f"dictionaries/en-{code}.shuffled.txt")]
        for side in (0, 1):
            assert sorted(entry[side] for entry in shuffled) == sorted(entry[side] for entry in entries)
        assert not {tuple(entry) for entry in entries} & {tuple(entry) for entry in shuffled}


def test_gold_alignments_join_translations_and_nothing_else(world: Path) -> None:
    _, *others = load_languages()
    for language in others:
        stem = f"parallel/train.en-{language.code}"
        sides = [read_lines(world / f"{stem}.{suffix}") for suffix in ("en", language.code, "align")]
        assert [len(side) for side in sides] == [80, 80, 80]
        for source, target, links in zip(*sides, strict=True):
            sources, targets = source.split(), target.split()
            pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
            for i, j in pairs:
                assert language.words.get(sources[i], sources[i]) == targets[j]
            assert [i for i, _ in pairs] == list(range(len(sources)))
            unaligned = set(range(len(targets))) - {j for _, j in pairs}
            assert unaligned == {j for j, word in enumerate(targets) if word == language.words["the"]}


def test_retrieval_sentences_are_distinct_and_in_no_training_file(world: Path) -> None:
    seen = {code: set(read_sentences(world, code)) for code in CODES}
    for code in CODES[1:]:
        for side in ("en", code):
            lines = read_lines(world / f"parallel/train.en-{code}.{side}")
            seen[side] |= {line.replace(" .", ".") for line in lines}
    for code in CODES:
        for line in read_lines(world / f"pos/{code}.train.conllu"):
            if line.startswith("# text = "):
                seen[code].add(line.removeprefix("# text = "))
    for code in CODES[1:]:
        for side in ("en", code):
            sentences = read_lines(world / f"tatoeba/tatoeba.{code}-en.{side}")
            assert len(set(sentences)) == 60
            assert not set(sentences) & seen[side]


def test_tagged_sentences_are_trees_in_conllu(world: Path) -> None:
    for code in CODES:
        blocks = (world / f"pos/{code}.test.conllu").read_text(encoding="utf-8").strip().split("\n\n")
        assert len(blocks) == 300
        for block in blocks:
            rows = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
            assert all(len(row) == 10 for row in rows)
            assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
            heads = {int(row[0]): int(row[6]) for row in rows}
            assert [row[7] for row in rows if row[6] == "0"] == ["root"]
            for number in heads:
                path = {number}
                while (number := heads[number]) and number not in path:
                    path.add(number)
                assert number == 0
            text = next(line for line in block.splitlines() if line.startswith("# text = ")).removeprefix("# text = ")
            spelled = "".join(row[1] + ("" if row[9] == "SpaceAfter=No" else " ") for row in rows).strip()
            assert spelled == text


def test_english_has_its_trees_which_fit_its_text_names_and_inferences(world: Path) -> None:
    documents = [json.loads(line)["text"].split("\n") for line in (world / "wiki" / "en.jsonl").open(encoding="utf-8")]
    trees = list(read_treebank(world / "trees" / "en.conllu"))
    assert [["".join(sentence.words) for sentence in document] for document in trees] == [
        [line.replace(" ", "") for line in document] for document in documents
    ]
    order = fit_word_order(sentence for document in trees for sentence in document)
    for task, name in (("ner", "train-en.tsv"), ("xnli", "multinli.train.en.tsv"), ("pos", "en.train.conllu")):
        (file,) = derive_task_files(task, [world / task / name], order, ("syn",))
        assert file.dropped == 0
        assert file.blocks
