"""Writes the special tokens around a text and a pair, as the rows of training have them, into a tokenizer."""

from __future__ import annotations

import json

from tokenizers import Tokenizer, processors

_TRIMS = ("ByteLevel", "RobertaProcessing")  # templates that also take the blank off the offsets of a piece


def put_frame(tokenizer: Tokenizer, first: str, separator: str, between: int | None = None) -> bool:
    """Lets a tokenizer put `[CLS] text [SEP]` and `[CLS] text [SEP] text [SEP]` around texts, in place.

    Args:
        first: the token before a text, as it is spelled.
        separator: the token behind each text.
        between: separators between the two texts of a pair; None leaves pairs as they are where single texts are right.

    Returns:
        Whether the tokenizer did it otherwise before.
    """
    cls, sep = tokenizer.token_to_id(first), tokenizer.token_to_id(separator)
    single_is_right = frame_of(tokenizer) == [[cls], [sep]]
    if single_is_right and between is None:
        return False
    middle = between or 1
    if single_is_right and frame_of(tokenizer, pair=True) == [[cls], [sep] * middle, [sep]]:
        return False
    template = processors.TemplateProcessing(
        single=f"{first} $A {separator}",
        pair=f"{first} $A {' '.join([separator] * middle)} $B:1 {separator}:1",
        special_tokens=[(first, cls), (separator, sep)],
    )
    trimming = _trimming(tokenizer)
    tokenizer.post_processor = processors.Sequence([trimming, template]) if trimming else template  # type: ignore[list-item]
    return True


def frame_of(tokenizer: Tokenizer, pair: bool = False) -> list[list[int]]:
    """The ids that a tokenizer puts before a text and behind it; of a pair, before, between and behind.

    Switches off padding and truncation, which a file may have saved: both are for batches.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoding = tokenizer.encode("a", "a") if pair else tokenizer.encode("a")
    texts = [number for number in encoding.sequence_ids if number is not None]
    parts: list[list[int]] = [[] for _ in range(3 if pair else 2)]
    passed = 0
    for piece, text in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if text is None:
            begun = texts[:passed]
            parts[0 if not begun else 2 if pair and begun[-1] == 1 else 1].append(piece)
        else:
            passed += 1
    return parts


def _trimming(tokenizer: Tokenizer) -> processors.ByteLevel | None:
    """The part of a byte-level tokenizer's post-processor that is no template."""
    if tokenizer.post_processor is None:
        return None
    state = json.loads(tokenizer.post_processor.__getstate__())
    for part in [state, *state.get("processors", [])]:
        if part["type"] in _TRIMS:
            return processors.ByteLevel(trim_offsets=part["trim_offsets"])
    return None
