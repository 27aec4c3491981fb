"""Scheduled numbers: what they are worth at each step, and which ones are refused in which words."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from xalign_ray.config.explain import explain_validation
from xalign_ray.config.fields import Scheduled, Within, value_at

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
