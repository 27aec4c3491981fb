"""The text stage: each source is parsed once, into Parquet that all recipes of an output folder read in its place.

`OUTPUT/text/<fingerprint>` holds the records of one source, a file a part. It depends on the source's files, their
format and the parser alone: recipes that differ in tokenizer, lengths or filters share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from xalign_ray.config.code import TEXT_CODE, package_code
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.sources.formats import parse
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.markup import parser_version
from xalign_ray.sources.records import Part
from xalign_ray.sources.stage import Made, StageStep, hash_files, make_lacking, run
from xalign_ray.sources.stored import read_facts, record_of, write_stored
from xalign_ray.sources.summary import file_names
from xalign_ray.work.artifacts import MANIFEST, hash_value

TEXT_FOLDER = "text"  # below the output folder


@dataclass(frozen=True)
class TextTask:
    """A part of a source to be parsed: small, so that it travels to a worker."""

    part: Part  # with the file that its records go to
    languages: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The folder of the texts of all sources, which an error of a full disk names."""
        return str(Path(self.part.text).parents[1])

    def path(self, suffix: str) -> Path:
        """A file of the part."""
        return Path(self.part.text).with_suffix(suffix)


def parse_part(task: TextTask) -> Made:
    """Parses a part and writes its records."""
    path = Path(task.part.text)
    return [path], write_stored(path, parse(replace(task.part, text=""), task.languages), task.languages)


PARSE = StageStep("reading the sources", parse_part)


def make_text(inputs: Sequence[Input], output: Path, parallel: ParallelConfig) -> list[Input]:
    """Parses the sources that no recipe of the output folder has parsed yet, and repairs damaged text.

    Returns:
        The inputs, whose parts name the files with their records: `read_part` reads these.
    """
    texts = {_folder(source, output): source for source in inputs}

    def parse_sources(folders: Sequence[Path]) -> dict[Path, dict[str, Any]]:
        run(PARSE, [TextTask(part, texts[f].languages) for f in folders for part in _stored(texts[f], f)], parallel)
        return {folder: _describe(texts[folder], folder) for folder in folders}

    make_lacking(texts, parse_sources)
    return [replace(source, parts=_numbered(_stored(source, _folder(source, output)))) for source in inputs]


def without_text(inputs: Sequence[Input], output: Path) -> list[Input]:
    """The sources that no recipe of the output folder has parsed yet."""
    return [source for source in inputs if not (_folder(source, output) / MANIFEST).is_file()]


def _numbered(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, those in the middle of a file with the number of lines before them."""
    numbered: list[Part] = []
    before = 1
    for part, following in pairwise([*parts, None]):
        assert part
        before = 1 if part.first_line else before
        numbered.append(replace(part, before=0 if part.first_line else before))
        if following and not following.first_line:
            before += read_facts(part)["lines"]
    return tuple(numbered)


def _folder(one: Input, output: Path) -> Path:
    """Where the text of a source lies, named by all that it depends on: its files by path and content."""
    identity = {
        "code": package_code(*TEXT_CODE),
        "languages": one.languages,
        "files": one.hashes,
        "parts": [asdict(replace(part, skip_empty=False)) for part in one.parts],
        "parsers": [parser_version(name) for name in sorted({part.format for part in one.parts})],
    }
    return output.absolute() / TEXT_FOLDER / hash_value(identity)[:12]


def _stored(one: Input, folder: Path) -> tuple[Part, ...]:
    return tuple(
        replace(part, text=str(folder / f"part-{number:05d}.parquet")) for number, part in enumerate(one.parts)
    )


def _describe(one: Input, folder: Path) -> dict[str, Any]:
    files = [Path(part.text) for part in _stored(one, folder)]
    names = [name for file in files for name in (file.name, record_of(file).name)]
    return {
        "pool": one.pool, "languages": one.languages, "sources": file_names(one), "files": hash_files(folder, names)
    }  # fmt: skip
