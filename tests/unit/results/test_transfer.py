"""What transfer loses: numbers by hand."""

from __future__ import annotations

import numpy as np

from tests.unit.results.run_folders import entries
from tests.unit.results.test_claims import scored
from xalign_ray.results.tables import Entry
from xalign_ray.results.transfer import transfer_table

POS, SUP = "pos_f1_seqeval1", "pos_f1_seqeval1_supervised"
ZERO = np.array([[0.50, 0.60], [0.30, 0.40], [0.10, 0.20]])  # three languages, two seeds
LANGUAGES = ["en-x-inv", "en-x-syn", "fr"]
KNOWN = scored(
    {
        ("mlm", POS): ZERO,
        ("mlm", SUP): ZERO + np.array([[0.4], [0.2], [0.3]]),
        ("align-mlm", POS): ZERO + 0.1,
        ("align-mlm", SUP): ZERO + np.array([[0.2], [0.2], [0.2]]),
    },
    LANGUAGES,
)


def test_what_transfer_loses_is_the_score_of_own_training_less_that_from_english() -> None:
    table = transfer_table(KNOWN)
    assert table is not None
    assert tuple(table.rows) == (
        entries(Entry("Parts of speech, F1 (ALIGN-MLM)", POS)),
        entries("mlm", "65.0 ± 7.1", "35.0 ± 7.1", "30.0 ± 0.0", "3", "2"),
        entries("align-mlm", "55.0 ± 7.1", "45.0 ± 7.1", Entry("10.0 ± 0.0", mark="best"), "3", "2"),
    )
    zero_shot = scored({("mlm", POS): ZERO, ("align-mlm", POS): ZERO})
    assert transfer_table(zero_shot) is None
