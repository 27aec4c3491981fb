"""Finds the files a recipe names, knows their content by hash, and writes the embedded world where it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xalign_ray.config.schema import Corpus, DataConfig, Dictionary, ParallelCorpus, RunConfig
from xalign_ray.data.sources.files import is_url, join, open_bytes
from xalign_ray.data.sources.open import WHOLE
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.registry import check_languages, find_files, parts
from xalign_ray.demo.writer import is_written, write_demo
from xalign_ray.errors import ConfigError

WHOLE_HASH_BYTES = 64 << 20  # larger files are known by their size and samples: hashing terabytes would take hours
SAMPLE_BYTES = 1 << 20
SAMPLES = 16


@dataclass(frozen=True)
class Input:
    """One source of the recipe: the pool its rows go to, its languages and its parts."""

    pool: str  # text/en or pairs/de-en; dictionaries have none
    languages: tuple[str, ...]
    parts: tuple[Part, ...]


def data_root(config: RunConfig) -> Path:
    """The folder that relative paths of `data` start from; the embedded world is written if it is not there."""
    return open_root(config.data.root, Path(config.output))


def open_root(root: str, output: Path) -> Path:
    """The folder that `root` names, which is `output/demo` for the embedded world, written at first use."""
    if root != "demo":
        return Path(root)
    folder = output / "demo"
    if not is_written(folder):
        write_demo(folder)
    return folder


def check_codes(config: RunConfig) -> None:
    """Whether each source names languages that there are, as many as its format takes.

    Raises:
        ConfigError: naming source, code and the nearest right one.
    """
    for key in ("corpora", "parallel", "dictionaries"):
        for number, source in enumerate(getattr(config.data, key)):
            try:
                _check_codes(source.format, (source.language,) if isinstance(source, Corpus) else source.languages)
            except ConfigError as error:
                raise ConfigError(f"data.{key}.{number}: {error}") from None


def check_inputs(config: RunConfig) -> None:
    """Finds out in moments, and before anything is started, whether the sources are there and mean anything.

    Raises:
        DataError, ConfigError: a path, format or language that is not there, in a sentence.
    """
    root = data_root(config)
    check_codes(config)
    for source in (*config.data.corpora, *config.data.parallel, *config.data.dictionaries):
        find_files(_paths(source, config.data, root))


def find_inputs(data: DataConfig, root: Path) -> tuple[list[Input], list[Input]]:
    """The text and pair inputs, then the dictionaries, in the recipe's order.

    Raises:
        DataError, ConfigError: a path, format or language that is not there, in a sentence.
    """

    def one(pool: str, source: Corpus | ParallelCorpus | Dictionary, languages: Sequence[str]) -> Input:
        codes = _check_codes(source.format, languages)
        return Input(pool, codes, tuple(parts(source.format, _paths(source, data, root))))

    texts = [one(f"text/{corpus.language}", corpus, (corpus.language,)) for corpus in data.corpora]
    pairs = [one(f"pairs/{'-'.join(sorted(corpus.languages))}", corpus, corpus.languages) for corpus in data.parallel]
    if data.most_pairs:
        pairs = [replace(pair, parts=_undivided(pair.parts)) for pair in pairs]
    return texts + pairs, [one("", dictionary, dictionary.languages) for dictionary in data.dictionaries]


def _undivided(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of each file as one: which pairs are its first is known only to who reads it from its beginning."""
    return tuple(replace(part, spans=(WHOLE,) * len(part.spans)) for part in parts if part.first_line == 1)


def _paths(source: Corpus | ParallelCorpus | Dictionary, data: DataConfig, root: Path) -> list[str]:
    """A source's paths; a root that is a URL is taken as it was written, for no Path can hold it."""
    return [join(data.root if is_url(data.root) else str(root), path) for path in source.paths]


def _check_codes(format_: str, languages: Sequence[str]) -> tuple[str, ...]:
    codes = check_languages(format_, languages)
    for written, code in zip(languages, codes, strict=True):
        if written != code:
            raise ConfigError(f"it names the language '{written}'; write its BCP-47 code '{code}'.")
    return codes


def content_hashes(inputs: Sequence[Input]) -> list[list[str]]:
    """What the files of each input hold, whatever they are called and wherever they lie."""
    files = [list(dict.fromkeys(path for part in one.parts for path in part.paths)) for one in inputs]
    return [[_content_hash(path) for path in paths] for paths in files]


def _content_hash(path: str) -> str:
    """The same of a file on a disk and in a store: it is read (in samples), whatever tags the store gives it."""
    with open_bytes(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        digest = hashlib.sha256(str(size).encode())
        if size <= WHOLE_HASH_BYTES:
            digest.update(file.read())
        else:
            for sample in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * sample // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
