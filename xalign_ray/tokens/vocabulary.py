"""Tokenizer of prepared data, an encoder's rows for it, and the lexicon of the dictionaries."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from xalign_ray.config.code import package_code
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import REPLACING, BpeTokenizer, ExchangeTokenizer, TrimTokenizer
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import explain_no_good_row, read_part, split_notes
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.records import BadRow, Document, Entry, Pair, texts_of
from xalign_ray.sources.stage import (
    EXCHANGE,
    NEW_ROWS,
    REGULAR,
    START_ROWS,
    TOKENIZER,
    TOKENIZER_FILES,
    hash_files,
    make_lacking,
    tokenizer_is_whole,
    write_arrays,
)
from xalign_ray.sources.summary import BAD_ROWS, SourceSummary, check_bad_fraction, file_names, open_bad_rows
from xalign_ray.vocabulary.dictionary import (
    LONGEST_PHRASE,
    Key,
    Translation,
    Translations,
    add_entries,
    build_lexicon,
    label_form,
    look_up_form,
    pair_arrays,
    separate,
    split_forms,
)
from xalign_ray.vocabulary.exchange import fertility
from xalign_ray.vocabulary.surgery import exchange, extend, trim
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, tokenize_words, train_bpe
from xalign_ray.vocabulary.tokenizer_folder import (
    framed,
    given_folder,
    open_tokenizer,
    save_tokenizer,
    vocabulary,
    wrap_tokenizer,
)
from xalign_ray.work.artifacts import hash_value, write_json
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.status_line import PartsDone

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARIES = "vocabularies"  # below the output folder
MEASURED = 500  # lines of a language in which pieces are counted
NEW_PIECES_SAMPLE = 16 << 20  # characters read of each input to find words that become pieces
LONG = 1000  # characters; the trainer's time grows with the square of a word's, as of an image in base64
_LONG_WORD = re.compile(rf"\S{{{LONG}}}(?=\S)")
SAMPLED = 20_000  # records of each input in which similar use of pieces is counted


def write_tokenizer(
    config: RunConfig, texts: Sequence[Input], translations: Mapping[str, Sequence[str]], folder: Path
) -> None:
    """Writes the tokenizer of a recipe and what belongs to it, unless it is there: trained, given, extended, exchanged.

    Args:
        texts: the corpora, whose beginnings it is trained on, or extended by.
        translations: the trained pairs of the dictionary.
    """
    if tokenizer_is_whole(folder):
        return
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    settings = config.data.tokenizer
    if isinstance(settings, BpeTokenizer):
        trained = _train(settings, texts, local_folder(config.output))
        shutil.copytree(trained / TOKENIZER, folder / TOKENIZER)
        tokenizer = open_tokenizer(str(trained / TOKENIZER))
    elif isinstance(settings, REPLACING):
        sample = _sampler(texts, getattr(settings, "sample_mib", 1) << 20)
        tokenizer = replace_tokenizer(config, settings, translations, texts, sample, folder)
    else:
        folder_settings = given_folder(settings)
        tokenizer = framed(open_tokenizer(folder_settings.path))
        if wanted := folder_settings.new_pieces:
            tokenizer, rows = extend(
                tokenizer, _sampler(texts, NEW_PIECES_SAMPLE, folder_settings.new_pieces_of)(), wanted
            )
            write_json(folder / NEW_ROWS, rows)
    if not isinstance(settings, BpeTokenizer):
        save_tokenizer(tokenizer, folder / TOKENIZER)
    write_arrays(folder / REGULAR, lambda file: np.save(file, vocabulary(tokenizer).regular))
    written = [f"{TOKENIZER}/{path.name}" for path in (folder / TOKENIZER).iterdir()]
    write_json(
        folder / TOKENIZER_FILES, hash_files(folder, [*written, REGULAR, NEW_ROWS, START_ROWS, EXCHANGE])
    )  # last: it is all there


def _train(settings: BpeTokenizer, texts: Sequence[Input], output: Path) -> Path:
    """The folder of a vocabulary that is trained once for all recipes of the output that have the same text."""
    assert all(part.text for corpus in texts for part in corpus.parts), "make_text comes first"
    files = [[Path(part.text).parts[-2:] for part in corpus.parts] for corpus in texts]
    identity = [package_code("vocabulary", "tokens/vocabulary"), tokenizers.__version__, settings.model_dump(), files]
    folder = output.absolute() / VOCABULARIES / hash_value(identity)[:12]

    def train(folders: Sequence[Path]) -> dict[Path, dict[str, Any]]:
        trained = train_bpe(settings, _sampler(texts, settings.sample_mib << 20))
        shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
        save_tokenizer(wrap_tokenizer(trained), folder / TOKENIZER)
        names = [f"{TOKENIZER}/{path.name}" for path in (folder / TOKENIZER).iterdir()]
        return {folder: {"settings": settings.model_dump(), "files": hash_files(folder, names)} for folder in folders}

    make_lacking([folder], train)
    return folder


def _sampler(texts: Sequence[Input], limit: int, languages: Collection[str] = ()) -> Callable[[], Iterator[str]]:
    """The beginning of each input, up to `limit` characters of each: the same lines each time it is called.

    Longer words are cut every LONG characters.

    Args:
        languages: whose lines alone are taken, if some are named.
    """

    def lines() -> Iterator[str]:
        with PartsDone("reading for the tokenizer", dict.fromkeys(range(len(texts)), 0), part="input") as shown:
            for number, corpus in enumerate(texts):
                yield from beginning(corpus)
                shown.add(number)

    def beginning(one: Input) -> Iterator[str]:
        left = limit
        for record in one.records():
            codes = record.languages if isinstance(record, Pair) else one.languages  # negatives are in the second
            for language, line in zip(chain(codes, repeat(codes[-1])), texts_of(record), strict=False):
                if not languages or language in languages:
                    yield _LONG_WORD.sub(r"\g<0> ", line) if len(line) > LONG else line
                    left -= len(line)
            if left <= 0:
                break

    return lines


def first_lines(texts: Sequence[Input], most: int | None = None) -> dict[str, list[str]]:
    """The lines of the first records of each input, text and pairs, by language.

    Args:
        most: lines of a language after which no more are read; all of SAMPLED records are gigabytes of documents.
    """
    lines: dict[str, list[str]] = {}
    for corpus in texts:
        for record in islice((r for r in corpus.records() if isinstance(r, Document | Pair)), SAMPLED):
            if most is not None and all(len(lines.get(code, ())) >= most for code in corpus.languages):
                break
            if isinstance(record, Document):
                lines.setdefault(record.language, []).extend(record.paragraphs)
            else:
                for language, text in zip(record.languages, record.texts, strict=True):
                    lines.setdefault(language, []).append(text)
    return lines


def replace_tokenizer(
    config: RunConfig,
    settings: ExchangeTokenizer | TrimTokenizer,
    translations: Mapping[str, Sequence[str]],
    texts: Sequence[Input],
    sample: Callable[[], Iterable[str]],
    folder: Path,
) -> PreTrainedTokenizerFast:
    """The new tokenizer. Writes its initial rows into the data folder, and prints how many begin in each way.

    Args:
        config: the recipe; `model.init_from` has the encoder's own tokenizer.
        settings: its tokenizer.
        translations: the trained pairs of the dictionary.
        texts: the corpora.
        sample: lines in which pieces are counted.

    Raises:
        ConfigError: one of the two tokenizers cannot be opened.
    """
    init_from = str(config.model.init_from)
    lines = first_lines(texts, None if getattr(settings, "init", "") == "focus" else MEASURED)
    old = open_tokenizer(init_from)
    if isinstance(settings, TrimTokenizer):
        used = chain(sample(), translations, *translations.values())
        new, rows, counts = trim(framed(open_tokenizer(init_from)), used, settings.min_count)
    else:
        new = framed(open_tokenizer(settings.path))
        rows, counts = exchange(old, new, settings.init, translations, [*chain(*lines.values())])
    write_arrays(folder / START_ROWS, partial(np.savez, **asdict(rows)))
    before, after = (
        {language: fertility(side.backend_tokenizer, text[:MEASURED])[0] for language, text in sorted(lines.items())}
        for side in (old, new)
    )
    write_json(folder / EXCHANGE, {"pieces": counts, "before": before, "after": after})
    ways = ", ".join(f"{count:,} {way.replace('_', ' ')}" for way, count in counts.items())
    source = settings.path if isinstance(settings, ExchangeTokenizer) else "its own vocabulary that the corpora use"
    sys.stderr.write(f"prepare: {init_from} gets the {len(rows.counts):,} pieces of {source}: {ways}.\n")
    return new


# Reads the recipe's dictionaries and writes what training and probes need of them: lexicon, pairs, words.


def trained_translations(translations: Translations) -> dict[str, list[str]]:
    """Each word form of the trained pairs and its translations as labels; held-out pairs are no one's."""
    by_word: dict[str, list[str]] = {}
    for left, right in translations.trained:
        by_word.setdefault(left[1], []).append(translations.labels[right])
        by_word.setdefault(right[1], []).append(translations.labels[left])
    return by_word


def write_lexicon(
    config: RunConfig, translations: Translations, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> dict[str, int]:
    """Writes lexicon.npz, entries.json, pairs_*.npz and pair_words.json into the data folder.

    Returns:
        Counts for the manifest; empty if the recipe names no dictionary.
    """
    if not config.data.dictionaries:
        return {}
    languages = config.languages
    labels = translations.labels
    used = {key for translation in (*translations.trained, *translations.held_out) for key in translation}
    pieces = tokenize_labels(tokenizer, {key: labels[key] for key in sorted(used)})
    entries, lexicon = build_lexicon(list(translations.trained), pieces.get)
    write_arrays(folder / "lexicon.npz", partial(np.savez, **asdict(lexicon)))
    write_json(folder / "entries.json", list(entries), indent=None)
    words: dict[str, list[list[str]]] = {}
    for split, pairs in (("trained", list(translations.trained)), ("held_out", list(translations.held_out))):
        usable = [translation for translation in pairs if all(pieces.get(key) is not None for key in translation)]
        arrays = asdict(pair_arrays(usable, pieces.get))
        write_arrays(folder / f"pairs_{split}.npz", partial(np.savez, **arrays))
        words[split] = [[languages[a[0]], labels[a], languages[b[0]], labels[b]] for a, b in usable]
        translations.counts[f"pairs_{split}"] = len(usable)
        translations.counts[f"pairs_{split}_without_pieces"] = len(pairs) - len(usable)
    translations.counts["entries"] = len(entries)
    lengths = [1 + form.count("\n") for form in split_forms([form for _, form in entries])]
    translations.counts["entries_of_several_words"] = sum(length > 1 for length in lengths)
    translations.counts[f"entries_of_more_than_{LONGEST_PHRASE}_words"] = sum(n > LONGEST_PHRASE for n in lengths)
    translations.counts["words"] = len(used)
    translations.counts["words_of_one_piece"] = sum(len(pieces.get(key) or ()) == 1 for key in used)
    write_json(folder / "pair_words.json", words, indent=None)
    return dict(translations.counts)


def read_translations(
    config: RunConfig, dictionaries: Sequence[Input], folder: Path
) -> tuple[Translations, list[SourceSummary]]:
    """The translations of the recipe's dictionaries, and what became of the lines of each.

    Bad lines go to a file of bad rows in the data folder.

    Dictionaries with a held-out file of their own are not split by hash; all others hold out
    `data.dictionary_held_out_fraction` of their concepts.

    Raises:
        DataError: a dictionary is empty, or worse than data.max_bad_fraction.
    """
    translations, sources = Translations(), []
    if not dictionaries:
        return translations, []
    languages, labels = config.languages, translations.labels
    own_split = {frozenset(d.languages) for d in config.data.dictionaries if d.split == "held_out"}
    judged: list[tuple[Counter[str], int, str, list[str]]] = []
    path = folder / f"dictionary_{BAD_ROWS}"
    with open_bad_rows(path) as bad_rows:
        for dictionary, asked in zip(dictionaries, config.data.dictionaries, strict=True):
            ids = [languages.index(code) for code in dictionary.languages]
            pivot = languages.index("en") if "en" in dictionary.languages else None
            entries: list[Translation] = []
            skipped: Counter[str] = Counter()
            bad, before = bad_rows.counts.copy(), translations.counts.copy()
            size = len(translations.trained) + len(translations.held_out)
            for record in chain.from_iterable(read_part(p, dictionary.languages, skipped) for p in dictionary.parts):
                if isinstance(record, BadRow):
                    bad_rows.add(record)
                elif isinstance(record, Entry):
                    left, right = (
                        (language, look_up_form(word, code))
                        for language, code, word in zip(ids, dictionary.languages, record.words, strict=True)
                    )
                    entries.append((left, right))
                    for key, word in zip((left, right), record.words, strict=True):
                        if key not in labels or label_form(word) == key[1]:
                            labels[key] = label_form(word)
            its_bad = bad_rows.counts - bad
            if not entries:
                raise DataError(explain_no_good_row(dictionary.parts, its_bad))
            name = f"dictionary {'-'.join(dictionary.languages)}"
            judged.append((its_bad, len(entries) + its_bad.total(), name, file_names(dictionary)))
            skipped, noted = split_notes(skipped)
            share = 0.0 if frozenset(asked.languages) in own_split else config.data.dictionary_held_out_fraction
            add_entries(translations, entries, pivot, share, held_out=asked.split == "held_out")
            aside = skipped + its_bad + (translations.counts - before)
            rows = (skipped + its_bad).total() + aside.pop("lines")
            added = len(translations.trained) + len(translations.held_out) - size
            sources.append(SourceSummary(name, file_names(dictionary), rows, added, dict(aside), dict(noted)))
    for its_bad, total, name, files in judged:
        listed = f"They are listed in {path}. "
        check_bad_fraction(its_bad, total, config.data.max_bad_fraction, name, files, listed)
    separate(translations)
    return translations, sources


def tokenize_labels(tokenizer: PreTrainedTokenizerFast, labels: Mapping[Key, str]) -> dict[Key, tuple[int, ...] | None]:
    """The pieces of each word as it stands in a sentence; None with an unknown one or more than LONGEST_WORD."""
    pieces: dict[Key, tuple[int, ...] | None] = {}
    for key, ids in zip(labels, tokenize_words(tokenizer.backend_tokenizer, [*labels.values()]), strict=True):
        usable = 0 < len(ids) <= LONGEST_WORD and tokenizer.unk_token_id not in ids
        pieces[key] = tuple(ids) if usable else None
    return pieces
