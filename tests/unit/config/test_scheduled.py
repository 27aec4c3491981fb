"""Scheduled numbers: what they are worth at each step, and which ones are refused in which words."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from xalign_ray.config.explain import explain_validation
from xalign_ray.config.fields import Scheduled, Within, value_at
from xalign_ray.config.training import TrainConfig

CORNERS = ((10, 1.0), (20, 3.0), (24, 2.0))
SHAPE = "must be a number, or a list of [step, value] with whole steps from 0"


class Tree(BaseModel):
    """A key with open bounds, one with closed ones and one without."""

    rate: Annotated[Scheduled, Within(gt=0, lt=1)] = 0.15
    share: Annotated[Scheduled, Within(ge=0, le=1)] = 0.5
    weight: Annotated[Scheduled, Within()] = 1.0


@pytest.mark.parametrize(
    ("step", "value"),
    [(0, 1.0), (9, 1.0), (10, 1.0), (11, 1.2), (15, 2.0), (20, 3.0), (21, 2.75), (23, 2.25), (24, 2.0), (10**9, 2.0)],
)
def test_corners_are_joined_by_straight_lines_and_go_on_level(step: int, value: float) -> None:
    assert value_at(CORNERS, step) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize("step", [0, 1, 10**12])
def test_a_number_is_itself_at_every_step(step: int) -> None:
    assert value_at(0.15, step) == 0.15
    assert value_at(((7, 0.15),), step) == 0.15


def test_corners_are_met_exactly() -> None:
    corners = tuple((3 * n, 1 / (n + 3)) for n in range(20))
    assert [value_at(corners, step) for step, _ in corners] == [value for _, value in corners]


def test_values_are_typed_and_survive_json() -> None:
    tree = Tree.model_validate({"rate": [[0, 0.1], [5, 0.9]], "share": 1, "weight": [[0, -2], [1, 3]]})
    assert tree.rate == ((0, 0.1), (5, 0.9))
    assert (tree.share, type(tree.share)) == (1.0, float)
    assert tree.weight == ((0, -2.0), (1, 3.0))
    assert Tree.model_validate_json(tree.model_dump_json()) == tree
    assert json.loads(tree.model_dump_json())["rate"] == [[0, 0.1], [5, 0.9]]


def test_the_schema_shows_both_forms() -> None:
    forms = Tree.model_json_schema()["properties"]["rate"]["anyOf"]
    assert [form["type"] for form in forms] == ["number", "array"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate": 0}, "r.yaml: 'rate' is 0; it must be more than 0."),
        ({"rate": 1}, "r.yaml: 'rate' is 1; it must be less than 1."),
        ({"rate": [[0, 0.5], [9, 1.5]]}, "r.yaml: 'rate' is [[0, 0.5], [9, 1.5]]; it must be less than 1."),
        ({"share": -0.1}, "r.yaml: 'share' is -0.1; it must be at least 0."),
        ({"share": [[3, 1.1]]}, "r.yaml: 'share' is [[3, 1.1]]; it must be at most 1."),
        ({"weight": [[4, 1], [4, 2]]}, "r.yaml: 'weight' is [[4, 1], [4, 2]]; it must have increasing steps."),
        ({"weight": [[4, 1], [3, 2]]}, "r.yaml: 'weight' is [[4, 1], [3, 2]]; it must have increasing steps."),
        ({"weight": []}, f"r.yaml: 'weight' is []; it {SHAPE}."),
        ({"weight": [1, 2]}, f"r.yaml: 'weight' is [1, 2]; it {SHAPE}."),
        ({"weight": [[-1, 2]]}, f"r.yaml: 'weight' is [[-1, 2]]; it {SHAPE}."),
        ({"weight": [[0.5, 2]]}, f"r.yaml: 'weight' is [[0.5, 2]]; it {SHAPE}."),
        ({"weight": [[True, 2]]}, f"r.yaml: 'weight' is [[True, 2]]; it {SHAPE}."),
        ({"weight": "much"}, f"r.yaml: 'weight' is 'much'; it {SHAPE}."),
        ({"weight": True}, f"r.yaml: 'weight' is True; it {SHAPE}."),
        ({"weight": float("nan")}, f"r.yaml: 'weight' is nan; it {SHAPE}."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once_of_the_key(given: dict, said: str) -> None:
    with pytest.raises(ValidationError) as told:
        Tree.model_validate(given)
    assert explain_validation(told.value, Tree, {}, "r.yaml") == said


# --- trainable parts --------------------------------------------------------------------------------------------------
TRAIN = {"max_steps": 40, "global_batch_size": 8}
PART = "name all, head, embeddings, new_rows or layers:6- (from a layer on; layers:2-4 for some, counted from 1)"


@pytest.mark.parametrize(
    ("given", "written", "phases"),
    [
        ("all", "all", ((0, ("all",)),)),
        ({"layers": "6-"}, "layers:6-", ((0, ("layers:6-",)),)),
        (["head", "layers:2-4"], ["head", "layers:2-4"], ((0, ("head", "layers:2-4")),)),
        ([[0, "new_rows"], [0.1, ["all"]]], [[0, "new_rows"], [0.1, "all"]], ((0, ("new_rows",)), (4, ("all",)))),
        ([[0, ["head", "embeddings"]], [7, "all"]], None, ((0, ("head", "embeddings")), (7, ("all",)))),
    ],
)
def test_trainable_is_parts_or_phases(given: Any, written: Any, phases: Any) -> None:
    train = TrainConfig.model_validate({**TRAIN, "trainable": given})
    assert train.phases == phases
    assert train.model_dump(mode="json")["trainable"] == (given if written is None else written)
    assert TrainConfig.model_validate_json(train.model_dump_json()) == train
    assert [train.phase_at(step) for step in (0, phases[-1][0], 39)] == [0, len(phases) - 1, len(phases) - 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("heads", f"'heads' is no part of a model: {PART}"),
        ([], f"'[]' is no part of a model: {PART}"),
        ("layers:0-", f"'layers:0-' is no part of a model: {PART}"),
        ([[1, "all"]], "the first steps of phases begin with 0 and increase"),
        ([[0, "head"], [5, "all"], [5, "head"]], "the first steps of phases begin with 0 and increase"),
        ([["0", "head"]], "phases are a list of [first step, parts]"),
        ([[0, "all"], [5, "new_rows"]], "a phase of new_rows comes before those in which all rows move"),
    ],
)
def test_trainable_is_refused_in_a_sentence(given: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        TrainConfig.model_validate({**TRAIN, "trainable": given})


def test_new_rows_are_refused_with_lamb() -> None:
    with pytest.raises(ValidationError, match="new_rows with LAMB is refused"):
        TrainConfig.model_validate({**TRAIN, "trainable": "new_rows", "optimizer": {"kind": "lamb"}})
