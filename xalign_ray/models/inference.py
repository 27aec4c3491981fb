"""Opens any Hugging Face encoder, ours or any other, with or without a head, and runs it over features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel

from xalign_ray.config.language_codes import ENGLISH
from xalign_ray.errors import DataError
from xalign_ray.models.open import Opened
from xalign_ray.models.open_folder import as_one_sentence, open_model
from xalign_ray.models.precision import in_fp32
from xalign_ray.models.tokenized import ENCODED, Features, Inputs

BATCH_SIZE = 64
BATCH_PIECES = 1 << 13  # padding included: one long text does not lengthen sixty short ones
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoder:
    """An opened model in evaluation mode, fp32, beside its tokenizer and input conventions."""

    model: Any
    inputs: Inputs

    @classmethod
    def open(cls, opened: Opened, device: str = "auto", model_class: Any = AutoModel) -> Encoder:
        """Opens its weights as `open_model` does; none of a head is drawn at random."""
        model, tokenizer = open_model(opened, model_class, new_head=False)
        inputs = Inputs.of_model(tokenizer, model, opened.name)
        return cls(model.to(pick_device(device)).eval(), inputs)._tried()

    def _tried(self) -> Encoder:
        """Itself, if it makes hidden states of a text.

        Raises:
            DataError: it does not, as models of speech, of images, and some that write text.
        """
        pieces, base = self.inputs.piece_texts(["a"])[0][:1], self.model.base_model
        with as_one_sentence(f"{self.inputs.encoder} does not encode text as an encoder does"), torch.inference_mode():
            batch = self.inputs.collate([self.inputs.single(pieces, (*self.inputs.languages, ENGLISH)[0])])
            base(**{name: batch[name].to(base.device) for name in batch if name in ("attention_mask", *ENCODED)})
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """Of the head, in the order of their ids."""
        return tuple(self.model.config.id2label[index] for index in range(len(self.model.config.id2label)))

    @property
    def tuned_on(self) -> str:
        """The language that a head was fine-tuned on; English by default."""
        return getattr(self.model.config, "xalign_tune_language", "en")

    @torch.inference_mode()
    def run(self, features: Sequence[Features], **options: Any) -> Iterator[tuple[list[int], Any, Tensor]]:
        """The model's outputs in fp32, a batch at a time; inputs of like length go together, few where they are long.

        Yields:
            The places of B inputs in `features`, the output `[B, L, ...]`, and the mask `[B, L]` of real tokens.
        """
        batches: list[list[int]] = []
        sizes = [len(feature["input_ids"]) for feature in features]
        for index in sorted(range(len(features)), key=sizes.__getitem__):
            if not batches or len(batches[-1]) >= min(BATCH_SIZE, BATCH_PIECES // sizes[index]):
                batches.append([])
            batches[-1].append(index)
        for places in batches:
            batch = self.inputs.collate([features[index] for index in places])
            model_inputs = {
                name: batch[name].to(self.model.device) for name in ("attention_mask", *ENCODED) if name in batch
            }
            with in_fp32():
                output = self.model(**model_inputs, **options)
            yield places, output, model_inputs["attention_mask"]

    def forward(self, features: Sequence[Features], take: Callable[[Any], Tensor]) -> list[NDArray[Any]]:
        """What `take` makes of the model's output `[B, ...]` for each input, in the order given."""
        results: dict[int, NDArray[Any]] = {}
        for places, output, _ in self.run(features):
            results |= zip(places, take(output).cpu().numpy(), strict=True)
        return [results[index] for index in range(len(features))]

    def word_vectors(self, words: Sequence[str]) -> Vectors:
        """Mean of the rows of each word's pieces in the embedding table, which ALIGN-MLM aligns, `[N, D]`.

        Position, LayerNorm and language are not in it. A word of nothing but unknown pieces has the zero vector.
        """
        table = self.embedding_table()
        unknown = self.inputs.tokenizer.unk_token_id
        vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
        for row, pieces in enumerate(self.inputs.piece_words(words)):
            if known_pieces := [piece for piece in pieces if piece != unknown]:
                vectors[row] = table[known_pieces].mean(axis=0)
        return vectors

    def embedding_table(self) -> Vectors:
        """The input embeddings, `[V, D]`; DataError if it holds values that are not finite."""
        table = self.model.get_input_embeddings().weight.detach().float().cpu().numpy()
        self.check_finite(table)
        return table

    def language_vector(self, language: str) -> Vectors:
        """The vector `[D]` that the model adds to every token of a text in this language: its token-type row.

        The row is segment 0 plus language, folded by the export. Zero for a model without language embeddings.
        """
        row = self.inputs.token_type(language)
        if not self.inputs.languages:
            return np.zeros(self.embedding_table().shape[1], dtype=np.float32)
        table = self.model.base_model.embeddings.token_type_embeddings
        return table.weight[row].detach().float().cpu().numpy()

    def check_finite(self, values: Vectors) -> None:
        """Refuses values of this encoder that are not finite; DataError in a sentence."""
        if not np.isfinite(values).all():
            raise DataError(
                f"{self.inputs.encoder} yields values that are not finite; its training diverged or its weights are "
                "damaged: export an earlier checkpoint."
            )


def pick_device(device: str = "auto") -> torch.device:
    """The torch device of this name; of "auto" the GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
