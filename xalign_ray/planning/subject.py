"""Model size and training length of a recipe, without loading weights or data; measured figures of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from xalign_ray.config.choices import PAIRS, DenoisingAlignment, MaskedLm, MomentumContrast, WordExchange
from xalign_ray.config.derive import needed_recipes
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import BpeTokenizer, ExchangeTokenizer, FolderTokenizer, StartTokenizer, Tokenizer
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.models.backbone import encoder_values, vocabulary_size
from xalign_ray.models.families import FAMILIES, check_settings, family_of
from xalign_ray.models.family import Family, Values
from xalign_ray.models.refusals import check_fits
from xalign_ray.models.sizes import Sizes, count_in

_FILE = Path(__file__).with_name("figures.yaml")


@dataclass(frozen=True)
class Subject:
    """The trained model.

    Attributes:
        values: of the encoder's config.json.
        config: the recipe.
    """

    family: Family
    values: Values
    config: RunConfig

    @cached_property
    def sizes(self) -> Sizes:
        """Its parameters by part."""
        config = self.config
        return count_in(self.family, self.values, config.model, len(config.languages), config.needs_head)

    @property
    def loss_parameters(self) -> int:
        """Of the losses, trained with it."""
        return self._of_losses[0]

    @property
    def remembered(self) -> int:
        """Numbers in fp32 that losses keep beside, which no gradient moves."""
        return self._of_losses[1]

    @cached_property
    def _of_losses(self) -> tuple[int, int]:
        d, sizes, trained, remembered = self.values["hidden_size"], self.sizes, 0, 0
        for loss in self.config.objectives:
            if isinstance(loss, WordExchange):
                trained += (d * d + d) + sizes.transform  # its bridge, and its transform
            if isinstance(loss, DenoisingAlignment):
                trained += 2 * (d * d + d)  # of queries and keys
            if isinstance(loss, MomentumContrast):
                projection = d * d + d * loss.projection
                trained += projection
                remembered += sizes.total + projection + loss.queue_size * loss.projection
        return trained, remembered

    @property
    def trained(self) -> int:
        """All parameters that the optimizer moves."""
        return (self.sizes.adapters or self.sizes.total) + self.loss_parameters

    @property
    def frozen(self) -> int:
        """Parameters that it does not move: the encoder's beside adapters."""
        return self.sizes.total if self.sizes.adapters else 0


def subject_of(recipe: Recipe) -> Subject | str:
    """The model that a recipe trains; where its size is not known without a download, a sentence on the missing file.

    Raises:
        ConfigError: a recipe that this one continues is not there, or an encoder cannot be continued so.
    """
    chain = [earlier.config for earlier in needed_recipes(recipe)]
    config, first = chain[0], chain[-1]
    init_from, tokenizer = first.model.init_from, first.data.tokenizer
    if init_from is not None:
        values = encoder_values(init_from)
        if values is None:
            return f"the config.json of {init_from}: download it, and set model.init_from to its folder"
        family = family_of(init_from, values)
        vocab_size = values["vocab_size"]
    else:
        family = FAMILIES[first.model.family]
        vocab_size = _vocabulary(tokenizer)
        if vocab_size is None:
            assert isinstance(tokenizer, FolderTokenizer)
            return f"the tokenizer.json of {tokenizer.path}: make or download it, and set data.tokenizer.path to it"
        values = family.values(first.model, vocab_size, first.data.max_seq_length, pad_id=0)
    check_settings(family, config.model)
    for earlier in reversed(chain):
        values = family.with_dropout(family.for_rows(values, earlier.data.max_seq_length), earlier.model)
        if earlier.model.init_from is not None:
            padding = values["pad_token_id"]
            check_fits(earlier.model.init_from, family, values, 0, earlier.data.max_seq_length, padding)
    added = sum(getattr(earlier.data.tokenizer, "new_pieces", 0) for earlier in chain)
    exchanged = next(
        (earlier.data.tokenizer for earlier in chain if isinstance(earlier.data.tokenizer, ExchangeTokenizer)), None
    )
    if exchanged is not None:
        vocab_size = vocabulary_size(exchanged.path)
        if vocab_size is None:
            return f"the tokenizer.json of {exchanged.path}: download it, and set data.tokenizer.path to its folder"
    values = {**values, "vocab_size": vocab_size + added}
    return Subject(family, values, config)


def labels_at_once(config: RunConfig) -> int | None:
    """How many labels' logits exist at a time; None is all."""
    return next((loss.labels_at_once for loss in config.objectives if isinstance(loss, MaskedLm)), None)


def _vocabulary(tokenizer: Tokenizer) -> int | None:
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.vocab_size
    assert not isinstance(tokenizer, StartTokenizer), "the schema refuses it from scratch"
    return vocabulary_size(tokenizer.path)


def at_most(config: RunConfig) -> RunConfig:
    """The recipe with the rows that its steps have if a pair fills a row, and the steps if all pairs are kept.

    Where `data.max_pairs` keeps all pairs, however many, steps stay 0.
    """
    train = config.train
    rows, steps = train.global_batch_size or train.pairs_per_step, train.max_steps
    if not steps and train.pairs_per_step and any(stream.pools == PAIRS for stream in config.streams):
        languages = {frozenset(corpus.languages) for corpus in config.data.parallel}
        pairs = config.data.max_pairs * len(languages)
        steps = round(train.num_train_epochs * pairs / train.pairs_per_step)
    update = {"global_batch_size": rows, "max_steps": steps}
    return config.model_copy(update={"train": train.model_copy(update=update)})


@dataclass(frozen=True)
class Figures:
    """As the file has them.

    Attributes:
        assumed_mfu: share of a GPU's peak that a worker is taken to reach.
        host_s_per_layer: the least time of a layer in a forward and backward pass on a GPU.
        feed_tokens_per_core_s: of a kind of stream, by number of languages.
        disk_bytes_per_token: of prepared data, by the pools that a stream draws from.
        worker_bytes_on_cpu: of a training process beside its tensors.
        driver_bytes: of the process of the command.
    """

    assumed_mfu: float
    host_s_per_layer: float
    feed_tokens_per_core_s: Mapping[str, Mapping[int, float]]
    feed_share_under_ray: float
    disk_bytes_per_token: Mapping[str, float]
    worker_bytes_on_cpu: float
    driver_bytes: float


@cache
def read_figures() -> Figures:
    """The file."""
    return Figures(**parse_yaml(_FILE.read_text(encoding="utf-8")))


def feed_rate(config: RunConfig) -> float:
    """Tokens that a core makes rows of in a second under Ray, of the recipe's streams in their shares.

    A number of languages that was not measured takes the figure of the next larger one, else of the largest; a
    plug-in's stream takes the slowest of ours.
    """
    figures, languages = read_figures(), len(config.languages)
    slowest = min(figures.feed_tokens_per_core_s.values(), key=lambda measured: min(measured.values()))
    seconds = 0.0
    for stream, share in zip(config.streams, shares(config), strict=True):
        measured = figures.feed_tokens_per_core_s.get(stream.kind) or slowest
        seconds += share / measured[min((n for n in measured if n >= languages), default=max(measured))]
    return figures.feed_share_under_ray / seconds


def shares(config: RunConfig) -> list[float]:
    """The part of the rows that is of each stream."""
    total = sum(stream.weight for stream in config.streams)
    return [stream.weight / total for stream in config.streams]
