"""Writes a derived language next to its English: text, dictionaries and tagged files, the manifest last.

Formulas, and how the papers were read: docs/explanation/methods.md, Derived languages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from xalign_ray.artifacts import MANIFEST, hash_file, write_atomic, write_manifest
from xalign_ray.config.explain import suggest
from xalign_ray.data.sources.formats import read
from xalign_ray.data.sources.open import read_lines
from xalign_ray.data.sources.records import BadRow, Document, Record
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.text.derived import (
    DERIVED_LANGUAGE,
    derive,
    inverted_order,
    split_sentences,
    split_words,
    transliterate,
)
from xalign_ray.text.span_tags import tag_mover

ENGLISH = "en"
MIN_COUNT = 5  # a type must occur so often to be drawn: about what has a piece of its own, as the paper's types do
_FORMATS = ("text", "jsonl", "wikipedia")
_ENGLISH_IN_NAME = re.compile(r"(?<![a-z])en(?![a-z])")
_NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # CoNLL-U: multiword ranges and empty nodes


@dataclass(frozen=True)
class _Columns:
    """Where a tagged file's words stand, and how a row is written again."""

    number: int
    word: int
    tag: int
    row: Callable[[int, str, str], str]


_TAGGED: Mapping[str, _Columns] = {
    ".tsv": _Columns(2, 0, 1, lambda _, word, tag: f"{word}\t{tag}"),
    ".conllu": _Columns(10, 1, 3, lambda number, word, tag: "\t".join([str(number), word, "_", tag, *"______"])),
}


def write_derived(
    sources: Sequence[str],
    tagged: Sequence[Path],
    out: Path,
    dictionary_share: float = 0.25,
    seed: int = 0,
) -> None:
    """Makes the derived language of some English text, in the formats of real languages.

    Writes below `out`: `text/en.txt` and `text/en-x-inv.txt`, line i of one derived from line i of the other, a
    sentence a line, a blank line after each document; `dictionaries/en-en-x-inv.txt` (to train on) and
    `en-en-x-inv.held_out.txt` (for the probe), MUSE's format, in the order of frequency; `pos/` with each tagged file
    as it is and its derived copy, the tags moved with the words; those of spans begin where the spans now begin.

    The dictionary's types are drawn uniformly among the word types that occur at least MIN_COUNT times, punctuation
    included, as ALIGN-MLM draws among the pieces of its vocabulary. As many further types are held out.

    Args:
        sources: English text, each `path` or `format:path`; formats are text (the default), jsonl and wikipedia.
        tagged: English CoNLL-U files, or two columns in XTREME's form.
        out: is made if it does not exist.
        dictionary_share: share of the types that is trained on, at most 1/2.
        seed: of the draw.

    Raises:
        ConfigError: a share or format that cannot be.
        DataError: input that is missing or empty, or a tagged row that is malformed.
    """
    if not 0 < dictionary_share <= 0.5:
        raise ConfigError(f"--dictionary-share is {dictionary_share:g}; it must be above 0 and at most 0.5, because as "
                          "many types again are held out.")  # fmt: skip
    bad_rows: Counter[str] = Counter()
    opened = [_open(source, bad_rows) for source in sources]
    copies = [_derive_tagged(path) for path in tagged]
    (out / MANIFEST).unlink(missing_ok=True)
    for path, name, text in copies:
        write_atomic(out / "pos" / path.name, path.read_bytes())
        write_atomic(out / "pos" / name, text)
    counts, sentences = _write_text(chain.from_iterable(opened), out / "text")
    types = sorted((word for word, count in counts.items() if count >= MIN_COUNT), key=lambda w: (-counts[w], w))
    trained, held_out = _sample(types, dictionary_share, seed)
    for drawn, ending in ((trained, "txt"), (held_out, "held_out.txt")):
        lines = "".join(f"{word} {transliterate(word)}\n" for word in drawn)
        write_atomic(out / "dictionaries" / f"{ENGLISH}-{DERIVED_LANGUAGE}.{ending}", lines)
    write_manifest(
        out,
        {
            "language": DERIVED_LANGUAGE,
            "dictionary_share": dictionary_share,
            "seed": seed,
            "sentences": sentences,
            "words": counts.total(),
            "types": len(counts),
            "types_drawn_from": len(types),
            "types_trained": len(trained),
            "types_held_out": len(held_out),
            "bad_rows": dict(bad_rows),
            "words_in_dictionary": sum(counts[word] for word in trained),
            "files": {path.relative_to(out).as_posix(): hash_file(path) for path in sorted(out.glob("*/*"))},
        },
    )


def _open(source: str, bad_rows: Counter[str]) -> Iterator[Document]:
    """The documents of a source, which is looked for at once; what it reports as bad is left out and counted."""
    form, colon, path = source.partition(":")
    if not colon:
        form, path = "text", source
    if form not in _FORMATS:
        raise ConfigError(f"--from {source}: unknown format '{form}'.{suggest(form, _FORMATS)} Known here: "
                          f"{', '.join(_FORMATS)}.")  # fmt: skip
    return _documents(read(form, [path], [ENGLISH]), bad_rows)


def _documents(records: Iterator[Record], bad_rows: Counter[str]) -> Iterator[Document]:
    for record in records:
        if isinstance(record, Document):
            yield record
        elif isinstance(record, BadRow):
            bad_rows[record.reason] += 1


def _write_text(documents: Iterator[Document], folder: Path) -> tuple[Counter[str], int]:
    """Both texts, streaming; how often each lower-cased word occurs, and the number of sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    sentences = 0
    with (
        (folder / f"{ENGLISH}.txt").open("w", encoding="utf-8", newline="\n") as natural,
        (folder / f"{DERIVED_LANGUAGE}.txt").open("w", encoding="utf-8", newline="\n") as derived,
    ):
        for document in documents:
            for words in (s for line in document.paragraphs for s in split_sentences(split_words(line))):
                counts.update(word.lower() for word in words)
                sentences += 1
                natural.write(" ".join(words) + "\n")
                derived.write(" ".join(derive(words)) + "\n")
            natural.write("\n")
            derived.write("\n")
    return counts, sentences


def _sample(types: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Types to train on and as many others to hold out, each in the order given."""
    number = int(share * len(types))
    if not number:
        raise DataError(f"The text has {len(types)} words that occur at least {MIN_COUNT} times; too few to draw a "
                        "dictionary from. Give more text.")  # fmt: skip
    places = np.random.default_rng(seed).permutation(len(types))
    trained, held_out = sorted(places[:number]), sorted(places[number : 2 * number])
    return [types[int(place)] for place in trained], [types[int(place)] for place in held_out]


def _derive_tagged(path: Path) -> tuple[Path, str, str]:
    """A tagged file, the name of its derived copy, and the copy."""
    name, found = _ENGLISH_IN_NAME.subn(DERIVED_LANGUAGE, path.name, count=1)
    if path.suffix not in _TAGGED or not found:
        raise DataError(f"{path}: a tagged file is called like train-en.tsv or en_ewt-ud-dev.conllu.")
    columns = _TAGGED[path.suffix]
    sentences = list(_tagged_sentences(path, columns))
    move = tag_mover([[tag for _, tag in rows] for rows in sentences])
    lines: list[str] = []
    for rows in sentences:
        words = [word for word, _ in rows]
        order = inverted_order(words)
        tags = move([tag for _, tag in rows], order)
        for number, (place, tag) in enumerate(zip(order, tags, strict=True), 1):
            lines.append(columns.row(number, transliterate(words[place]), tag))
        lines.append("")
    if not lines:
        raise DataError(f"{path} holds no sentence.")
    return path, name, "\n".join(lines) + "\n"


def _tagged_sentences(path: Path, columns: _Columns) -> Iterator[list[tuple[str, str]]]:
    rows: list[tuple[str, str]] = []
    if not path.is_file():
        raise DataError(f"{path} is missing; give a file of tagged English sentences.")
    for line in read_lines(str(path)):
        text = line.text.rstrip("\r\n")
        cells = text.split("\t")
        if not text.strip() and not line.fault:
            if rows:
                yield rows
            rows = []
        elif columns.number == 10 and (text.startswith("#") or _NOT_A_WORD.fullmatch(cells[0])):
            continue
        elif line.fault or len(cells) != columns.number or not cells[columns.word].strip():
            raise DataError(
                f"{path}, line {line.number}: {line.fault or f'not {columns.number} columns with a word: {text!r}'}."
            )
        else:
            rows.append((cells[columns.word], cells[columns.tag]))
    if rows:
        yield rows
