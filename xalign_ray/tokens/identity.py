"""What prepared data depends on (settings, content of files, tokenizer, programs), and its fingerprint."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tokenizers

from xalign_ray.align.corpus import FILES_VERSION
from xalign_ray.align.kinds import alignment_identity, named_aligner
from xalign_ray.config.derive import data_settings
from xalign_ray.config.schema import DataConfig, RunConfig
from xalign_ray.config.sources import (
    REPLACING,
    BpeTokenizer,
    ExchangeTokenizer,
    FolderTokenizer,
    TrimTokenizer,
)
from xalign_ray.models.own_tokenizer import identify_tokenizer
from xalign_ray.sources import language_id
from xalign_ray.sources.inputs import Source
from xalign_ray.sources.markup import PARSERS, parser_version
from xalign_ray.sources.stage import InputHashes
from xalign_ray.tokens.teacher import teacher_identity
from xalign_ray.vocabulary.tokenizer_folder import SPECIAL, given_folder, open_tokenizer
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.mirror import local_folder, url_of

SHARDS_VERSION = 19  # raise it when the same input would give other shards
EXCHANGE_VERSION = 1  # raise it when the same two vocabularies would give other rows to start from
FRAME_VERSION = 1  # raise it when a given tokenizer would be saved with another template


def fingerprint_of(config: RunConfig, sources: Sequence[Source], hashes: InputHashes) -> str:
    """Hash of all that the shards depend on; files are known by content, whatever they are called.

    A given tokenizer counts by its content alone, one that `prepare` makes by its settings (`fingerprint_by_content`).
    """
    settings = data_settings(config)
    tokenizer = config.data.tokenizer
    exchanged = None
    if isinstance(tokenizer, FolderTokenizer) and not tokenizer.new_pieces:
        del settings["tokenizer"]
    elif isinstance(tokenizer, REPLACING):
        exchanged = [EXCHANGE_VERSION, _content_of(str(config.model.init_from))]
    files = hashes.of([file for source in sources for file in source.files])
    left = iter(files)
    return hash_value(
        {
            "settings": settings,
            "inputs": [[next(left) for _ in source.files] for source in sources],
            "tokenizer": tokenizer_identity(config.data),
            **({"exchanged": exchanged} if exchanged else {}),
            **({"teacher": teacher_identity(config.data.teacher, hashes)} if config.data.teacher else {}),
            "aligners": _aligners(config.data),
            "language_identifier": language_id.identity() if config.data.filters.language_threshold else None,
            "parsers": [parser_version(name) for name in _formats(sources) if name in PARSERS],
            "versions": {
                "shards": SHARDS_VERSION,
                "tokenizers": tokenizers.__version__,
                "unicode": unicodedata.unidata_version,  # of Python: letters, case and scripts
            },
        }
    )


def fingerprint_by_content(
    config: RunConfig, sources: Sequence[Source], hashes: InputHashes, tokenizer_folder: Path
) -> str:
    """The fingerprint of finished data, in which the tokenizer that was made counts by its content.

    A recipe that continues a run is given the tokenizer of that run, so it has the same fingerprint.
    """
    given = config.data.model_copy(update={"tokenizer": FolderTokenizer(path=str(tokenizer_folder))})
    return fingerprint_of(config.model_copy(update={"data": given}), sources, hashes)


def link_by_content(config: RunConfig, folder: Path, fingerprint: str) -> None:
    """Lets recipes that are given the tokenizer of finished data find the data too: a link with their fingerprint.

    Not below a URL, since stores have no links.
    """
    link = data_folder(config, fingerprint)
    if link != folder and not link.exists() and url_of(folder) is None:
        link.unlink(missing_ok=True)  # it led to data that was removed
        with suppress(FileExistsError):  # another process has just made it
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
    given = open_tokenizer(path)
    special = {name: getattr(given, f"{name}_token") for name in SPECIAL}
    return [identify_tokenizer(given.backend_tokenizer.to_str(), special), FRAME_VERSION]


def _aligners(data: DataConfig) -> list[Any]:
    """For each aligned corpus the aligner's version, its settings and sample, or the hashes of an encoder's files."""
    settings = data.word_alignment
    return [
        corpus.align
        and [FILES_VERSION, alignment_identity(named_aligner(corpus.align, corpus.languages, settings), settings)]
        for corpus in data.parallel
    ]


def _formats(sources: Sequence[Source]) -> list[str]:
    return sorted({source.format for source in sources})
