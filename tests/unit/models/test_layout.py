"""Where tokens, examples and labels stand, wherever the padding is."""

from __future__ import annotations

import torch

from xalign_ray.models.attention import labelled_at, laid_out, layout


def test_padding_is_left_away_wherever_it_stands() -> None:
    found = layout(torch.tensor([[1, 1, 2, 0, 0], [0, 0, 0, 0, 0], [1, 0, 2, 2, 3]]))
    assert found["real_at"].tolist() == [0, 1, 2, 10, 12, 13, 14]
    assert found["offsets"].tolist() == [0, 2, 3, 4, 6, 7]


def test_equal_numbers_at_the_end_of_a_row_and_the_beginning_of_the_next_are_two_examples() -> None:
    assert layout(torch.tensor([[1, 2, 2], [2, 2, 3]]))["offsets"].tolist() == [0, 1, 3, 5, 6]


def test_of_nothing_but_padding_and_of_no_rows_there_is_no_example() -> None:
    for nothing in (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(0, 3, dtype=torch.int64)):
        found = layout(nothing)
        assert (found["real_at"].tolist(), found["offsets"].tolist()) == ([], [0])


def test_a_layout_that_came_with_the_rows_is_kept() -> None:
    batch = {"example_ids": torch.tensor([[1, 1]])}
    assert laid_out(batch)["offsets"].tolist() == [0, 2]
    assert laid_out(given := laid_out(batch)) is given


def test_labels_are_found_in_the_order_of_rows() -> None:
    assert labelled_at(torch.tensor([[-100, 0, 7], [5, -100, -100]])).tolist() == [1, 2, 3]
