"""Both versions of seqeval: 1.2.2, which the environment has, and 0.0.12, which `make` puts beside it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

OLD = Path(sys.prefix) / "peers" / "seqeval-0.0.12" / "seqeval" / "metrics" / "sequence_labeling.py"
Tags = Sequence[Sequence[str]]


def f1_of_version_0(gold: Tags, predicted: Tags) -> float:
    """F1 of seqeval 0.0.12, the newest release when XTREME was published."""
    assert OLD.is_file(), f"{OLD} is missing: remove .venv/installed, then run make"
    spec = spec_from_file_location("seqeval_0", OLD)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return float(module.f1_score([*map(list, gold)], [*map(list, predicted)]))


def f1_of_version_1(gold: Tags, predicted: Tags, *, strict: bool = False) -> float:
    """F1 of seqeval 1.2.2, in its default mode or strictly as IOB2."""
    assert version("seqeval") == "1.2.2"
    options = {"mode": "strict", "scheme": IOB2} if strict else {}
    with warnings.catch_warnings():  # of tags that are no names', and of sets without any
        warnings.simplefilter("ignore")
        return float(f1_score([*map(list, gold)], [*map(list, predicted)], zero_division=0, **options))
