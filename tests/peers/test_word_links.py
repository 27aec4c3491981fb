"""The encoder aligner against simalign's argmax: cosines, the most similar piece of each side, both directions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from simalign import SentenceAligner

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.align.encoder_aligner import PretrainedEncoder

PIECES = [f"{letter}{vowel}" for letter in "bcdfghjklm" for vowel in "aeiou"]
LAYER = 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of words of one or two pieces."""
    return make_bert_in(
        tmp_path_factory.mktemp("peers") / "encoder", [*PIECES, *(f"##{one}" for one in PIECES)], layers=3
    )


def test_argmax_links_equal_simalign(tmp_path: Path, encoder: Path) -> None:
    rng = random.Random(2)
    words = [first + rng.choice(["", rng.choice(PIECES)]) for first in PIECES]
    pairs = [(rng.sample(words, rng.randrange(1, 9)), rng.sample(words, rng.randrange(1, 9))) for _ in range(100)]
    peer = SentenceAligner(str(encoder), token_type="bpe", matching_methods="a", device="cpu", layer=LAYER)
    theirs = [sorted(peer.get_word_aligns(*pair)["inter"]) for pair in pairs]
    kind = PretrainedEncoder(str(encoder), layer=LAYER, extraction="argmax")
    assert kind.open(tmp_path).align(pairs, kind.default_method) == theirs
    assert sum(map(len, theirs)) > 100
