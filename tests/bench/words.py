"""Released tokenizers: speed of text to ids and words against the raw tokenizer, and ids on a million hostile lines.

    XALIGN_MODELS=FOLDER python -m tests.bench.words [--lines 1000000] [--text FILE ...] [--models gemma,llama3]

FOLDER holds a folder for each model, with a tokenizer.json. Speed is CPU time of one thread over the files' lines:
`cold` is the first pass, in which every word is new once, and `warm` the second. With a dictionary (a tab or a blank
between a term and the text's) speed is shown for its entries of one word, and for all of them.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tests.parity.wild_lines import SPELLED, wild_lines
from xalign_ray.shards.rows import NO_WORD, Ints
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer, EncodedLines
from xalign_ray.vocabulary.dictionary import look_up_form, split_forms
from xalign_ray.vocabulary.tokenizer import TokenizedLines, encode_text, tokenize_lines

BATCH = 4000
REPEATS = 3  # of which the quickest is shown
WORDS_EVERY = 10  # so many batches: words of one are compared, too


def main() -> None:
    """Prints a line a tokenizer and measure; exits with 1 if any id differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000, help="hostile lines to compare; 0: none")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files of lines to time, plain or .gz")
    parser.add_argument("--models", default="", help="names, by commas; all if not given")
    parser.add_argument("--dictionary", type=Path, help="a word of another language and one of the text's a line")
    parser.add_argument("--seed", type=int, default=0, help="of the hostile lines")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folders = sorted(path.parent for path in Path(os.environ["XALIGN_MODELS"]).glob("*/tokenizer.json"))
    chosen = [folder for folder in folders if not asked.models or folder.name in asked.models.split(",")]
    text = [line.rstrip("\n") for path in asked.text for line in _open(path)]
    differ = 0
    for folder in chosen:
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.encode_special_tokens = True
        if text:
            _show(f"{folder.name}: {_time(backend, text)}")
        if text and asked.dictionary:
            for line in _with_dictionary(backend, text, asked.dictionary):
                _show(f"{folder.name}: {line}")
        if asked.lines:
            ids, words = soak(backend, asked.lines, asked.seed)
            _show(
                f"{folder.name}: of {asked.lines:,} hostile lines {len(ids)} have other ids, {len(words)} other words"
            )
            for line in [*ids, *words][:5]:
                _show(f"    {line!r}")
            differ += len(ids) + len(words)
    sys.exit(min(differ, 1))


def _time(backend: Tokenizer, lines: Sequence[str]) -> str:
    cached = CachedTokenizer(backend, {})
    raw, ours = 0.0, [0.0, 0.0]
    tokens = 0
    for cycle in (0, 1):
        for part in _parts(lines):
            began = time.process_time()
            found = cached.tokenize(part, 0)
            ended = time.process_time()
            ours[cycle] += ended - began
            if not cycle:
                backend.encode_batch(part, add_special_tokens=False)
                raw += time.process_time() - ended
                tokens += len(found.pieces)
    new = 100 * cached.misses / tokens
    return (
        f"{raw / ours[0]:.2f} cold, {raw / ours[1]:.2f} warm times the raw tokenizer's {tokens / raw:,.0f} tokens a "
        f"second; {new:.2f} new pretokens per 100 tokens"
    )


def _with_dictionary(backend: Tokenizer, lines: Sequence[str], dictionary: Path) -> Iterator[str]:
    """Seconds with the entries of one word, and with all, against none; what all of them find."""
    pairs = [line.rstrip("\n").split("\t" if "\t" in line else None) for line in _open(dictionary)]
    forms = sorted({look_up_form(parts[1]) for parts in pairs if len(parts) == 2})
    one_word = [form for form, words in zip(forms, split_forms(forms), strict=True) if form == words]
    chosen = {"no entries": [], "those of one word": one_word, "all": forms}
    entries = {name: {(0, form): n for n, form in enumerate(some)} for name, some in chosen.items()}
    best = dict.fromkeys(entries, (math.inf, math.inf))
    for _, name in product(range(REPEATS), entries):
        cached = CachedTokenizer(backend, entries[name])
        seconds = [0.0, 0.0]
        for cycle, part in product((0, 1), _parts(lines)):
            began = time.process_time()
            found = cached.tokenize(part, 0)
            seconds[cycle] += time.process_time() - began
        best[name] = (min(best[name][0], seconds[0]), min(best[name][1], seconds[1]))
    for name, (cold, warm) in best.items():
        cold, warm = cold / best["no entries"][0], warm / best["no entries"][1]
        yield f"{len(entries[name]):,} entries ({name}): {cold:.2f} cold, {warm:.2f} warm times the seconds without any"
    found = CachedTokenizer(backend, entries["all"]).tokenize(lines, 0)
    known, words = int((found.entry >= 0).sum()), int((found.entry != NO_WORD).sum())
    phrases = int((found.parts > 1).sum())
    yield f"{known / words:.4f} of {words:,} words are in the dictionary; {phrases:,} are phrases"


def soak(backend: Tokenizer, count: int, seed: int) -> tuple[list[str], list[str]]:
    """The hostile lines on which ids are not the tokenizer's own, and those on which words are not tokenize_lines'."""
    cached = CachedTokenizer(backend, {}, cache_bytes=32 << 20)
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    spelled = [*SPELLED, *added[:: max(1, len(added) // 40)]]
    ids: list[str] = []
    words: list[str] = []
    for number, begin in enumerate(range(0, count, BATCH)):
        lines = wild_lines(min(BATCH, count - begin), seed * 1_000_000 + number, spelled)
        plain = [unicodedata.normalize("NFC", line) for line in lines]
        wanted, _ = encode_text(backend, plain)
        found = cached.tokenize(lines, 0)
        ids += [line for line, one, other in zip(lines, _pieces(found), wanted, strict=True) if one.tolist() != other]
        if number % WORDS_EVERY == 0:
            slow = tokenize_lines(backend, lines, language=None)
            pairs = zip(lines, _lengths(found), _lengths(slow), strict=True)
            # Behind a first character that a tokenizer drops, its own offsets are off by one up to the line's end.
            words += [line for line, one, other in pairs if line[:1].isprintable() and one.tolist() != other.tolist()]
    return ids, words


def _pieces(found: EncodedLines) -> list[Ints]:
    ends = np.concatenate(([0], np.cumsum(found.word_length)))[np.cumsum(found.line_words)]
    return np.split(found.pieces, ends[:-1])


def _lengths(found: EncodedLines | TokenizedLines) -> list[Ints]:
    return np.split(found.word_length, np.cumsum(found.line_words)[:-1])


def _parts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    return (lines[begin : begin + BATCH] for begin in range(0, len(lines), BATCH))


def _open(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from file


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
