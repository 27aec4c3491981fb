"""The notebook of docs/ is executed in a process and folder of its own; as a program this renews its outputs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.pages import TUTORIALS

NOTEBOOK = TUTORIALS / "from_python.ipynb"
LIMIT_S = 600  # of a cell


def read() -> Any:
    """The notebook as it is in the repository."""
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(folder: Path) -> Any:
    """The notebook with the outputs of this machine, without what it said on stderr.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    book = read()
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=LIMIT_S, resources=where, record_timing=False).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return book


def shown(book: Any) -> list[list[list[str]]]:
    """What each code cell shows: the kinds of each of its outputs."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [[sorted(one.get("data", {one.output_type: ""})) for one in cell.outputs] for cell in cells]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(Path(folder)), NOTEBOOK)
