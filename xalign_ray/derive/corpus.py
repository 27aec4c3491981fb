"""Writes a derived language next to its English: text, parallel text, vocabulary, dictionaries, task files.

Formulas, and how the papers were read: docs/explanation/methods.md, Derived languages.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.config.explain import suggest
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.derive.changes import (
    DEFAULT,
    INVERSION,
    SYNTAX,
    TRANSLITERATION,
    Order,
    Sentence,
    Transliterator,
    check_changes,
    compose,
    derived_language,
    double_vocabulary,
    draw_kept,
    fit_word_order,
    invert,
    split_sentences,
    split_words,
    without_other_script,
    word_types,
)
from xalign_ray.derive.tasks import TASKS, DerivedFile, Write, derive_task_files, read_sentences, read_treebank
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.formats import read
from xalign_ray.sources.open import expand
from xalign_ray.sources.records import BadRow, Document
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer
from xalign_ray.work.artifacts import MANIFEST, hash_files, unfinished, write_atomic, write_manifest
from xalign_ray.work.storage import expand_home

ENGLISH = "en"
SAMPLE_BYTES = 64 << 20  # of English text that the vocabulary is learned from, the first
_TREES = "conllu"
_FORMATS = ("text", "jsonl", "wikipedia", _TREES)


@dataclass(frozen=True)
class Derivation:
    """What language is made, and how it may be learned.

    Attributes:
        changes: in the order in which they are applied.
        vocab_size: pieces of English, special tokens included; with a transliteration each stands there twice.
        overlap: share of the pieces that the derived language keeps.
        dictionary_shares: each a dictionary of this share of the types, with all others held out.
        parallel_shares: each a parallel text of this share of the sentences.
        seed: of all that is drawn.
    """

    changes: tuple[str, ...] = DEFAULT
    vocab_size: int = 40_000
    overlap: float = 0.0
    dictionary_shares: tuple[float, ...] = (0.25,)
    parallel_shares: tuple[float, ...] = (0.25,)
    seed: int = 0

    def check(self) -> None:
        """Raises ConfigError naming the option that cannot be."""
        check_changes(self.changes)
        if not 0 <= self.overlap < 1:
            raise ConfigError(f"--overlap is {self.overlap:g}; it is a share of the vocabulary, from 0 to below 1.")
        if self.overlap and not self.is_transliterated:
            raise ConfigError("--overlap is of the vocabulary that `trans` copies; add trans to --changes.")
        if wrong := [share for share in self.dictionary_shares if not 0 < share < 1]:
            raise ConfigError(f"--dictionary-share is {wrong[0]:g}; it must be above 0 and below 1, because the other "
                              "types are held out.")  # fmt: skip
        if wrong := [share for share in self.parallel_shares if not 0 < share <= 1]:
            raise ConfigError(f"--parallel-share is {wrong[0]:g}; it must be above 0 and at most 1.")

    @property
    def is_transliterated(self) -> bool:
        return TRANSLITERATION in self.changes

    @property
    def language(self) -> str:
        return derived_language(self.changes)


@dataclass
class _Counts:
    """Counts of the text in the manifest."""

    sentences: int = 0
    sentences_dropped: int = 0
    sentences_moved: int = 0
    words: int = 0
    pairs: Counter[str] = field(default_factory=Counter)
    bad_rows: Counter[str] = field(default_factory=Counter)


def write_derived(
    sources: Sequence[str],
    out: Path,
    how: Derivation | None = None,
    treebanks: Sequence[Path] = (),
    **tasks: Sequence[Path],
) -> None:  # fmt: skip
    """Makes the derived language of some English text, in the formats of real languages.

    Writes below `out`, with L the language's code: `text/en.txt` and `text/L.txt`, line i of one derived from line i of
    the other, a sentence a line, a blank line after each document; `parallel/en-L.25.en` and `.L`, a quarter of the
    sentences; `tokenizer/`, the vocabulary of both; `dictionaries/en-L.txt`, all types in MUSE's format, in the order
    of the vocabulary, `en-L.25.txt`, a quarter drawn uniformly, and `en-L.25.held_out.txt`, all others; and below
    `pos`, `ner` and `xnli` the task's files in English and L. The manifest comes last.

    Text streams: memory holds a document, the vocabulary, and each task file.

    Args:
        sources: English text, each `path` or `format:path`; text (if no format), jsonl, wikipedia, or conllu, whose
            trees `syn` needs.
        out: is made if it does not exist.
        treebanks: CoNLL-U of another language, whose word order `syn` takes.
        tasks: English files of tasks by name (pos, ner, xnli).

    Raises:
        ConfigError: an option or format that cannot be.
        DataError: input that is missing or empty, or a row that is malformed.
    """
    how = how or Derivation()
    how.check()
    assert set(tasks) <= set(TASKS)
    order = _order_of(how, treebanks)
    counts = _Counts()
    opened = [_open(source, counts.bad_rows, needs_trees=SYNTAX in how.changes) for source in sources]
    files = [derived for name, paths in tasks.items() for derived in derive_task_files(name, paths, order, how.changes)]
    paths = (expand(expand_home(source.partition(":")[2] or source)) for source in sources)
    _check_kept(
        [*map(Path, chain.from_iterable(paths)), *treebanks, *chain.from_iterable(tasks.values())], how, files, out
    )
    (out / MANIFEST).unlink(missing_ok=True)
    ordered = unfinished(out / "ordered.txt")
    try:
        _write_order(chain.from_iterable(opened), order, out / "text" / f"{ENGLISH}.txt", ordered, counts)
        english = _train(how, out / "text" / f"{ENGLISH}.txt")
        kept_pieces = draw_kept(english, how.overlap, how.seed)
        write = Transliterator(english, kept_pieces).write_all if how.is_transliterated else " ".join
        _write_derived_text(how, write, out, ordered, counts)
    finally:
        ordered.unlink(missing_ok=True)
    types = _write_vocabulary(how, english, kept_pieces, out)
    for file in files:
        write_atomic(out / file.task / file.name(ENGLISH), file.english())
        write_atomic(out / file.task / file.name(how.language), file.derived(write))
    write_manifest(
        out,
        {
            "language": how.language,
            "changes": list(how.changes),
            "vocab_size": how.vocab_size,
            "overlap": how.overlap,
            "seed": how.seed,
            **vars(counts),
            "types": types,
            "types_kept": len(kept_pieces),
            "types_in_dictionary": {_percent(share): int(share * types) for share in how.dictionary_shares},
            "task_rows_dropped": {f"{file.task}/{file.name(ENGLISH)}": file.dropped for file in files},
            "files": hash_files(out),
        },
    )


def _check_kept(read: Sequence[Path], how: Derivation, files: Sequence[DerivedFile], out: Path) -> None:
    """Raises ConfigError where a file that is read is one that is written: it would be lost."""
    codes = ENGLISH, how.language
    shares = [f"parallel/{ENGLISH}-{how.language}.{_percent(share)}" for share in how.parallel_shares]
    names = [f"text/{code}.txt" for code in codes] + [f"{stem}.{code}" for stem in shares for code in codes]
    names += [f"{file.task}/{file.name(code)}" for file in files for code in codes]
    written = {(out / name).resolve() for name in names}
    if lost := next((path for path in read if path.resolve() in written), None):
        raise ConfigError(f"{lost} is read, and --out {out} would write over it. Name another folder.")


def _order_of(how: Derivation, treebanks: Sequence[Path]) -> Order:
    if (SYNTAX in how.changes) != bool(treebanks):
        raise ConfigError("`syn` in --changes and --treebank go together: it takes the word order of a treebank "
                          "(CoNLL-U) of another language.")  # fmt: skip
    orders: dict[str, Order] = {INVERSION: invert}
    if treebanks:
        orders[SYNTAX] = fit_word_order(chain.from_iterable(map(read_sentences, treebanks)), how.seed)
    return compose([orders[change] for change in how.changes if change != TRANSLITERATION])


def _open(source: str, bad_rows: Counter[str], *, needs_trees: bool) -> Iterator[list[Sentence]]:
    """The documents of a source, which is looked for at once; bad rows are left out and counted."""
    form, colon, path = source.partition(":")
    if not colon:
        form, path = "text", source
    path = expand_home(path)
    if form not in _FORMATS:
        raise ConfigError(f"--from {source}: unknown format '{form}'.{suggest(form, _FORMATS)} Known here: "
                          f"{', '.join(_FORMATS)}.")  # fmt: skip
    if form == _TREES:
        if not Path(path).is_file():
            raise DataError(f"{path} does not exist.")
        return read_treebank(path)
    if needs_trees:
        raise ConfigError(f"--from {source}: `syn` needs dependency trees; parse the text and give conllu:PATH.")
    return _documents(read(form, [path], [ENGLISH]), bad_rows)


def _documents(records: Iterator[Any], bad_rows: Counter[str]) -> Iterator[list[Sentence]]:
    for record in records:
        if isinstance(record, Document):
            yield [Sentence(tuple(s)) for line in record.paragraphs for s in split_sentences(split_words(line))]
        elif isinstance(record, BadRow):
            bad_rows[record.reason] += 1


def _write_order(
    documents: Iterator[list[Sentence]], order: Order, english: Path, ordered: Path, counts: _Counts
) -> None:  # fmt: skip
    """The English text, and the same words in the order of the derived language; a sentence without one is in none."""
    english.parent.mkdir(parents=True, exist_ok=True)
    with (
        english.open("w", encoding="utf-8", newline="\n") as natural,
        ordered.open("w", encoding="utf-8", newline="\n") as moved,
    ):
        for document in documents:
            for sentence in document:
                places = order(sentence)
                if places is None:
                    counts.sentences_dropped += 1
                    continue
                counts.sentences += 1
                counts.words += len(places)
                counts.sentences_moved += places != list(range(len(places)))
                natural.write(" ".join(sentence.words) + "\n")
                moved.write(" ".join(sentence.words[position] for position in places) + "\n")
            natural.write("\n")
            moved.write("\n")
    if not counts.sentences:
        raise DataError(
            f"No sentence is left of {counts.sentences_dropped}: `syn` takes projective trees whose nouns and verbs "
            "have at most 6 dependents."
        )


def _train(how: Derivation, text: Path) -> Tokenizer:
    """The English vocabulary, learned from the first SAMPLE_BYTES of text."""

    def lines() -> Iterator[str]:
        read = 0
        with text.open(encoding="utf-8") as file:
            for line in file:
                yield without_other_script(line)
                if (read := read + len(line)) > SAMPLE_BYTES:
                    return

    return train_bpe(BpeTokenizer(vocab_size=how.vocab_size), lines)


def _write_derived_text(how: Derivation, write: Write, out: Path, ordered: Path, counts: _Counts) -> None:
    """The derived text, and parallel texts of nested shares: a sentence is in those above its random number."""
    language, names = how.language, [_percent(share) for share in how.parallel_shares]
    (out / "parallel").mkdir(exist_ok=True)
    with ExitStack() as stack:

        def open_text(path: Path, mode: str = "w") -> IO[str]:
            return stack.enter_context(path.open(mode, encoding="utf-8", newline="\n"))

        natural, moved = open_text(out / "text" / f"{ENGLISH}.txt", "r"), open_text(ordered, "r")
        derived = open_text(out / "text" / f"{language}.txt")
        stems = [f"{ENGLISH}-{language}.{name}" for name in names]
        parallel = [[open_text(out / "parallel" / f"{stem}.{code}") for code in (ENGLISH, language)] for stem in stems]
        for number, (line, words) in enumerate(zip(natural, moved, strict=True)):
            if words == "\n":
                derived.write(words)
                continue
            written = write(words.rstrip("\n").split(" ")) + "\n"
            derived.write(written)
            drawn = random.Random(f"{how.seed}/{number}").random()
            for share, name, (left, right) in zip(how.parallel_shares, names, parallel, strict=True):
                if drawn < share:
                    left.write(line)
                    right.write(written)
                    counts.pairs[name] += 1


def _write_vocabulary(how: Derivation, english: Tokenizer, kept: frozenset[int], out: Path) -> int:
    """The tokenizer of both languages, and the dictionaries; how many types there are."""
    both = double_vocabulary(english) if how.is_transliterated else english
    types = word_types(english, kept, both) if how.is_transliterated else []
    tokenizer = out / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    save_tokenizer(wrap_tokenizer(both), tokenizer)
    if not how.is_transliterated:
        return 0
    order = np.random.default_rng(how.seed).permutation(len(types))
    stem = f"{ENGLISH}-{how.language}"
    _write_pairs(out, f"{stem}.txt", types)
    for share in how.dictionary_shares:
        number = int(share * len(types))
        if not 0 < number < len(types):
            raise DataError(f"The vocabulary has {len(types)} types; too few to draw {share:g} of them and hold out "
                            "the others. Give more text.")  # fmt: skip
        for places, ending in ((order[:number], "txt"), (order[number:], "held_out.txt")):
            _write_pairs(
                out, f"{stem}.{_percent(share)}.{ending}", [types[int(position)] for position in sorted(places)]
            )
    return len(types)


def _write_pairs(out: Path, name: str, pairs: Sequence[tuple[str, str]]) -> None:
    write_atomic(out / "dictionaries" / name, "".join(f"{left} {right}\n" for left, right in pairs))


def _percent(share: float) -> str:
    return f"{100 * share:g}"


VOCAB_SIZE = 1000  # English pieces; the world has some 600 words
_CHANGES = ((TRANSLITERATION,), (INVERSION, TRANSLITERATION), (SYNTAX, TRANSLITERATION))
_SPLITS = ("train", "dev", "test")


def write_demo_derived(world: Path, out: Path) -> None:
    """Writes a folder of each language below `out`, as `data derive` does, with its POS, NER and XNLI files.

    Args:
        world: as `write_demo` left it.
        out: is made if it does not exist.
    """
    tasks = {
        "pos": [world / "pos" / f"en.{split}.conllu" for split in _SPLITS],
        "ner": [world / "ner" / f"{split}-en.tsv" for split in _SPLITS],
        "xnli": [world / "xnli" / name for name in ("multinli.train.en.tsv", "dev-en.tsv", "test-en.tsv")],
    }
    for changes in _CHANGES:
        treebanks = [world / "pos" / "qge.train.conllu"] if SYNTAX in changes else []
        how = Derivation(changes, VOCAB_SIZE)
        folder = out / derived_language(changes)
        write_derived([f"conllu:{world / 'trees' / 'en.conllu'}"], folder, how, treebanks, **tasks)
