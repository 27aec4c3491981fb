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
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.tokens import prepare as preparation

Prepare = Callable[..., Prepared]
HINT = "Fetch or repair the file."
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


def manifests(files: Path) -> list[Path]:
    return list((files / "out").glob("data/**/manifest.json"))


def test_the_files_are_fine_as_they_are(prepare: Prepare) -> None:
    prepared = prepare(parallel=moses("text.en", "text.de"))
    assert prepared.manifest["counts"]["lines"] == 2 * len(SENTENCES)
    assert prepared.manifest["counts"]["pairs"] == len(SENTENCES)
    assert prepared.manifest["bad_rows"] == {}


def test_a_missing_path_is_named(prepare: Prepare, files: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare(corpora=corpus("no-such.txt"))
    missing = files / "no-such.txt"
    assert str(caught.value) == f"{missing} does not exist. Check the path; relative paths start from {Path.cwd()}."


@pytest.mark.parametrize("content", ["", "\n\n   \n"], ids=["no byte", "blank lines"])
def test_an_empty_corpus_is_named_and_leaves_no_manifest(prepare: Prepare, files: Path, content: str) -> None:
    (files / "empty.txt").write_text(content)
    with pytest.raises(DataError) as caught:
        prepare(corpora=[*corpus("text.de", "de"), *corpus("empty.txt")])
    assert str(caught.value) == (
        f"{files / 'empty.txt'} holds no documents. Check that it is the right file and that the format fits."
    )
    assert manifests(files) == []


def test_an_empty_dictionary_is_named(prepare: Prepare, files: Path) -> None:
    (files / "en-de.txt").write_text("")
    with pytest.raises(DataError) as caught:
        prepare()
    assert str(caught.value) == (
        f"{files / 'en-de.txt'} holds no entries. Check that it is the right file and that the format fits."
    )


def half_gzip(files: Path) -> list[dict[str, Any]]:
    """30,000 lines of which the packed bytes are cut in half."""
    lines = "".join(f"{number * number} the {number} sees {number * 7919 % 10007}\n" for number in range(30_000))
    packed = gzip.compress(lines.encode(), mtime=0)
    (files / "text.gz").write_bytes(packed[: len(packed) // 2])
    return [*corpus("text.gz"), *corpus("text.de", "de")]


def broken_tmx(files: Path, mark: bytes = b"&") -> list[dict[str, Any]]:
    """40,000 pairs in a file that stops being XML behind a tenth of them."""
    begin, end = b"<tmx version='1.4'><body>", b"</body></tmx>"
    units = [
        f"<tu><tuv xml:lang='en'><seg>the {n}</seg></tuv><tuv xml:lang='de'><seg>das {n}</seg></tuv></tu>\n".encode()
        for n in range(40_000)
    ]
    units[4_000] = units[4_000].replace(b"the", b"the " + mark + b" a")
    (files / "pairs.tmx").write_bytes(begin + b"".join(units) + end)
    return [{"format": "tmx", "languages": ["en", "de"], "paths": ["pairs.tmx"]}]


def test_a_gzip_that_is_cut_in_half_stops_it_whatever_the_bound(prepare: Prepare, files: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare(corpora=half_gzip(files), max_bad_fraction=1.0)
    size = (files / "text.gz").stat().st_size
    said = str(caught.value)
    assert said == f"{files / 'text.gz'} cannot be read from byte {size:,} of {size:,} on: truncated archive. {HINT}"
    assert manifests(files) == []


def test_a_tmx_that_stops_being_xml_stops_it_whatever_the_bound(prepare: Prepare, files: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare(parallel=broken_tmx(files), max_bad_fraction=1.0)
    text = (files / "pairs.tmx").read_bytes()
    line = text[: text.index(b"& a")].count(b"\n") + 1
    assert str(caught.value) == f"{files / 'pairs.tmx'}:{line} cannot be read on: XML is not well-formed. {HINT}"
    assert manifests(files) == []


@pytest.mark.parametrize(
    ("name", "format_"),
    [("dump.xml.bz2", "wikipedia"), ("dump.xml", "wikipedia"), ("lines.txt.gz", "text"), ("lines.jsonl", "jsonl")],
)
def test_an_html_page_where_a_corpus_should_be_stops_it(prepare: Prepare, files: Path, name: str, format_: str) -> None:
    page = b"\n<!DOCTYPE html>\n<html><head><title>404</title><body>not here</body></html>\n"
    (files / name).write_bytes(page)
    (files / "good.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in SENTENCES * 20))
    with pytest.raises(DataError) as caught:
        prepare(corpora=[*corpus("good.jsonl", "en", "jsonl"), *corpus(name, "de", format_)], max_bad_fraction=1.0)
    assert str(caught.value).startswith(f"{files / name} is a pointer to the file, a web page or a server's message")


def test_an_html_page_where_a_tmx_should_be_stops_it(prepare: Prepare, files: Path) -> None:
    (files / "pairs.tmx").write_text("<html><body><p>Too many requests</p></body></html>")
    tmx = {"format": "tmx", "languages": ["en", "de"], "paths": ["pairs.tmx"]}
    with pytest.raises(DataError, match=r"pairs\.tmx is a pointer to the file, a web page"):
        prepare(parallel=[*moses("text.en", "text.de"), tmx], max_bad_fraction=1.0)


def test_bytes_that_are_not_utf8_are_counted_within_the_bound(prepare: Prepare, files: Path) -> None:
    with (files / "text.en").open("ab") as file:
        file.write(b"caf\xe9 is latin-1\n")
    prepared = prepare(max_bad_fraction=0.05)
    assert prepared.manifest["bad_rows"] == {"bytes are not UTF-8": 1}
    assert prepared.manifest["counts"]["lines"] == 2 * len(SENTENCES)
    (row,) = [json.loads(line) for line in (prepared.folder / "bad_rows.jsonl").read_text().splitlines()]
    assert row == {"source": str(files / "text.en"), "line": 61, "reason": "bytes are not UTF-8"}


def test_bytes_that_are_not_utf8_above_the_bound_stop_it(prepare: Prepare, files: Path) -> None:
    (files / "text.en").write_bytes(b"caf\xe9\n" * 3 + b"tea\n" * 7)
    with pytest.raises(DataError) as caught:
        prepare(corpora=corpus("text.en"), dictionaries=[])
    said = str(caught.value)
    assert said.startswith(
        "text/en (text.en): 3 of 10 rows (30.00%) cannot be used, more than data.max_bad_fraction 1.00%: "
    )
    assert "bytes are not UTF-8: 3. They are listed in " in said
    assert said.endswith("bad_rows.jsonl. Correct the source, or raise the bound.")
    assert manifests(files) == []


def test_a_dictionary_line_with_one_column_above_the_bound_stops_it(prepare: Prepare, files: Path) -> None:
    with (files / "en-de.txt").open("a") as file:
        file.write("lonely\n")
    with pytest.raises(DataError) as caught:
        prepare()
    said = str(caught.value)
    assert said.startswith(
        "dictionary en-de (en-de.txt): 1 of 5 rows (20.00%) cannot be used, more than data.max_bad_fraction 1.00%: "
    )
    assert "dictionary line has one column: 1. They are listed in " in said
    listed = Path(said.partition("listed in ")[2].partition(". Correct")[0])
    assert json.loads(listed.read_text()) == {
        "source": str(files / "en-de.txt"),
        "line": 5,
        "reason": "dictionary line has one column",
    }


def test_a_dictionary_line_with_one_column_within_the_bound_is_left_out(prepare: Prepare, files: Path) -> None:
    with (files / "en-de.txt").open("a") as file:
        file.write("lonely\n")
    prepared = prepare(max_bad_fraction=0.25, dictionary_held_out_fraction=0.0)
    assert ["en", "the", "de", "das"] in prepared.pair_words("trained")
    assert "lonely" not in json.dumps(prepared.pair_words("trained"))


def test_moses_files_of_different_length_are_refused_with_the_first_row(prepare: Prepare, files: Path) -> None:
    (files / "short.de").write_text("das\n" * 59)
    with pytest.raises(DataError) as caught:
        prepare(parallel=moses("text.en", "short.de"))
    assert str(caught.value) == (
        f"{files / 'text.en'} and {files / 'short.de'} do not have the same rows (from row 60 on), so that no row can "
        "be trusted to translate the other. Fetch or write them together again."
    )
    assert manifests(files) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "german",
            "data.corpora.0: 'german' is not a language code such as 'en', 'swa' or 'zh-Hans'. "
            "Did you mean 'de' (German)?",
        ),
        ("und", "data.corpora.0: 'und' stands for no particular language; name the language of the text."),
    ],
)
def test_an_unknown_language_code_is_refused_with_the_right_one(prepare: Prepare, code: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(corpora=corpus("text.en", code), dictionaries=[])
    assert str(caught.value) == message


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


def test_each_source_is_judged_by_the_bound_alone(prepare: Prepare, files: Path) -> None:
    (files / "small.tsv").write_text("the a\tdas a\n" * 10 + "no tab\n" * 20)
    (files / "long.en").write_text("the a sees\n" * 3_000)
    tsv = {"format": "tsv", "languages": ["en", "de"], "paths": ["small.tsv"]}
    corpora = [*corpus("long.en"), *corpus("text.de", "de")]
    with pytest.raises(DataError) as caught:
        prepare(corpora=corpora, parallel=[tsv])
    assert str(caught.value).startswith(
        "pairs/de-en (small.tsv): 20 of 30 rows (66.67%) cannot be used, more than data.max_bad_fraction 1.00%: "
        "too few columns: 20."
    )
    (files / "en-de.txt").write_text("the das\nsees sieht\na b c\n")
    with pytest.raises(DataError, match=r"^dictionary en-de \(en-de\.txt\): 1 of 3 rows \(33\.33%\) cannot be used"):
        prepare(corpora=corpora)


def test_source_without_a_good_row_is_refused_before_the_work_begins(
    prepare: Prepare, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "_make", lambda *_: pytest.fail("the work began"))
    (files / "pairs.csv").write_text("the a,das a\n" * 20)
    csv = {"format": "tsv", "languages": ["en", "de"], "paths": ["pairs.csv"]}
    with pytest.raises(DataError) as caught:
        prepare(parallel=[*moses("text.en", "text.de"), csv], max_bad_fraction=1.0)
    assert str(caught.value) == (f"{files / 'pairs.csv'} has no column 'en'; its first row has 'the a,das a'.")
