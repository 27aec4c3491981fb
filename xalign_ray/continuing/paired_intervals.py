"""95 % confidence intervals of the difference between two encoders that were scored on the same sentences.

They are about other sentences like these, and not about another seed of training.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import t as student

_LEVEL = 0.95
_NORMAL = float(ndtri((1 + _LEVEL) / 2))

Values = NDArray[np.float64]
Interval = tuple[float, float]


def accuracy_interval(base: Values, yours: Values) -> Interval:
    """The interval of mean(yours) - mean(base) of scores in [0, 1], one a sentence.

    Bonett and Price (2012) for paired proportions: a normal interval after one sentence gained and one lost are added.
    Without them an interval is far too narrow where few sentences change, and empty where none does. Scores between 0
    and 1, such as the mean of two directions, have a smaller variance, so that it holds for them too.

    Args:
        base, yours: `[N]` each.
    """
    differences = np.concatenate([yours - base, [1.0, -1.0]])
    reach = _NORMAL * differences.std() / np.sqrt(len(differences))
    return float(differences.mean() - reach), float(differences.mean() + reach)


def mean_interval(values: Values) -> Interval | None:
    """Student's interval of the mean of `[N]` values; None of fewer than two."""
    return ratio_interval(values, np.ones(len(values)))


def ratio_interval(totals: Values, counts: Values) -> Interval | None:
    """The interval of sum(totals) / sum(counts), such as a loss a label over sentences of different length.

    The variance is that of a ratio estimator (Cochran 1977, 2.9).

    Args:
        totals, counts: of each sentence, `[N]`.

    Returns:
        Lower and upper end; None of fewer than two sentences.
    """
    number = len(totals)
    if number < 2:
        return None
    ratio = totals.sum() / counts.sum()
    deviations = (totals - ratio * counts) / counts.mean()
    reach = student.ppf((1 + _LEVEL) / 2, number - 1) * deviations.std(ddof=1) / np.sqrt(number)
    return float(ratio - reach), float(ratio + reach)
