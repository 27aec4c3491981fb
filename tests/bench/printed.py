"""Whether the papers print what our tables say they do: `python tests/bench/printed.py FOLDER` of the papers' texts.

FOLDER holds one text file for each paper, named dict.txt, align.txt, weam.txt and ppa.txt. For each row of
docs/explanation/printed.tsv with a printed value, all numbers of the value must stand in a section or table that the
row names; a value without numbers is listed, to be looked up by hand. Exit 1 if a number is not where it should be.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parents[2] / "docs" / "explanation" / "printed.tsv"
HEADING = re.compile(r"^(?:#+ *)?\**((?:\d|[A-I])(?:\.\d)?)\**\.? +\**(?=[A-Z])", re.MULTILINE)
CAPTION = re.compile(r"^Table (\d+):", re.MULTILINE)
CITED = re.compile(r"\b(Tables? )?((?:\d{1,2}|[A-I])(?:\.\d)?)\b")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")
AROUND = 1500  # characters of a table before its caption


def places(text: str) -> dict[str, str]:
    """The text of each section, subsections apart, and around each table's caption."""
    heads = list(HEADING.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=True):
        found[head[1]] = found.get(head[1], "") + text[head.end() : end]
    for caption in CAPTION.finditer(text):
        found[f"Table {caption[1]}"] = text[max(caption.start() - AROUND, 0) : caption.start() + AROUND]
    return found


def cited(paper: str, where: str) -> Iterator[str]:
    """Sections and tables of one paper that a row names: such as "G.3 and Table 10" of "ALIGN G.3 and Table 10"."""
    where = re.sub(r"\([^)]*\)|equations? \d(?: to \d)?", "", where)
    for part in re.split(r"\b(?=(?:DICT|ALIGN|WEAM|PPA|XLM|BERT)\b(?!-))", where):
        if part.startswith(paper):
            kind = ""
            for table, place in CITED.findall(part.removeprefix(paper).partition(";")[0]):
                kind = "Table " if table or (kind and place.isdigit()) else ""
                yield kind + place


def numbers(text: str) -> set[float]:
    """All numbers; separators of thousands are left out, a power of ten may be broken over two lines."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text.replace("\N{MINUS SIGN}", "-"))
    return {float(one) for one in NUMBER.findall(re.sub(r"\b10\s*-(?=\d)", "1e-", plain))}


def main(folder: Path) -> int:
    """Prints each row whose numbers are not found; returns how many."""
    texts = {path.stem.upper(): places(path.read_text(encoding="utf-8")) for path in folder.glob("*.txt")}
    wrong = 0
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["printed"]]
    for row, (paper, sections) in itertools.product(rows, texts.items()):
        if not (named := list(cited(paper, row["where"]))):
            continue
        wanted, where = numbers(row["printed"]), f"{paper} {', '.join(named)}: {row['key']}"
        missing = [place for place in named if place not in sections]
        lost = wanted - numbers(" ".join(sections.get(place, "") for place in named))
        if missing or lost:
            sys.stdout.write(f"WRONG {where}: no {missing or sorted(lost)}\n")
            wrong += 1
        elif not wanted:
            sys.stdout.write(f"look up {where}: {row['printed']!r}\n")
    sys.stdout.write(f"{len(rows)} rows, {wrong} wrong\n")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1])), 1))
