"""Packs examples into rows: which examples share a row is decided once, in prepare."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 4096  # examples packed together: bounds memory, and keeps a row's examples from one stretch of the source


def pack_rows(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing: the longest example first, each into the fullest row that still holds it.

    Args:
        lengths: tokens of each example, special tokens included, none above `capacity`.

    Returns:
        The examples' numbers, one list a row. Deterministic; every example once.
    """
    rows: list[list[int]] = []
    for begin in range(0, len(lengths), WINDOW):
        rows += _pack_window(lengths, range(begin, min(begin + WINDOW, len(lengths))), capacity)
    return rows


def _pack_window(lengths: Sequence[int], window: range, capacity: int) -> list[list[int]]:
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by free positions
    rooms = 0  # bit r is set when some row has r free positions: the fullest row that fits is one bit operation away
    for example in sorted(window, key=lambda i: (-lengths[i], i)):
        length = lengths[example]
        assert 0 < length <= capacity
        if fitting := rooms >> length:
            room = length + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, row = capacity, len(rows)
            rows.append([])
        rows[row].append(example)
        left = room - length
        with_room[left].append(row)
        rooms |= 1 << left
    return [sorted(row) for row in rows]
