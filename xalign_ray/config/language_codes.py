"""Language codes: checks a BCP-47 tag, gives the one spelling that everything else uses, and the language's family."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated

import langcodes
from pydantic import AfterValidator

from xalign_ray.errors import ConfigError

ENGLISH = "en"
_SHAPE = re.compile(r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?(-x(-[a-z0-9]{1,8})+)?", re.IGNORECASE)
# Wikipedias whose codes CLDR replaces by others (fil, sr-Latn, lah): mBERT's list and XTREME's data name them.
# Twi and Fante, which are apart in Masakhane's and FLORES' data, would both become Akan.
_KEPT = {"tl": "tl", "tgl": "tl", "sh": "sh", "hbs": "sh", "pnb": "pnb", "tw": "tw", "twi": "tw", "fat": "fat"}
_UNDERSCORED = re.compile(r"([a-z]{2,3})_([a-z]{4})", re.IGNORECASE)  # FLORES and FineWeb: yor_Latn
_NOT_A_LANGUAGE = {"und", "mul", "mis", "zxx"}

# The languages of the demo world and of XTREME: only to guess the meaning of a mistyped code or a name.
NAMES = {
    "Afrikaans": "af", "Arabic": "ar", "Bulgarian": "bg", "Bengali": "bn", "Catalan": "ca", "Czech": "cs",
    "German": "de", "Greek": "el", "English": "en", "Spanish": "es", "Estonian": "et", "Basque": "eu",
    "Persian": "fa", "Finnish": "fi", "French": "fr", "Hebrew": "he", "Hindi": "hi", "Hungarian": "hu",
    "Indonesian": "id", "Italian": "it", "Japanese": "ja", "Javanese": "jv", "Georgian": "ka", "Kazakh": "kk",
    "Korean": "ko", "Malayalam": "ml", "Marathi": "mr", "Malay": "ms", "Burmese": "my", "Dutch": "nl",
    "Polish": "pl", "Portuguese": "pt", "Romanian": "ro", "Russian": "ru", "Swahili": "sw", "Tamil": "ta",
    "Telugu": "te", "Thai": "th", "Tagalog": "tl", "Turkish": "tr", "Ukrainian": "uk", "Urdu": "ur",
    "Vietnamese": "vi", "Yoruba": "yo", "Chinese": "zh",
}  # fmt: skip


def check_language(code: str) -> str:
    """The canonical form of a language code: `deu` -> `de`, `cmn` -> `zh`, `swh` -> `sw`, `zh-hans` -> `zh-Hans`.

    Accepts language[-Script][-REGION][-x-private], and language_Script. ISO 639-3 codes become the 639-1 code where
    there is one, and the standard variety of a macrolanguage becomes the macrolanguage (arb -> ar), while its others
    stay (arz, yue, Twi's tw, Fante's fat).
    qaa..qtz are free for languages of one's own.

    Raises:
      ConfigError: the code has another shape, is unknown, or stands for no language (`und`); names the nearest code.
    """
    code = _hyphened(code)
    if not _SHAPE.fullmatch(code):
        raise ConfigError(f"'{code}' is not a language code such as 'en', 'swa' or 'zh-Hans'.{_guess(code)}")
    if code.lower() in _NOT_A_LANGUAGE:
        raise ConfigError(f"'{code}' stands for no particular language; name the language of the text.")
    if not langcodes.tag_is_valid(code):
        raise ConfigError(
            f"'{code}' is not a known language code (BCP-47, ISO 639).{_guess(code)}"
            " For a language without a code use one of qaa to qtz."
        )
    first, _, rest = code.lower().partition("-")
    if first in _KEPT:
        return (
            "-".join([_KEPT[first], *langcodes.standardize_tag(f"qaa-{rest}").split("-")[1:]]) if rest else _KEPT[first]
        )
    return langcodes.standardize_tag(code, macro=True)


def _hyphened(code: str) -> str:
    return code.replace("_", "-") if _UNDERSCORED.fullmatch(code) else code


@lru_cache(maxsize=8192)
def in_script(code: str) -> str:
    """A canonical code with its default script, without its region: `yo` is yo-Latn, `zh-TW` zh-Hant."""
    if "-x-" in code:
        return code
    full = langcodes.Language.get(code).maximize()
    return f"{full.language}-{full.script}"


def script_and_region(code: str) -> tuple[str, str]:
    """What codes of one language in one script share, `yo-Latn` and `yo`; regions stay apart: pt-BR is not pt."""
    return in_script(code), "" if "-x-" in code else langcodes.Language.get(code).territory or ""


def take_language(code: str) -> str:
    """As check_language, but a code of the right shape that no registry has is taken, in lower case.

    Raises:
      ConfigError: the code has another shape, or stands for no language.
    """
    return code.lower() if is_unknown(code) else check_language(code)


def is_unknown(code: str) -> bool:
    """Whether a code is two or three letters that no registry has."""
    return (
        re.fullmatch(r"[a-z]{2,3}", code, re.IGNORECASE) is not None
        and not is_language(code)
        and (code.lower() not in _NOT_A_LANGUAGE)
    )


def explain_unknown(code: str) -> str:
    """The note on a code that is used though no registry has it."""
    return f"'{code}' is not a known language code (BCP-47, ISO 639).{_guess(code)} It is used unchanged."


def is_language(code: str) -> bool:
    """Whether check_language accepts this code."""
    code = _hyphened(code)
    return bool(_SHAPE.fullmatch(code)) and code.lower() not in _NOT_A_LANGUAGE and langcodes.tag_is_valid(code)


Language = Annotated[
    str, AfterValidator(lambda code: check_language(code) if is_language(code) else code)
]  # of a recipe


def name_of_pair(first: str, second: str) -> str:
    """What scores of two languages are named by: the one that is not English; both, such as "de-fr", if none is."""
    if ENGLISH in (first, second):
        return second if first == ENGLISH else first
    return f"{first}-{second}"


def _guess(code: str) -> str:
    hyphened = code.replace("_", "-")
    if hyphened != code and is_language(hyphened):
        return f" Did you mean '{check_language(hyphened)}'?"
    names = {name.lower(): code for name, code in NAMES.items()}
    if near := get_close_matches(code.lower(), names, n=1, cutoff=0.5):
        return f" Did you mean '{names[near[0]]}' ({near[0].capitalize()})?"
    near = get_close_matches(code.lower(), NAMES.values(), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


# Which family a language belongs to, in the groups that XTREME reports its scores by.

INVENTED = "invented or derived"
OTHER = "other families"

# The 40 languages of XTREME, and those that MUSE has dictionaries for.
_FAMILIES = {
    "Afro-Asiatic": "ar he",
    "Albanian": "sq",
    "Austro-Asiatic": "vi",
    "Austronesian": "fil id jv ms tl",
    "Baltic": "lt lv",
    "Basque": "eu",
    "Dravidian": "ml ta te",
    "Germanic": "af da de en nl no sv",
    "Greek": "el",
    "Indo-Aryan": "bn hi mr ur",
    "Iranian": "fa",
    "Japonic": "ja",
    "Kartvelian": "ka",
    "Koreanic": "ko",
    "Kra-Dai": "th",
    "Niger-Congo": "sw yo",
    "Romance": "ca es fr it pt ro",
    "Sino-Tibetan": "my zh",
    "Slavic": "bg bs cs hr mk pl ru sk sl uk",
    "Turkic": "kk tr",
    "Uralic": "et fi hu",
}
_FAMILY_OF = {code: family for family, codes in _FAMILIES.items() for code in codes.split()}


def family_of(language: str) -> str:
    """The family of a BCP-47 code, whatever its script or region; `INVENTED` for qaa to qtz, `OTHER` if not known."""
    base = language.split("-")[0]
    return INVENTED if "qaa" <= base <= "qtz" and len(base) == 3 else _FAMILY_OF.get(base, OTHER)


def languages_of(language: str) -> tuple[str, ...]:
    """The languages that a score is about: both of a pair such as "en-de", else the code itself.

    In a code's one spelling only the language itself is in small letters (zh-Hans, pt-BR), private parts after an x
    apart, so that "en-de" is two languages and "en-DE" one.
    """
    halves: list[list[str]] = []
    private = False
    for part in language.split("-"):
        if not halves or (part.isalpha() and part.islower() and len(part) in (2, 3) and not private):
            halves.append([part])
        else:
            private = private or part == "x"
            halves[-1].append(part)
    return tuple("-".join(half) for half in halves)
