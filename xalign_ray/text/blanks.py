"""Blanks between words and columns of data files: U+0020 and TAB, as the programs that write the files have them.

Python's own `str.split()` also splits at U+0085, U+00A0, U+2009, U+202F, U+3000 and others. fast_align, eflomal and the
Moses scripts take these for parts of words, so that links would point to the word before the right one.
"""

from __future__ import annotations

import re

BLANKS = " \t"
WORD = re.compile(rf"[^{BLANKS}]+")


def split_words(line: str) -> list[str]:
    """The words of a line, as the links of a word alignment count them: `"a\\u00a0! b"` has two."""
    return WORD.findall(line)
