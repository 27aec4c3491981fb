"""What a stream or a loss needs stands with its choice: no other module lists kinds."""

from __future__ import annotations

import ast

import pytest

from tests.unit.rules.tree import PACKAGE, parse, python_files
from xalign_ray.config.choices import OBJECTIVES, STREAMS
from xalign_ray.track.events import METRICS

# The loss that held-out rows are scored by; which recipes' total losses compare.
MAY_NAME_A_KIND = {"config/choices.py", "train/scoring.py", "results/sentences.py"}


def test_no_other_module_lists_kinds() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {node.value}"
        for path in python_files(PACKAGE)
        if path.relative_to(PACKAGE).as_posix() not in MAY_NAME_A_KIND
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant) and node.value in STREAMS.keys() | OBJECTIVES.keys()
    }
    assert found == set()


def test_a_loss_reads_a_stream_that_there_is() -> None:
    assert {choice.stream for choice in OBJECTIVES.values()} - {None} <= set(STREAMS)


def test_streams_of_pairs_say_how_a_pair_is_laid_out() -> None:
    for choice in STREAMS.values():
        assert ({"positions", "segments"} <= set(choice.model_fields)) == (choice.segments_per_example == 2)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_what_a_loss_logs_is_in_the_list_of_metrics(kind: str) -> None:
    choice = OBJECTIVES[kind]
    assert METRICS[f"train/loss_{kind}"] == f"{choice.meaning}, before its weight"
    assert choice.metrics.items() <= METRICS.items()
