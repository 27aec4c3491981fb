"""The recipe as one frozen typed tree: the only place where an option can be born."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from xalign_ray.config.choices import PAIRS, TEXT, ContrastedPairs, MaskedLm, MaskedText, Objective, Stream
from xalign_ray.config.fields import (
    Float,
    Fraction,
    Frozen,
    Int,
    LocalPath,
    NonNegative,
    Positive,
    PositiveFloat,
    Scheduled,
    Within,
)
from xalign_ray.config.plugins import load_plugin
from xalign_ray.config.sources import (
    REPLACING,
    BpeTokenizer,
    Corpus,
    Dictionary,
    FiltersConfig,
    ParallelCorpus,
    Teacher,
    Tokenizer,
    WordAlignment,
)
from xalign_ray.config.training import CheckpointConfig, ParallelConfig, TrackConfig, TrainConfig

DEMO = "demo"  # the `data.root` of the embedded world
DROPOUT = 0.1  # of an encoder from scratch: BERT's
MIN_CAPACITY = 8  # tokens of a row: two sides of two pieces, and their special tokens

# What would make a method silently another one, and is meant where `allow` names it.
Allowed = Literal["new_head", "low_coverage", "unaligned_pairs", "single_pair_steps", "doubtful_pairs"]


class DataConfig(Frozen):
    """What `prepare` makes shards of. Everything here but the paths is part of the data fingerprint."""

    root: LocalPath = DEMO
    """folder that relative paths start from; `demo` is the embedded world"""
    corpora: tuple[Corpus, ...] = ()
    parallel: tuple[ParallelCorpus, ...] = ()
    tests: tuple[ParallelCorpus, ...] = ()
    """pairs that retrieval is scored on, with keys as in parallel; their lines are never trained on"""
    test_fraction: Fraction = 0.0
    """where tests is empty: pairs of parallel that are kept out as tests; 0 is none"""
    max_test_pairs: Positive = 1000
    """pairs of two languages that test_fraction, and dev_fraction, keep at most"""
    dev: tuple[ParallelCorpus, ...] = ()
    """pairs that are never trained on and choose the checkpoint that is exported: the one with the best retrieval on
    them"""
    dev_fraction: Fraction = 0.0
    """where dev is empty: pairs of parallel that are kept out as dev; 0 is none"""
    word_alignment: WordAlignment = WordAlignment()
    teacher: Teacher | None = None
    """encoder whose vectors of one side of each pair are learned by distillation"""
    dictionaries: tuple[Dictionary, ...] = ()
    filters: FiltersConfig = FiltersConfig()
    max_pairs: NonNegative = 0
    """pairs kept of two languages, the first of all their files that pass the filters; 0 is all"""
    tokenizer: Tokenizer = BpeTokenizer()
    """what cuts text into pieces"""
    max_seq_length: Annotated[Int, Field(ge=8, le=8192)] = 128
    """length of a packed row, special tokens included"""
    example: Literal["sentence", "document"] = "document"
    """what attends together: one line of text, or as many lines of a document as fit in a row"""
    reserve_fraction: Fraction = 0.0
    """part of a row kept free for labels longer than their word"""
    held_out_fraction: Fraction = 0.02
    """distinct lines kept for the held-out loss; pairs with one are dropped"""
    dictionary_held_out_fraction: Fraction = 0.25
    """concepts held out of dictionaries that have no split of their own"""
    max_bad_fraction: Fraction = 0.01
    """bad rows among those of one source above which prepare stops"""

    def _faults(self) -> Iterator[str]:
        if self.tests and self.test_fraction:
            yield "test_fraction keeps tests out of parallel where tests is empty; keep one of the two"
        if self.dev and self.dev_fraction:
            yield "dev_fraction keeps dev pairs out of parallel where dev is empty; keep one of the two"
        aligned = any(corpus.align or corpus.brings_alignment for corpus in self.parallel)
        if self.filters.min_aligned_fraction and not aligned:
            yield "filters.min_aligned_fraction needs a parallel corpus with an alignment, such as align: hmm"
        if self.teacher and any(corpus.negatives for corpus in self.parallel):
            yield "shards hold a teacher's answers or the negatives of parallel: leave one of them out"
        for number, corpus in enumerate(self.parallel if self.teacher else ()):
            if self.teacher and self.teacher.gives == "vectors" and self.teacher.language not in corpus.languages:
                yield (
                    f"parallel.{number} is of {' and '.join(corpus.languages)}, and the teacher reads "
                    f"{self.teacher.language}: set teacher.language to a language of every corpus"
                )
        yield from filter(None, [self.word_alignment.fault([corpus.align for corpus in self.parallel])])
        if self.capacity < MIN_CAPACITY:
            yield (
                f"reserve_fraction {self.reserve_fraction:g} of max_seq_length {self.max_seq_length} leaves "
                f"{self.capacity} tokens for text; leave at least {MIN_CAPACITY}"
            )

    @property
    def negatives_of(self) -> tuple[int, ...]:
        """The sides of pairs that bring hard negatives: both, where a teacher mines them; the first of given ones."""
        if self.teacher and self.teacher.gives == "hard_negatives":
            return (0, 1)
        return (0,) if any(corpus.negatives for corpus in self.parallel) else ()

    @property
    def capacity(self) -> int:
        """Tokens of a row that prepare fills, special tokens included; the rest is the reserve."""
        return int(self.max_seq_length * (1 - self.reserve_fraction))


class SamplingConfig(Frozen):
    """How often each language is seen: p^alpha, renormalised. alpha 0 is uniform, 1 is by size.

    A scheduled alpha is that of the first of the steps which are drawn together (derive.CHUNK_STEPS).
    """

    alpha: Annotated[Scheduled, Within(ge=0, le=1)] | None = None
    """exponent of the sizes; 0.7 if neither is given"""
    temperature: Annotated[Float | None, Field(ge=1)] = None
    """1/alpha; give one of the two"""
    unit: Literal["rows", "tokens"] = "tokens"
    """what the size of a language is counted in"""

    def _faults(self) -> Iterator[str]:
        if self.alpha is not None and self.temperature is not None:
            yield "alpha and temperature are the same setting twice; keep one (alpha = 1/temperature)"

    @property
    def exponent(self) -> Scheduled:
        """alpha, whichever way it was given; 0.7 (XLM's batches) when neither was."""
        return 1 / self.temperature if self.temperature else 0.7 if self.alpha is None else self.alpha


class MaskingConfig(Frozen):
    """The choice of predicted positions, and their inputs."""

    mlm_probability: Annotated[Scheduled, Within(gt=0, lt=1)] = 0.15
    """part of the tokens that is predicted"""
    whole_word_mask: bool = True
    """mask all pieces of a word or none; else piece by piece"""
    mask_replace_prob: Fraction = 0.8
    """predicted pieces that are shown as the mask token"""
    random_replace_prob: Fraction = 0.1
    """predicted pieces that are shown as a random piece; the rest is shown unchanged"""

    def _faults(self) -> Iterator[str]:
        if (both := self.mask_replace_prob + self.random_replace_prob) > 1:
            yield f"mask_replace_prob + random_replace_prob is {both:g}; it must be at most 1"


class Lora(Frozen):
    """Adapters of low rank that are trained in place of the encoder's weights; the export has them merged."""

    rank: Positive = 16
    """width inside an adapter"""
    alpha: PositiveFloat | None = None
    """an adapter's output is multiplied by alpha over rank; null: twice the rank"""
    targets: tuple[str, ...] = ()
    """last names of the linear layers that get one, such as [q_proj, v_proj]; empty: all of the encoder"""


class ModelConfig(Frozen):
    """An encoder: family and sizes for one from scratch, or `init_from` for one to continue."""

    init_from: LocalPath | None = None
    """folder, hub id (or `id@revision`), or `run:RECIPE`: that recipe's run of the same seed, made first if it is
    not there; family and sizes below are then the folder's own"""
    family: Literal["bert", "xlm-r", "roberta", "modernbert", "eurobert"] = "bert"
    """whose layers and head it has"""
    num_hidden_layers: Positive = 12
    """layers"""
    hidden_size: Positive = 768
    """width of a hidden state"""
    num_attention_heads: Positive = 12
    """attention heads of a layer"""
    intermediate_size: Positive = 3072
    """width inside the feed-forward layers"""
    hidden_dropout_prob: Annotated[Float | None, Field(ge=0, lt=1)] = None
    """dropout of hidden states and attention; null: 0.1 from scratch, else that of init_from"""
    attention_probs_dropout_prob: Annotated[Float | None, Field(ge=0, lt=1)] = None
    """dropout of attention alone, where 0 is the fastest; null: as the one above"""
    language_embeddings: bool = False
    """add a vector of the language at the input"""
    conditioned_head: bool = False
    """give the head the label's language"""
    lora: Lora | None = None
    """train adapters alone, and merge them into the export: {rank: 16}; null: all weights"""

    @model_validator(mode="before")
    @classmethod
    def _has_dropout_from_scratch(cls, given: Any) -> Any:
        keys = ("init_from", "hidden_dropout_prob")
        if isinstance(given, dict) and all(given.get(key) is None for key in keys):
            return {**given, "hidden_dropout_prob": DROPOUT}
        return given

    def _faults(self) -> Iterator[str]:
        if self.init_from is None and self.hidden_size % self.num_attention_heads:
            yield (
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.conditioned_head and not self.language_embeddings:
            yield "conditioned_head needs language_embeddings: true (the two share one table)"
        if self.lora and (self.init_from is None or self.language_embeddings):
            yield "lora trains adapters of an encoder that init_from names, without language_embeddings"


class RunConfig(Frozen):
    """A recipe, resolved."""

    plugins: tuple[Annotated[str, AfterValidator(load_plugin)], ...] = ()  # first: fields below may name their kinds
    """modules of your own that bring kinds of streams and losses, or families of encoders: my_package.my_loss"""
    notes: str = ""
    """free text that changes nothing"""
    allow: tuple[Allowed, ...] = ()
    """what stops a run as a likely mistake, and is meant: the message names the word"""
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = 0
    """of weights, order, masks and dropout: another seed is another run"""
    output: LocalPath = "runs"
    """folder of runs, shards and mlflow.db"""
    data: DataConfig
    sampling: SamplingConfig = SamplingConfig()
    streams: Annotated[tuple[Stream, ...], Field(min_length=1)] = (MaskedText(),)
    """kinds of rows, mixed by their weights"""
    masking: MaskingConfig = MaskingConfig()
    model: ModelConfig = ModelConfig()
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)] = (MaskedLm(),)
    """losses, added by their weights"""
    train: TrainConfig
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()

    @property
    def in_bf16(self) -> bool:
        """Whether its training processes compute in bf16."""
        return self.train.in_bf16(self.parallel.gpus_per_worker > 0)

    @property
    def logging_steps(self) -> int:
        """Steps between two step events."""
        return self.track.logging_steps or (10 if self.parallel.gpus_per_worker else 1)

    def _faults(self) -> Iterator[str]:
        yield from self._lacking()
        yield from self._faults_of_start()
        yield from self._faults_of_step()
        yield from self._faults_at_stage_3()

    def _lacking(self) -> Iterator[str]:
        """Data, streams and losses that others need."""
        data, streams, losses = self.data, self.streams, self.objectives
        if self.model.lora and (getattr(data.tokenizer, "new_pieces", 0) or isinstance(data.tokenizer, REPLACING)):
            yield "model.lora freezes the rows of new pieces as they begin: train all weights, or add no pieces"
        if self.model.lora and any(parts != ("all",) for _, parts in self.train.phases):
            yield "model.lora trains adapters alone: train.trainable is for weights without them"
        needed = [
            *(("stream", stream.kind, "parallel") for stream in streams if stream.pools == PAIRS),
            *(("stream", stream.kind, "corpora") for stream in streams if stream.pools == TEXT),
            *(("stream", stream.kind, "dictionaries") for stream in streams if stream.needs_dictionary),
            *(("objective", loss.kind, "dictionaries") for loss in losses if loss.needs_dictionary),
            *(("objective", loss.kind, "teacher") for loss in losses if loss.needs_teacher),
        ]
        problems = [f"{what} {kind} needs data.{key}" for what, kind, key in needed if not getattr(data, key)]
        kinds = {stream.kind for stream in streams}
        lacking = [loss for loss in losses if loss.stream and loss.stream not in kinds]
        problems += [f"objective {loss.kind} needs a stream {loss.stream}" for loss in lacking]
        if problems:
            yield "; ".join(dict.fromkeys(problems)) + "; the recipe names none"
        gives = data.teacher and data.teacher.gives
        if gives == "hard_negatives" and any(loss.needs_teacher for loss in losses):
            yield "objective distillation needs a data.teacher that gives vectors; it gives hard_negatives"
        if gives == "vectors" and not any(loss.needs_teacher for loss in losses):
            yield "data.teacher makes vectors that no objective reads; add objective distillation"
        if data.negatives_of and not any(loss.reads_negatives for loss in losses):
            origin = "data.teacher gives hard_negatives" if gives else "data.parallel brings negatives"
            yield f"{origin} that no objective reads; add objective sentence_contrast"
        if data.negatives_of == (0,) and any(getattr(stream, "random_order", False) for stream in streams):
            yield "negatives of data.parallel are of the first side: set random_order of each stream to false"
        bare = [str(n) for n, pairs in enumerate(data.parallel) if not pairs.align and not pairs.brings_alignment]
        aligned = next((stream.kind for stream in streams if stream.needs_alignment), None)
        if bare and aligned:
            yield (
                f"stream {aligned} needs word alignments, which data.parallel {', '.join(bare)} lacks; set its "
                "align to hmm, or give a moses corpus its alignment as third path"
            )
        predicting = [loss.kind for loss in losses if loss.predicts_pieces]
        if predicting and all(isinstance(stream, ContrastedPairs) and stream.text == "none" for stream in streams):
            yield (
                f"objective {predicting[0]} has nothing to predict: the only stream is contrasted_pairs with text: "
                "none, which masks no word; set its text to joined, add a stream that masks, or leave the objective out"
            )
        asked = [loss.kind for loss in losses]
        if len(set(asked)) < len(asked):
            yield f"objectives name {', '.join(asked)}: each kind may stand once"

    def _faults_of_start(self) -> Iterator[str]:
        """Tokenizer, layers, head and language embeddings of the encoder."""
        model, tokenizer = self.model, self.data.tokenizer
        if model.init_from is None:
            if tokenizer.kind == "start":
                yield "data.tokenizer start is that of model.init_from, which names no encoder"
            if isinstance(tokenizer, REPLACING):
                yield f"data.tokenizer {tokenizer.kind} needs model.init_from: an encoder whose vocabulary it changes"
            if getattr(tokenizer, "new_pieces", 0):
                yield "data.tokenizer.new_pieces extends the vocabulary of model.init_from, which names none"
            for loss in self.objectives:  # the depth of a continued encoder is known when it is opened
                if (layer := getattr(loss, "layer", None) or 0) > (depth := model.num_hidden_layers):
                    yield f"objective {loss.kind} reads layer {layer}, but model.num_hidden_layers is {depth}"
        for part, lacks, needed in (
            ("head", not self.needs_head, "an objective that predicts pieces, such as masked_lm"),
            ("new_rows", not getattr(tokenizer, "new_pieces", 0), "data.tokenizer.new_pieces"),
        ):
            if lacks and any(part in parts for _, parts in self.train.phases):
                yield f"train.trainable {part} needs {needed}"
        if getattr(tokenizer, "init", "") == "dictionary" and not self.data.dictionaries:
            yield "data.tokenizer.init dictionary needs data.dictionaries; or set init to mean"
        if model.conditioned_head and any(getattr(stream, "variant", "") == "input_swap" for stream in self.streams):
            yield (
                "model.conditioned_head with a stream code_switched_labels of variant input_swap is refused: it "
                "shows a translation and asks for the word itself, so the head would be given another language than "
                "its label's; use variant label_swap, or conditioned_head: false"
            )
        part, tests = ("dev", self.data.dev) if self.data.dev else ("tests", self.data.tests)
        for number, test in enumerate(tests if model.language_embeddings and self.train.retrieval_steps != 0 else ()):
            # It would be scored with the vector of another language.
            if unknown := ", ".join(code for code in test.languages if code not in self.languages):
                yield (
                    f"data.{part}.{number} has sentences in {unknown}, and the model gets no language embedding of it: "
                    f"no corpus or dictionary is in {unknown}. Leave this test out, or set train.retrieval_steps to 0"
                )

    def _faults_of_step(self) -> Iterator[str]:
        """What steps and rows are counted from, and whether each form of a row fits."""
        if not self.train.global_batch_size and not any(stream.pools == PAIRS for stream in self.streams):
            yield (
                "train.pairs_per_step counts pairs, and no stream of the recipe reads any; set train.global_batch_size"
            )
        if not self.train.is_counted and isinstance(self.sampling.exponent, tuple):
            yield (
                "train.num_train_epochs and train.pairs_per_step need a sampling.alpha that does not change; set "
                "train.max_steps and train.global_batch_size"
            )
        reserve = self.data.reserve_fraction
        for stream in self.streams:  # what prepare packs for one form of a row must hold its longest form
            least, why = stream.min_reserve
            if reserve < least:
                yield f"stream {stream.kind} {why}: set data.reserve_fraction to {least:g} or more (it is {reserve:g})"

    def _faults_at_stage_3(self) -> Iterator[str]:
        """What cannot be computed there, refused before any machine is reserved."""
        lamb = (
            "LAMB needs the norm of each whole tensor, and at stage 3 DeepSpeed does not say which part of it a "
            "worker's optimizer sees"
        )
        compiled = "stage 3 gathers the weights of each layer while it is called, which a compiled one leaves out"
        refused = [
            ("train.optimizer.kind lamb", lamb) if self.train.optimizer.kind == "lamb" else None,
            ("train.torch_compile", compiled) if self.train.torch_compile else None,
            *(loss.refused_at_stage_3 for loss in self.objectives),
        ]
        for what, why in filter(None, refused if self.parallel.zero_stage == 3 else ()):
            yield f"{what} with parallel.zero_stage 3 is refused: {why}; use zero_stage 2"

    @property
    def needs_head(self) -> bool:
        """Whether a loss asks the masked-LM head. Otherwise none is trained, and an export keeps that of init_from."""
        return self.model.conditioned_head or any(loss.predicts_pieces for loss in self.objectives)

    @property
    def languages(self) -> list[str]:
        """Every language of the run in order of first mention; the index is the language id."""
        pairs = [*self.data.parallel, *self.data.dictionaries]
        named = [corpus.language for corpus in self.data.corpora] + [code for pair in pairs for code in pair.languages]
        return list(dict.fromkeys(named))
