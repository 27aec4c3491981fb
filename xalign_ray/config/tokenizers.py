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


class GivenTokenizer(Frozen):
    """A Hugging Face fast tokenizer that is there: a local folder or a hub id."""

    path: Annotated[LocalPath, Field(description="of the folder, or a hub id")]


class FolderTokenizer(GivenTokenizer):
    """A given Hugging Face fast tokenizer: a local folder or a hub id."""

    kind: Literal["folder"] = "folder"
    new_pieces: NewPieces = 0


class ExchangeTokenizer(GivenTokenizer):
    """Another vocabulary for the encoder that `model.init_from` names; rows of pieces that both have are copied."""

    kind: Literal["exchange"] = "exchange"
    init: Annotated[
        Literal["mean", "dictionary", "focus", "random"],
        Field(
            description="what other rows start as: the mean of the old pieces of their text, the words that translate "
            "them (else the mean), shared pieces that are used alike (else the mean), or draws with mean and spread "
            "of the old rows"
        ),
    ] = "mean"


class StartTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names."""

    kind: Literal["start"] = "start"
    new_pieces: NewPieces = 0


Tokenizer = Annotated[BpeTokenizer | FolderTokenizer | StartTokenizer | ExchangeTokenizer, Field(discriminator="kind")]
