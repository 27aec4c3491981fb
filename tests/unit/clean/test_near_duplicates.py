"""Signatures of texts: similar ones share bands as often as MinHash says, whatever stands beside them."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_ray.clean import duplicates
from xalign_ray.clean.duplicates import band_hashes, sign
from xalign_ray.config.sources import NearDuplicatesConfig
from xalign_ray.sources.records import Document, Pair

DEFAULT = NearDuplicatesConfig()
TEXT = " ".join(f"word{n}" for n in range(200))
CHINESE = "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(120))


def share_bands(a: list[str], b: list[str], languages: tuple[str, ...] = ("en",)) -> float:
    left, right = sign(DEFAULT, languages, [a, b])
    return float((left == right).mean())


def test_case_punctuation_and_blanks_do_not_count() -> None:
    assert share_bands(["The cat, it sat on \u201cthe\u201d mat!"], ["the cat  it SAT on the mat"]) == 1
    assert share_bands(["The cat, it sat on the mat"], ["the cat it sat on a mat"]) == 0
    assert share_bands(["Stra\u00dfe caf\u00e9"], ["stra\u00dfe cafe\u0301"]) == 1


def test_a_line_more_or_another_order_of_lines_is_nearly_the_same() -> None:
    lines = [TEXT[at : at + 200] for at in range(0, 1400, 200)]
    assert share_bands(lines, lines[::-1]) == 1
    assert share_bands(lines, [*lines, "one line more"]) > 0.5
    assert share_bands(lines, ["all", "other", *lines[:1]]) == 0


@pytest.mark.parametrize(("shared", "sharing"), [(0.5, 0.05), (0.71, 0.6), (0.9, 0.999)])
def test_texts_share_a_band_as_often_as_minhash_says(shared: float, sharing: float) -> None:
    """Lines of one word are shingles: Jaccard similarity is what two texts of 200 have in common."""
    assert sharing == pytest.approx(1 - (1 - shared**8) ** 14, abs=0.02)
    common = round(shared * 400 / (1 + shared))
    pairs = [
        (
            [f"{n}-{k}" for k in range(200)],
            [f"{n}-{k}" for k in range(common)] + [f"{n}x{k}" for k in range(200 - common)],
        )
        for n in range(100)
    ]
    bands = sign(DEFAULT, ["en"], [text for pair in pairs for text in pair]).reshape(100, 2, 14)
    found = (bands[:, 0] == bands[:, 1]).any(axis=1).mean()
    assert found == pytest.approx(sharing, abs=0.15)
    assert (bands[:, 0] == bands[:, 1]).mean() == pytest.approx(shared**8, abs=0.05)


def test_a_language_without_blanks_is_compared_by_letters() -> None:
    changed = CHINESE[:60] + "\u4e00" + CHINESE[61:]
    assert share_bands([CHINESE], [changed], ("zh",)) > 0
    assert share_bands([CHINESE], [CHINESE[:60] + CHINESE[30:60] + CHINESE[:30]], ("zh",)) < 1
    assert share_bands([CHINESE], [CHINESE[::-1]], ("zh",)) == 0


def test_both_texts_of_a_pair_count() -> None:
    assert share_bands(["one two", CHINESE[:9]], ["One two.", CHINESE[:9]], ("en", "zh")) == 1
    assert share_bands(["one two", CHINESE[:9]], ["one two", CHINESE[9:18]], ("en", "zh")) < 1
    assert share_bands(["one two", "drei"], ["one two three", "vier"], ("en", "de")) == 0


def test_texts_without_words_are_alike_and_like_no_other() -> None:
    bands = sign(DEFAULT, ["en"], [["..."], ["a"], ["--", "!"], ["b"]])
    assert (bands[0] == bands[2]).all()
    assert not any((bands[0] == bands[n]).any() for n in (1, 3))


def test_hashes_do_not_depend_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document("en", (f"text {n} of {n * n}", "and more"), "here", n) for n in range(20)]
    whole = b"".join(band_hashes(DEFAULT, ["en"], documents))
    assert len(whole) == 20 * 14 * 8
    monkeypatch.setattr(duplicates, "WINDOW_CHARACTERS", 50)
    assert b"".join(band_hashes(DEFAULT, ["en"], documents)) == whole
    pair = Pair(("en", "de"), ("one two", "eins zwei"), "here", 1)
    assert b"".join(band_hashes(DEFAULT, ["en", "de"], [pair])) == sign(DEFAULT, ["en", "de"], [pair.texts]).tobytes()


def test_other_settings_are_other_bands() -> None:
    bands = sign(NearDuplicatesConfig(n_grams=1), ["en"], [["a b c"], ["c b a"]])
    assert bands.shape == (2, duplicates.BANDS)
    assert (bands[0] == bands[1]).all()
    assert len(np.unique(bands[0])) == duplicates.BANDS
