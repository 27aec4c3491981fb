"""Symmetrisation, by hand and against a slow reading of Koehn's pseudo-code, and the error rate and its traps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.alignment_error_rate import Gold, compare, read_gold, read_naacl
from xalign_ray.align.links import SYMMETRISERS, Link, read_pharaoh, write_pharaoh
from xalign_ray.errors import DataError

FORWARD = {(0, 0), (1, 1), (2, 1), (4, 4), (6, 0)}
BACKWARD = {(0, 0), (1, 1), (1, 2), (5, 4), (3, 6)}


@pytest.mark.parametrize(
    ("method", "links"),
    [
        ("intersection", {(0, 0), (1, 1)}),
        ("union", FORWARD | BACKWARD),
        # (2,1) is beside (1,1) and word 2 is free; (1,2) too; 4-4 and 5-4 touch no link of the intersection.
        ("grow-diag", {(0, 0), (1, 1), (2, 1), (1, 2)}),
        # then forward: 4-4 (both free), 6-0 (6 free); backward: 3-6 (both free), 5-4 (5 free).
        ("grow-diag-final", {(0, 0), (1, 1), (2, 1), (1, 2), (4, 4), (6, 0), (3, 6), (5, 4)}),
        # 6-0 is left out as 0 is taken, and 5-4 as 4 is taken by then.
        ("grow-diag-final-and", {(0, 0), (1, 1), (2, 1), (1, 2), (4, 4), (3, 6)}),
    ],
)
def test_a_hand_worked_pair_of_directions_is_symmetrised(method: str, links: set[Link]) -> None:
    assert SYMMETRISERS[method](set(FORWARD), set(BACKWARD)) == links


def slow_grow_diag(forward: set[Link], backward: set[Link], rows: int, columns: int) -> set[Link]:
    """Koehn's pseudo-code, word for word: scan the whole matrix until a scan adds nothing."""
    matrix = forward & backward
    added = True
    while added:
        added = False
        for i in range(rows):
            for j in range(columns):
                if (i, j) not in matrix:
                    continue
                for di, dj in [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]:
                    near = (i + di, j + dj)
                    row_taken = any(a == near[0] for a, _ in matrix)
                    column_taken = any(b == near[1] for _, b in matrix)
                    if near in forward | backward and near not in matrix and not (row_taken and column_taken):
                        matrix.add(near)
                        added = True
    return matrix


def slow_final(matrix: set[Link], directions: list[set[Link]], both: bool, rows: int, columns: int) -> set[Link]:
    for direction in directions:
        for i in range(rows):
            for j in range(columns):
                if (i, j) in direction and (i, j) not in matrix:
                    free = [all(a != i for a, _ in matrix), all(b != j for _, b in matrix)]
                    if all(free) if both else any(free):
                        matrix.add((i, j))
    return matrix


def test_growing_agrees_with_the_slow_reference_on_random_directions() -> None:
    source = random.Random(3)
    for _ in range(400):
        rows, columns = source.randint(1, 9), source.randint(1, 9)
        cells = [(i, j) for i in range(rows) for j in range(columns)]
        forward, backward = ({c for c in cells if source.random() < 0.3} for _ in range(2))
        given = set(forward), set(backward)
        grown = slow_grow_diag(forward, backward, rows, columns)
        assert SYMMETRISERS["grow-diag"](forward, backward) == grown
        for method, both in (("grow-diag-final", False), ("grow-diag-final-and", True)):
            expected = slow_final(set(grown), [forward, backward], both, rows, columns)
            assert SYMMETRISERS[method](forward, backward) == expected
        assert (forward, backward) == given, "inputs stay as they were"


def test_pharaoh_is_sorted_by_number_and_read_back() -> None:
    assert write_pharaoh({(10, 2), (2, 11), (2, 3)}) == "2-3 2-11 10-2"
    assert read_pharaoh("2-3 2-11 10-2\n") == [(2, 3), (2, 11), (10, 2)]
    assert read_pharaoh("\n") == []


def test_the_error_rate_of_a_hand_worked_corpus() -> None:
    gold = [
        Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)})),
        Gold(frozenset({(0, 1)}), frozenset({(0, 1)})),
    ]
    agreement = compare([[(0, 0), (2, 1), (3, 3)], [(0, 1)]], gold)
    # A = 4, S = 3, A and S = 2, A and P = 3: 1 - 5/7.
    assert agreement.error_rate == pytest.approx(2 / 7)
    assert agreement.precision == pytest.approx(3 / 4)
    assert agreement.recall == pytest.approx(2 / 3)


def test_nothing_found_is_all_wrong_and_nothing_to_find_is_no_error() -> None:
    assert compare([[]], [Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))]).error_rate == 1
    assert compare([[]], [Gold(frozenset(), frozenset())]).error_rate == 0


def test_gold_is_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1-1 2p3\n\n3-2\n")
    gold = read_gold(tmp_path / "gold", first_word=1)
    assert gold[0] == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)}))
    assert [len(one.possible) for one in gold] == [2, 0, 1]
    (tmp_path / "gold.wa").write_text("1 1 1 S\n1 2 1 P\n3 1 2\n")
    gold = read_naacl(tmp_path / "gold.wa", sentences=3, first_word=1)
    assert gold[:2] == [Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)})), Gold(frozenset(), frozenset())]
    assert gold[2].sure == {(0, 1)}


@pytest.mark.parametrize("word", ["1:1", "1-", "-1", "a-b", "1-2-3", "0-0"])
def test_what_is_no_link_is_named_with_its_line(tmp_path: Path, word: str) -> None:
    (tmp_path / "gold").write_text(f"1-1\n{word}\n")
    told = "link 0-0 lies before word 1, the first" if word == "0-0" else f"'{word}' is no link; sure ones are i-j"
    with pytest.raises(DataError, match=f"line 2: {told}"):
        read_gold(tmp_path / "gold", first_word=1)


@pytest.mark.parametrize("line", ["1 2", "4 1 1 S", "x 1 1 S", "1 1 1 S extra"])
def test_a_naacl_line_that_cannot_be_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "gold.wa").write_text(line + "\n")
    with pytest.raises(DataError, match=f"line 1: '{line}' is not `sentence word word"):
        read_naacl(tmp_path / "gold.wa", sentences=3, first_word=1)
