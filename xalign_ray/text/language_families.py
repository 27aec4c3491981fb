"""Which family a language belongs to, in the groups that XTREME reports its scores by."""

from __future__ import annotations

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

    In a code's one spelling only the language itself is in small letters (zh-Hans, pt-BR), what is private after an x
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
