"""Streams and losses of a recipe: every `kind` with its options, and its needs of data and machines.

Their formulas: docs/explanation/methods.md. How to add one: docs/how-to/add-a-method.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from xalign_ray.config.fields import (
    Float,
    Fraction,
    Frozen,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Scheduled,
    Within,
    kinds_of,
    or_one_of,
)

Weight = Annotated[Float, Field(gt=0, description="share of rows, relative to the other streams")]
Positions = Annotated[
    Literal["reset", "running"], Field(description="whether the second side counts from 1 again, or goes on")
]
Segments = Annotated[bool, Field(description="give the second side segment 1")]
TEXT, PAIRS = "text/", "pairs/"  # how the names of pools begin: monolingual text, translations
ONE_MORE = "gives every pair one more special token"
FREE_PROMPT = 2  # pieces of a prompt that fit without a reserve: a pair of two pieces takes 5 tokens
RandomOrder = Annotated[bool, Field(description="swap the two sides with probability 1/2")]


class StreamChoice(Frozen):
    """A kind of rows. Its needs are defined here once.

    Attributes:
        pools: the pools that it draws from.
        segments_per_example: 2 where an example is a pair; its class then has `positions` and `segments`.
        needs_dictionary: whether it replaces words by translations.
        needs_alignment: whether it reads word alignments.
        computed_by: `module:function` of its columns; of a plug-in by default the function `<kind>` of its module.
        paper_name: what its method is called, where that does not depend on its options.
    """

    pools: ClassVar[Literal["text/", "pairs/"]] = TEXT
    segments_per_example: ClassVar[Literal[1, 2]] = 1
    needs_dictionary: ClassVar[bool] = False
    needs_alignment: ClassVar[bool] = False
    computed_by: ClassVar[str] = ""
    paper_name: ClassVar[str] = ""

    kind: str
    weight: Float

    @property
    def method(self) -> str:
        """Its name in the papers if no loss reads further columns of it; empty for plain masked text."""
        return self.paper_name

    @property
    def min_reserve(self) -> tuple[float, str]:
        """The least `data.reserve_fraction` at which its longest form of a row fits, and why."""
        return 0.0, ""


def prompt_reserve(pieces: int) -> float:
    """The `data.reserve_fraction` at which rows hold each sentence of their pairs behind a prompt, however short."""
    return 0.0 if pieces <= FREE_PROMPT else 1 - 5 / (3 + pieces)


class MaskedText(StreamChoice):
    """Monolingual text, masked."""

    computed_by = "xalign_ray.streams.masked:masked_text"

    kind: Literal["masked_text"] = "masked_text"
    weight: Weight = 1.0


class MaskedPairs(StreamChoice):
    """TLM: both sides of a translation in one example, masked together."""

    paper_name = "xlm"
    computed_by = "xalign_ray.streams.masked:masked_pairs"
    pools = PAIRS
    segments_per_example = 2

    kind: Literal["masked_pairs"] = "masked_pairs"
    weight: Weight = 1.0
    positions: Positions = "reset"
    segments: Segments = False
    random_order: RandomOrder = False
    double_separator: bool = False
    """a separator before the second side too, as XLM, whose rows have four"""

    @property
    def min_reserve(self) -> tuple[float, str]:
        """A pair of two pieces grows from 5 tokens to 6: a sixth of the row at most."""
        return (0.17, f"with double_separator {ONE_MORE}") if self.double_separator else (0.0, "")


class MaskedTranslations(StreamChoice):
    """ERNIE-M: masked words of one side of a translation, predicted from the other side alone (its CAMLM)."""

    paper_name = "camlm"
    computed_by = "xalign_ray.streams.masked:masked_translations"
    pools = PAIRS
    segments_per_example = 2

    kind: Literal["masked_translations"] = "masked_translations"
    weight: Weight = 1.0
    positions: Positions = "reset"
    segments: Segments = False
    random_order: bool = True
    """ask words of either side with probability 1/2; always of the second if false"""


class CodeSwitchedLabels(StreamChoice):
    """DICT-MLM: with probability t the label of a masked word is a translation of it."""

    computed_by = "xalign_ray.streams.code_switched:code_switched_labels"
    needs_dictionary = True

    kind: Literal["code_switched_labels"] = "code_switched_labels"
    weight: Weight = 1.0
    t: Fraction = 0.5
    """probability that a label is a translation"""
    mix_unit: Literal["word", "instance"] = "word"
    """what t is drawn for: each masked word, or each example as a whole"""
    refill: bool = False
    """in an instance of translated labels, mask other words too once those are used up"""
    variant: Literal["label_swap", "input_swap"] = "label_swap"
    """predict the translation of a word (the paper), or the word from its translation"""

    def _faults(self) -> Iterator[str]:
        if self.refill and self.mix_unit == "word":
            yield "refill is for mix_unit: instance; by word every word may be masked anyway"

    @property
    def method(self) -> str:
        """DICT-MLM with its percentage."""
        return f"dict-mlm-{100 * self.t:g}" + "-input-swap" * (self.variant != "label_swap")


class CodeSwitchedCopy(StreamChoice):
    """DICT-TLM: a sentence and its code-switched copy as a pair; labels are the pieces as they stand."""

    paper_name = "dict-tlm"
    computed_by = "xalign_ray.streams.code_switched:code_switched_copy"
    segments_per_example = 2
    needs_dictionary = True

    kind: Literal["code_switched_copy"] = "code_switched_copy"
    weight: Weight = 1.0
    codeswitch_rate: Fraction = 0.15
    """of the copy's words in the dictionary; 1 is a gloss"""
    positions: Positions = "reset"
    segments: Segments = False

    @property
    def min_reserve(self) -> tuple[float, str]:
        """`[CLS] text [SEP] copy [SEP]` is one token short of twice `[CLS] text [SEP]`."""
        return 0.5, "shows every example twice in its row"


class AlignedPairs(StreamChoice):
    """WEAM: masked pairs with the matrix of positions that translate each other."""

    paper_name = "tlm"
    computed_by = "xalign_ray.streams.masked:aligned_pairs"
    pools = PAIRS
    segments_per_example = 2
    needs_alignment = True

    kind: Literal["aligned_pairs"] = "aligned_pairs"
    weight: Weight = 1.0
    positions: Positions = "running"
    segments: Segments = False
    random_order: RandomOrder = False
    expand: Literal["all", "first", "diagonal"] = "all"
    """the pieces of two aligned words: all with all, first with first, or i-th with i-th"""


class ContrastedPairs(StreamChoice):
    """PPA: a masked pair, and each of its sentences on its own as a query and its key."""

    computed_by = "xalign_ray.streams.masked:contrasted_pairs"
    pools = PAIRS
    segments_per_example = 2

    kind: Literal["contrasted_pairs"] = "contrasted_pairs"
    weight: Weight = 1.0
    positions: Positions = "running"
    segments: Segments = True
    random_order: bool = True
    """swap with probability 1/2 which sentence is the query"""
    text: Literal["joined", "apart", "none"] = "joined"
    """what is masked: the pair (TLM), each sentence on its own (MLM), or nothing"""
    prompt: str = ""
    """text before each query and key, such as `query: `; masked text has none"""
    key_prompt: str | None = None
    """text before each key, such as `passage: `; null: that of queries"""

    @property
    def prompts(self) -> tuple[str, str]:
        """Before each query, and before each key."""
        return self.prompt, self.prompt if self.key_prompt is None else self.key_prompt

    @property
    def method(self) -> str:
        """TLM, where pairs are masked as pairs."""
        return "tlm" if self.text == "joined" else ""

    @property
    def min_reserve(self) -> tuple[float, str]:
        """A pair of two pieces grows from 5 tokens to 6: a sixth of the row at most."""
        return (0.17, f"with text: apart {ONE_MORE}") if self.text == "apart" else (0.0, "")


_Stream = Annotated[
    MaskedText
    | MaskedPairs
    | MaskedTranslations
    | CodeSwitchedLabels
    | CodeSwitchedCopy
    | AlignedPairs
    | ContrastedPairs,
    Field(discriminator="kind"),
]
STREAMS: Mapping[str, type[StreamChoice]] = kinds_of(_Stream)
PLUGGED_STREAMS: dict[str, type[StreamChoice]] = {}  # of a user's own modules, once a recipe has named them
Stream = Annotated[SerializeAsAny[_Stream], or_one_of(PLUGGED_STREAMS)]

LossWeight = Annotated[Scheduled, Within(), Field(description="in the sum; a number or [step, value] corners")]


HARD = "hard_"  # how the names of the columns of hard negatives begin


class ObjectiveChoice(Frozen):
    """A loss. Its needs and metrics are defined here once.

    Its code is the class `<Name>Loss` in `objectives/<kind>.py`, that of a plug-in's in the module of the choice.

    Attributes:
        stream: kind of stream whose columns it reads; any if None.
        needs_dictionary: whether it is trained on pairs of words.
        needs_teacher: whether it learns the sentence vectors of `data.teacher`.
        reads_negatives: whether it compares with the hard negatives of pairs where there are some.
        predicts_pieces: whether it asks the head over the vocabulary at labelled positions.
        of_any_encoder: whether it needs sentence vectors alone, and so trains encoders without a family file.
        over_step: whether its terms read the whole global step, as a `StepObjective` does.
        encoded: how the names of the columns of rows that it encodes begin, and the forward passes that takes, 3 with a
            backward pass. Rows are "", the sides of pairs are half of a row; losses share both; what begins with `HARD`
            is there where pairs bring hard negatives.
        meaning: of the metric `train/loss_<kind>`, with its unit.
        metrics: meanings of its further metrics by name, with unit or range.
        computed_by: `module:Class` of its code where that is elsewhere, such as in a module that imports torch.
        paper_name: what its method is called, where that does not depend on its options.
    """

    stream: ClassVar[str | None] = None
    needs_dictionary: ClassVar[bool] = False
    needs_teacher: ClassVar[bool] = False
    reads_negatives: ClassVar[bool] = False
    predicts_pieces: ClassVar[bool] = False
    of_any_encoder: ClassVar[bool] = False
    over_step: ClassVar[bool] = False
    encoded: ClassVar[Mapping[str, int]] = {}
    meaning: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]] = {}
    computed_by: ClassVar[str] = ""
    paper_name: ClassVar[str] = ""

    kind: str
    weight: Scheduled

    def method(self, stream: Any) -> str:  # noqa: ARG002
        """Its name in the papers, given the first stream of the kind that it reads; empty for plain masked LM."""
        return self.paper_name

    @property
    def comparisons(self) -> int:
        """Of a loss over the step: how often it compares each pair of vectors."""
        return 1

    @property
    def refused_at_stage_3(self) -> tuple[str, str] | None:
        """What of it cannot be computed at ZeRO stage 3, and why."""
        return None


class MaskedLm(ObjectiveChoice):
    """Cross-entropy at labelled positions, divided by the global step's number of labels."""

    predicts_pieces = True
    encoded: ClassVar[Mapping[str, int]] = {"": 3}
    meaning = "masked-token cross-entropy (nats a label)"

    kind: Literal["masked_lm"] = "masked_lm"
    weight: LossWeight = 1.0
    labels_at_once: Positive | None = None
    """logits of so many labels at a time, computed again going backward; all if null"""

    @property
    def refused_at_stage_3(self) -> tuple[str, str] | None:
        """Ranks would call the head unequally often."""
        if self.labels_at_once is None:
            return None
        return (
            "objective masked_lm with labels_at_once",
            "how often it calls the head follows a worker's labels, and at stage 3 every worker must make the same "
            "calls",
        )


class DictionaryAlignment(ObjectiveChoice):
    """ALIGN-MLM: minus the mean cosine of the word embeddings of dictionary pairs."""

    needs_dictionary = True
    meaning = "loss between embeddings of dictionary pairs"

    kind: Literal["dictionary_alignment"] = "dictionary_alignment"
    weight: LossWeight = 10.0
    pairs_per_step: Positive | None = None
    """uniform sample a step; all pairs if null"""
    pool: Literal["mean", "first", "single_piece_only"] = "mean"
    """what stands for a word of several pieces"""
    layer: Positive | None = None
    """hidden states after so many layers, the word alone; embedding rows if null"""
    shuffled: bool = False
    """control: targets permuted, so that the pairs mean nothing"""

    def method(self, stream: Any) -> str:  # noqa: ARG002
        """ALIGN-MLM, or its control."""
        return "align-mlm-shuffled" if self.shuffled else "align-mlm"


class WordExchange(ObjectiveChoice):
    """WEAM: a masked word is predicted from the hidden state of the word it is aligned with."""

    paper_name = "weam"
    stream = "aligned_pairs"
    predicts_pieces = True
    encoded: ClassVar[Mapping[str, int]] = {"": 3}
    meaning = "word-exchange loss (nats a label)"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/aligned_label_share": "labels whose word has a partner that word_exchange sees, of all labels (0 to 1)"
    }

    kind: Literal["word_exchange"] = "word_exchange"
    weight: LossWeight = 1.0
    normalize: Literal["mean", "sum"] = "mean"
    """several partners of a position: their mean, or the paper's sum"""
    unaligned: Literal["skip", "literal"] = "skip"
    """labels without a partner: left out, or asked of a zero vector"""


class DenoisingAlignment(ObjectiveChoice):
    """XLM-Align: a masked word points at its translation in the other sentence, which the encoder labels itself."""

    paper_name = "xlm-align"
    stream = "masked_pairs"
    encoded: ClassVar[Mapping[str, int]] = {"": 4}
    meaning = "denoising word alignment loss (nats a label)"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/self_aligned_label_share": "labels that denoising_alignment links with a word of the other sentence, of "
        "all labels (0 to 1)"
    }

    kind: Literal["denoising_alignment"] = "denoising_alignment"
    weight: LossWeight = 1.0
    layer: Positive | None = None
    """words are linked by hidden states after so many layers; two thirds of all if null"""


class MomentumContrast(ObjectiveChoice):
    """PPA: a sentence finds its translation among a queue of others, encoded by a running average."""

    stream = "contrasted_pairs"
    encoded: ClassVar[Mapping[str, int]] = {"query_": 3, "key_": 1}
    meaning = "contrastive sentence loss (nats a pair)"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/momentum_feature_norm": "mean L2 norm of momentum_contrast's features before normalisation",
        "train/momentum_accuracy": "sentences that find their translation before any key of the queue (0 to 1)",
        "train/momentum_cosine": "mean cosine of momentum_contrast's features of a sentence and its translation "
        "(-1 to 1)",
    }

    kind: Literal["momentum_contrast"] = "momentum_contrast"
    weight: LossWeight = 1.0
    queue_size: Positive = 32_000
    """keys of earlier steps that a query is compared with"""
    momentum: Annotated[Float, Field(ge=0, lt=1)] = 0.999
    """share of the key encoder that is kept each step"""
    temperature: PositiveFloat = 0.05
    """what similarities are divided by"""
    projection: Positive = 300
    """width of the compared vectors"""
    pooling: Literal["cls", "mean", "lasttoken"] = "cls"
    """what stands for a sentence"""
    normalize: Literal["h", "z", "both"] = "h"
    """length 1: pooled states (PPA), their projections (MoCo), or both"""
    queue_start: Literal["random", "fill"] = "random"
    """random unit vectors, or no loss until the queue is full"""
    key_dropout: bool = True
    """dropout in the key encoder too, as MoCo"""
    mask_false_negatives: bool = True
    """keys in the queue whose pivot sentence is the query's own are no negatives"""

    def method(self, stream: Any) -> str:
        """PPA, or its ablation by masking."""
        return {"joined": "ppa", "apart": "ppa-mlm", "none": "ppa-no-tlm"}[stream.text]

    @property
    def refused_at_stage_3(self) -> tuple[str, str] | None:
        """Its key encoder is an average of whole weights."""
        return (
            "objective momentum_contrast",
            "its key encoder averages whole weights after each step, which stage 3 keeps in parts",
        )


class SentenceContrast(ObjectiveChoice):
    """Symmetric InfoNCE over all pairs of the global step, on all workers, without a queue."""

    paper_name = "contrast"
    stream = "contrasted_pairs"
    of_any_encoder = True
    over_step = True
    reads_negatives = True
    encoded: ClassVar[Mapping[str, int]] = {"query_": 3, "key_": 3, "hard_query_": 3, "hard_key_": 3}
    meaning = "contrastive loss between the pairs of the global step (nats a pair)"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/sentence_accuracy": "sentences that find a translation first among those of the global step (0 to 1)",
        "train/positives": "translations of a sentence in the global step, with positives: multi (1 or more)",
    }

    kind: Literal["sentence_contrast"] = "sentence_contrast"
    weight: LossWeight = 1.0
    temperature: PositiveFloat = 0.05
    """what similarities are divided by"""
    margin: NonNegativeFloat = 0.0
    """what is taken off the cosine of a pair (LaBSE: 0.3)"""
    pooling: Literal["cls", "mean", "lasttoken"] = "mean"
    """what stands for a sentence"""
    layer: Positive | None = None
    """hidden states after so many layers; the last if null"""
    matryoshka_dims: tuple[Positive, ...] = ()
    """the loss is summed over vectors cut to so many first numbers each; empty: whole vectors"""
    positives: Literal["single", "multi"] = "single"
    """what pairs with a sentence in common are to each other: nothing, or each other's translations, none a negative"""

    def _faults(self) -> Iterator[str]:
        if len(set(self.matryoshka_dims)) < len(self.matryoshka_dims):
            yield f"matryoshka_dims names a width twice: {', '.join(map(str, self.matryoshka_dims))}"

    @property
    def comparisons(self) -> int:
        """One for each width."""
        return max(1, len(self.matryoshka_dims))


class Distillation(ObjectiveChoice):
    """Both sentences of a pair learn the vector that a teacher made of one of them, once, in prepare."""

    paper_name = "distill"
    stream = "contrasted_pairs"
    of_any_encoder = True
    needs_teacher = True
    encoded: ClassVar[Mapping[str, int]] = {"query_": 3, "key_": 3}
    meaning = "distance to the teacher's sentence vector (mean square of a number, or 1 - cosine)"
    metrics: ClassVar[Mapping[str, str]] = {
        "train/teacher_cosine": "mean cosine of a sentence's vector with the teacher's of its pair (-1 to 1)"
    }

    kind: Literal["distillation"] = "distillation"
    weight: LossWeight = 1.0
    distance: Literal["mse", "cosine"] = "mse"
    """mean square of the differences of numbers, or 1 - cosine"""
    pooling: Literal["cls", "mean", "lasttoken"] = "mean"
    """what stands for a sentence"""
    layer: Positive | None = None
    """hidden states after so many layers; the last if null"""
    normalize: bool = False
    """give the vector length 1 before it is compared, as the teacher's have"""


_Objective = Annotated[
    MaskedLm
    | DictionaryAlignment
    | WordExchange
    | DenoisingAlignment
    | MomentumContrast
    | SentenceContrast
    | Distillation,
    Field(discriminator="kind"),
]
OBJECTIVES: Mapping[str, type[ObjectiveChoice]] = kinds_of(_Objective)
PLUGGED_OBJECTIVES: dict[str, type[ObjectiveChoice]] = {}
Objective = Annotated[SerializeAsAny[_Objective], or_one_of(PLUGGED_OBJECTIVES)]
