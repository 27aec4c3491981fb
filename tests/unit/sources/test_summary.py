"""What `prepare` says of each source: rows in, kept, set aside by reason; the numbers add up for every reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import yaml

from tests.unit.conftest import prepare_here
from xalign_ray.config.load import load_recipe
from xalign_ray.shards.prepared import Prepared

WIKI = """<mediawiki><siteinfo><namespaces><namespace key="1">Talk</namespace></namespaces></siteinfo>{}</mediawiki>"""
PAGE = "<page><title>{}</title><ns>{}</ns>{}<revision><text>{}</text></revision></page>"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def number(n: int) -> str:
    return " ".join(WORDS[int(digit)] for digit in str(n))


def write(folder: Path) -> None:
    """Sources in which something happens for every reason that `prepare` knows."""
    lines = [f"{number(n)} is it" for n in range(100, 400)]
    wrong = [b"\xff\xfe latin", b"nul \0 here", b"x" * (16 << 20) + b"xx"]
    text = "\n".join(
        [
            *lines,
            lines[0],
            "too short",
            "\u044d\u0442\u043e \u043d\u0435 \u043e\u043d\u043e \u0434\u0430",
            "\ue000 \ue001 \ue002",
            "w " * 40,
        ]
    )
    (folder / "en.txt").write_bytes(text.encode() + b"\n" + b"\n".join(wrong) + b"\n")
    pages = [
        PAGE.format("A", 0, "", "das {{xyz|ist}} eins\n\ndas ist zwei{{xyz|y}}\n\nkurz"),
        PAGE.format("B", 0, "<redirect title='A'/>", "#REDIRECT [[A]]"),
        PAGE.format("Talk:A", 1, "", "rede"),
        PAGE.format("C", 0, "", "{{Nur eine Vorlage}}"),
        PAGE.format("D", 0, "", "das ist drei\n\n{{xyz|allein}}"),
    ]
    (folder / "de.xml").write_text(WIKI.format("".join(pages)))
    packed = gzip.compress("\n".join(f"{number(n)} ist es" for n in range(4_000)).encode())
    (folder / "tr.txt.gz").write_bytes(packed)
    pairs = [(f"{number(n)} is it", f"{number(n)} ist es") for n in range(40)]
    odd = [("", ""), ("one is it", ""), ("same is it", "same is it"), ("one is it", "one ist es " * 9), pairs[0]]
    odd += [("no good words", "\ue000 \ue001 \ue002"), ("w " * 40, "w " * 40), ("is", "ist")]
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in [*odd, *pairs]) + "alone\n\na\tb\tc\n")
    (folder / "en-de.txt").write_text("one eins\ntwo zwei\none eins\nseven seven\n\nlonely\nthree words here\n")


def prepare(folder: Path) -> Prepared:
    data = {
        "root": str(folder),
        "corpora": [
            {"format": "text", "language": "en", "paths": ["en.txt"]},
            {"format": "wikipedia", "language": "de", "paths": ["de.xml"]},
            {"format": "text", "language": "tr", "paths": ["tr.txt.gz"]},
        ],
        "parallel": [{"format": "tsv", "languages": ["en", "de"], "paths": ["pairs.tsv"]}],
        "dictionaries": [{"languages": ["en", "de"], "paths": ["en-de.txt"]}],
        "filters": {"min_words": 3, "max_words": 30, "drop_duplicates": True, "drop_identical": True,
                    "max_length_ratio": 2, "min_script_fraction": 0.5},
        "max_pairs": 20,
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "max_seq_length": 64,
        "example": "sentence",
        "max_bad_fraction": 0.5,
    }  # fmt: skip
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump({"output": str(folder / "out"), "data": data, "train": {"max_steps": 1, "global_batch_size": 2}})
    )
    return prepare_here(load_recipe(str(recipe)).config)


def test_rows_in_are_rows_kept_and_all_reasons_in_a_world_with_every_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    prepared = prepare(tmp_path)
    sources = {source["name"]: source for source in prepared.manifest["sources"]}
    for source in sources.values():
        assert source["rows"] == source["kept"] + sum(source["set_aside"].values()), source["name"]
    for pool in ("text/en", "text/de", "text/tr", "pairs/de-en"):  # short lines: each that is kept is an example
        parts = prepared.manifest["pools"][pool]["examples"]
        held_out = prepared.manifest["held_out"].get(pool, {}).get("examples", 0)
        assert sources[pool]["kept"] == parts + held_out, pool
    assert sources["text/en"] == {
        "name": "text/en",
        "files": ["en.txt"],
        "rows": 308,
        "kept": 300,
        "set_aside": {
            "bytes are not UTF-8": 1,
            "line holds NUL characters": 1,
            "line or document is longer than 16 MB": 1,
            "duplicate line": 1,
            "no words": 1,
            "not in the language's script": 1,
            "too long": 1,
            "too short": 1,
        },
        "noted": {},
        "files_not_read_on": 0,
    }
    assert (sources["text/de"]["rows"], sources["text/de"]["kept"]) == (6, 2)
    assert sources["text/de"]["set_aside"] == {
        "empty after markup": 1,
        "page of another namespace": 1,
        "redirect": 1,
        "too short": 1,
    }
    assert sources["text/de"]["noted"] == {
        "sentences left out, in which a word would be missing": 1,
        "templates and formulas left out of a sentence": 1,
        "templates that no list knows, taken for footnotes": 1,
    }
    assert sources["pairs/de-en"]["set_aside"] == {
        "lengths too different": 1,
        "no words": 1,
        "one side is empty": 1,
        "over max_pairs": 15,
        "a side is a held-out line": 5,
        "duplicate pair": 1,
        "texts are identical": 1,
        "too few columns": 1,
        "too long": 1,
        "too many columns": 1,
        "too short": 1,
        "blank line": 2,  # one of them holds a tab
    }
    assert (sources["pairs/de-en"]["kept"], sources["pairs/de-en"]["files_not_read_on"]) == (20, 0)
    assert sources["dictionary en-de"] == {
        "name": "dictionary en-de",
        "files": ["en-de.txt"],
        "rows": 7,
        "kept": 2,
        "set_aside": {
            "blank line": 1,
            "dictionary line has more than two columns": 1,
            "dictionary line has one column": 1,
            "identical": 1,
            "duplicates": 1,
        },
        "noted": {},
        "files_not_read_on": 0,
    }
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("prepare: ")]
    assert said[0].startswith("prepare: text/en (en.txt): 308 rows in, 300 kept; set aside: bytes are not UTF-8 1, ")
    assert said[1].endswith(
        "; templates and formulas left out of a sentence: 1; templates that no list knows, taken for footnotes: 1"
    )
    assert [line.split(" ")[1] for line in said[:5]] == ["text/en", "text/de", "text/tr", "pairs/de-en", "dictionary"]
    assert said[5] == "prepare: pieces a word: de 1.00, en 1.00, tr 1.00"
    assert said[6] == (
        "prepare: held-out loss: no rows of de (3 lines): none of so few was drawn by data.held_out_fraction"
    )
    assert prepared.manifest["held_out_missing"] == {"de": 3}
