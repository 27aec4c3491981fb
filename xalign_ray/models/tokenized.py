"""Turns words and sentences into a model's features: piece ids, padded batches, the language as a token type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xalign_ray.errors import DataError
from xalign_ray.streams.collate import IGNORED
from xalign_ray.vocabulary.tokenizer import encode_text, tokenize_words

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_INPUT = 512
ENCODED = ("input_ids", "token_type_ids", "position_ids")
ARGUMENTS = (*ENCODED, "labels", "start_positions", "end_positions")

Features = dict[str, Any]  # of one input: lists of ids and labels under the names of the model's arguments


@dataclass(frozen=True, slots=True)
class Inputs:
    """A tokenizer and the model's limits on its inputs."""

    tokenizer: Any  # as `AutoTokenizer` opened it
    prefix: tuple[int, ...]  # ids that the tokenizer puts before a text, such as [CLS]
    middle: tuple[int, ...]  # between two texts, such as [SEP]
    suffix: tuple[int, ...]  # after, such as [SEP]
    max_length: int  # of an input in pieces, prefix and suffix included
    languages: tuple[str, ...]  # that the model has embeddings for, in the order of their ids; empty if it has none
    segments: int  # rows of the token-type table per language; token_type_id = segment + segments * language id
    encoder: str  # name of the model, for messages
    max_seq_length: int | None = None  # of a fine-tuned model, if not the task's own length
    longest: int = LONGEST_INPUT  # pieces that the tokenizer and the positions allow, which `max_length` bounds

    @classmethod
    def of_model(cls, tokenizer: Any, model: Any, encoder: str) -> Inputs:
        """Facts about inputs in `config.json` and the tokenizer of an opened folder."""
        config = model.config
        prefix, suffix = _ends(tokenizer)
        # The tokenizer of a folder that we fine-tuned cuts where its task does; the encoder takes longer inputs.
        stated = LONGEST_INPUT if hasattr(config, "xalign_task") else int(tokenizer.model_max_length)
        positions = int(getattr(config, "max_position_embeddings", None) or LONGEST_INPUT) - first_position(model)
        return cls(
            tokenizer=tokenizer,
            prefix=prefix,
            middle=_middle(tokenizer),
            suffix=suffix,
            max_length=min(LONGEST_INPUT, stated, positions),
            languages=tuple(getattr(config, "xalign_languages", None) or ()),
            segments=int(getattr(config, "xalign_segments", None) or getattr(config, "type_vocab_size", 1)),
            encoder=encoder,
            max_seq_length=getattr(config, "xalign_max_seq_length", None),
            longest=min(stated, positions),
        )

    def check_languages(self, languages: Iterable[str]) -> None:
        """Refuses languages that the model has no embedding for; a model without language embeddings knows all.

        There is no silent stand-in for a missing embedding, such as the mean of the table: a table of scores must not
        mix given languages with guessed ones.

        Raises:
            DataError: names the unknown languages, the known ones, and the fix.
        """
        check_languages(self.encoder, self.languages, languages)

    def token_type(self, language: str, segment: int = 0) -> int:
        """The token type of a text in this language, in the last segment that the model has if it lacks this one."""
        self.check_languages([language])
        segment = min(segment, self.segments - 1)
        return segment + (self.segments * self.languages.index(language) if self.languages else 0)

    def piece_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of running text, without prefix and suffix, however long."""
        if not texts:
            return []
        if self.tokenizer.is_fast:
            return encode_text(self.tokenizer.backend_tokenizer, texts)[0]
        return self.tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True)["input_ids"]

    def piece_words(self, words: Sequence[str]) -> list[list[int]]:
        """Piece ids of each word inside a sentence, without prefix and suffix."""
        return tokenize_words(self.tokenizer.backend_tokenizer, words)

    def limit(self, longest: int) -> int:
        """Pieces of an input, prefix and suffix included, of a task whose own length is `longest`."""
        return min(self.max_seq_length or longest, self.max_length)

    def room(self, longest: int) -> int:
        """Pieces of text in an input, beside prefix and suffix, of a task whose own length is `longest`."""
        return self.limit(longest) - len(self.prefix) - len(self.suffix)

    def single(self, pieces: Sequence[int], language: str) -> Features:
        """One text, given as pieces without the tokenizer's own."""
        ids = [*self.prefix, *pieces, *self.suffix]
        return self._encode(ids, [self.token_type(language)] * len(ids))

    def pair(self, first: Sequence[int], second: Sequence[int], languages: Sequence[str]) -> Features:
        """Two texts, given as pieces without the tokenizer's own, each with the language of its side."""
        begin, end = [*self.prefix, *first, *self.middle], [*second, *self.suffix]
        types = [self.token_type(languages[0])] * len(begin) + [self.token_type(languages[1], 1)] * len(end)
        return self._encode(begin + end, types)

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """A model's arguments: everything that is a list is padded to the longest.

        Returns:
            `input_ids` and `attention_mask` `[B, L]`, `token_type_ids` if the model has several types, and whatever
            labels the features have, `[B]` or `[B, L]`.
        """
        import torch

        padding = {"input_ids": self.tokenizer.pad_token_id or 0, "labels": IGNORED}
        sizes = torch.tensor([len(feature["input_ids"]) for feature in features])
        width = int(sizes.max())
        batch = {"attention_mask": (torch.arange(width) < sizes[:, None]).long()}
        for name in (name for name in ARGUMENTS if name in features[0]):
            rows = [
                [*value, *[padding.get(name, 0)] * (width - len(value))] if isinstance(value, list) else value
                for value in (feature[name] for feature in features)
            ]
            batch[name] = torch.tensor(rows)
        return batch

    def _encode(self, ids: list[int], types: list[int]) -> Features:
        return {"input_ids": ids} | ({"token_type_ids": types} if self.languages or self.segments > 1 else {})


def check_languages(encoder: str, known: Sequence[str], languages: Iterable[str]) -> None:
    """As `Inputs.check_languages`, of an encoder that is not open: `known` are its language embeddings' languages."""
    if unknown := sorted(set(languages) - set(known)) if known else []:
        raise DataError(
            f"{encoder} has language embeddings for {', '.join(known)}, none for {', '.join(unknown)}; name the "
            "languages to score among the known ones."
        )


def _ends(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prefix and suffix of one text by the tokenizer's template; without a template, of a text of no pieces."""
    encoding = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    leading = special.index(0) if 0 in special else (len(special) + 1) // 2
    return tuple(ids[:leading]), tuple(ids[leading + special.count(0) :])


def _middle(tokenizer: Any) -> tuple[int, ...]:
    """Pieces between two texts by the tokenizer's template; its suffix where the template is of one text only."""
    encoding = tokenizer("a", "a", return_special_tokens_mask=True)
    special = encoding["special_tokens_mask"]
    text = [at for at, is_special in enumerate(special) if not is_special]
    between = [at for at in range(text[0], text[-1]) if special[at]] if text else []
    return tuple(encoding["input_ids"][at] for at in between) or _ends(tokenizer)[1]


def first_position(model: Any) -> int:
    """The position id of a text's first token: 0, in RoBERTa's family the one behind the padding id."""
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else padding + 1
