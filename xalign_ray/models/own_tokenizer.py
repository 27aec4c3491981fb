"""The tokenizer in a model's folder: written so that any transformers opens it, and checked to be the model's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub import encoder_folder
from xalign_ray.models.sentence_files import read_sentence_files
from xalign_ray.models.weight_files import check_is_file
from xalign_ray.work.artifacts import hash_value, write_atomic, write_json

TOKENIZER_KEY = "xalign_tokenizer"  # in config.json: `identify` of the folder, as it was exported
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")  # one of them holds a vocabulary
_OF_BATCHES = ("truncation", "padding")  # parts of tokenizer.json without effect on pieces
_CONFIG = "tokenizer_config.json"
_DIRECTIONS = ("padding_side", "truncation_side")
_PROBE = "Berlin CAFÉ 1914-18 don't 北京 हिन्दी"  # tokenizers that differ read it otherwise


def make_portable(folder: Path, max_length: int, segments: int) -> None:
    """Rewrites the tokenizer of a saved folder so that transformers 4 and 5 make the inputs that it was trained on.

    transformers 5 names a class that 4 does not have, leaves out `token_type_ids`, and calls every length possible.
    `PreTrainedTokenizerFast` reads the same tokenizer.json in both. A slow tokenizer, without that file, stays.

    Args:
        max_length: of an input in pieces, special ones included: where `truncation=True` cuts.
        segments: number of token types of the model; the second text of a pair has the second.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    _set_types(tokenizer.get("post_processor"), min(1, segments - 1))
    write_atomic(path, json.dumps(tokenizer | dict.fromkeys(_OF_BATCHES), ensure_ascii=False))
    saved = _read_settings(folder)
    settings = {key: value for key, value in saved.items() if key.endswith("_token") or key in _DIRECTIONS}
    # In transformers 5 a list under a name that 4 takes for a mapping; both read the older name.
    if isinstance(extra := saved.get("extra_special_tokens"), list) and extra:
        settings["additional_special_tokens"] = extra
    types = ["token_type_ids"] if segments > 1 else []
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / _CONFIG, settings)


def stated_length(encoder: str | None) -> int:
    """The longest input that an encoder's tokenizer states, as of sentence encoders; no bound if it states none."""
    settings = _read_settings(encoder_folder(encoder)) if encoder else {}
    return int(settings.get("model_max_length") or sys.maxsize)


def _set_types(processor: Any, second: int) -> None:
    """Gives the second text of a pair, and all that follows it, this token type; all before it have 0."""
    if not isinstance(processor, dict):
        return
    for inner in processor.get("processors", ()):
        _set_types(inner, second)
    current = 0
    for part in processor.get("pair", ()) if processor.get("type") == "TemplateProcessing" else ():
        (token,) = part.values()
        current = second if token["id"] == "B" and "Sequence" in part else current
        token["type_id"] = current


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def identify_tokenizer(backend: str, special: Mapping[str, Any] = MappingProxyType({})) -> str:
    """SHA-256 of the parts of a tokenizer.json that decide pieces, and of the special tokens, however it was saved."""
    content = {key: value for key, value in json.loads(backend).items() if key not in _OF_BATCHES}
    return hash_value([content, dict(special)])


def identify(folder: Path) -> str | None:
    """The identity of the tokenizer in a folder.

    Returns:
        None if there is no tokenizer.json.

    Raises:
        ValueError: a file is not JSON.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    special = {key: _content(value) for key, value in _read_settings(folder).items() if key.endswith("_token")}
    return identify_tokenizer(path.read_text(encoding="utf-8"), special)


def read_tokenizer(name: str, identity: str | None = None) -> Any:
    """The tokenizer of a local folder or hub id, as `AutoTokenizer` opens it.

    Where Sentence Transformers lower-cases a text first (`do_lower_case`), the tokenizer does so itself.

    Args:
        identity: see `check_files`.

    Raises:
        DataError: a file of it is no vocabulary that can be read here, or transformers takes it for another kind.
    """
    from transformers import AutoTokenizer

    folder = encoder_folder(name)
    check_files(folder, identity)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    _check_kind(name, tokenizer)
    if read_sentence_files(name).lower_case:
        _lower_case(name, tokenizer)
    return tokenizer


def _lower_case(name: str, tokenizer: Any) -> None:
    from tokenizers.normalizers import Lowercase, Sequence

    if not tokenizer.is_fast:
        raise DataError(f"{name} lower-cases a text before a slow tokenizer: save it with a tokenizer.json first.")
    backend = tokenizer.backend_tokenizer
    normalizers = [backend.normalizer] if backend.normalizer else []
    if not normalizers or normalizers[0].normalize_str("A") != "a":
        backend.normalizer = Sequence([Lowercase(), *normalizers])


def _check_kind(name: str, tokenizer: Any) -> None:
    """Refuses a tokenizer whose kind transformers has guessed wrong.

    Where tokenizer_config.json names no class, or not whether a BERT keeps capitals, transformers 5 puts the vocabulary
    into what config.json suggests: a cased BERT is lower-cased, a SentencePiece model is taken for WordPiece.
    """
    folder = encoder_folder(name)
    file, settings = folder / "tokenizer.json", _read_settings(folder)
    is_bert = hasattr(tokenizer, "do_lower_case")
    if not tokenizer.is_fast or ("tokenizer_class" in settings and ("do_lower_case" in settings or not is_bert)):
        return
    read = _pieces(tokenizer.backend_tokenizer)
    if file.is_file():
        from tokenizers import Tokenizer

        is_wrong = read != _pieces(Tokenizer.from_file(str(file)))
    else:  # one piece in a hundred: lower-cased vocabularies hold special ones alone
        cased = is_bert and "do_lower_case" not in settings and (folder / "vocab.txt").is_file()
        is_wrong = cased and sum(piece != piece.lower() for piece in tokenizer.get_vocab()) > len(tokenizer) / 100
    if is_wrong:
        wrong = file.name if file.is_file() else "vocab.txt, which has capitals,"
        shown = " ".join(read[:4]) or "an error"
        raise DataError(
            f"{name}: transformers does not read text as its {wrong} does "
            f"({_PROBE[:11]}: {shown}), for want of the model's own {_CONFIG}: put it there, or write one that "
            "names do_lower_case of a BERT, or tokenizer_class (PreTrainedTokenizerFast) and the special tokens."
        )


def _pieces(tokenizer: Any) -> list[str]:
    """Of the probe; none where the tokenizer cannot read it, as one without an unknown piece."""
    try:
        encoding = tokenizer.encode(_PROBE, add_special_tokens=False)
    except Exception:  # the errors of tokenizers have no class
        return []
    return [
        piece for piece, counts in zip(encoding.tokens, encoding.attention_mask, strict=True) if counts
    ]  # no padding


def check_files(folder: Path, identity: str | None = None) -> None:
    """Refuses a folder without a vocabulary that can be read here, and another tokenizer than it was exported with.

    transformers makes up a tokenizer of a few special tokens where there is none, and every text is then unknown.

    Args:
        identity: of the tokenizer that an export was written with.

    Raises:
        DataError: in a sentence.
    """
    files = [path for pattern in FILES for path in sorted(folder.glob(pattern))]
    for path in files:
        check_is_file(path)
    if not any(path.stat().st_size for path in files):
        raise DataError(f"{folder} holds no tokenizer: none of {', '.join(FILES)} is there. Export the run again, or "
                        "put the model's own tokenizer next to it.")  # fmt: skip
    if all(path.suffix == ".model" for path in files) and find_spec("sentencepiece") is None:
        raise DataError(f"{folder} holds its vocabulary as {files[0].name} alone, which needs `pip install "
                        "sentencepiece`; or put the model's tokenizer.json next to it.")  # fmt: skip
    try:
        is_other = identity is not None and identify(folder) != identity
    except (ValueError, AttributeError) as error:
        raise DataError(f"{folder}: its tokenizer is damaged ({error}). Export the run again.") from None
    if is_other:
        raise DataError(f"{folder}: its tokenizer is not the one that the model was exported with (tokenizer.json or "
                        "the special tokens in tokenizer_config.json differ). Export the run again.")  # fmt: skip


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token
