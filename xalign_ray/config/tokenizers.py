"""The tokenizers that a recipe may name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from xalign_ray.config.fields import Frozen, Int, LocalPath


class BpeTokenizer(Frozen):
    """A byte-pair vocabulary trained on a sample of the corpora, over the words of BERT's basic tokenizer."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[Int, Field(ge=64, description="pieces, special tokens included")] = 8000
    lowercase: Annotated[bool, Field(description="whether text is lower-cased first")] = True
    sample_mib: Annotated[Int, Field(ge=1, description="text read per language for training, MiB")] = 16


NewPieces = Annotated[
    Int,
    Field(
        ge=0,
        description="the commonest words of the corpora that it cuts become pieces; their rows start from translations",
    ),
]


class FolderTokenizer(Frozen):
    """A given Hugging Face fast tokenizer: a local folder or a hub id."""

    kind: Literal["folder"] = "folder"
    path: Annotated[LocalPath, Field(description="of the folder, or a hub id")]
    new_pieces: NewPieces = 0


class StartTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names."""

    kind: Literal["start"] = "start"
    new_pieces: NewPieces = 0


Tokenizer = Annotated[BpeTokenizer | FolderTokenizer | StartTokenizer, Field(discriminator="kind")]
