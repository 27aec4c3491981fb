"""Prepared data of a recipe: its fingerprint, its folder, and whether it is there; makes nothing"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers

from xalign_ray.config.code import SHARDS_CODE, package_code
from xalign_ray.config.identity import data_settings
from xalign_ray.config.schema import DEMO, DataConfig, RunConfig
from xalign_ray.config.sources import (
    REPLACING,
    BpeTokenizer,
    ExchangeTokenizer,
    FolderTokenizer,
    Teacher,
    TrimTokenizer,
)
from xalign_ray.models.own_tokenizer import identify_tokenizer
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import language_id
from xalign_ray.sources.inputs import Input, data_root, find_sources
from xalign_ray.sources.markup import parser_version
from xalign_ray.sources.stage import InputHashes
from xalign_ray.vocabulary.tokenizer_folder import SPECIAL, given_folder, open_tokenizer
from xalign_ray.work.artifacts import MANIFEST, hash_value, stamp_of
from xalign_ray.work.mirror import fetch_listed, local_folder, url_of


def find_prepared(config: RunConfig) -> Prepared | None:
    """The shards of a recipe if they are finished, else None; makes nothing."""
    if config.data.root == DEMO and not data_root(config).is_dir():
        return None
    sources = [*chain(*find_sources(config.data, data_root(config)))]
    folder = data_folder(config, fingerprint_of(config, sources, InputHashes.of_output(local_folder(config.output))))
    fetch_listed(folder)
    return Prepared.open(folder) if (folder / MANIFEST).is_file() else None


def fingerprint_of(config: RunConfig, sources: Sequence[Input], hashes: InputHashes) -> str:
    """Hash of all that the shards depend on; files are known by content, whatever they are called.

    A given tokenizer counts by its content alone, one that `prepare` makes by its settings (`fingerprint_by_content`).
    """
    settings = data_settings(config)
    tokenizer, teacher = config.data.tokenizer, config.data.teacher
    if isinstance(tokenizer, FolderTokenizer) and not tokenizer.new_pieces:
        del settings["tokenizer"]
    files = hashes.of([file for source in sources for file in source.files])
    left = iter(files)
    return hash_value(
        {
            "settings": settings,
            "inputs": [[next(left) for _ in source.files] for source in sources],
            "tokenizer": tokenizer_identity(config.data),
            "exchanged": _content_of(str(config.model.init_from)) if isinstance(tokenizer, REPLACING) else None,
            "teacher": teacher and _teacher_identity(teacher, hashes),
            "aligners": _aligners(config.data),
            "language_identifier": language_id.identity_of(config.data.filters),
            "parsers": [*filter(None, map(parser_version, sorted({source.format for source in sources})))],
            "code": package_code(*SHARDS_CODE),
            "tokenizers": tokenizers.__version__,
            "unicode": unicodedata.unidata_version,  # of Python: letters, case and scripts
        }
    )


def fingerprint_by_content(
    config: RunConfig, sources: Sequence[Input], hashes: InputHashes, tokenizer_folder: Path
) -> str:
    """The fingerprint of finished data, in which the tokenizer that was made counts by its content.

    A recipe that continues a run is given the tokenizer of that run, so it has the same fingerprint.
    """
    data = config.data.model_copy(update={"tokenizer": FolderTokenizer(path=str(tokenizer_folder))})
    return fingerprint_of(config.model_copy(update={"data": data}), sources, hashes)


def link_by_content(config: RunConfig, folder: Path, fingerprint: str) -> None:
    """Lets recipes that are given the tokenizer of finished data find the data too: a link with their fingerprint.

    Not below a URL, since stores have no links.
    """
    link = data_folder(config, fingerprint)
    if link != folder and not link.exists() and url_of(folder) is None:
        link.unlink(missing_ok=True)  # it led to data that was removed
        with suppress(OSError):  # another process has just made it, or the disk has no links
            link.symlink_to(folder.name)


def data_folder(config: RunConfig, fingerprint: str) -> Path:
    """Where data of this fingerprint lies."""
    return local_folder(config.output).absolute() / "data" / fingerprint[:12]


def tokenizer_identity(data: DataConfig) -> Any:
    """A given tokenizer by content and special tokens; one that is made of text follows from settings and inputs."""
    if isinstance(data.tokenizer, BpeTokenizer | TrimTokenizer):
        return "trained"
    if isinstance(data.tokenizer, ExchangeTokenizer):
        return _content_of(data.tokenizer.path)
    return _content_of(given_folder(data.tokenizer).path)


def _content_of(path: str) -> list[Any]:
    files = sorted(Path(path).iterdir()) if Path(path).is_dir() else []
    return _read_content(path, tuple((file.name, *stamp_of(file)) for file in files))


@lru_cache(maxsize=16)  # a study asks for each of its recipes, and a large tokenizer takes two seconds
def _read_content(path: str, _: tuple[Any, ...]) -> list[Any]:
    tokenizer = open_tokenizer(path)
    special = {name: getattr(tokenizer, f"{name}_token") for name in SPECIAL}
    return [identify_tokenizer(tokenizer.backend_tokenizer.to_str(), special)]


def _aligners(data: DataConfig) -> list[Any]:
    """For each aligned corpus the aligner's settings and sample, or the hashes of an encoder's files."""
    if not any(corpus.align for corpus in data.parallel):
        return [corpus.align for corpus in data.parallel]
    from xalign_ray.align.kinds import alignment_identity, named_aligner

    settings = data.word_alignment
    return [
        corpus.align and alignment_identity(named_aligner(corpus.align, corpus.languages, settings), settings)
        for corpus in data.parallel
    ]


def _teacher_identity(teacher: Teacher, hashes: InputHashes) -> Any:
    from xalign_ray.tokens.teacher import teacher_identity  # sentence encoders

    return teacher_identity(teacher, hashes)
