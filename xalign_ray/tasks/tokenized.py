"""Turns words and sentences into a model's features: piece ids, padded batches, the language as a token type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xalign_ray.errors import DataError
from xalign_ray.text.tokenizer import tokenize_words

LONGEST_INPUT = 512
IGNORED = -100  # the label that torch's cross-entropy leaves out
ARGUMENTS = ("input_ids", "token_type_ids", "labels", "start_positions", "end_positions")


Features = dict[str, Any]  # of one input: lists of ids and labels under the names of the model's arguments


@dataclass(frozen=True, slots=True)
class Inputs:
    """A tokenizer and what the model beside it needs to know about its inputs.

    Attributes:
        tokenizer: as `AutoTokenizer` opened it.
        prefix: ids that the tokenizer puts before a text, such as [CLS].
        middle: ids that it puts between two texts, such as [SEP].
        suffix: ids that it puts after, such as [SEP].
        max_length: longest input in pieces, prefix and suffix included.
        languages: languages that the model has embeddings for, in the order of their ids; empty if it has none.
        segments: rows of the token-type table per language; token_type_id = segment + segments * language id.
        encoder: name of the model, for messages.
        max_seq_length: what a fine-tuned model was trained with, where that is not the task's own length.
    """

    tokenizer: Any
    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    max_length: int
    languages: tuple[str, ...]
    segments: int
    encoder: str
    max_seq_length: int | None = None

    @classmethod
    def of_model(cls, tokenizer: Any, model: nn.Module, encoder: str) -> Inputs:
        """What `config.json` and the tokenizer of an opened folder say about inputs."""
        config: Any = model.config
        prefix, suffix = _ends(tokenizer)
        return cls(
            tokenizer=tokenizer,
            prefix=prefix,
            middle=_middle(tokenizer),
            suffix=suffix,
            max_length=min(LONGEST_INPUT, int(tokenizer.model_max_length), _positions(model)),
            languages=tuple(getattr(config, "xalign_languages", None) or ()),
            segments=int(getattr(config, "xalign_segments", None) or getattr(config, "type_vocab_size", 1)),
            encoder=encoder,
            max_seq_length=getattr(config, "xalign_max_seq_length", None),
        )

    def check_languages(self, languages: Iterable[str]) -> None:
        """Refuses languages that the model has no embedding for; a model without language embeddings knows all.

        There is no silent stand-in for a missing embedding, such as the mean of the table: a table of scores must not
        mix languages that were said with languages that were guessed.

        Raises:
            DataError: names the unknown languages, the known ones, and the fix.
        """
        unknown = sorted(set(languages) - set(self.languages)) if self.languages else []
        if unknown:
            raise DataError(
                f"{self.encoder} has language embeddings for {', '.join(self.languages)}, none for "
                f"{', '.join(unknown)}; name the languages to score among the known ones."
            )

    def token_type(self, language: str, segment: int = 0) -> int:
        """The token type of a text in this language; without language embeddings it is the segment alone.

        A model with one segment gives the second text of a pair that one as well.
        """
        self.check_languages([language])
        segment = min(segment, self.segments - 1)
        return segment + (self.segments * self.languages.index(language) if self.languages else 0)

    def piece_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Piece ids of running text, with prefix and suffix, cut at `max_length`."""
        room = self.max_length - len(self.prefix) - len(self.suffix)
        return [self.wrap(ids[:room]) for ids in self._pieces(sentences)]

    def piece_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of running text, without prefix and suffix, however long."""
        return self._pieces(texts)

    def piece_words(self, words: Sequence[str]) -> list[list[int]]:
        """Piece ids of each word as it is written inside a sentence, without prefix and suffix."""
        return tokenize_words(self.tokenizer.backend_tokenizer, words)

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """Prefix and suffix put around piece ids."""
        return [*self.prefix, *ids, *self.suffix]

    def room(self, longest: int) -> int:
        """How many pieces of text an input of a task holds, beside prefix and suffix.

        Args:
            longest: the task's own length, which the `max_seq_length` of a fine-tuning replaces.
        """
        return min(self.max_seq_length or longest, self.max_length) - len(self.prefix) - len(self.suffix)

    def single(self, ids: Sequence[int], language: str) -> Features:
        """One text, given as pieces with the tokenizer's own around them."""
        return self._encode(list(ids), [self.token_type(language)] * len(ids))

    def pair(self, first: Sequence[int], second: Sequence[int], languages: tuple[str, str]) -> Features:
        """Two texts, given as pieces without the tokenizer's own, each with the language of its side."""
        begin = [*self.prefix, *first, *self.middle]
        end = [*second, *self.suffix]
        types = [self.token_type(languages[0])] * len(begin) + [self.token_type(languages[1], 1)] * len(end)
        return self._encode([*begin, *end], types)

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """A model's arguments: everything that is a list is padded to the longest.

        Returns:
            `input_ids` and `attention_mask` `[B, L]`, `token_type_ids` if the model can tell types apart, and whatever
            labels the features have, `[B]` or `[B, L]`.
        """
        padding = {"input_ids": self.tokenizer.pad_token_id or 0, "labels": IGNORED}
        sizes = torch.tensor([len(one["input_ids"]) for one in features])
        width = int(sizes.max())
        batch = {"attention_mask": (torch.arange(width) < sizes[:, None]).long()}
        for name in (name for name in ARGUMENTS if name in features[0]):
            rows = [
                [*value, *[padding.get(name, 0)] * (width - len(value))] if isinstance(value, list) else value
                for value in (one[name] for one in features)
            ]
            batch[name] = torch.tensor(rows)
        return batch

    def _encode(self, ids: list[int], types: list[int]) -> Features:
        return {"input_ids": ids} | ({"token_type_ids": types} if self.languages or self.segments > 1 else {})

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]


def _ends(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer's own template puts around one text; where it has none, around a text of no pieces."""
    encoding = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    leading = special.index(0) if 0 in special else (len(special) + 1) // 2
    body = special.count(0)
    return tuple(ids[:leading]), tuple(ids[leading + body :])


def _middle(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer's own template puts between two texts; its suffix where the template knows of one only."""
    encoding = tokenizer("a", "a", return_special_tokens_mask=True)
    special = encoding["special_tokens_mask"]
    text = [place for place, is_special in enumerate(special) if not is_special]
    between = [place for place in range(text[0], text[-1]) if special[place]] if text else []
    return tuple(encoding["input_ids"][place] for place in between) or _ends(tokenizer)[1]


def _positions(model: nn.Module) -> int:
    """How many positions the model can tell apart; RoBERTa's family counts from behind the padding id."""
    model_with_base: Any = model
    limit = int(getattr(model_with_base.config, "max_position_embeddings", None) or LONGEST_INPUT)
    return limit - first_position(model)


def first_position(model: nn.Module) -> int:
    """The position id of a text's first token: 0, in RoBERTa's family the one behind the padding id."""
    model_with_base: Any = model
    embeddings = getattr(model_with_base.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1
