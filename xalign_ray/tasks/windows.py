"""Questions as rows of pieces: windows over a long context, the answer's place in them, and back to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xalign_ray.errors import DataError
from xalign_ray.tasks.inputs import Inputs, Row
from xalign_ray.tasks.squad import Question

LONGEST_ROW = 384  # this and the next four: XTREME's
STRIDE = 128
LONGEST_QUESTION = 64
BEST = 20
LONGEST_ANSWER = 30  # pieces
_ELSEWHERE = 0  # a window without the answer points at its first token

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Context:
    """A context in pieces.

    Attributes:
        ids: of the pieces.
        starts: the place in the text of each piece's first character that is no white space.
        ends: the place behind its last one.
    """

    ids: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """One input of the model: the question, and a part of the context.

    Attributes:
        row: pieces and token types.
        context: all of it.
        shift: where the context begins in the row.
        begin: the first piece of the context that is in the row.
        size: how many are.
        first: where the answer's first piece stands in the row; 0 if the answer is not all in it.
        last: where its last piece stands.
    """

    row: Row
    context: Context
    shift: int
    begin: int
    size: int
    first: int
    last: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The piece ids."""
        return self.row.ids


def piece_contexts(inputs: Inputs, texts: Sequence[str]) -> dict[str, Context]:
    """Each text in pieces, whose places are those of the text as it is, whatever the tokenizer makes of it.

    Raises:
        DataError: the tokenizer does not know the places of its pieces.
    """
    if not inputs.tokenizer.is_fast:
        raise DataError(
            f"{inputs.encoder} has a tokenizer without offsets, which answers cannot be cut out with; save it with a "
            "tokenizer.json."
        )
    unique = list(dict.fromkeys(texts))
    if not unique:
        return {}
    pieces = inputs.tokenizer(unique, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return {
        text: _trim(text, ids, offsets)
        for text, ids, offsets in zip(unique, pieces["input_ids"], pieces["offset_mapping"], strict=True)
    }


def make_windows(inputs: Inputs, questions: Sequence[Question]) -> list[list[Window]]:
    """The windows of each question, at least one, of at most 384 pieces: each context piece is in one or more.

    A window begins 128 pieces after the one before, or half of its own context where a shorter model leaves it less
    than 256. Of a question its first 64 pieces are kept, and never more than half of what there is room for.
    """
    contexts = piece_contexts(inputs, [question.context for question in questions])
    pieces = inputs.piece_texts([question.question for question in questions])
    free = min(LONGEST_ROW, inputs.max_length) - len(inputs.prefix) - len(inputs.middle) - len(inputs.suffix)
    return [
        _slide(inputs, question, ids[: min(LONGEST_QUESTION, free // 2)], contexts[question.context], free)
        for question, ids in zip(questions, pieces, strict=True)
    ]


def batch_windows(inputs: Inputs, windows: Sequence[Window]) -> dict[str, Tensor]:
    """A model's inputs, with `start_positions` and `end_positions` `[B]`."""
    return inputs.batch([window.row for window in windows]) | {
        "start_positions": torch.tensor([window.first for window in windows]),
        "end_positions": torch.tensor([window.last for window in windows]),
    }


@torch.inference_mode()
def predict_answers(model: Any, inputs: Inputs, questions: Sequence[Question], batch_size: int) -> list[str]:
    """The answer to each question, a part of its context as it is written. `model` must be in evaluation mode."""
    windows = make_windows(inputs, questions)
    flat = [window for part in windows for window in part]
    order = sorted(range(len(flat)), key=lambda index: len(flat[index].ids))
    found: dict[int, tuple[Logits, Logits]] = {}
    for begin in range(0, len(flat), batch_size):
        part = order[begin : begin + batch_size]
        batch = inputs.batch([flat[index].row for index in part])
        output = model(**{key: value.to(model.device) for key, value in batch.items()})
        firsts, lasts = (logits.float().cpu().numpy() for logits in (output.start_logits, output.end_logits))
        for place, index in enumerate(part):
            inside = slice(flat[index].shift, flat[index].shift + flat[index].size)
            found[index] = firsts[place, inside], lasts[place, inside]
    logits = (found[index] for index in range(len(flat)))
    return [
        _cut_out(question.context, part, [next(logits) for _ in part])
        for question, part in zip(questions, windows, strict=True)
    ]


def best_span(windows: Sequence[Window], logits: Sequence[tuple[Logits, Logits]]) -> tuple[int, int] | None:
    """The first and last context piece of the answer with the highest sum of logits, or None if there is none.

    Of each window the 20 best first and 20 best last pieces are paired, at most 30 pieces apart. An answer is taken
    from the window that holds most context around its first piece (Devlin et al.'s run_squad).

    Args:
        windows: of one question.
        logits: of each window's context pieces, for first and last.
    """
    best, score = None, -np.inf
    for window, own, (firsts, lasts) in zip(windows, _own_pieces(windows), logits, strict=True):
        starts = np.argsort(-firsts, kind="stable")[:BEST]
        ends = np.argsort(-lasts, kind="stable")[:BEST]
        starts = starts[own[starts]]
        length = ends[None, :] - starts[:, None] + 1
        sums = np.where((length >= 1) & (length <= LONGEST_ANSWER), firsts[starts][:, None] + lasts[ends], -np.inf)
        if sums.size and sums.max() > score:
            row, column = np.unravel_index(sums.argmax(), sums.shape)
            best, score = (window.begin + int(starts[row]), window.begin + int(ends[column])), sums.max()
    return best


def _own_pieces(windows: Sequence[Window]) -> list[NDArray[np.bool_]]:
    """For each window, which of its context pieces have more context in it than in any other; the first of equals."""
    around = np.full((len(windows), max(window.begin + window.size for window in windows)), -np.inf)
    for place, window in enumerate(windows):
        left = np.arange(window.size)
        inside = slice(window.begin, window.begin + window.size)
        around[place, inside] = np.minimum(left, left[::-1]) + 0.01 * window.size
    owner = around.argmax(axis=0) if around.size else np.zeros(0, dtype=np.int64)
    return [owner[window.begin : window.begin + window.size] == place for place, window in enumerate(windows)]


def _slide(inputs: Inputs, question: Question, asked: Sequence[int], context: Context, free: int) -> list[Window]:
    room = free - len(asked)
    stride = STRIDE if room >= 2 * STRIDE else max(1, room // 2)
    answer = _find_answer(question, context)
    shift = len(inputs.prefix) + len(asked) + len(inputs.middle)
    languages = question.question_language, question.context_language
    windows = []
    for begin in range(0, max(1, len(context.ids) - room + stride), stride):
        ids = context.ids[begin : begin + room]
        first, last = _ELSEWHERE, _ELSEWHERE
        if answer and begin <= answer[0] and answer[1] < begin + len(ids):
            first, last = (shift + piece - begin for piece in answer)
        windows.append(Window(inputs.pair(asked, ids, languages), context, shift, begin, len(ids), first, last))
    return windows


def _find_answer(question: Question, context: Context) -> tuple[int, int] | None:
    """The first and the last piece that share a character with the first answer."""
    if not question.answers:
        return None
    answer = question.answers[0]
    begin, end = answer.start, answer.start + len(answer.text)
    inside = [
        piece
        for piece, (start, stop) in enumerate(zip(context.starts, context.ends, strict=True))
        if start < end and stop > begin
    ]
    return (inside[0], inside[-1]) if inside else None


def _cut_out(text: str, windows: Sequence[Window], logits: Sequence[tuple[Logits, Logits]]) -> str:
    span, context = best_span(windows, logits), windows[0].context
    return "" if span is None else text[context.starts[span[0]] : context.ends[span[1]]]


def _trim(text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Context:
    """Pieces without the white space that some tokenizers count to the word behind it."""
    starts, ends = [], []
    for start, end in offsets:
        part = text[start:end]
        starts.append(start + len(part) - len(part.lstrip()))
        ends.append(max(starts[-1], start + len(part.rstrip())))
    return Context(tuple(ids), tuple(starts), tuple(ends))
