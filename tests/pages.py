"""The pages of docs/tutorials as tests use them: the files that their blocks are, and their command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|yaml|bash)\n(?:# (?P<place>[\w./-]+(?:, [^\n]*)?)\n)?(?P<text>.*?)^```", re.M | re.S)


def text_of(page: str) -> str:
    """A page by its file's name."""
    return (TUTORIALS / page).read_text(encoding="utf-8")


def write_files(page: str, folder: Path) -> None:
    """Writes the blocks of a page that say which file they are."""
    for block in BLOCK.finditer(text_of(page)):
        path, _, where = (block["place"] or "").partition(", ")
        if path:
            _apply(folder / path, where, block["text"])


def commands(page: str) -> list[str]:
    """The command lines of a page, in order, without their comments."""
    blocks = [block["text"].replace("\\\n", " ") for block in BLOCK.finditer(text_of(page)) if block[1] == "bash"]
    lines = [line.partition("  #")[0] for text in blocks for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line.strip()]


def command(page: str, begin: str) -> list[str]:
    """The words of the command line of a page that is this, or the only one that begins so."""
    lines = commands(page)
    (line,) = [begin] if begin in lines else [line for line in lines if line.startswith(begin)]
    return shlex.split(line)


def _apply(file: Path, where: str, text: str) -> None:
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    verb, name = where.rsplit(" ", 1) if where else ("", "")
    statement = re.search(rf"^{name}\b[^\n=]*= (?:[^\n]*[\])}}]\n|.*?^[\])}}]\n)", old, re.M | re.S)
    if not where:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    elif statement and verb == "above":
        file.write_text(old[: statement.start()] + text + "\n\n" + old[statement.start() :], encoding="utf-8")
    elif statement and verb == "in place of":
        file.write_text(old[: statement.start()] + text + old[statement.end() :], encoding="utf-8")
    elif statement and verb == "at the end of":
        file.write_text(old[: statement.end() - 2] + text + old[statement.end() - 2 :], encoding="utf-8")
    else:
        raise AssertionError(f"the page says '{where}' of {file.name}")
