"""The choices of a recipe: every `kind` that a list entry or a block may take, with its own options and no others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """A block of the tree: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(ge=1)]


# --- tokenizers -----------------------------------------------------------------------------------------------------
class BpeTokenizer(Frozen):
    """A byte-pair vocabulary trained on a sample of the corpora, over the words of BERT's basic tokenizer."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[int, Field(ge=64)] = 8000
    lowercase: bool = True
    sample_mib: Annotated[int, Field(ge=1, description="text read per language for training, MiB")] = 16


class FolderTokenizer(Frozen):
    """A given Hugging Face fast tokenizer: a local folder or a hub id."""

    kind: Literal["folder"] = "folder"
    path: str


class StartTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names."""

    kind: Literal["start"] = "start"


Tokenizer = Annotated[BpeTokenizer | FolderTokenizer | StartTokenizer, Field(discriminator="kind")]


# --- streams: what rows look like (views) ---------------------------------------------------------------------------
class MaskedText(Frozen):
    """Monolingual text, masked (METHODS 2)."""

    kind: Literal["masked_text"] = "masked_text"
    weight: Annotated[float, Field(gt=0, description="share of rows, relative to the other streams")] = 1.0


class MaskedPairs(Frozen):
    """TLM: both sides of a translation in one example, masked together (METHODS 3)."""

    kind: Literal["masked_pairs"] = "masked_pairs"
    weight: Annotated[float, Field(gt=0)] = 1.0
    positions: Literal["reset", "running"] = "reset"
    segments: Annotated[bool, Field(description="give the second side segment 1")] = False
    random_order: Annotated[bool, Field(description="swap the two sides with probability 1/2")] = False


class CodeSwitchedLabels(Frozen):
    """DICT-MLM: with probability t the label of a masked word is a translation of it (METHODS 4)."""

    kind: Literal["code_switched_labels"] = "code_switched_labels"
    weight: Annotated[float, Field(gt=0)] = 1.0
    t: Share = 0.5
    mix_unit: Literal["word", "instance"] = "word"


Stream = Annotated[MaskedText | MaskedPairs | CodeSwitchedLabels, Field(discriminator="kind")]


# --- objectives: what the model is asked (losses) -------------------------------------------------------------------
class MaskedLm(Frozen):
    """Cross-entropy at labelled positions, divided by the global step's number of labels (METHODS 1.3, 1.4)."""

    kind: Literal["masked_lm"] = "masked_lm"
    weight: float = 1.0


class DictionaryAlignment(Frozen):
    """ALIGN-MLM: minus the mean cosine of the word embeddings of dictionary pairs (METHODS 5)."""

    kind: Literal["dictionary_alignment"] = "dictionary_alignment"
    weight: float = 10.0
    pairs_per_step: Annotated[int | None, Field(ge=1, description="uniform sample a step; all pairs if null")] = None
    shuffled: Annotated[bool, Field(description="control: targets permuted, so that the pairs mean nothing")] = False


Objective = Annotated[MaskedLm | DictionaryAlignment, Field(discriminator="kind")]


# --- optimizers -----------------------------------------------------------------------------------------------------
class AdamW(Frozen):
    """Decoupled weight decay, none on biases and LayerNorm (METHODS 1.5)."""

    kind: Literal["adamw"] = "adamw"
    peak_lr: Annotated[float, Field(gt=0)] = 1e-4
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


Optimizer = AdamW
