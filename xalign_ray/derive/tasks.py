"""Carries task files and treebanks over to a derived language: tags move with their words, spans begin anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xalign_ray.derive.changes import SYNTAX, Order, Sentence, Tree, split_sentences, split_words
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.conllu import (
    MERGE,
    ConlluSentence,
    explain_withheld,
    group_documents,
    is_withheld,
    read_conllu_sentences,
)
from xalign_ray.sources.open import read_lines
from xalign_ray.sources.tagged import read_tagged

UNSEEN = "_"  # stands for a word of blanks or invisible characters alone


def read_treebank(path: Path | str) -> Iterator[list[Sentence]]:
    """The documents of a CoNLL-U file as `# newdoc` begins them; without it each sentence is a document.

    Raises:
        DataError: the file is missing or empty, or a line is not of ten columns, or its head is none; named by number.
    """
    has_sentences = False
    if "://" not in str(path) and not Path(path).is_file():
        raise DataError(f"{path} is missing; give a CoNLL-U file.")
    for document in group_documents(read_conllu_sentences(str(path)), lambda block: _read_sentence(path, block)):
        has_sentences = True
        yield document
    if not has_sentences:
        raise DataError(f"{path} holds no sentence.")


def read_sentences(path: Path | str) -> Iterator[Sentence]:
    """The sentences of all documents."""
    for document in read_treebank(path):
        yield from document


def _read_sentence(path: Path | str, block: ConlluSentence) -> Sentence | None:
    """The words of a sentence and their tree; None of a block of comments."""
    if block.fault:
        raise DataError(f"{path}, line {block.fault[0]}: {block.fault[1]}.")
    rows = [(number, cells) for number, cells in block.rows if cells[0].isdigit()]  # no ranges and empty nodes
    for at, (number, cells) in enumerate(rows, 1):
        if cells[0] != str(at) or not cells[1]:
            raise DataError(f"{path}, line {number}: not the word with number {at}: {' '.join(cells)!r}.")
        if not cells[6].isdigit():
            raise DataError(f"{path}, line {number}: {cells[6]!r} is no head: a parsed file is needed.")
    heads = tuple(int(cells[6]) - 1 for _, cells in rows)
    if any(head >= len(rows) for head in heads):
        raise DataError(f"{path}, line {block.number}: a head lies outside its sentence.")
    if is_withheld([cells[1] for _, cells in rows]):
        raise DataError(f"{path}, line {block.number}: the words are withheld (all are _). {MERGE}")
    relations = tuple(cells[7].partition(":")[0] for _, cells in rows)
    tree = Tree(tuple(cells[3] for _, cells in rows), heads, relations)
    return Sentence(tuple(_joined(cells[1]) for _, cells in rows), tree) if rows else None


def _joined(word: str) -> str:
    """A word without the blanks in it ("10 000" in French), since it is one word in a line of words too."""
    return "".join(word.split()) or UNSEEN


Write = Callable[[Iterable[str]], str]  # words to a line of the derived language
_SPLIT = re.compile(r"(?<![a-z])(train|dev|val|test)(?![a-z])")
_ENGLISH = re.compile(r"(?<![a-z])en(?![a-z])")
_SPLITS = {"val": "dev"}
_PREFIX = "en:"  # that PAN-X puts before each word
_TEXTS = (("sentence1", "sentence2", "gold_label"), ("premise", "hypo", "label"), ("premise", "hypothesis", "label"))


@dataclass
class DerivedFile:
    """A task's file in English, and how its derived copy is written.

    Attributes:
        english_rows, derived_rows: of each row the words of its texts in their order, and the columns after them.
    """

    task: str
    path: str
    split: str
    blocks: list[tuple[list[Sequence[str]], list[Sequence[str]], list[str], list[str]]] = field(default_factory=list)
    dropped: int = 0

    def name(self, language: str) -> str:
        """What XTREME calls it: `train-en.tsv`."""
        return f"{self.split}-{language}.tsv"

    def english(self) -> str:
        return "".join(self._block(texts, ends, " ".join) for texts, _, ends, _ in self.blocks)

    def derived(self, write: Write) -> str:
        return "".join(self._block(texts, ends, write) for _, texts, _, ends in self.blocks)

    def _block(self, texts: list[Sequence[str]], ends: list[str], write: Write) -> str:
        if self.task == "xnli":
            return "\t".join([*map(write, texts), *ends]) + "\n"
        return "".join(f"{write(text)}\t{tag}\n" for text, tag in zip(texts, ends, strict=True)) + "\n"


def derive_task_files(task: str, paths: Sequence[Path], order: Order, changes: Sequence[str]) -> list[DerivedFile]:
    """The files of a task, read and put in the order of the derived language.

    A row whose sentence has no order (`syn`) is in neither language. For `syn` the trees of `train-en.tsv` stand in
    `train-en.tsv.conllu`, a `# newdoc` for each row of a tagged file, and for each of the two texts of
    XNLI; a tagged file in CoNLL-U has trees.

    Raises:
        DataError: a file is missing, empty or malformed, does not have its split or English in its name, or its trees
            are of other words.
        ConfigError: `syn`, and no trees.
    """
    files = [TASKS[task](task, path, order, SYNTAX in changes) for path in paths]
    for file in files:
        if twin := [other.path for other in files if other is not file and other.split == file.split]:
            raise DataError(f"{file.path} and {twin[0]} are both {file.split} of {task}; give one.")
        if not file.blocks:
            raise DataError(f"{file.path} holds no sentence that can be used ({file.dropped} dropped).")
    return files


def _new_file(task: str, path: Path) -> DerivedFile:
    named = f"{path.parent.name}/{path.name}"
    split = _SPLIT.search(path.name)
    if not split or not _ENGLISH.search(named):
        raise DataError(f"{path}: a file of {task} is called like train-en.tsv, en/train or en_ewt-ud-dev.conllu.")
    if not path.is_file():
        raise DataError(f"{path} is missing; give a file of English rows.")
    return DerivedFile(task, str(path), _SPLITS.get(split[1], split[1]))


def _derive_tagged(task: str, path: Path, order: Order, needs_trees: bool) -> DerivedFile:
    file = _new_file(task, path)
    _, rows = read_tagged(list(_lines(path)), path, _check_tag)
    if not rows:
        raise DataError(f"{path} holds no sentence.")
    sentences = [Sentence(tuple(_joined(word).removeprefix(_PREFIX) or _PREFIX for word in words)) for words, _ in rows]
    if withheld := sum(is_withheld(sentence.words) for sentence in sentences):
        raise DataError(explain_withheld(path, withheld, len(sentences)))
    if needs_trees:
        sentences = _parsed(path, sentences)
    tags = [list(sentence_tags) for _, sentence_tags in rows]
    move = tag_mover(tags)
    for sentence, sentence_tags in zip(sentences, tags, strict=True):
        places = order(sentence)
        if places is None:
            file.dropped += 1
            continue
        words = [[word] for word in sentence.words]
        file.blocks.append(
            (list(words), [words[position] for position in places], sentence_tags, move(sentence_tags, places))
        )
    return file


def _derive_pairs(task: str, path: Path, order: Order, needs_trees: bool) -> DerivedFile:
    file = _new_file(task, path)
    trees = _documents_of(path) if needs_trees else None
    for texts, label in _labelled_pairs(path):
        natural: list[Sequence[str]] = []
        derived: list[Sequence[str]] = []
        is_dropped = False
        for text in texts:
            if trees is None:
                sentences = [Sentence(tuple(words)) for words in split_sentences(split_words(text))]
            else:
                sentences = next(trees, [])
                _check_same(path, "".join(text.split()), sentences)
            natural.append([word for sentence in sentences for word in sentence.words])
            moved: list[str] = []
            for sentence in sentences:
                places = order(sentence)
                is_dropped |= places is None
                moved += [sentence.words[position] for position in places or ()]
            derived.append(moved)
        if is_dropped:
            file.dropped += 1
        else:
            file.blocks.append((natural, derived, [label], [label]))
    return file


TASKS: dict[str, Callable[[str, Path, Order, bool], DerivedFile]] = {
    "pos": _derive_tagged,
    "ner": _derive_tagged,
    "xnli": _derive_pairs,
}


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; DataError at the first that cannot be read."""
    for line in read_lines(str(path)):
        if line.fault:
            raise DataError(f"{path}, line {line.number}: {line.fault}.")
        yield line.text.rstrip("\r\n")


def _check_tag(tag: str, where: str) -> None:
    if not tag:
        raise DataError(f"{where}: the word has no tag.")


def _labelled_pairs(path: Path) -> Iterator[tuple[tuple[str, str], str]]:
    places = (0, 1, 2)
    for number, line in enumerate(_lines(path), 1):
        cells = line.split("\t")
        header = next((names for names in _TEXTS if number == 1 and set(names) <= set(cells)), None)
        if header:
            first, second, label = (cells.index(name) for name in header)
            places = (first, second, label)
        elif len(cells) <= max(places) or not all(cells[position].strip() for position in places):
            raise DataError(f"{path}, line {number}: not two sentences and a label, parted by tabs: {line!r}.")
        else:
            first, second, label = places
            yield (cells[first], cells[second]), cells[label]


def _parsed(path: Path, sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences with their trees; a file in CoNLL-U has them itself."""
    has_trees = path.suffix == ".conllu" and path.with_name(f"{path.name}.conllu").is_file() is False
    parses = read_sentences(path) if has_trees else (_one(path, document) for document in _documents_of(path))
    parsed = []
    for sentence in sentences:
        parse = next(parses, None)
        _check_same(path, "".join(sentence.words), [parse] if parse else [])
        assert parse is not None
        if len(parse.words) != len(sentence.words):
            raise DataError(f"{path}: its trees cut {' '.join(sentence.words)!r} into other words.")
        parsed.append(Sentence(sentence.words, parse.tree))
    return parsed


def _documents_of(path: Path) -> Iterator[list[Sentence]]:
    trees = path.with_name(f"{path.name}.conllu")
    if not trees.is_file():
        raise ConfigError(f"{path}: `syn` needs dependency trees; parse its sentences into {trees.name} next to it.")
    return read_treebank(trees)


def _one(path: Path, document: list[Sentence]) -> Sentence:
    if len(document) != 1:
        raise DataError(f"{path}: its trees cut {' '.join(document[0].words)!r} and what follows into several; a row "
                        "of a tagged file is one tree.")  # fmt: skip
    return document[0]


def _check_same(path: Path, text: str, sentences: Sequence[Sentence]) -> None:
    parsed = "".join(word for sentence in sentences for word in sentence.words)
    if parsed != text:
        raise DataError(f"{path}: the next tree is of {parsed!r}, the next text {text!r}; both follow one order.")


# Carries the tags of spans (IOB1, IOB2, IOBES, BILOU) over to words in another order, in IOB2.

Tags = Sequence[str]
IOB2 = "IOB2"
OUTSIDE = "O"
_TAG = re.compile(r"([BIESLU])-(.+)")
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")


def find_scheme(sentences: Sequence[Tags]) -> str | None:
    """The name of the scheme of a file's tags; None if they are not of spans."""
    letters: set[str] = set()
    for tag in (tag for tags in sentences for tag in tags if tag != OUTSIDE):
        if not (match := _TAG.fullmatch(tag)):
            return None
        letters.add(match[1])
    if not letters:
        return None
    if letters & {"L", "U"}:
        return "BILOU"
    if letters & {"E", "S"}:
        return "BIOES"
    begins = [(tags, at) for tags in sentences for at in _first_words(tags)]
    needless = any(tags[at][0] == "B" and not (at and tags[at - 1][2:] == tags[at][2:]) for tags, at in begins)
    return "IOB1" if any(tags[at][0] == "I" for tags, at in begins) and not needless else IOB2


def reorder_tags(tags: Tags, order: Sequence[int]) -> list[str]:
    """The tags of the words in a new order, in IOB2: a span that is torn apart by it becomes several.

    Args:
        tags: of the words as they stood, in any scheme.
        order: for each new place the old one.
    """
    spans, before = _spans(tags), 0
    reordered: list[str] = []
    for old in order:
        span = spans[old]
        reordered.append(f"{'I' if span == before else 'B'}-{tags[old][2:]}" if span else OUTSIDE)
        before = span
    return reordered


def tag_mover(sentences: Sequence[Tags]) -> Callable[[Tags, Sequence[int]], list[str]]:
    """What gives the tags of a sentence in another order, for a file of these sentences: tags of words move alone."""
    if find_scheme(sentences) is None:
        return lambda tags, order: [tags[position] for position in order]
    return reorder_tags


def _spans(tags: Tags) -> list[int]:
    """The number of the span of each word, from 1; 0 outside. Another kind, or I- after an end, opens a new one."""
    numbers: list[int] = []
    count, before = 0, OUTSIDE
    for tag in tags:
        if tag == OUTSIDE:
            numbers.append(0)
        else:
            opens = tag[0] in _BEGINS or before == OUTSIDE or before[0] in _ENDS or before[2:] != tag[2:]
            count += opens
            numbers.append(count)
        before = tag
    return numbers


def _first_words(tags: Tags) -> list[int]:
    """The place of the first word of each span."""
    spans = _spans(tags)
    return [at for at, span in enumerate(spans) if span and (not at or spans[at - 1] != span)]
