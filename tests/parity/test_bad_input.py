"""Bad input, as a user meets it: a small recipe over files that are wrong, and the sentence that `prepare` ends with.

The parts of a recipe are prepared one after the other in this process; on a cluster they are tasks of Ray Data.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.conftest import one_after_the_other
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import DataError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.tokens import prepare as preparation

Prepare = Callable[..., Prepared]
HINT = r"Fetch or repair the file\.$"
SENTENCES = [f"the {animal} sees {count} {thing}s" for animal in "ab" for count in "1234567890" for thing in "xyz"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Sixty sentences in two languages, the same as pairs, and a dictionary."""
    for language, article in (("en", "the"), ("de", "das")):
        text = "\n".join(sentence.replace("the", article) for sentence in SENTENCES) + "\n"
        (tmp_path / f"text.{language}").write_text(text)
    (tmp_path / "en-de.txt").write_text("the das\nsees sieht\na ein\nb zwei\n")
    return tmp_path


@pytest.fixture
def prepare(files: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """`prepare` on a recipe over these files; keys of `data` may be replaced."""

    monkeypatch.setattr(stage, "_run_tasks", one_after_the_other)

    def call(**data: Any) -> Prepared:
        whole = {
            "root": str(files),
            "corpora": [{"format": "text", "language": code, "paths": [f"text.{code}"]} for code in ("en", "de")],
            "dictionaries": [{"languages": ["en", "de"], "paths": ["en-de.txt"]}],
            "tokenizer": {"kind": "bpe", "vocab_size": 200},
            "max_seq_length": 32,
        }
        recipe = files / "recipe.yaml"
        train = {"max_steps": 1, "global_batch_size": 2}
        recipe.write_text(yaml.safe_dump({"output": str(files / "out"), "data": whole | data, "train": train}))
        return preparation.prepare(load_recipe(str(recipe)).config)

    return call


def corpus(path: str, language: str = "en", format_: str = "text") -> list[dict[str, Any]]:
    return [{"format": format_, "language": language, "paths": [path]}]


def moses(*paths: str) -> list[dict[str, Any]]:
    return [{"format": "moses", "languages": ["en", "de"], "paths": list(paths)}]


def test_the_files_are_fine_as_they_are(prepare: Prepare) -> None:
    prepared = prepare(parallel=moses("text.en", "text.de"))
    assert prepared.manifest["counts"]["lines"] == 2 * len(SENTENCES)
    assert prepared.manifest["counts"]["pairs"] == len(SENTENCES)
    assert prepared.manifest["bad_rows"] == {}


def half_gzip() -> bytes:
    """30,000 lines of which the packed bytes are cut in half."""
    lines = "".join(f"{number * number} the {number} sees {number * 7919 % 10007}\n" for number in range(30_000))
    packed = gzip.compress(lines.encode(), mtime=0)
    return packed[: len(packed) // 2]


def broken_tmx() -> bytes:
    """40,000 pairs, a line each, in a file that stops being XML behind a tenth of them."""
    unit = "<tu><tuv xml:lang='en'><seg>the {}</seg></tuv><tuv xml:lang='de'><seg>das</seg></tuv></tu>\n"
    units = [unit.format("& a" if n == 4_000 else n) for n in range(40_000)]
    return f"<tmx version='1.4'><body>{''.join(units)}</body></tmx>".encode()


def pairs(path: str, format_: str) -> dict[str, Any]:
    return {"format": format_, "languages": ["en", "de"], "paths": [path]}


HTML = b"\n<!DOCTYPE html>\n<html><head><title>404</title><body>not here</body></html>\n"
LINES = "".join(f"{sentence}\n" for sentence in SENTENCES * 20).encode()
HOLDS_NO = r" holds no {}\. Check that it is the right file and that the format fits\.$"
ABOVE = (
    r" rows \({}%\) cannot be used, more than data\.max_bad_fraction 1\.00%: {}\. They are listed in "
    r".*bad_rows\.jsonl\. Correct the source, or raise the bound\.$"
)
ALL, GERMAN = {"max_bad_fraction": 1.0}, corpus("text.de", "de")
# What is written, what `data` then says, and the sentence.
REFUSED: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "no file": (
        {},
        {"corpora": corpus("no.txt")},
        r"/no\.txt does not exist\. Check the path; relative paths start from /.*\.$",
    ),
    "no byte": (
        {"x.txt": b""},
        {"corpora": [*GERMAN, *corpus("x.txt")]},
        r"/x\.txt" + HOLDS_NO.format("documents"),
    ),
    "blank lines": ({"x.txt": b"\n\n  \n"}, {"corpora": corpus("x.txt")}, r"/x\.txt" + HOLDS_NO.format("documents")),
    "an empty dictionary": ({"en-de.txt": b""}, {}, r"/en-de\.txt" + HOLDS_NO.format("entries")),
    "half a gzip, whatever the bound": (
        {"text.gz": half_gzip()},
        {"corpora": [*corpus("text.gz"), *GERMAN]} | ALL,
        r"/text\.gz cannot be read from byte ([\d,]+) of \1 on: truncated archive\. " + HINT,
    ),
    "a TMX that stops being XML, whatever the bound": (
        {"pairs.tmx": broken_tmx()},
        {"parallel": [pairs("pairs.tmx", "tmx")]} | ALL,
        r"/pairs\.tmx:4001 cannot be read on: XML is not well-formed\. " + HINT,
    ),
    "a page in place of a corpus, whatever the bound": (
        {"x.txt": HTML, "good.txt": LINES},
        {"corpora": [*corpus("good.txt"), *corpus("x.txt", "de")]} | ALL,
        r"/x\.txt is a pointer to the file, a web page or a server's message",
    ),
    "a page in place of pairs, whatever the bound": (
        {"pairs.tmx": HTML},
        {"parallel": [*moses("text.en", "text.de"), pairs("pairs.tmx", "tmx")]} | ALL,
        r"/pairs\.tmx is a pointer to the file, a web page",
    ),
    "bytes that are not UTF-8": (
        {"text.en": b"caf\xe9\n" * 3 + b"tea\n" * 7},
        {"corpora": corpus("text.en"), "dictionaries": []},
        r"^text/en \(text\.en\): 3 of 10" + ABOVE.format(r"30\.00", "bytes are not UTF-8: 3"),
    ),
    "a dictionary line with one column": (
        {"en-de.txt": b"the das\nsees sieht\na ein\nb zwei\nlonely\n"},
        {},
        r"^dictionary en-de \(en-de\.txt\): 1 of 5" + ABOVE.format(r"20\.00", "dictionary line has one column: 1"),
    ),
    "a source among good ones": (
        {"small.tsv": b"the a\tdas a\n" * 10 + b"no tab\n" * 20, "long.en": b"the a sees\n" * 3_000},
        {"corpora": [*corpus("long.en"), *GERMAN], "parallel": [pairs("small.tsv", "tsv")]},
        r"^pairs/de-en \(small\.tsv\): 20 of 30" + ABOVE.format(r"66\.67", "too few columns: 20"),
    ),
    "files of different length": (
        {"short.de": b"das\n" * 59},
        {"parallel": moses("text.en", "short.de")},
        r"/text\.en and .*/short\.de do not have the same rows \(from row 60 on\), so that no row can be trusted to "
        r"translate the other\. Fetch or write them together again\.$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_files_are_named_and_leave_no_manifest(prepare: Prepare, files: Path, case: str) -> None:
    written, data, said = REFUSED[case]
    for name, content in written.items():
        (files / name).write_bytes(content)
    with pytest.raises(DataError, match=said if said.startswith("^") else f"^{files}{said}"):
        prepare(**data)
    assert list((files / "out").glob("data/**/manifest.json")) == []


def test_bytes_that_are_not_utf8_are_counted_within_the_bound(prepare: Prepare, files: Path) -> None:
    with (files / "text.en").open("ab") as file:
        file.write(b"caf\xe9 is latin-1\n")
    prepared = prepare(max_bad_fraction=0.05)
    assert prepared.manifest["bad_rows"] == {"bytes are not UTF-8": 1}
    assert prepared.manifest["counts"]["lines"] == 2 * len(SENTENCES)
    (row,) = [json.loads(line) for line in (prepared.folder / "bad_rows.jsonl").read_text().splitlines()]
    assert row == {"source": str(files / "text.en"), "line": 61, "reason": "bytes are not UTF-8"}


def test_a_dictionary_line_with_one_column_within_the_bound_is_left_out(prepare: Prepare, files: Path) -> None:
    with (files / "en-de.txt").open("a") as file:
        file.write("lonely\n")
    prepared = prepare(max_bad_fraction=0.25, dictionary_held_out_fraction=0.0)
    assert ["en", "the", "de", "das"] in prepared.pair_words("trained")
    assert "lonely" not in json.dumps(prepared.pair_words("trained"))


def test_a_finished_folder_whose_shard_was_damaged_says_so_when_it_is_verified(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare()
    shard = next(prepared.folder.rglob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-7])
    done: list[str] = []
    monkeypatch.setattr(stage, "_run_tasks", lambda tasks, *_: done.extend(task.name for task in tasks))
    config = load_recipe(str(prepared.folder.parents[2] / "recipe.yaml")).config
    with pytest.raises(DataError, match=r"1 of 2 parts were not prepared. Run `xalign prepare` again."):
        preparation.prepare(config, verify=True)
    assert len(done) == 1


def test_source_without_a_good_row_is_refused_before_the_work_begins(
    prepare: Prepare, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_make", lambda *_: pytest.fail("the work began"))
    (files / "pairs.csv").write_text("the a,das a\n" * 20)
    csv = {"format": "tsv", "languages": ["en", "de"], "paths": ["pairs.csv"]}
    with pytest.raises(DataError) as caught:
        prepare(parallel=[*moses("text.en", "text.de"), csv], max_bad_fraction=1.0)
    assert str(caught.value) == (f"{files / 'pairs.csv'} has no column 'en'; its first row has 'the a,das a'.")
