"""Steps and rows where a length is given in epochs or in pairs, before the data are there: at most so many."""

from __future__ import annotations

from xalign_ray.config.choices import PAIRS
from xalign_ray.config.schema import RunConfig


def at_most(config: RunConfig, pairs: int = 0) -> RunConfig:
    """The recipe with the rows that its steps have if a pair fills a row, and the steps if all pairs are kept.

    Args:
        pairs: of all languages; else as many as `data.max_pairs` keeps. Where neither says, steps stay 0.
    """
    train = config.train
    rows, steps = train.global_batch_size or train.pairs_per_step, train.max_steps
    if not steps and train.pairs_per_step and any(stream.pools == PAIRS for stream in config.streams):
        languages = {frozenset(corpus.languages) for corpus in config.data.parallel}
        pairs = pairs or config.data.max_pairs * len(languages)
        steps = round(train.num_train_epochs * pairs / train.pairs_per_step)
    update = {"global_batch_size": rows, "max_steps": steps}
    return config.model_copy(update={"train": train.model_copy(update=update)})
