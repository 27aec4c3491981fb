"""The first tutorial's script and command: pairs out of installed packages, read by the command as the page says."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import polib
import pytest

from tests.pages import ROOT, command, write_files
from tests.parity.test_continue import write_encoder

PAGE = "your_encoder.md"
LANGUAGES = {"pairs": ["gl", "is", "sl", "ug"], "keep": ["de", "fr"]}


def write_package(folder: Path, languages: list[str]) -> None:
    """A package with translations as Django's: a plain entry, one of two words, and an empty one."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for language in languages:
        file = polib.POFile()
        for number in range(250):
            english = f"The page number {chr(97 + number // 26)}{chr(97 + number % 26)} is shown in {folder.name}"
            file.append(polib.POEntry(msgid=english, msgstr=f"{language}{number}a zu{number}b {folder.name}"))
        file.append(polib.POEntry(msgid="Two words", msgstr="Zwei"))
        file.append(polib.POEntry(msgid="Not translated at all", msgstr=""))
        path = folder / "conf" / "locale" / language / "LC_MESSAGES" / "django.po"
        path.parent.mkdir(parents=True)
        file.save(str(path))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's script has run."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name in ("django", "wagtail"):
        write_package(folder / "site" / name, [code for codes in LANGUAGES.values() for code in codes])
    write_files(PAGE, folder)
    words = command(PAGE, "python make_pairs.py")[1:]
    environment = os.environ | {"PYTHONPATH": str(folder / "site")}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_script_writes_sentences_with_a_header_of_two_languages(made: Path) -> None:
    for folder, languages in LANGUAGES.items():
        for language in languages:
            with (made / folder / f"en-{language}.csv").open(encoding="utf-8", newline="") as file:
                rows = list(csv.reader(file))
            assert rows[0] == ["en", language]
            assert len(rows) == 1 + 500
            assert all(len(english.split()) > 2 and other for english, other in rows[1:])


def test_command_of_the_page_reads_the_files(made: Path) -> None:
    write_encoder(made / "encoder")
    words = command(PAGE, "xalign continue intfloat")[1:]
    words[1] = "encoder"  # the page's is on the hub
    files = [str(path.relative_to(made)) for word in words for path in sorted(made.glob(word)) if "*" in word]
    pairs = [name for name in files if name.startswith("pairs/")]
    keep = [name for name in files if name.startswith("keep/")]
    at = {word: number for number, word in enumerate(words)}
    given = [
        *words[: at["--pairs"] + 1],
        *pairs,
        "--keep",
        *keep,
        *words[at["--steps"] :],
        "--allow-unknown",
        "1",
        "--plan",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "xalign_ray", *given], cwd=made, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "languages      en, gl, is, sl, ug\n" in done.stdout
    assert "40 steps, as asked for." in done.stdout
