"""Held-out lines: in no pool is a line trained on that another pool, file or language holds out."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.unit.conftest import make_config, prepare_here
from xalign_ray.clean.kept_out import comparable, kept_out_lines
from xalign_ray.derive.corpus import write_derived
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import starts, sum_runs
from xalign_ray.sources.summary import HELD_OUT_LINE, HELD_OUT_PAIR
from xalign_ray.tokens.stats import _measure
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer

EVERY = 10**9
LINES = 600
SHARE = 0.2
NO_TESTS = np.zeros(0, np.uint64)


def sentences(language: str) -> list[str]:
    """Different lines of six words."""
    draw = random.Random(language)
    return [" ".join(f"{language}{draw.randrange(90)}" for _ in range(6)) for _ in range(LINES)]


def trained_and_held_out(prepared: Prepared, pool: str) -> tuple[list[str], list[str]]:
    """What the segments of a pool say, without blanks: those that are trained on, and those that are held out."""
    tokenizer = open_tokenizer(str(prepared.tokenizer_folder))
    found = []
    for held_out in (False, True):
        if pool not in prepared.manifest["held_out" if held_out else "pools"]:
            found.append([])
            continue
        rows = prepared.first_rows(pool, EVERY, held_out)
        pieces = sum_runs(rows.word_length, rows.segment_words)
        texts = [rows.pieces[b : b + n].tolist() for b, n in zip(starts(pieces), pieces, strict=True)]
        found.append(["".join(tokenizer.convert_ids_to_tokens(ids)).replace("▁", "").lower() for ids in texts])
    return found[0], found[1]


def write(folder: Path, documents_of: int) -> None:
    """Text with lines that repeat in other documents, its translation, pairs of the same lines and of variants."""
    for language in ("en", "de"):
        lines = sentences(language) + sentences(language)[::-2]
        documents = [lines[begin : begin + documents_of] for begin in range(0, len(lines), documents_of)]
        (folder / f"{language}.txt").write_text("\n\n".join("\n".join(one) for one in documents) + "\n")
        (folder / f"pairs.{language}").write_text("\n".join(sentences(language)) + "\n")
    (folder / "pairs.en").write_text("\n".join(f"{line.upper()} ." for line in sentences("en")) + "\n")
    (folder / "en-de.txt").write_text("".join(f"en{n} de{n}\n" for n in range(90)))


@pytest.mark.parametrize(("example", "documents_of"), [("sentence", 1), ("sentence", 200), ("document", 7)])
def test_no_held_out_line_is_trained_on(tmp_path: Path, example: str, documents_of: int) -> None:
    write(tmp_path, documents_of)
    config = make_config(tmp_path, f"data.held_out_fraction={SHARE}", f"data.example={example}")
    prepared = prepare_here(config)
    left, _ = trained_and_held_out(prepared, "pairs/de-en")
    for language in ("en", "de"):
        trained, held_out = trained_and_held_out(prepared, f"text/{language}")
        lines = sentences(language)
        out = {line.replace(" ", "") for line in lines if line.replace(" ", "") in "|".join(held_out)}
        assert abs(len(out) - SHARE * LINES) < 4.5 * np.sqrt(LINES * SHARE * (1 - SHARE))
        assert not [line for line in out if line in "|".join(trained)]
        assert not [line for line in out if line in "|".join(left)]
        assert all("|".join(held_out).count(line) == 1 for line in out), "repetitions are scored once"
    counts, rows = prepared.manifest["counts"], LINES
    held = [kept_out_lines(sentences(language), SHARE, NO_TESTS)[0] for language in ("en", "de")]
    assert counts[f"dropped: {HELD_OUT_PAIR}"] == (held[0] | held[1]).sum()
    assert prepared.manifest["pools"]["pairs/de-en"]["examples"] == rows - (held[0] | held[1]).sum()
    assert counts[f"dropped: {HELD_OUT_LINE}"] == sum(one[::-2].sum() for one in held)


@pytest.mark.parametrize("with_text", [(), ("en",), ("de",)])
def test_pairs_are_held_out_by_the_sides_that_have_text_alone(tmp_path: Path, with_text: tuple[str, ...]) -> None:
    write(tmp_path, 1)
    corpora = ", ".join(f"{{format: text, language: {code}, paths: [{code}.txt]}}" for code in with_text)
    streams = "streams=[{kind: masked_pairs}" + (", {kind: masked_text}]" if with_text else "]")
    settings = [f"data.corpora=[{corpora}]", "data.dictionaries=[]", streams]
    prepared = prepare_here(make_config(tmp_path, f"data.held_out_fraction={SHARE}", *settings))
    gone = sum(kept_out_lines(sentences(code), SHARE, NO_TESTS)[0].sum() for code in with_text)
    assert prepared.manifest["counts"].get(f"dropped: {HELD_OUT_PAIR}", 0) == gone
    assert prepared.manifest["counts"]["pairs"] == LINES


def test_dropped_pairs_are_in_manifest_summary_and_stats(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 1)
    config = make_config(tmp_path, f"data.held_out_fraction={SHARE}")
    prepared = prepare_here(config)
    gone = prepared.manifest["counts"][f"dropped: {HELD_OUT_PAIR}"]
    (source,) = [one for one in prepared.manifest["sources"] if one["name"] == "pairs/de-en"]
    assert source["set_aside"][HELD_OUT_PAIR] == gone > 100
    assert source["rows"] == source["kept"] + sum(source["set_aside"].values()) == LINES
    assert _measure(prepared, None).dropped[f"dropped: {HELD_OUT_PAIR}"] == gone
    assert f"{LINES - gone:,} kept; set aside: {HELD_OUT_PAIR} {gone:,}" in capfd.readouterr().err


def test_parallel_text_of_a_derived_language_holds_no_held_out_line(tmp_path: Path) -> None:
    (tmp_path / "english.txt").write_text("\n".join(sentences("en")) + "\n")
    write_derived([str(tmp_path / "english.txt")], tmp_path / "derived")
    config = make_config(
        tmp_path / "derived",
        f"data.held_out_fraction={SHARE}",
        "data.corpora=[{format: text, language: en, paths: [text/en.txt]}]",
        "data.parallel=[{format: moses, languages: [en, en-x-inv],"
        " paths: [parallel/en-en-x-inv.25.en, parallel/en-en-x-inv.25.en-x-inv]}]",
        "data.dictionaries=[]",
        "streams=[{kind: masked_text}, {kind: masked_pairs}]",
    )
    prepared = prepare_here(config)
    (left, _), (_, held_out) = (trained_and_held_out(prepared, pool) for pool in ("pairs/en-en-x-inv", "text/en"))
    assert prepared.manifest["counts"][f"dropped: {HELD_OUT_PAIR}"] > 20
    assert not set(left) & set(held_out)


@pytest.mark.parametrize(
    "variant", ["Hello , WORLD !", " hello,\u00a0world", "\uff28ello world", "hello\tworld", "«Hello», world."]
)
def test_case_blanks_and_punctuation_make_no_other_line(variant: str) -> None:
    assert comparable(variant) == comparable("Hello, world")


def test_lines_without_letters_are_told_apart() -> None:
    assert comparable("!!!") != comparable("???")
    assert comparable("12:30") != comparable("12:31")
    assert comparable("\u0915\u093f") != comparable("\u0915\u0940") != comparable("\u0915")  # by vowel signs alone
    assert comparable("\u0e01\u0e34") != comparable("\u0e01\u0e35")
    assert comparable("\u0e1b\u0e39") != comparable("\u0e1b\u0e38")  # below the letter
    assert comparable("\u0f56\u0f7c\u0f51") != comparable("\u0f56\u0f74\u0f51")
    assert comparable("\u05e9\u05b8") == comparable("\u05e9")  # a point of Hebrew
