"""Takes MediaWiki's bold and italic marks off a line, and leaves the apostrophes that a reader sees."""

from __future__ import annotations

import re

_RUN = re.compile(r"'{2,}")


def drop_quotes(line: str) -> str:
    """The line without runs of apostrophes that are marks.

    As MediaWiki reads them (Parser::handleAllQuotes): two are italic, three bold, five both; of four the first is an
    apostrophe, and so are those before the last five of more. If a line opens as much bold as italic without closing
    either, one run of three is an apostrophe and italic: after a word of one letter if there is one (French
    l'''Histoire''), else after a longer word, else after a blank.
    """
    runs = list(_RUN.finditer(line))
    if not runs:
        return line
    lengths = [len(run[0]) for run in runs]
    kept = [1 if length == 4 else max(0, length - 5) for length in lengths]
    marks = [length - left for length, left in zip(lengths, kept, strict=True)]
    bold = sum(mark in (3, 5) for mark in marks)
    italic = sum(mark in (2, 5) for mark in marks)
    if bold % 2 and italic % 2:
        threes = [number for number, mark in enumerate(marks) if mark == 3]
        if threes:
            kept[min(threes, key=lambda number: (_place(line, runs[number].start()), number))] += 1
    return "".join(_pieces(line, runs, kept))


def _place(line: str, start: int) -> int:
    """How likely an apostrophe stands there: 0 after a word of one letter, 1 after a longer one, 2 after a blank."""
    before, last = line[:start][-2:-1], line[:start][-1:]
    if not last.strip():
        return 2
    return 0 if before == " " else 1


def _pieces(line: str, runs: list[re.Match[str]], kept: list[int]) -> list[str]:
    pieces, at = [], 0
    for run, count in zip(runs, kept, strict=True):
        pieces += [line[at : run.start()], "'" * count]
        at = run.end()
    return [*pieces, line[at:]]
