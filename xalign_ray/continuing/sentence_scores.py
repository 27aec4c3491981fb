"""Sentence vectors and masked-LM losses of an encoder, cached by the content of the model and of each text."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.code import package_code
from xalign_ray.models.hub import fetch_weights
from xalign_ray.models.open import open_encoder
from xalign_ray.models.sentence_files import SentenceRule, read_sentence_files
from xalign_ray.models.vectors import SentenceVectors, vector_files
from xalign_ray.shards.counter_random import CHOOSE_WORD, random_bits
from xalign_ray.work.artifacts import hash_file, hash_value, replacing

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.models.inference import Encoder

CODE = ("models", "continuing/sentence_scores")  # decides the numbers
MASKED = 0.15  # of the tokens of a text
LABELS_AT_ONCE = 256  # logits over 250,000 pieces take 1 MB a label
_MASK_SEED = np.uint64(0x5EED)

Text = tuple[str, str]  # text and language
Numbers = NDArray[np.float32]


class SentenceScores:
    """An encoder, opened when a number is first asked for that is not on the disk.

    Attributes:
        rule: how a sentence vector is made.
    """

    def __init__(
        self,
        encoder: str,
        rule: SentenceRule | None = None,
        cache: Path | None = None,
        device: str = "auto",
    ) -> None:
        """Opens nothing yet.

        Args:
            encoder: folder or hub id.
            rule: how to make a sentence vector; the encoder's own if None.
            cache: folder where numbers are kept from one comparison to the next; they are not if None.
        """
        self.encoder = encoder
        self.rule = rule or read_sentence_files(encoder).rule
        self._asked = rule
        self._cache = cache and cache / hash_value([package_code(*CODE), *_identity(encoder)])[:16]
        self._device = device
        self._opened: tuple[Encoder, Any] | None = None

    def vectors(self, texts: Sequence[Text]) -> Numbers:
        """A vector for each text, `[N, D]`; each distinct text is encoded once."""

        def encode(missing: Sequence[Text]) -> Numbers:
            made = SentenceVectors(self.encoder, rule=self._asked, encoder=self._open()[0])
            return made.encode(*map(list, zip(*missing, strict=True)))

        return self._kept(f"vectors-{hash_value([self.rule.prompt, self.rule.pooling])[:16]}", texts, encode)

    def losses(self, texts: Sequence[Text]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The summed masked-LM loss of each text in nats, and its number of labels, `[N]` each.

        The same 15 % of the tokens of a text, at least one, are masked whenever it is scored: they are drawn by a hash
        of its pieces.
        """
        found = self._kept("losses", texts, lambda missing: self._masked_losses(missing)).astype(np.float64)
        return found[:, 0], found[:, 1]

    @property
    def why_no_losses(self) -> str:
        """Why there is no masked-LM loss; empty where there is one."""
        head = self._open()[1]
        return "" if head else f"{self.encoder} has no masked-LM head"

    @property
    def tokenizer_hash(self) -> str:
        """Of the vocabulary: losses of encoders with different ones cannot be compared."""
        return hash_value(self._open()[0].inputs.tokenizer.get_vocab())

    def _open(self) -> tuple[Encoder, Any]:
        """The bare encoder, and the masked language model around it; None where it has no head of a known family."""
        if self._opened is None:
            self._opened = _open(self.encoder, self._device)
        return self._opened

    def _masked_losses(self, texts: Sequence[Text]) -> Numbers:
        import torch

        encoder, head = self._open()
        inputs = encoder.inputs
        room = inputs.max_length - len(inputs.prefix) - len(inputs.suffix)
        pieces = [ids[:room] for ids in inputs.piece_texts([text for text, _ in texts])]
        masked = [masked_places(ids) for ids in pieces]
        features = [
            inputs.single(_hide(ids, at, inputs.tokenizer.mask_token_id), language)
            for ids, at, (_, language) in zip(pieces, masked, texts, strict=True)
        ]
        found = np.zeros((len(texts), 2), dtype=np.float32)
        with torch.inference_mode():
            for places, output, _ in encoder.run(features):
                # A label: the row of the batch, the place in its text, the number of the text.
                labels = [(row, place, text) for row, text in enumerate(places) for place in masked[text]]
                if not labels:
                    continue
                rows, at, text_of = np.array(labels).T
                gold = torch.tensor([pieces[text][place] for _, place, text in labels])
                losses = _losses(head, output.last_hidden_state[rows, len(inputs.prefix) + at].float(), gold)
                found[:, 0] += np.bincount(text_of, losses, len(texts))
                found[:, 1] += np.bincount(text_of, minlength=len(texts))
        return found

    def _kept(self, name: str, texts: Sequence[Text], score: Callable[[Sequence[Text]], Numbers]) -> Numbers:
        """The numbers of texts, of which those that are not on the disk are computed, and written there."""
        keys = [hashlib.sha256(f"{language}\n{text}".encode()).hexdigest()[:32] for text, language in texts]
        known = self._read(name)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            known |= zip(missing, score([*missing.values()]), strict=True)
            self._write(name, known)
        return np.stack([known[key] for key in keys]) if keys else np.zeros((0, 2), np.float32)

    def _read(self, name: str) -> dict[str, Numbers]:
        path = self._cache and self._cache / f"{name}.npz"
        if not path or not path.is_file():
            return {}
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(zip(file["texts"].tolist(), file["values"], strict=True))
        except (OSError, EOFError, ValueError, KeyError, BadZipFile, zlib.error):  # a damaged cache is computed again
            return {}

    def _write(self, name: str, known: Mapping[str, Numbers]) -> None:
        if not self._cache:
            return
        with replacing(self._cache / f"{name}.npz") as temporary, temporary.open("xb") as file:
            np.savez(file, texts=np.array([*known]), values=np.stack([*known.values()]))


def _hide(pieces: Sequence[int], places: Sequence[int], mask: int) -> list[int]:
    shown = np.array(pieces, dtype=np.int64)
    shown[list(places)] = mask
    return shown.tolist()


def _losses(head: Any, hidden: Tensor, gold: Tensor) -> NDArray[np.float32]:
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
    """The places in a text whose pieces are predicted, in order: a share of `MASKED`, at least one of a text."""
    if not pieces:
        return []
    key = int.from_bytes(hashlib.sha256(np.asarray(pieces, np.int64).tobytes()).digest()[:8], "little")
    keys = np.full(len(pieces), np.uint64(key) ^ _MASK_SEED)
    drawn = random_bits(keys, CHOOSE_WORD, np.arange(len(pieces)))
    return sorted(np.argsort(drawn, kind="stable")[: max(1, round(MASKED * len(pieces)))].tolist())


def _open(encoder: str, device: str) -> tuple[Encoder, Any]:
    from transformers import AutoModel, AutoModelForMaskedLM

    from xalign_ray.models.inference import Encoder

    opened = open_encoder(encoder)
    fetch_weights(encoder)
    family = opened.family
    if family is None or not opened.has_head:
        return Encoder.open(encoder, device, AutoModel), None
    whole = Encoder.open(encoder, device, AutoModelForMaskedLM)
    return Encoder(whole.model.base_model, whole.inputs), lambda hidden: family.predict(whole.model, hidden)


def _identity(encoder: str) -> list[str]:
    """What an encoder is, wherever it lies: hashes of its files, those of modules behind its pooling among them."""
    return [hash_file(path) for path in vector_files(fetch_weights(encoder))]
