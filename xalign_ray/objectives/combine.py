"""The encoder with its losses as one module, which DeepSpeed trains"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor, nn
from torch.profiler import record_function

from xalign_ray.config.choices import OBJECTIVES, ObjectiveChoice
from xalign_ray.config.fields import Scheduled
from xalign_ray.config.plugins import find_code
from xalign_ray.errors import ConfigError
from xalign_ray.models.attention import laid_out
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.objective import (
    Compare,
    LossContext,
    MicroStep,
    Objective,
    ScoresLabels,
    StepObjective,
    compare_alone,
)
from xalign_ray.objectives.sentences import sentence_vectors
from xalign_ray.streams.collate import SpecialIds
from xalign_ray.vocabulary.dictionary import DictionaryPairs


def loss_class(choice: type[ObjectiveChoice]) -> type[Objective]:
    """The loss of a choice: class `<Name>Loss` of `objectives/<kind>.py`, of a plug-in's module, or `computed_by`.

    Raises:
        ConfigError: a plug-in has no such class, or it lacks a method, or `over_step` of the choice is wrong.
    """
    kind = choice.model_fields["kind"].default
    module = f"xalign_ray.objectives.{kind}" if choice is OBJECTIVES.get(kind) else choice.__module__
    path = choice.computed_by or f"{module}:{choice.__name__}Loss"
    loss = find_code(path)
    if not issubclass(loss, Objective):
        raise ConfigError(f"{path} is no Objective (xalign_ray.objectives.objective).")
    if lacking := sorted(loss.__abstractmethods__):
        raise ConfigError(f"{path} lacks {', '.join(lacking)}.")
    if (over_step := issubclass(loss, StepObjective)) != choice.over_step:
        kind_of_loss = "a StepObjective" if over_step else "no StepObjective"
        raise ConfigError(f"{path} is {kind_of_loss}: set over_step = {over_step} in {choice.__name__}.")
    return loss


class EncoderWithLosses(nn.Module):
    """The module that DeepSpeed trains: `encoder`, and `losses` by kind. The forward pass gives sums by kind.

    The loop weighs, scales and adds the sums.

    With G the global step's count, W ranks and A micro-steps, a micro-step backpropagates
    sum_k weights[k] * sums[k] * W * A / G[k]; DeepSpeed then averages over ranks and micro-steps.
    The encoder's parameters are named `encoder.*`; parameters of losses, which no export holds, `losses.*`.

    Attributes:
        losses: all of the run, by kind. `used`: the losses whose weight is not 0 now; the other attributes are theirs.
        weights: of each kind, perhaps changing over the steps.
        extra_columns: columns of the batch that some loss needs besides the inputs of the model.
        over_step: the losses that compare the whole global step. They run first in a forward pass, so that a pass that
            only embeds draws the same dropout.
        metrics: further metrics of the losses in the last forward pass; see `MicroStep`.
    """

    def __init__(
        self,
        encoder: AlignedEncoder,
        objectives: Sequence[ObjectiveChoice],
        pairs: DictionaryPairs | None,
        seed: int,
        special: SpecialIds | None = None,
    ) -> None:
        """Builds each objective.

        Args:
            encoder: what `build_encoder` gave.
            objectives: the recipe's `objectives`; each kind stands once.
            pairs: the dictionary pairs to train on, `prepared.pairs("trained")`.
            seed: the run's seed.
            special: ids of the tokenizer, needed to encode single words.

        Raises:
            ConfigError: when a requirement of an objective is missing.
        """
        super().__init__()
        self.encoder = encoder
        context = LossContext(pairs, seed, self.encoder, special)
        losses = nn.ModuleDict({asked.kind: loss_class(type(asked))(asked, context) for asked in objectives})
        self.losses = cast("dict[str, Objective]", losses)
        self.metrics: Mapping[str, tuple[Tensor, Tensor]] = {}
        self.use(objectives)

    def use(self, objectives: Sequence[ObjectiveChoice]) -> None:
        """From now on these of the losses, with these weights."""
        self.weights: dict[str, Scheduled] = {asked.kind: asked.weight for asked in objectives}
        self.used = {kind: self.losses[kind] for kind in self.weights}
        self._declared = {name for asked in objectives for name in asked.metrics}
        self.extra_columns = tuple(dict.fromkeys(name for loss in self.used.values() for name in loss.extra_columns))
        self.over_step = {kind: loss for kind, loss in self.used.items() if isinstance(loss, StepObjective)}
        reads_rows = any(loss.predicts for loss in self.used.values())
        self.beside = tuple(loss.beside for loss in self.used.values() if loss.beside and reads_rows)

    def forward(
        self,
        batch: Mapping[str, Tensor],
        part: tuple[int, int],
        step: int,
        of_labels: str = "",
        pooling: str = "",
        compare: Compare | None = compare_alone,
    ) -> dict[str, Any]:
        """The sum of each loss over B >= 0 rows; see `MicroStep` for the other arguments.

        Args:
            of_labels: a kind: only this loss, and not its sum but its terms, a label each, [N] in the order of labels.
            pooling: no loss, but `vectors`, one for each example of the batch: see `sentence_vectors`.
            compare: see `MicroStep`. None: no sums, but what each loss over the step embeds, vectors and marks.
        """
        if pooling:
            rows = laid_out(batch)
            pooled = sentence_vectors(self.encoder.encode(rows), rows, pooling)
            return {"vectors": self.encoder.behind_pooling(pooled)}
        beside = () if of_labels else self.beside
        micro_step = MicroStep(self.encoder, batch, part, step, compare or compare_alone, beside)
        if of_labels:
            loss = self.losses[of_labels]
            assert isinstance(loss, ScoresLabels), f"{of_labels} has no terms by label"
            return {of_labels: loss.of_labels(micro_step)}
        if compare is None:
            return {kind: loss.embed(micro_step) for kind, loss in self.over_step.items()}
        sums = {}
        for kind in sorted(self.used, key=lambda kind: kind not in self.over_step):
            with record_function(f"step/forward {kind}"):
                sums[kind] = self.used[kind](micro_step)
        self.metrics = micro_step.metrics
        if undeclared := sorted(self.metrics.keys() - self._declared):
            choices = " or ".join(type(loss.settings).__name__ for loss in self.used.values())
            raise ConfigError(f"A loss logs {undeclared[0]}: declare it, with its meaning, in `metrics` of {choices}.")
        return sums

    def after_step(self, gather: Callable[..., Tensor], by_rank: Mapping[str, Sequence[int]] | None = None) -> None:
        """Calls the losses' `after_step`, once the weights have moved; called by all ranks once a global step.

        Those that weigh nothing now too: the average of an encoder follows it all the time.

        Args:
            gather: joins the rows of all ranks; takes `sizes`, the rows of each, where `by_rank` is given.
            by_rank: what each rank has counted in the step, of each kind.
        """
        for kind, loss in self.losses.items():
            sizes = (by_rank or {}).get(kind) if loss.gathers_counted else None
            loss.after_step(self.encoder, gather if sizes is None else partial(gather, sizes=sizes))

    def counts(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> dict[str, float]:
        """What this rank's sums over a whole global step run over, by kind; all-reduce it before the first backward.

        Args:
            batch: the rank's rows of the global step, as the feed gives them.
            parts: the `part` of each of its micro-steps.
            step: number of the global step, from 0.
        """
        return {kind: loss.count(batch, parts, step) for kind, loss in self.used.items()}
