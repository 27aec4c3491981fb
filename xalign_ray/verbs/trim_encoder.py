"""The Python API of `trim`: an encoder with the part of its vocabulary that texts use, without training."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.verbs.arguments import PathLike, as_model, as_path
from xalign_ray.work.artifacts import unfinished
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import quoted, shown_path

SHOWN = 64  # lines whose vectors are compared
TIMED = 256  # lines whose vectors are timed
WINDOW = 4096  # lines that are in memory at once
EQUAL = 1e-4  # difference of two numbers of vectors that are the same but for rounding
SPECIAL_IDS = tuple(f"{name}_token_id" for name in ("bos", "cls", "decoder_start", "eos", "mask", "pad", "sep", "unk"))


def trim_encoder(
    model: PathLike, text: Sequence[PathLike], out: PathLike, min_count: int = 1, whole_scripts: bool = False
) -> str:
    """Writes an encoder without the pieces that texts do not use, and compares the two.

    Pieces are counted in all lines, and in all behind each prompt of the encoder. Special pieces, single bytes and
    single characters of the texts stay. Each piece keeps its row, so a line that is cut as before has the vector that
    it had. Nothing is trained.

    Args:
        model: folder or hub id (ID@REVISION).
        text: files such as "de.txt" or "de=FILE", in any form of text that recipes read.
        out: a new folder.
        min_count: how often a piece must stand in the texts.
        whole_scripts: whether all pieces of the scripts stay that the texts are in: larger, and for other texts too.

    Returns:
        A table of both encoders; below it the lines that are cut otherwise, and the largest difference of vectors.

    Raises:
        ConfigError: there is no text, or the folder is not new.
        DataError: the encoder cannot be opened or trimmed, or the vectors of the two differ.
    """
    name, target = as_model(model), as_path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"--out {shown_path(target)} is there. Name a new folder.")
    if not text:
        raise ConfigError("--text names no file. Give text of the languages that the encoder is for, such as de.txt.")

    from xalign_ray.continuing.files import read_text, text_corpora  # these take seconds
    from xalign_ray.models.export import name_accelerator
    from xalign_ray.models.open import open_encoder
    from xalign_ray.models.open_folder import quiet_transformers
    from xalign_ray.models.own_tokenizer import make_portable, stated_length
    from xalign_ray.models.sentence_files import copy_modules
    from xalign_ray.models.tokenized import first_position
    from xalign_ray.vocabulary.surgery import trim

    # The vocabulary.
    opened = open_encoder(name)
    tokenizer: Any = opened.tokenizer
    if not tokenizer.is_fast:
        raise DataError(f"{name} has a slow tokenizer: save it with a tokenizer.json first.")
    corpora, numbers = text_corpora([str(path) for path in text]), count()

    def read() -> Iterator[str]:
        return chain.from_iterable(map(read_text, corpora))

    if next(read(), None) is None:
        raise ConfigError(f"--text: there is no line of text in {', '.join(map(str, text))}.")
    prompts = {"", *opened.sentences.prompts.values()}
    say(f"Trimming {name}: the pieces of all lines are counted.")
    before = tokenizer.backend_tokenizer
    named = {number for key in SPECIAL_IDS for number in _as_list(opened.config.get(key))}
    special = named & {*before.get_vocab().values()}
    lines = (line for line, _ in zip(read(), numbers, strict=False))
    trimmed, rows, _ = trim(tokenizer, lines, min_count, prompts, special, whole_scripts)
    trimmed.padding_side = tokenizer.padding_side
    trimmed.bos_token, trimmed.eos_token = tokenizer.bos_token, tokenizer.eos_token

    # The encoder with these rows.
    total = next(numbers)
    say(f"Trimming {name}: {len(rows.olds):,} of {before.get_vocab_size():,} rows stay, for {total:,} lines.")
    name_accelerator()
    hf = _with_rows(name, rows, {int(old): new for new, old in enumerate(rows.olds)})
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(target)
    try:
        with quiet_transformers():
            hf.save_pretrained(temporary)
        trimmed.save_pretrained(temporary)
        positions = int(getattr(hf.config, "max_position_embeddings", None) or 1 << 30) - first_position(hf)
        length = min(stated_length(name), positions)
        make_portable(temporary, length, int(getattr(hf.config, "type_vocab_size", None) or 1))
        copy_modules(name, temporary)

        # Both on the same lines.
        cut_otherwise, same = _compare_cuts(before, trimmed.backend_tokenizer, read(), max(1, total // TIMED))
        shown = _compare(name, temporary, same[:TIMED])
        temporary.rename(target)  # fails where another process has filled it meanwhile
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    say_next(f"xalign evaluate {quoted(target)} --task retrieval --data PAIRS")
    return f"{shown}\nLines cut otherwise: {cut_otherwise:,} of {total:,}.\n{shown_path(target)}"


def _with_rows(name: str, rows: Any, new_of: dict[int, int]) -> Any:
    """The encoder, in the class that its config.json names, with these rows alone."""
    import transformers

    from xalign_ray.models.extension import exchange_rows
    from xalign_ray.models.open import open_encoder
    from xalign_ray.models.open_folder import POOLER, as_one_sentence, open_weights

    opened = open_encoder(name)
    with as_one_sentence(f"{name} cannot be opened as a Hugging Face encoder"):
        config: Any = transformers.AutoConfig.from_pretrained(opened.folder, trust_remote_code=False)
    kind = next(iter(config.architectures or ()), "")
    hf, _ = open_weights(name, getattr(transformers, kind, transformers.AutoModel), config)
    if opened.weights and not any(POOLER in weight.split(".") for weight in opened.weights):
        hf.base_model.pooler = None  # it would be drawn at random
    pad = config.pad_token_id
    of_generation = getattr(hf, "generation_config", None)
    exchange_rows(hf, rows, None if pad is None else new_of.get(pad), draw=False)
    for settings, key in product(filter(None, (hf.config, of_generation)), SPECIAL_IDS):
        if settings is hf.config and key == "pad_token_id":  # done with the rows
            continue
        if (old := getattr(settings, key, None)) is not None:
            ids = [new_of[number] for number in _as_list(old) if number in new_of]
            setattr(settings, key, ids if isinstance(old, list) else next(iter(ids), None))
    vars(hf.config).pop("auto_map", None)  # of code that the folder does not hold, and that its class does not need
    return hf


def _as_list(ids: int | list[int] | None) -> list[int]:
    return ids if isinstance(ids, list) else [] if ids is None else [ids]


def _compare_cuts(before: Any, after: Any, lines: Iterator[str], every: int) -> tuple[int, list[str]]:
    """The number of lines whose pieces are not the same texts in both tokenizers, and one in `every` of the others."""
    differing, equal, some = 0, 0, list[str]()
    while window := [*islice(lines, WINDOW)]:
        sides = (side.encode_batch(window, add_special_tokens=False) for side in (before, after))
        same = [line for line, full, trimmed in zip(window, *sides, strict=True) if full.tokens == trimmed.tokens]
        some += same[-equal % every :: every]
        differing, equal = differing + len(window) - len(same), equal + len(same)
    return differing, some


def _compare(name: str, target: Path, lines: Sequence[str]) -> str:
    """A table of size and speed of both encoders, and the largest difference of a number of their vectors."""
    from rich.console import Console

    from xalign_ray.models.open import open_encoder
    from xalign_ray.models.vectors import SentenceVectors
    from xalign_ray.results.tables import Table, plain_grid

    columns, vectors = list[tuple[str, ...]](), list[Any]()
    for encoder in (name, str(target)):
        opened = SentenceVectors(open_encoder(encoder))
        opened.encode(lines[:SHOWN])  # warm
        start = time.perf_counter()
        vectors.append(opened.encode(lines))
        rate = len(lines) / (time.perf_counter() - start)
        model = opened.encoder.model
        parameters = sum(weight.numel() for weight in model.parameters())
        table = model.get_input_embeddings().num_embeddings
        columns.append((f"{table:,}", f"{parameters:,}", f"{parameters * 4 / 1e6:,.0f}", f"{rate:,.0f}"))
    difference = float(np.abs(vectors[0] - vectors[1]).max(initial=0.0))
    if not difference <= EQUAL:
        raise DataError(f"{name} cannot be trimmed: its vectors of the same pieces would differ by {difference:.2g}.")
    names = ("rows of the vocabulary", "parameters", "megabytes in fp32", "lines a second")
    body = [(row, *values) for row, *values in zip(names, *columns, strict=True)]
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(plain_grid(Table("", ("", "before", "after"), body, "")))
    shown = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines() if line.strip())  # type: ignore[attr-defined]
    return f"{shown}\nLargest difference of vectors: {difference:.1g}, of {len(lines):,} lines."
