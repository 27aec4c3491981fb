"""Inputs of a recipe: its files, split into parts"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xalign_ray.config.language_codes import explain_unknown, is_unknown
from xalign_ray.config.schema import DEMO, Corpus, DataConfig, Dictionary, ParallelCorpus, RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.sources.formats import check_contents, check_languages, find_source, parts, read_part, read_together
from xalign_ray.sources.records import Kind, Part, Record, numbered, undivided
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import is_url

_KINDS: dict[str, Kind] = {"corpora": "documents", "dictionaries": "entries"}
WORLD = "demo"  # folder of the embedded world, below the output
LOOKED_AT = 16  # files of a source that are opened before anything is started; prepare opens all


@dataclass(frozen=True)
class Input:
    """A source of a recipe: found by `find_sources`, and split into parts by `split_source`.

    Attributes:
        pool: what its rows go to, text/en or pairs/de-en; dictionaries have none.
        hashes: of its files.
        undivided: whether each file is one part.
        columns, skip_empty: as in ParallelCorpus.
    """

    pool: str
    languages: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    hashes: tuple[str, ...] = ()
    format: str = ""
    files: tuple[str, ...] = ()
    undivided: bool = False
    columns: tuple[str, ...] | None = None
    skip_empty: bool = False

    def each_part(self) -> Iterator[Input]:
        """The parts of the source as single inputs, without fields that a task on one of them does not use."""
        for part in self.parts:
            yield replace(self, parts=(part,), hashes=(), files=())

    def records(self) -> Iterator[Record]:
        """All records of the source, numbered as its lines are."""
        for part in numbered(self.parts):
            yield from read_part(part, self.languages)


def data_root(config: RunConfig) -> Path:
    """The folder that relative paths of `data` start from; that of the embedded world may be missing."""
    return local_folder(config.output) / WORLD if config.data.root == DEMO else Path(config.data.root)


def check_codes(config: RunConfig) -> None:
    """Whether each source names languages, as many as its format takes; a code that no registry has is reported.

    Raises:
        ConfigError: naming source, code and the nearest right one.
    """
    keys = {explain_unknown(code): key for key, codes in _all_codes(config) for code in codes if is_unknown(code)}
    for sentence, key in keys.items():
        say(f"{key}: {sentence}")


def _all_codes(config: RunConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, number, source in _all_sources(config.data):
        yield (where := f"data.{key}.{number}"), _codes(where, source)


def _all_sources(data: DataConfig) -> Iterator[tuple[str, int, Corpus | ParallelCorpus | Dictionary]]:
    for key in ("corpora", "parallel", "tests", "dev", "dictionaries"):
        yield from ((key, number, source) for number, source in enumerate(getattr(data, key)))


def check_inputs(config: RunConfig) -> None:
    """Finds out in moments, and before anything is started, whether the sources are there and mean anything.

    Of a recipe that reads the embedded world, only absolute paths are looked up before the world is written.

    Raises:
        DataError, ConfigError: a path, format or language that is not there, a file that is no data, or one that is
            named twice, in a sentence.
    """
    root = data_root(config)
    is_unwritten = config.data.root == DEMO and not root.is_dir()
    codes, named = dict(_all_codes(config)), dict[tuple[object, ...], str]()
    for key, number, source in _all_sources(config.data):
        if not is_unwritten or all(Path(path).is_absolute() for path in source.paths):
            reader, files = find_source(source, _root(config.data, root))
            where = f"data.{key}.{number}"
            local = [file for file in files if not is_url(file)][:LOOKED_AT]
            check_contents(reader, local, _KINDS.get(key, "pairs"), codes[where], source.read_columns)
            for unit in read_together(reader, files):
                real = tuple(file if is_url(file) else os.path.realpath(file) for file in unit)
                read = (key, frozenset(codes[where]), source.read_columns, real)
                if read in named or len(set(real)) < len(real):
                    also = "twice" if named.get(read, where) == where else f"as {named[read]} does"
                    raise ConfigError(
                        f"{where} names {' and '.join(dict.fromkeys(unit))} {also}: write a file once for the same "
                        f"language{'s' * (len(codes[where]) > 1)}, or its rows count twice."
                    )
                named[read] = where


def find_sources(data: DataConfig, root: Path) -> tuple[list[Input], list[Input], list[Input], list[Input]]:
    """The text and pair sources, the dictionaries, the retrieval tests and the dev pairs, each in the recipe's order.

    No file is opened.

    Raises:
        DataError, ConfigError: a path, format or language that is not there, in a sentence.
    """

    def found(key: str, kind: str) -> list[Input]:
        sources = []
        for number, source in enumerate(getattr(data, key)):
            codes = _codes(f"data.{key}.{number}", source)
            pool = f"{kind}/{'-'.join(sorted(codes))}" if kind else ""
            reader, files = find_source(source, _root(data, root))
            made = Input(pool, codes, format=reader, files=tuple(files), columns=source.read_columns)
            if isinstance(source, ParallelCorpus):
                made = replace(made, skip_empty=source.skip_empty)
            sources.append(made)
        return sources

    pairs = [replace(pair, undivided=bool(data.max_pairs)) for pair in found("parallel", "pairs")]
    return found("corpora", "text") + pairs, found("dictionaries", ""), found("tests", "pairs"), found("dev", "pairs")


def split_source(source: Input, hashes: Sequence[str]) -> Input:
    """A source in parts."""
    kind = "documents" if source.pool.startswith("text/") else "pairs" if source.pool else "entries"
    cut = parts(source.format, source.files, kind)
    # Which pairs of a file are its first is known only to a reader that begins at its beginning.
    cut = undivided(cut) if source.undivided else cut
    split = (replace(part, columns=source.columns, skip_empty=source.skip_empty) for part in cut)
    return replace(source, parts=tuple(split), hashes=tuple(hashes))


def number_parts(inputs: Sequence[Input]) -> Iterator[tuple[int, str, int, Part]]:
    """Each part with the number of its input, a name of its pool and its number in it, and this number."""
    numbers: Counter[str] = Counter()
    for index, source in enumerate(inputs):
        for part in source.parts:
            yield index, f"{source.pool}/part-{numbers[source.pool]:05d}", numbers[source.pool], part
            numbers[source.pool] += 1


def _root(data: DataConfig, root: Path) -> str:
    """What paths start from; a root that is a URL is taken as it was written, for no Path can hold it."""
    return data.root if is_url(data.root) else str(root)


def _codes(key: str, source: Corpus | ParallelCorpus | Dictionary) -> tuple[str, ...]:
    """The languages of a source, as it names them."""
    named = (source.language,) if isinstance(source, Corpus) else tuple(source.languages)
    try:
        codes = check_languages(source.format, named, "entries" if isinstance(source, Dictionary) else None)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    for written, code in zip(named, codes, strict=True):
        if written != code:
            raise ConfigError(f"{key}: it names the language '{written}'; write its BCP-47 code '{code}'.")
    return codes
