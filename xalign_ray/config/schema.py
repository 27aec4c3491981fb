"""The recipe as one frozen typed tree: the only place where an option can be born."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from xalign_ray.config.choices import (
    AdamW,
    BpeTokenizer,
    Frozen,
    MaskedLm,
    MaskedText,
    Objective,
    Optimizer,
    Positive,
    Share,
    Stream,
    Tokenizer,
)

RUN_OF = "run:"  # what `model.init_from` begins with where it names a recipe
LEAST_CAPACITY = 8  # tokens of a row: two sides of two pieces, and their special tokens

TextFormat = Literal["wikipedia", "text", "jsonl"]
PairFormat = Literal["moses", "tsv"]


class Corpus(Frozen):
    """Monolingual text in one language."""

    format: TextFormat
    language: str
    paths: Annotated[tuple[str, ...], Field(min_length=1, description="files or glob patterns, relative to data.root")]


class ParallelCorpus(Frozen):
    """Sentence pairs; for `moses`, paths are the first side, the second side and, if there is one, the alignment."""

    format: PairFormat
    languages: tuple[str, str]
    paths: Annotated[tuple[str, ...], Field(min_length=1)]


class Dictionary(Frozen):
    """A bilingual dictionary in MUSE's form. `held_out` pairs are never trained on; the alignment probe scores them."""

    format: Literal["muse"] = "muse"
    languages: tuple[str, str]
    paths: Annotated[tuple[str, ...], Field(min_length=1)]
    split: Literal["train", "held_out"] = "train"


class DataConfig(Frozen):
    """What `prepare` makes shards of. Everything here but the paths is part of the data fingerprint."""

    root: Annotated[str, Field(description="folder that relative paths start from; `demo` is the embedded world")] = (
        "demo"
    )
    corpora: Annotated[tuple[Corpus, ...], Field(min_length=1)]
    parallel: tuple[ParallelCorpus, ...] = ()
    dictionaries: tuple[Dictionary, ...] = ()
    tokenizer: Tokenizer = BpeTokenizer()
    row_tokens: Annotated[int, Field(ge=8, le=8192, description="length of a packed row, special tokens included")] = (
        128
    )
    example: Annotated[
        Literal["sentence", "document"],
        Field(description="what attends together: one line of text, or as many lines of a document as fit in a row"),
    ] = "document"
    slack_share: Annotated[Share, Field(description="part of a row kept free for labels longer than their word")] = 0.0
    held_out_share: Annotated[Share, Field(description="documents kept for the held-out loss")] = 0.02
    dictionary_held_out_share: Annotated[
        Share, Field(description="concepts held out of dictionaries that have no split of their own")
    ] = 0.25
    tolerance: Annotated[Share, Field(description="share of bad rows in the sources above which prepare stops")] = 0.01

    @model_validator(mode="after")
    def _rows_have_room(self) -> DataConfig:
        if self.capacity < LEAST_CAPACITY:
            raise ValueError(
                f"slack_share {self.slack_share:g} of row_tokens {self.row_tokens} leaves {self.capacity} tokens for "
                f"text; leave at least {LEAST_CAPACITY}"
            )
        return self

    @property
    def capacity(self) -> int:
        """Tokens of a row that prepare fills, special tokens included; the rest is slack."""
        return int(self.row_tokens * (1 - self.slack_share))


class SamplingConfig(Frozen):
    """How often each language is seen: p^alpha, renormalised (METHODS 1.1). alpha 0 is uniform, 1 is by size."""

    alpha: Annotated[float | None, Field(ge=0, le=1)] = None
    temperature: Annotated[float | None, Field(ge=1, description="1/alpha; give one of the two")] = None
    unit: Literal["rows", "tokens"] = "tokens"

    @model_validator(mode="after")
    def _one_of_two(self) -> SamplingConfig:
        if self.alpha is not None and self.temperature is not None:
            raise ValueError("alpha and temperature say the same thing twice; keep one (alpha = 1/temperature)")
        return self

    @property
    def exponent(self) -> float:
        """alpha, whichever way it was given; 0.7 (XLM's batches) when neither was."""
        return 1 / self.temperature if self.temperature else 0.7 if self.alpha is None else self.alpha


class MaskingConfig(Frozen):
    """Which positions are predicted, and what the model sees there (METHODS 1.2)."""

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    whole_word: bool = True
    mask_share: Share = 0.8
    random_share: Share = 0.1

    @model_validator(mode="after")
    def _shares_leave_room(self) -> MaskingConfig:
        if self.mask_share + self.random_share > 1:
            raise ValueError(
                f"mask_share + random_share is {self.mask_share + self.random_share:g}; it must be at most 1"
            )
        return self


class ModelConfig(Frozen):
    """A BERT encoder: sizes for one from scratch, or `init_from` for one to continue."""

    init_from: Annotated[
        str | None,
        Field(
            description="folder, hub id, or `run:RECIPE`: that recipe's run of the same seed, made first if it is not "
            "there; sizes below are then the folder's own"
        ),
    ] = None
    layers: Positive = 12
    width: Positive = 768
    heads: Positive = 12
    feed_forward: Positive = 3072
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    language_embeddings: Annotated[bool, Field(description="add a vector of the language at the input")] = False
    conditioned_head: Annotated[bool, Field(description="tell the head the label's language (METHODS 4.4)")] = False

    @model_validator(mode="after")
    def _fits_together(self) -> ModelConfig:
        if self.init_from is None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.conditioned_head and not self.language_embeddings:
            raise ValueError("conditioned_head needs language_embeddings: true (the two share one table)")
        return self


class ScheduleConfig(Frozen):
    """Linear warm-up to the peak, then linear decay to zero at the last step."""

    warmup_steps: Annotated[int, Field(ge=0)] = 0


class TrainConfig(Frozen):
    """How long, how many rows a step, and how weights move."""

    steps: Positive
    global_batch_rows: Positive
    micro_batch_rows: Annotated[
        int, Field(ge=1, description="at most so many rows in one forward pass of a worker")
    ] = 32
    optimizer: Optimizer = AdamW()
    schedule: ScheduleConfig = ScheduleConfig()
    precision: Literal["fp32", "bf16"] = "fp32"
    clip_norm: Annotated[float, Field(ge=0, description="0 is no clipping")] = 1.0
    held_out_every_steps: Annotated[int, Field(ge=0, description="0 is never")] = 100


class ParallelConfig(Frozen):
    """How the work is spread. Nothing here changes what a step computes, so nothing here is in the fingerprint."""

    workers: Positive = 1
    zero_stage: Literal[0, 1, 2, 3] = 2
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0
    data_cpus: Annotated[float, Field(gt=0, description="CPUs of one streaming task")] = 0.5
    max_failures: Annotated[int, Field(ge=0, description="restarts from the newest checkpoint before giving up")] = 3
    deepspeed_overrides: dict[str, Any] = Field(
        default_factory=dict, description="deep-merged over the derived DeepSpeed dict"
    )


class CheckpointConfig(Frozen):
    """When the run is saved, and how much of it is kept."""

    every_steps: Positive = 500
    keep_last: Positive = 2


class TrackConfig(Frozen):
    """Where numbers are followed to. The event log in the run folder is always written."""

    mlflow: Annotated[
        str, Field(description="a tracking URI; `sqlite` is mlflow.db in the output folder; `off` is none")
    ] = "sqlite"
    experiment: str = "xalign"
    log_every_steps: Positive = 1


class RunConfig(Frozen):
    """A recipe, resolved."""

    notes: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    output: Annotated[str, Field(description="folder of runs, shards and mlflow.db")] = "runs"
    data: DataConfig
    sampling: SamplingConfig = SamplingConfig()
    streams: Annotated[tuple[Stream, ...], Field(min_length=1)] = (MaskedText(),)
    masking: MaskingConfig = MaskingConfig()
    model: ModelConfig = ModelConfig()
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)] = (MaskedLm(),)
    train: TrainConfig
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> RunConfig:
        kinds = {stream.kind for stream in self.streams}
        asked = [objective.kind for objective in self.objectives]
        missing = [
            ("masked_pairs" in kinds and not self.data.parallel, "stream masked_pairs needs data.parallel"),
            (
                "code_switched_labels" in kinds and not self.data.dictionaries,
                "stream code_switched_labels needs data.dictionaries",
            ),
            (
                "dictionary_alignment" in asked and not self.data.dictionaries,
                "objective dictionary_alignment needs data.dictionaries",
            ),
        ]
        if said := [text for absent, text in missing if absent]:
            raise ValueError("; ".join(said) + "; the recipe names none")
        if self.data.tokenizer.kind == "start" and self.model.init_from is None:
            raise ValueError("data.tokenizer start is that of model.init_from, which names no encoder")
        if len(set(asked)) < len(asked):
            raise ValueError(f"objectives name {', '.join(asked)}: each kind may stand once")
        if self.train.precision == "bf16" and self.parallel.zero_stage == 0:
            raise ValueError(
                "train.precision bf16 with parallel.zero_stage 0 is refused: DeepSpeed then starts Adam at step 2 "
                "and decays weights once too often; use zero_stage 1"
            )
        return self

    @property
    def languages(self) -> list[str]:
        """Every language of the run in order of first mention; the index is the language id."""
        pairs = [*self.data.parallel, *self.data.dictionaries]
        named = [corpus.language for corpus in self.data.corpora] + [code for pair in pairs for code in pair.languages]
        return list(dict.fromkeys(named))
