"""Whether the tokenizer in a model's folder is the model's own: its files are there, are those exported, and fit."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import hash_value
from xalign_ray.errors import DataError
from xalign_ray.models.weight_files import check_is_file

TOKENIZER_KEY = "xalign_tokenizer"  # in config.json: `identify` of the folder, as it was exported
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")  # one of them holds a vocabulary
_OF_BATCHES = ("truncation", "padding")  # parts of tokenizer.json that say nothing of text


def identify(folder: Path) -> str | None:
    """SHA-256 of what tokenizer.json says of text, and of the special tokens; the same however it was saved.

    Returns:
        None if there is no tokenizer.json.

    Raises:
        ValueError: a file is not JSON.
    """
    path, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    named = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    special = {key: _content(value) for key, value in named.items() if key.endswith("_token")}
    return hash_value([{key: value for key, value in tokenizer.items() if key not in _OF_BATCHES}, special])


def check_vocabulary(name: str) -> None:
    """Of a local folder: refuses a vocabulary that transformers cannot read here, with what is needed to read it.

    Raises:
        DataError: a file of it is a Git LFS pointer, or a SentencePiece model alone that no package here reads.
    """
    found = [path for pattern in FILES for path in sorted(Path(name).glob(pattern))]
    for path in found:
        check_is_file(path)
    if found and all(path.suffix == ".model" for path in found) and find_spec("sentencepiece") is None:
        raise DataError(f"{name} holds its vocabulary as {found[0].name} alone, which needs `pip install "
                        "sentencepiece`; or put the model's tokenizer.json next to it.")  # fmt: skip


def check_files(name: str, config: Any) -> None:
    """Of a local folder: refuses one without a vocabulary, and an export whose tokenizer is not as it was exported.

    transformers makes up a tokenizer of a few special tokens where there is none, and every text is then unknown.

    Raises:
        DataError: in a sentence.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    if not any(path.stat().st_size for pattern in FILES for path in folder.glob(pattern)):
        raise DataError(f"{name} holds no tokenizer: none of {', '.join(FILES)} is there. Export the run again, or put "
                        "the model's own tokenizer next to it.")  # fmt: skip
    expected = getattr(config, TOKENIZER_KEY, None)
    if expected is None:
        return
    try:
        found = identify(folder)
    except (ValueError, AttributeError) as error:
        raise DataError(f"{name}: its tokenizer is damaged ({error}). Export the run again.") from None
    if found != expected:
        raise DataError(f"{name}: its tokenizer is not the one that the model was exported with (tokenizer.json or the "
                        "special tokens in tokenizer_config.json differ). Export the run again.")  # fmt: skip


def check_ids(name: str, tokenizer: Any, rows: int) -> None:
    """Refuses a tokenizer that gives ids beyond the model's embeddings.

    Args:
        rows: of the embedding table.

    Raises:
        DataError: in a sentence.
    """
    last = max([*tokenizer.get_vocab().values(), *tokenizer.all_special_ids, len(tokenizer) - 1])
    if last >= rows:
        raise DataError(f"{name}: its tokenizer gives ids up to {last}, but the model has {rows} embeddings; they do "
                        "not belong together. Put the model's own tokenizer next to it.")  # fmt: skip


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token
