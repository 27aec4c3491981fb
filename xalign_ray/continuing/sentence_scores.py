"""Sentence vectors and masked-LM losses of an encoder."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.models.hub import fetch_weights
from xalign_ray.models.open import open_encoder
from xalign_ray.models.sentence_files import SentenceRule
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.shards.counter_random import CHOOSE_WORD, random_bits
from xalign_ray.work.artifacts import hash_value

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.models.inference import Encoder

MASKED = 0.15  # of the tokens of a text
LABELS_AT_ONCE = 256  # logits over 250,000 pieces take 1 MB a label
_MASK_SEED = np.uint64(0x5EED)

Text = tuple[str, str]  # text and language
Numbers = NDArray[np.float32]


class SentenceScores:
    """An encoder that is opened when it is first needed.

    Attributes:
        rule: how a sentence vector is made.
        search_prompts: before a query, and before a passage.
    """

    def __init__(self, encoder: str, rule: SentenceRule | None = None, device: str = "auto") -> None:
        """Opens nothing yet.

        Args:
            encoder: folder or hub id.
            rule: how to make a sentence vector; the encoder's own if None.
        """
        self.encoder = encoder
        self._files = open_encoder(encoder)
        self.rule = rule or self._files.sentences.rule
        self.search_prompts = self._files.sentences.search_prompts
        self._device = device
        self._known = defaultdict[str, dict[Text, Numbers]](dict)

    @property
    def device(self) -> str:
        """As torch names it."""
        from xalign_ray.models.inference import pick_device

        return str(pick_device(self._device))

    def vectors(self, texts: Sequence[Text], prompt: str | None = None) -> Numbers:
        """A vector for each text, `[N, D]`; it is computed once.

        Args:
            prompt: what stands before each text; the rule's if None.
        """
        prompt = self.rule.prompt if prompt is None else prompt
        vectors_of = self._known[prompt]
        if new := [text for text in dict.fromkeys(texts) if text not in vectors_of]:
            rule = replace(self.rule, prompt=prompt)
            encoder = SentenceVectors(self._files, rule=rule, encoder=self._opened[0])
            vectors = encoder.encode([text for text, _ in new], [language for _, language in new])
            vectors_of.update(zip(new, vectors, strict=True))
        return np.stack([vectors_of[text] for text in texts])

    def losses(self, texts: Sequence[Text]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The summed masked-LM loss of each text in nats, and its number of labels, `[N]` each.

        A share of MASKED of the tokens of a text, at least one, is masked; a hash of its pieces draws them, so that
        encoders of one vocabulary predict the same tokens.
        """
        import torch

        encoder, head = self._opened
        assert head is not None, self.why_no_losses
        inputs = encoder.inputs
        room = inputs.max_length - len(inputs.prefix) - len(inputs.suffix)
        pieces = [ids[:room] for ids in inputs.piece_texts([text for text, _ in texts])]
        masked = [masked_places(ids) for ids in pieces]
        features = []
        for ids, positions, (_, language) in zip(pieces, masked, texts, strict=True):
            shown = np.array(ids, dtype=np.int64)
            shown[positions] = inputs.tokenizer.mask_token_id
            features.append(inputs.single(shown.tolist(), language))
        sums, counts = np.zeros(len(texts)), np.zeros(len(texts))
        with torch.inference_mode():
            for numbers, output, _ in encoder.run(features):
                # A label: the row of the batch, the place in its text, the number of the text.
                labels = [(row, position, number) for row, number in enumerate(numbers) for position in masked[number]]
                if labels:
                    rows, positions, label_texts = np.array(labels).T
                    gold = torch.tensor([pieces[number][position] for _, position, number in labels])
                    hidden = output.last_hidden_state[rows, len(inputs.prefix) + positions].float()
                    sums += np.bincount(label_texts, _label_losses(head, hidden, gold), len(texts))
                    counts += np.bincount(label_texts, minlength=len(texts))
        return sums, counts

    @property
    def why_no_losses(self) -> str:
        """Why there is no masked-LM loss; empty where there is one."""
        return "" if self._opened[1] else f"{self.encoder} has no masked-LM head"

    @cached_property
    def tokenizer_hash(self) -> str:
        """A hash of the vocabulary: losses of encoders with different ones cannot be compared."""
        return hash_value(self._opened[0].inputs.tokenizer.get_vocab())

    @cached_property
    def _opened(self) -> tuple[Encoder, Any]:
        """The bare encoder, and its masked-LM head as a function; None where it has no head of a known family."""
        from transformers import AutoModel, AutoModelForMaskedLM

        from xalign_ray.models.inference import Encoder

        fetch_weights(self.encoder)
        family = self._files.family
        if family is None or not self._files.has_head:
            return Encoder.open(self._files, self._device, AutoModel), None
        masked_lm = Encoder.open(self._files, self._device, AutoModelForMaskedLM)
        return Encoder(masked_lm.model.base_model, masked_lm.inputs), lambda hidden: family.predict(
            masked_lm.model, hidden
        )


def why_no_losses(old: SentenceScores, new: SentenceScores) -> str:
    """Why the masked-LM losses of two encoders cannot be compared; empty where they can."""
    if missing := old.why_no_losses or new.why_no_losses:
        return missing
    same = old.tokenizer_hash == new.tokenizer_hash
    return "" if same else "the vocabularies differ, so that the two would predict other pieces"


def _label_losses(head: Any, hidden: Tensor, gold: Tensor) -> NDArray[np.float32]:
    """-log p of each label, `[N]`, from hidden states `[N, D]`; the logits of a few labels at a time."""
    from torch.nn.functional import cross_entropy

    parts = [
        cross_entropy(head(states).float(), labels, reduction="none").cpu().numpy()
        for states, labels in zip(
            hidden.split(LABELS_AT_ONCE), gold.to(hidden.device).split(LABELS_AT_ONCE), strict=True
        )
    ]
    return np.concatenate(parts)


def masked_places(pieces: Sequence[int]) -> list[int]:
    """The places of a text's pieces that are predicted, in order: a share of MASKED, at least one of a text."""
    if not pieces:
        return []
    key = int.from_bytes(hashlib.sha256(np.asarray(pieces, np.int64).tobytes()).digest()[:8], "little")
    keys = np.full(len(pieces), np.uint64(key) ^ _MASK_SEED)
    drawn = random_bits(keys, CHOOSE_WORD, np.arange(len(pieces)))
    return sorted(np.argsort(drawn, kind="stable")[: max(1, round(MASKED * len(pieces)))].tolist())
