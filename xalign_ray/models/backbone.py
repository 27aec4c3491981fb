"""Says which BERT a recipe means, as the values of its config.json, without importing torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError

SEGMENTS = 2  # segment types of an encoder from scratch, as BERT's: the two sides of a pair
LANGUAGES_KEY = "xalign_languages"  # in an exported folder's config.json: the languages folded into its token types

# What BertConfig means by a key that a config.json leaves out: BERT base (Devlin et al. 2019, section 3).
_BERT_BASE: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": SEGMENTS,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
    "is_decoder": False,
}


def backbone_values(model: ModelConfig, vocab_size: int, max_positions: int, pad_id: int) -> dict[str, Any]:
    """The values of the encoder's BertConfig: the recipe's sizes, or those of the folder that it continues.

    Args:
        model: the recipe's `model` block; `dropout` holds for a continued folder too, the sizes do not.
        vocab_size: ids of the run's tokenizer; of use from scratch only, as are the next two.
        max_positions: the longest row, in tokens.
        pad_id: the run's padding id.

    Raises:
        ConfigError: when `model.init_from` cannot be found.
    """
    dropout = {"hidden_dropout_prob": model.dropout, "attention_probs_dropout_prob": model.dropout}
    if model.init_from is not None:
        return _BERT_BASE | _read_config(model.init_from) | dropout
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.feed_forward,
        "max_position_embeddings": max_positions,
        "pad_token_id": pad_id,
    }
    return _BERT_BASE | sizes | dropout


def _read_config(init_from: str) -> dict[str, Any]:
    folder = Path(init_from)
    path = folder / "config.json" if folder.is_dir() else _fetch_config(init_from)
    if not path.is_file():
        raise ConfigError(f"model.init_from: {init_from} holds no config.json; name a Hugging Face model folder.")
    return json.loads(path.read_text(encoding="utf-8"))


def _fetch_config(hub_id: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(hf_hub_download(hub_id, "config.json"))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model.init_from '{hub_id}' is neither a folder nor a hub model that can be reached ({reason})."
        ) from None


def check_fits(init_from: str, values: dict[str, Any], vocab_size: int, max_positions: int, pad_id: int) -> None:
    """Refuses a folder that the run cannot continue; `values` are its config's, the rest is the run's.

    Raises:
        ConfigError: saying what does not fit and what to change.
    """
    family, table, positions = values["model_type"], values["vocab_size"], values["max_position_embeddings"]
    pad = values["pad_token_id"]
    refusals = [
        (family != "bert", f"is of the family '{family}'; only BERT folders can be continued"),
        (values["is_decoder"], "is a decoder; only encoders can be continued"),
        (not values["tie_word_embeddings"], "has an output table of its own; it must be tied to the input table"),
        (
            bool(values.get(LANGUAGES_KEY)),
            "has language embeddings folded into its token types, which cannot be trained apart again; "
            "continue the run's checkpoint instead",
        ),
        (
            vocab_size > table,
            f"has {table} word embeddings, the run's tokenizer {vocab_size} ids; "
            "set data.tokenizer to {kind: folder, path: (the same folder)}",
        ),
        (
            max_positions > positions,
            f"has {positions} positions, data.row_tokens is {max_positions}; lower data.row_tokens",
        ),
        (
            pad is not None and pad != pad_id,
            f"pads with id {pad}, the run's tokenizer with {pad_id}; "
            "set data.tokenizer to {kind: folder, path: (the same folder)}",
        ),
    ]
    for wrong, sentence in refusals:
        if wrong:
            raise ConfigError(f"model.init_from: {init_from} {sentence}.")


def check_tokenizer(init_from: str, tokenizer_folder: Path) -> None:
    """Refuses a folder whose own tokenizer gives other ids than the run's; one that holds no tokenizer passes.

    Raises:
        ConfigError: naming the first id that means two things.
    """
    theirs, ours = _read_vocabulary(init_from), _read_vocabulary(str(tokenizer_folder))
    if theirs is None or ours is None:
        return
    for identity, piece in sorted(ours.items()):
        if (other := theirs.get(identity)) != piece:
            raise ConfigError(
                f"model.init_from: {init_from} was trained with another tokenizer (id {identity} is {other!r} there, "
                f"{piece!r} in this run); set data.tokenizer to {{kind: folder, path: {init_from}}}."
            )


def _read_vocabulary(folder_or_id: str) -> dict[int, str] | None:
    from transformers import AutoTokenizer

    folder = Path(folder_or_id)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return None  # AutoTokenizer would invent one of five special tokens
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder_or_id)
    except (OSError, ValueError):
        return None
    return {identity: piece for piece, identity in tokenizer.get_vocab().items()}
