"""Forms under which words are looked up in a dictionary: lower case and spelling variants folded, by language."""

from __future__ import annotations

import unicodedata

# Languages whose Latin I is the capital of a dotless i: Unicode's SpecialCasing, and two that are written the same.
DOTLESS_I = frozenset({"tr", "az", "crh", "gag"})
_CAPITAL_I = str.maketrans({"I": "\u0131", "\u0130": "i"})
# Ligatures and digraphs, presentation forms of Hebrew and Arabic letters, full-width and half-width forms.
_PRINTED = (
    range(0x0132, 0x0134), range(0x01C4, 0x01CD), range(0x01F1, 0x01F4),
    range(0xFB00, 0xFE00), range(0xFE70, 0xFEFD), range(0xFF01, 0xFFEF),
)  # fmt: skip
# Hebrew points, Arabic vowel marks and the letter stretcher: most texts leave them out.
_POINTS = (
    *range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7, 0x0640, *range(0x064B, 0x0653), 0x0670,
)  # fmt: skip
# Soft hyphen, zero-width blank and joiner of words, marks of direction. U+200C and U+200D are part of words.
_INVISIBLE = (
    0x00AD, 0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF,
)  # fmt: skip
_FOLDED = {
    **{point: unicodedata.normalize("NFKC", chr(point)) for points in _PRINTED for point in points},
    **dict.fromkeys((*_POINTS, *_INVISIBLE), ""),
    **dict.fromkeys((0x02BC, 0x2018, 0x2019), "'"),  # ways to write an apostrophe
    **dict.fromkeys((0x2010, 0x2011), "-"),  # hyphens
}
# Punctuation at the end of a dictionary's word that is no part of it; not hyphens and apostrophes (-ing, 's), not signs
# (#, %, &, @, *, /), and a point only where the word has no other (U.S.).
_OF_SCRIPTS = (  # stops, commas and marks: Greek, Armenian, Hebrew, Syriac, Tibetan, Burmese, Ethiopic, Khmer, ...
    0x0387, 0x00B7, 0x0589, *range(0x055B, 0x0560), 0x05C3, *range(0x0700, 0x070B), 0x07F8, 0x07F9,
    *range(0x0F0D, 0x0F13), 0x104A, 0x104B, *range(0x1361, 0x1369), *range(0x17D4, 0x17D7), *range(0x1801, 0x1806),
    0x1C7E, 0x1C7F, 0xA4FE, 0xA4FF,
)  # fmt: skip
_ENDS = frozenset(map(chr, _OF_SCRIPTS)) | frozenset(
    '()[]{}<>,;:!?"\u00a1\u00bf\u00ab\u00bb\u2039\u203a\u201c\u201d\u201e\u2026\u060c\u061b\u061f\u06d4\u0964\u0965'
    "\u3001\u3002\u300c\u300d\u300e\u300f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
)

_QUOTES = frozenset(
    (("'", "'"), ("`", "`"), ("`", "'"), ("\u2018", "\u2019"), ("\u201a", "\u2018"), ("\u201a", "\u2019"))
)


def look_up_form(word: str, language: str = "") -> str:
    """The form under which a word stands in the dictionary: NFC, lower case, no surrounding blanks.

    Presentation forms, digraphs and full-width characters become plain letters, and apostrophes are alike. Vowel marks
    of Hebrew and Arabic and invisible characters are left out. The text itself keeps them: only words of a dictionary
    are written so.

    Args:
        language: of the word; in tr, az, crh and gag the lower case of I is dotless.
    """
    text = unicodedata.normalize("NFC", word)
    if language.partition("-")[0] in DOTLESS_I:
        text = text.translate(_CAPITAL_I)
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.translate(_FOLDED).replace("i\u0307", "i")).lower()
    return text.strip()


def trim_punctuation(word: str) -> str:
    """A dictionary's word without the punctuation around it: `house,` is `house`; punctuation alone stays.

    Single quotes go where they are on both sides: one alone is an apostrophe.
    """
    if len(word) > 2 and (word[0], word[-1]) in _QUOTES:
        return trim_punctuation(word[1:-1])
    begin, end = 0, len(word)
    while begin < end and word[begin] in _ENDS:
        begin += 1
    while end > begin and (word[end - 1] in _ENDS or (word[end - 1] == "." and "." not in word[begin : end - 1])):
        end -= 1
    return word[begin:end] or word
