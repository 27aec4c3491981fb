"""The run's tokenizer as a Hugging Face folder: wrapped, opened, saved; transformers is imported late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.errors import ConfigError
from xalign_ray.text.collate import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NEEDED = ("pad", "unk", "cls", "sep", "mask")


def wrap_tokenizer(trained: Tokenizer, like: PreTrainedTokenizerFast | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer that we trained or extended, as transformers knows it; its special tokens are those of `like`."""
    from transformers import PreTrainedTokenizerFast

    names = {f"{name}_token": getattr(like, f"{name}_token") if like else f"[{name.upper()}]" for name in NEEDED}
    return PreTrainedTokenizerFast(tokenizer_object=trained, **names)


def open_tokenizer(path: str) -> PreTrainedTokenizerFast:
    """A given fast tokenizer, from a folder or the hub.

    Raises:
        ConfigError: if it is not there, not fast, or lacks a token that masking needs.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"data.tokenizer.path '{path}' holds no tokenizer: {str(error).splitlines()[0]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"data.tokenizer.path '{path}' is a slow tokenizer; save it with a tokenizer.json first.")
    if missing := [name for name in NEEDED if getattr(tokenizer, f"{name}_token_id") is None]:
        raise ConfigError(f"data.tokenizer.path '{path}' has no {', '.join(missing)} token; masking needs all five.")
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes tokenizer.json and its configuration, as transformers reads them."""
    tokenizer.save_pretrained(str(folder))
    assert (folder / "tokenizer.json").is_file(), "a fast tokenizer saves its tokenizer.json"


def vocabulary(tokenizer: PreTrainedTokenizerFast) -> Vocabulary:
    """The special ids, and the pieces that may stand at random places: all but special and `[unused..]` ones."""
    special = set(tokenizer.all_special_ids)
    tokens = tokenizer.get_vocab()
    regular = sorted(i for token, i in tokens.items() if i not in special and not token.startswith("[unused"))
    return Vocabulary(
        *(_special_id(tokenizer, name) for name in ("pad", "cls", "sep", "mask", "unk")),
        regular=np.asarray(regular, np.int32),
    )


def _special_id(tokenizer: PreTrainedTokenizerFast, name: str) -> int:
    found = getattr(tokenizer, f"{name}_token_id")
    assert isinstance(found, int), "open_tokenizer refuses a tokenizer without it"
    return found
