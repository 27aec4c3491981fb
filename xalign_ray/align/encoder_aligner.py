"""The `encoder` aligner: words are linked if an encoder's hidden states for them are alike (Dou and Neubig 2021)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xalign_ray.align.links import SYMMETRISERS, Link, WordPair
from xalign_ray.config.code import package_code
from xalign_ray.errors import ConfigError
from xalign_ray.vocabulary.tokenizer import frame_of, tokenize_words
from xalign_ray.work.artifacts import hash_file

if TYPE_CHECKING:
    from torch import Tensor

THRESHOLD = 1e-3  # awesome-align's: a partner with more in the softmax is linked
BATCH = 32  # sides of about the same length that are encoded together

Similarity = NDArray[np.float32]
Linked = NDArray[np.bool_]
States = NDArray[np.float32]


def softmax_links(similarity: Similarity) -> Linked:
    """For each piece of the second side (column) the pieces of the first with a softmax over THRESHOLD."""
    exponents = np.exp(similarity - similarity.max(axis=0, keepdims=True))
    return exponents / exponents.sum(axis=0, keepdims=True) > THRESHOLD


def argmax_links(similarity: Similarity) -> Linked:
    """For each piece of the second side (column) the most similar piece of the first."""
    linked = np.zeros(similarity.shape, np.bool_)
    linked[similarity.argmax(axis=0), np.arange(similarity.shape[1])] = True
    return linked


EXTRACTORS: Mapping[str, Callable[[Similarity], Linked]] = {"softmax": softmax_links, "argmax": argmax_links}


def similarities(first: States, second: States, extraction: str) -> Similarity:
    """How alike pieces are, [I, J], of states [I, D] and [J, D]: cosines for argmax, products for softmax."""
    if extraction == "argmax":
        first, second = (states / np.linalg.norm(states, axis=1, keepdims=True) for states in (first, second))
    return first @ second.T


@dataclass(frozen=True)
class PretrainedEncoder:
    """The kind `encoder`: any Hugging Face folder; nothing is trained.

    With the method `intersection`, `softmax` of products is awesome-align and `argmax` of cosines is simalign's argmax
    (tests/peers/test_word_links.py). A word is linked if any piece of it is.

    Attributes:
        path: the folder.
        languages: of the two sides, for an encoder of ours that has language embeddings.
        layer: whose hidden states are compared, from 1; two thirds up if None, which is layer 8 of mBERT's 12.
        extraction: a name in EXTRACTORS.
    """

    path: str
    languages: tuple[str, str] | None = None
    layer: int | None = None
    extraction: str = "softmax"

    name: ClassVar[str] = "encoder"
    default_method: ClassVar[str] = "intersection"
    learns: ClassVar[bool] = False

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on."""
        files = sorted(file for ending in ("*.json", "*.safetensors", "*.bin") for file in Path(self.path).glob(ending))
        if not (Path(self.path) / "config.json").is_file():
            raise ConfigError(f"{self.path} is no encoder's folder: it has no config.json.")
        if self.extraction not in EXTRACTORS:
            raise ConfigError(f"unknown extraction '{self.extraction}'. Known: {', '.join(EXTRACTORS)}.")
        trained = json.loads((Path(self.path) / "config.json").read_text(encoding="utf-8")).get("xalign_languages")
        if trained and (lacking := sorted(set(self.languages or ()) - set(trained))):
            raise ConfigError(
                f"{self.path} has language embeddings for {', '.join(trained)}, not {', '.join(lacking)}; align with "
                "another encoder."
            )
        return {
            "kind": self.name,
            "code": package_code("models"),
            "encoder": {file.name: hash_file(file) for file in files},
            "languages": self.languages,
            "layer": self.layer,
            "extraction": self.extraction,
        }

    def train(self, pairs: Sequence[WordPair], folder: Path) -> None:
        """There is nothing to train: the encoder is the model."""

    def open(self, folder: Path) -> EncoderAligner:  # noqa: ARG002 - the model lies elsewhere
        """The encoder, ready to align."""
        return EncoderAligner(self)


class EncoderAligner:
    """An opened encoder, on a GPU where the process sees one, without gradients."""

    def __init__(self, settings: PretrainedEncoder) -> None:
        import torch
        from transformers import AutoModel

        from xalign_ray.models.open import open_encoder
        from xalign_ray.models.open_folder import open_model

        self.settings = settings
        model, tokenizer = open_model(open_encoder(settings.path), AutoModel)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model: Any = model.eval().to(self.device)
        self.tokenizer: Any = tokenizer
        self.frame = frame_of(tokenizer.backend_tokenizer)
        layers = self.model.config.num_hidden_layers
        self.layer = round(layers * 2 / 3) if settings.layer is None else settings.layer
        if not 1 <= self.layer <= layers:
            raise ConfigError(f"there is no layer {self.layer}: {settings.path} has layers 1 to {layers}.")
        self.types = [self._token_type(which) for which in (0, 1)]

    def align(self, pairs: Sequence[WordPair], method: str) -> list[list[Link]]:
        """Links of each pair; what lies beyond the encoder's longest input is not linked."""
        links: list[list[Link]] = [[] for _ in pairs]
        full = [number for number, (a, b) in enumerate(pairs) if a and b]
        texts = [dict(self._encode([pairs[number][which] for number in full], self.types[which])) for which in (0, 1)]
        for at, number in enumerate(full):
            (first, words_of_first), (second, words_of_second) = texts[0][at], texts[1][at]
            if len(first) and len(second):
                pieces = link_pieces(
                    similarities(first, second, self.settings.extraction), self.settings.extraction, method
                )
                links[number] = sorted({(int(words_of_first[i]), int(words_of_second[j])) for i, j in pieces})
        return links

    def _token_type(self, which: int) -> int:
        """The token type that stands for the language of a side, by our exports' config."""
        languages = getattr(self.model.config, "xalign_languages", None) or []
        if not languages:
            return 0
        assert self.settings.languages, "identity() was called before"
        language = self.settings.languages[which]
        return self.model.config.xalign_segments * languages.index(language)

    def _room(self) -> int:
        """The most pieces of a side; models like RoBERTa number positions from the id of padding on."""
        table = getattr(getattr(self.model, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        return self.model.config.max_position_embeddings - (0 if padding is None else padding + 1)

    def _encode(self, texts: Sequence[Sequence[str]], token_type: int) -> Iterator[tuple[int, tuple[Any, Any]]]:
        """The place of each side, and for its pieces the hidden states [P, D] and the words they belong to [P]."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for begin in range(0, len(order), BATCH):
            places = order[begin : begin + BATCH]
            cut = self._cut([texts[number] for number in places])
            ids = [torch.tensor(pieces) for pieces, _ in cut]
            mask = pad_sequence([torch.ones_like(pieces) for pieces in ids], batch_first=True)
            padded = pad_sequence(ids, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0)
            inputs: dict[str, Tensor] = {"input_ids": padded.to(self.device), "attention_mask": mask.to(self.device)}
            if token_type:
                inputs["token_type_ids"] = torch.full_like(inputs["input_ids"], token_type)
            with torch.no_grad():
                states = self.model(**inputs, output_hidden_states=True).hidden_states[self.layer]
            hidden = states.float().cpu().numpy()
            for row, (number, (_, words)) in enumerate(zip(places, cut, strict=True)):
                is_word = words >= 0
                yield number, (hidden[row, : len(words)][is_word], words[is_word])

    def _cut(self, texts: Sequence[Sequence[str]]) -> list[tuple[list[int], NDArray[np.int64]]]:
        """The pieces of each side, framed and cut to the encoder's longest input, and the word of each, -1 of a frame.

        Each word has the pieces that it has inside a sentence. transformers' `is_split_into_words` gives tokenizers of
        bytes and of Gemma's kind the words without the blank before them.
        """
        distinct = list(dict.fromkeys(word for text in texts for word in text))
        pieces = dict(zip(distinct, tokenize_words(self.tokenizer.backend_tokenizer, distinct), strict=True))
        room = self._room() - sum(map(len, self.frame))
        sides = []
        for text in texts:
            flat = [(piece, number) for number, word in enumerate(text) for piece in pieces[word]][:room]
            begin, end = self.frame
            words = [*[-1] * len(begin), *(number for _, number in flat), *[-1] * len(end)]
            sides.append(([*begin, *(piece for piece, _ in flat), *end], np.asarray(words, np.int64)))
        return sides


def link_pieces(similarity: Similarity, extraction: str, method: str) -> list[Link]:
    """Links between pieces from how alike they are [I, J]: extracted for each direction, then made one by `method`."""
    extract = EXTRACTORS[extraction]
    forward, backward = extract(similarity), extract(similarity.T).T
    return sorted(SYMMETRISERS[method](_as_set(forward), _as_set(backward)))


def _as_set(linked: Linked) -> set[Link]:
    return set(zip(*(axis.tolist() for axis in np.nonzero(linked)), strict=True))
