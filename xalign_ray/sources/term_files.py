"""Files of dictionaries, several in a zip too, and what every dictionary form makes of the terms in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.sources.moses import is_zip, member_names, open_member, unpack
from xalign_ray.sources.open import Chunks
from xalign_ray.sources.records import BadRow, Entry, Noted, Record
from xalign_ray.vocabulary.dictionary import trim_punctuation

ONE_TERM = "dictionary line has one column"
NO_TERM = "term is empty"
NO_TRANSLATION = "entry without a translation into the other language"
OTHER_LANGUAGES = "entry in other languages"
PUNCTUATION = "dictionary lines with punctuation around a word, taken off"
BRACKETS = "terms with notes in brackets, taken off"
NOTES = "parts of speech and notes, not read"
_BRACKETED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)")
_NOT_TERMS = re.compile(r"(^|/)(readme|licen[sc]e|copying)\b|\.(md|pdf|html?|dtd|rng|xsd|sch|css|xsl)$", re.IGNORECASE)


class _Member(Chunks):
    """The bytes of a file within a zip."""

    def __init__(self, archive: str, name: str) -> None:
        super().__init__(f"{archive}:{name}")
        self._archive, self._name = archive, name

    def __iter__(self) -> Iterator[bytes]:
        with ExitStack() as stack:
            member = open_member(self._archive, self._name, stack)
            self._size = member.size
            for chunk in unpack(member, self.path):
                self._begin, self._end = self._end, self._end + len(chunk)
                yield chunk


def files_of(path: str) -> Iterator[Chunks]:
    """A file, or those within a zip but for its licence and notes; their `path` is zip:member."""
    if not is_zip(path):
        yield Chunks(path)
        return
    for name in sorted(member_names(path)):
        if not _NOT_TERMS.search(name):
            yield _Member(path, name)


def entries(
    languages: Sequence[str], lefts: Iterable[str], rights: Iterable[str], source: str, line: int
) -> Iterator[Record | Noted]:
    """Each term of the first language with each of the second, without notes in brackets and outer punctuation.

    A term that is brackets and punctuation alone stays as it is; without a term on either place it is a bad row.
    """
    first, second = languages
    cleaned: list[list[str]] = []
    is_trimmed = False
    for terms in (lefts, rights):
        bare = [one for term in terms if (one := " ".join(term.split()))]
        plain = [" ".join(_BRACKETED.sub(" ", term).split()) or term for term in bare]
        trimmed = [trim_punctuation(term) for term in plain]
        if brackets := sum(a != b for a, b in zip(bare, plain, strict=True)):
            yield Noted(BRACKETS, brackets)
        is_trimmed |= plain != trimmed
        cleaned.append(list(dict.fromkeys(trimmed)))
    if is_trimmed:
        yield Noted(PUNCTUATION, 1)
    if not all(cleaned):
        yield BadRow(source, line, NO_TERM)
    for left, right in product(*cleaned):
        yield Entry((first, second), (left, right), source, line)


def is_turned(path: str, languages: Sequence[str]) -> bool:
    """Whether a file's name says its two languages in the other order: `deu-eng.tei` for en and de."""
    name = path.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    for one, other in re.findall(r"(?=(?:^|[._-])([a-z]{2,3})[-_]([a-z]{2,3})(?=[._-]|$))", name):
        if is_language(one) and is_language(other):
            codes = check_language(one), check_language(other)
            if codes in ((languages[0], languages[1]), (languages[1], languages[0])):
                return codes == (languages[1], languages[0])
    return False
