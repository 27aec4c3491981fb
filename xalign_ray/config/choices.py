"""The choices of a recipe: every `kind` that a list entry or a block may take, with its own options and no others.

What the methods compute: docs/explanation/methods.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from xalign_ray.config.scheduled import Scheduled, Within
from xalign_ray.credentials import without_credentials


class Frozen(BaseModel):
    """A block of the tree: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def no_truth_value(given: Any) -> Any:
    """Where a number is asked for, pydantic takes `true` for 1."""
    if isinstance(given, bool):
        raise PydanticCustomError("number", "Input should be a number, not true or false")
    return given


Int = Annotated[int, BeforeValidator(no_truth_value), Field(gt=-(2**63), lt=2**63)]
Float = Annotated[float, BeforeValidator(no_truth_value)]
Fraction = Annotated[Float, Field(ge=0.0, le=1.0)]
Positive = Annotated[Int, Field(ge=1)]
Uri = Annotated[str, AfterValidator(without_credentials)]  # of a tracking server or database
OnBrokenFile = Annotated[
    Literal["stop", "keep_rest_out"],
    Field(description="what prepare does at a file whose rest cannot be read, whatever max_bad_fraction"),
]


# --- tokenizers -----------------------------------------------------------------------------------------------------
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
    path: Annotated[str, Field(description="of the folder, or a hub id")]
    new_pieces: NewPieces = 0


class StartTokenizer(Frozen):
    """The tokenizer of the encoder that `model.init_from` names."""

    kind: Literal["start"] = "start"
    new_pieces: NewPieces = 0


Tokenizer = Annotated[BpeTokenizer | FolderTokenizer | StartTokenizer, Field(discriminator="kind")]


# --- streams: what rows look like ---------------------------------------------------------------------------
Weight = Annotated[Float, Field(gt=0, description="share of rows, relative to the other streams")]
Positions = Annotated[
    Literal["reset", "running"], Field(description="whether the second side counts from 1 again, or goes on")
]
Segments = Annotated[bool, Field(description="give the second side segment 1")]
RandomOrder = Annotated[bool, Field(description="swap the two sides with probability 1/2")]


class MaskedText(Frozen):
    """Monolingual text, masked."""

    kind: Literal["masked_text"] = "masked_text"
    weight: Weight = 1.0


class MaskedPairs(Frozen):
    """TLM: both sides of a translation in one example, masked together."""

    kind: Literal["masked_pairs"] = "masked_pairs"
    weight: Weight = 1.0
    positions: Positions = "reset"
    segments: Segments = False
    random_order: RandomOrder = False


class CodeSwitchedLabels(Frozen):
    """DICT-MLM: with probability t the label of a masked word is a translation of it."""

    kind: Literal["code_switched_labels"] = "code_switched_labels"
    weight: Weight = 1.0
    t: Annotated[Fraction, Field(description="probability that a label is a translation")] = 0.5
    mix_unit: Annotated[
        Literal["word", "instance"],
        Field(description="what t is drawn for: each masked word, or each example as a whole"),
    ] = "word"
    refill: Annotated[
        bool, Field(description="in an instance of translated labels, mask other words too once those are used up")
    ] = False
    variant: Annotated[
        Literal["label_swap", "input_swap"],
        Field(description="predict the translation of a word (the paper), or the word from its translation"),
    ] = "label_swap"

    @model_validator(mode="after")
    def _refills_instances(self) -> CodeSwitchedLabels:
        if self.refill and self.mix_unit == "word":
            raise ValueError("refill is for mix_unit: instance; by word every word may be masked anyway")
        return self


class CodeSwitchedCopy(Frozen):
    """DICT-TLM: a sentence and its code-switched copy as a pair; labels are the pieces as they stand."""

    kind: Literal["code_switched_copy"] = "code_switched_copy"
    weight: Weight = 1.0
    codeswitch_rate: Annotated[Fraction, Field(description="of the copy's words in the dictionary; 1 is a gloss")] = (
        0.15
    )
    positions: Positions = "reset"
    segments: Segments = False


class AlignedPairs(Frozen):
    """WEAM: masked pairs with the matrix of which positions translate each other."""

    kind: Literal["aligned_pairs"] = "aligned_pairs"
    weight: Weight = 1.0
    positions: Positions = "running"
    segments: Segments = False
    random_order: RandomOrder = False
    expand: Annotated[
        Literal["all", "first", "diagonal"],
        Field(description="the pieces of two aligned words: all with all, first with first, or i-th with i-th"),
    ] = "all"


class ContrastedPairs(Frozen):
    """PPA: a masked pair, and each of its sentences on its own as a query and its key."""

    kind: Literal["contrasted_pairs"] = "contrasted_pairs"
    weight: Weight = 1.0
    positions: Positions = "running"
    segments: Segments = True
    random_order: Annotated[bool, Field(description="swap with probability 1/2 which sentence is the query")] = True
    text: Annotated[
        Literal["joined", "apart", "none"],
        Field(description="what is masked: the pair (TLM), each sentence on its own (MLM), or nothing"),
    ] = "joined"


Stream = Annotated[
    MaskedText | MaskedPairs | CodeSwitchedLabels | CodeSwitchedCopy | AlignedPairs | ContrastedPairs,
    Field(discriminator="kind"),
]


# --- objectives: what the model is asked (losses) -------------------------------------------------------------------
LossWeight = Annotated[
    Scheduled, Within(), Field(description="of the loss in the sum; a number or [step, value] corners")
]


class MaskedLm(Frozen):
    """Cross-entropy at labelled positions, divided by the global step's number of labels."""

    kind: Literal["masked_lm"] = "masked_lm"
    weight: LossWeight = 1.0
    labels_at_once: Annotated[
        Int | None,
        Field(ge=1, description="logits of so many labels at a time, computed again going backward; all if null"),
    ] = None


class DictionaryAlignment(Frozen):
    """ALIGN-MLM: minus the mean cosine of the word embeddings of dictionary pairs."""

    kind: Literal["dictionary_alignment"] = "dictionary_alignment"
    weight: LossWeight = 10.0
    pairs_per_step: Annotated[Int | None, Field(ge=1, description="uniform sample a step; all pairs if null")] = None
    pool: Annotated[
        Literal["mean", "first", "single_piece_only"], Field(description="what stands for a word of several pieces")
    ] = "mean"
    layer: Annotated[
        Int | None,
        Field(ge=1, description="hidden states after so many layers, the word alone; embedding rows if null"),
    ] = None
    shuffled: Annotated[bool, Field(description="control: targets permuted, so that the pairs mean nothing")] = False


class WordExchange(Frozen):
    """WEAM: a masked word is predicted from the hidden state of the word it is aligned with."""

    kind: Literal["word_exchange"] = "word_exchange"
    weight: LossWeight = 1.0
    normalize: Annotated[
        Literal["mean", "sum"], Field(description="several partners of a position: their mean, or the paper's sum")
    ] = "mean"
    unaligned: Annotated[
        Literal["skip", "literal"], Field(description="labels without a partner: left out, or asked of a zero vector")
    ] = "skip"


class MomentumContrast(Frozen):
    """PPA: a sentence finds its translation among a queue of others, encoded by a running average."""

    kind: Literal["momentum_contrast"] = "momentum_contrast"
    weight: LossWeight = 1.0
    queue_size: Annotated[Positive, Field(description="keys of earlier steps that a query is compared with")] = 32_000
    momentum: Annotated[Float, Field(ge=0, lt=1, description="what the key encoder keeps of itself each step")] = 0.999
    temperature: Annotated[Float, Field(gt=0, description="what similarities are divided by")] = 0.05
    projection: Annotated[Int, Field(ge=1, description="width of the compared vectors")] = 300
    pooling: Annotated[Literal["cls", "mean"], Field(description="what stands for a sentence")] = "cls"
    normalize: Annotated[
        Literal["h", "z", "both"], Field(description="length 1: pooled states (PPA), their projections (MoCo), or both")
    ] = "h"
    queue_start: Annotated[
        Literal["random", "fill"], Field(description="random unit vectors, or no loss until the queue is full")
    ] = "random"
    key_dropout: Annotated[bool, Field(description="dropout in the key encoder too, as MoCo")] = True
    mask_false_negatives: Annotated[
        bool, Field(description="keys in the queue whose pivot sentence is the query's own are no negatives")
    ] = True


class SentenceContrast(Frozen):
    """Symmetric InfoNCE between the pairs of a row, without a queue: the worked example of a plug-in loss."""

    kind: Literal["sentence_contrast"] = "sentence_contrast"
    weight: LossWeight = 1.0
    temperature: Annotated[Float, Field(gt=0, description="what similarities are divided by")] = 0.05
    pooling: Annotated[Literal["cls", "mean"], Field(description="what stands for a sentence")] = "mean"
    layer: Annotated[Int | None, Field(ge=1, description="hidden states after so many layers; the last if null")] = None


Objective = Annotated[
    MaskedLm | DictionaryAlignment | WordExchange | MomentumContrast | SentenceContrast, Field(discriminator="kind")
]


# --- optimizers -----------------------------------------------------------------------------------------------------
class _Adam(Frozen):
    """Averages of the gradient and its square, and decoupled weight decay, none on biases and LayerNorm."""

    beta1: Annotated[Fraction, Field(description="decay of the average of the gradient")] = 0.9
    beta2: Annotated[Fraction, Field(description="decay of the average of its square")] = 0.999
    epsilon: Annotated[Float, Field(gt=0, description="added to the root of that")] = 1e-6
    weight_decay: Annotated[Float, Field(ge=0, description="decoupled; none on biases and LayerNorm")] = 0.01


class AdamW(_Adam):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: Annotated[Float, Field(gt=0, description="at the peak of the schedule")] = 1e-4


class Lamb(_Adam):
    """LAMB: Adam's direction with decay, scaled to each tensor's own norm; ZeRO stage 0 only."""

    kind: Literal["lamb"] = "lamb"
    learning_rate: Annotated[Float, Field(gt=0, description="at the peak of the schedule")] = 1.6e-3


def _optimizer_kind(given: Any) -> Any:
    """The tag of an optimizer block: AdamW where a recipe names none."""
    return given.get("kind", "adamw") if isinstance(given, Mapping) else getattr(given, "kind", None)


Optimizer = Annotated[Annotated[AdamW, Tag("adamw")] | Annotated[Lamb, Tag("lamb")], Discriminator(_optimizer_kind)]
