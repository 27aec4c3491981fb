"""Readers of CoNLL-U and TMX against the packages conllu and translate-toolkit, on traps of real files."""

from __future__ import annotations

from pathlib import Path

import conllu
from translate.storage.tmx import tmxfile

from xalign_ray.sources.formats import read
from xalign_ray.sources.records import Document, Pair
from xalign_ray.tasks.registry import TUNED_TASKS

POS = TUNED_TASKS["pos"]

TREEBANK = """# newdoc id = n1
# sent_id = 1
# text = V\u00e1monos al mar.
1-2\tV\u00e1monos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\tMood=Ind|Number=Plur\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
2.1\tluego\tluego\tADV\t_\t_\t_\t_\t1:advmod\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = 2
# text = 10 000 \u00ab_\u00bb
1\t10 000\t10 000\tNUM\t_\t_\t0\troot\t_\t_
2\t\u00ab\t\u00ab\tPUNCT\t_\t_\t3\tpunct\t_\tSpaceAfter=No
3\t_\t_\tSYM\t_\t_\t1\tdep\t_\tSpaceAfter=No
4\t\u00bb\t\u00bb\tPUNCT\t_\t_\t3\tpunct\t_\t_

"""
UNITS = [
    ("Save & close <file>", "Datei \u201espeichern\u201c & schlie\u00dfen <file>"),
    ('He said: "no"', "Er sagte: \u00bbnein\u00ab"),
    ("a\u00a0b", "\u4e00\u4e8c"),
    ("\U0001f600 ok", "5 > 3"),
]


def test_words_and_parts_of_speech_equal_conllu(tmp_path: Path) -> None:
    path = tmp_path / "es_x-ud-test.conllu"
    path.write_text(TREEBANK, encoding="utf-8")
    theirs = [
        [(word["form"], word["upos"]) for word in sentence if isinstance(word["id"], int)]
        for sentence in conllu.parse(TREEBANK)
    ]
    assert [list(zip(one.words, one.tags, strict=True)) for one in POS.read(path, "es")] == theirs


def test_sentences_of_a_treebank_equal_conllu(tmp_path: Path) -> None:
    path = tmp_path / "es.conllu"
    path.write_text(TREEBANK, encoding="utf-8")
    documents = list(read("conllu", [str(path)], ["es"]))
    theirs = [sentence.metadata["text"] for sentence in conllu.parse(TREEBANK)]
    assert [line for one in documents if isinstance(one, Document) for line in one.paragraphs] == theirs


def test_units_of_a_memory_written_by_translate_toolkit_are_read(tmp_path: Path) -> None:
    memory = tmxfile(sourcelanguage="en", targetlanguage="de")
    for source, target in UNITS:
        memory.addtranslation(source, "en", target, "de")
    path = tmp_path / "memory.tmx"
    memory.savefile(str(path))
    with path.open("rb") as file:
        theirs = [(unit.source, unit.target) for unit in tmxfile(file, "en", "de").units]
    ours = [record.texts for record in read("tmx", [str(path)], ["en", "de"]) if isinstance(record, Pair)]
    assert ours == [tuple(" ".join(text.split()) for text in pair) for pair in theirs]
    assert len(ours) == len(UNITS)
