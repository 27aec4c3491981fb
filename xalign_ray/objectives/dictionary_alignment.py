"""Dictionary alignment: the vectors of a word and of its translation are pulled into one direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.config.choices import DictionaryAlignment
from xalign_ray.errors import ConfigError
from xalign_ray.models.attention import layout
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.objectives.objective import LossContext, MicroStep, Objective, check_layer
from xalign_ray.streams.collate import SpecialIds
from xalign_ray.vocabulary.dictionary import DictionaryPairs

EPSILON = 1e-8
NO_PIECE = -1
# Streams of random numbers that must not coincide with another use of the run's seed.
_SAMPLE, _SHUFFLE = 0x616C6731, 0x616C6732


class DictionaryAlignmentLoss(Objective):
    """Draws the word vectors of translations together, up to length.

    Minimises: sum over pairs of -cos(u, v); u and v are the means of the two words' rows of the raw embedding
        table (no position, language, LayerNorm or dropout), which is tied to the decoder. In [-1, 1] a pair, so that
        a total loss may be negative.
    Reference: Tang et al. 2022, ALIGN-MLM. The mean over pieces is ours: their words are single pieces.
    Needs: data.dictionaries with entries to train on; no row of the batch.
    Settings: `weight` (alpha, 10 in the paper); `pairs_per_step` a uniform sample of the dictionary, an unbiased
        estimate, drawn anew each step; `pool` another word vector, or only words of one piece; `layer` k takes hidden
        states after k layers in place of embedding rows, each word alone as [CLS] pieces [SEP] in its language;
        `shuffled` the control whose pairs mean nothing.
    Costs: two embedding look-ups a pair, split over ranks and micro-steps; with `layer` a pass of the encoder over
        both words of a pair, for which `pairs_per_step` should be set.
    Relations: needs no language embeddings (they are added after the table). Cosine has no repulsion: watch the mean
        cosine of random rows for collapse.
    """

    pieces: Tensor

    def __init__(self, settings: DictionaryAlignment, context: LossContext) -> None:
        super().__init__(settings, context)
        if context.pairs is None or not len(context.pairs.left):
            raise ConfigError(
                "objective dictionary_alignment has no pair to train on: every entry of data.dictionaries is held out "
                "or holds a word that the tokenizer does not know. Lower data.dictionary_held_out_fraction or name a "
                "dictionary with split: train."
            )
        check_layer(settings.kind, settings.layer, context.encoder)
        pairs = _single_pieces(context.pairs) if settings.pool == "single_piece_only" else context.pairs
        pieces = _stack(pairs)
        if settings.shuffled:
            pieces[:, 1] = pieces[_mismatch(pairs, context.seed), 1]
        languages = np.stack([pairs.left_language, pairs.right_language], axis=1).astype(np.int64)
        self._host = torch.from_numpy(pieces), torch.from_numpy(languages)
        self.register_buffer("pieces", self._host[0], persistent=False)

    def forward(self, micro_step: MicroStep) -> Tensor:
        """Minus the summed cosines of the pairs in this micro-step's slice."""
        drawn = self._slice(micro_step.part, micro_step.step)
        chosen = self._on_device(drawn)
        pieces = self.pieces[chosen]
        real = pieces != NO_PIECE
        if self.settings.pool == "first":
            real = real & (torch.arange(real.shape[2], device=real.device) == 0)
        encoder = micro_step.encoder
        vectors = encoder.embed(pieces.clamp(min=0)) if self.settings.layer is None else self._shown(encoder, drawn)
        rows = vectors.float() * real[..., None]
        words = rows.sum(dim=2) / real.sum(dim=2)[..., None]
        return -F.cosine_similarity(words[:, 0], words[:, 1], dim=-1, eps=EPSILON).sum()

    def count(self, batch: Mapping[str, np.ndarray], parts: Sequence[tuple[int, int]], step: int) -> float:  # noqa: ARG002
        """The pairs in the rank's slices."""
        return float(sum(high - low for low, high in map(self._bounds, parts)))

    def _shown(self, encoder: AlignedEncoder, drawn: Tensor) -> Tensor:
        """Hidden states of the pieces of both words of the drawn pairs, one word a row: [n, 2, k, d]."""
        assert self.context.special is not None, "words are shown between [CLS] and [SEP]"
        pieces, languages = (values[drawn] for values in self._host)
        batch = _alone(pieces.flatten(0, 1), languages.flatten(), self.context.special)
        batch |= layout(batch["example_ids"])  # on the host: a GPU would be waited for
        hidden = encoder.encode({key: self._on_device(value) for key, value in batch.items()}, self.settings.layer)
        return hidden[:, 1:-1].unflatten(0, pieces.shape[:2])

    def _on_device(self, values: Tensor) -> Tensor:
        """Not from pageable memory: that copy waits for all that a GPU still computes."""
        return values.pin_memory().to(self.pieces.device, non_blocking=True) if self.pieces.is_cuda else values

    def _slice(self, part: tuple[int, int], step: int) -> Tensor:
        low, high = self._bounds(part)
        k, n = self._pairs_per_step(), len(self.pieces)
        if k == n:
            return torch.arange(low, high)
        # The same draw on every rank; only the slice differs.
        drawn = np.random.default_rng([self.context.seed & (2**64 - 1), _SAMPLE, step]).choice(n, k, replace=False)
        return torch.from_numpy(drawn[low:high])

    def _bounds(self, part: tuple[int, int]) -> tuple[int, int]:
        index, of = part
        k = self._pairs_per_step()
        return index * k // of, (index + 1) * k // of

    def _pairs_per_step(self) -> int:
        return min(self.settings.pairs_per_step or len(self.pieces), len(self.pieces))


def _alone(words: Tensor, languages: Tensor, special: SpecialIds) -> dict[str, Tensor]:
    """Rows of one word each, [CLS] pieces [SEP] and padding: words [n, k] -> what `encode` reads, [n, k + 2] each."""
    columns = torch.arange(words.shape[1] + 2, device=words.device).expand(len(words), -1)
    last = (words != NO_PIECE).sum(dim=1, keepdim=True) + 1
    inside = columns <= last
    ids = F.pad(words.clamp(min=0), (1, 1)) * (columns < last)
    ids = ids + special.cls * (columns == 0) + special.sep * (columns == last)
    return {
        "input_ids": ids,
        "position_ids": columns * inside,
        "segment_ids": torch.zeros_like(columns),
        "language_ids": languages[:, None] * inside,
        "example_ids": inside.long(),
    }


def _single_pieces(pairs: DictionaryPairs) -> DictionaryPairs:
    """The pairs whose words are one piece each.

    Raises:
        ConfigError: if there is none.
    """
    single = np.ones(len(pairs.left), dtype=bool)
    for words in (pairs.left, pairs.right):
        single &= (words != NO_PIECE).sum(axis=1) == 1
    if not single.any():
        raise ConfigError(
            "objective dictionary_alignment with pool: single_piece_only has no pair to train on: every entry has a "
            "word of several pieces. Set pool: mean, or raise data.tokenizer.vocab_size."
        )
    return DictionaryPairs(
        pairs.left[single], pairs.right[single], pairs.left_language[single], pairs.right_language[single]
    )


def _stack(pairs: DictionaryPairs) -> np.ndarray:
    """Both sides in one array int64[n, 2, k], so that one look-up serves both."""
    longest = max(pairs.left.shape[1], pairs.right.shape[1])
    pieces = np.full((len(pairs.left), 2, longest), NO_PIECE, dtype=np.int64)
    pieces[:, 0, : pairs.left.shape[1]] = pairs.left
    pieces[:, 1, : pairs.right.shape[1]] = pairs.right
    return pieces


def _mismatch(pairs: DictionaryPairs, seed: int) -> np.ndarray:
    """For each pair another pair of the same two languages, whose right side it gets: one random cycle a language pair.

    Languages and word counts do not change; a language pair with a single entry keeps it.
    """
    partner = np.arange(len(pairs.left))
    random = np.random.default_rng([seed & (2**64 - 1), _SHUFFLE])
    languages = np.stack([pairs.left_language, pairs.right_language], axis=1)
    for group in np.unique(languages, axis=0):
        cycle = random.permutation(np.flatnonzero((languages == group).all(axis=1)))
        partner[cycle] = np.roll(cycle, 1)
    return partner
