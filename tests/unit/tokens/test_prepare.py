"""Preparing a small recipe in one process: what is written, what is kept, what is repaired."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.exits import exit_code
from tests.unit.conftest import WORDS, make_config, prepare_here, write_inputs
from xalign_ray.clean import duplicates
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.errors import DataError
from xalign_ray.shards.files import read_group
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.sources.records import Document, Pair, windows
from xalign_ray.sources.stage import HINT
from xalign_ray.streams.collate import IGNORED
from xalign_ray.tokens import prepare as preparation
from xalign_ray.tokens.part import Task
from xalign_ray.tokens.vocabulary import LONG, _sampler, first_lines, trained_translations
from xalign_ray.vocabulary.dictionary import Translations
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.work.artifacts import hash_file

EVERY = 1 << 60  # rows


@pytest.fixture
def fresh(tmp_path: Path) -> RunConfig:
    """A recipe over inputs of its own."""
    write_inputs(tmp_path)
    return make_config(tmp_path)


def shards(prepared: Prepared) -> dict[str, bytes]:
    files = sorted(prepared.folder.rglob("*.parquet"))
    return {path.relative_to(prepared.folder).as_posix(): path.read_bytes() for path in files}


def test_the_manifest_tells_what_there_is(prepared: Prepared) -> None:
    assert prepared.languages == ["en", "de"]
    assert sorted(prepared.manifest["pools"]) == ["pairs/de-en", "text/de", "text/en"]
    assert prepared.manifest["counts"]["documents"] == 1800
    assert prepared.manifest["counts"]["pairs"] == 250
    assert prepared.manifest["bad_rows"] == {}
    assert prepared.vocab_size == len(prepared.vocabulary.regular) + 5
    special = prepared.special
    assert sorted((special.pad, special.unknown, special.cls, special.sep, special.mask)) == [0, 1, 2, 3, 4]
    assert not set(prepared.vocabulary.regular.tolist()) & {0, 1, 2, 3, 4}
    for pool in prepared.manifest["pools"].values():
        begin, end = pool["shards"]
        assert end > begin


def test_the_same_inputs_elsewhere_are_the_same_bytes_and_fingerprint(prepared: Prepared, fresh: RunConfig) -> None:
    again = prepare_here(fresh)
    assert again.fingerprint == prepared.fingerprint
    assert shards(again) == shards(prepared)
    for name in ("tokenizer/tokenizer.json", "entries.json", "pair_words.json", "manifest.json", "lexicon.npz"):
        assert (again.folder / name).read_bytes() == (prepared.folder / name).read_bytes(), name


def sent_bytes(folder: Path, parts: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of each step with a task a part, the bytes of the longest row that goes to a worker: `parts` of each source."""
    folder.mkdir()
    write_inputs(folder)
    english, german = ((folder / f"pairs.{code}").read_text().splitlines() for code in ("en", "de"))
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(english, german, strict=True)))
    for path in [*folder.glob("??.txt"), folder / "pairs.tsv"]:
        for number in range(10, 10 + parts):
            shutil.copy(path, folder / f"{path.stem}-{number}{path.suffix}")
    texts = [{"format": "text", "language": code, "paths": [f"{code}-??.txt"]} for code in ("en", "de")]
    parallel = {"format": "tsv", "languages": ["en", "de"], "paths": ["pairs-*.tsv"], "align": "hmm"}
    config = make_config(
        folder,
        f"data.corpora={json.dumps(texts)}",
        f"data.parallel={json.dumps([parallel])}",
        "data.filters={drop_duplicates: true}",
    )
    longest: dict[str, int] = {}

    def run(tasks: Sequence[Task], work: Callable[[Task], None], step: Any, _: object) -> None:
        if len(tasks) > 1:
            longest[step.title] = max(len(row["task"]) for row in stage._as_rows(tasks))
        for task in tasks:
            work(task)

    monkeypatch.setattr(stage, "_run_tasks", run)
    monkeypatch.setattr(duplicates, "PARTITION_LINES", 2000)
    preparation.prepare(config)
    return longest


def test_a_task_is_as_long_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (sent_bytes(tmp_path / f"{parts:03d}", parts, monkeypatch) for parts in (2, 10))
    assert few.keys() == many.keys() >= {"preparing", "word alignment", "looking for duplicates", "marking duplicates"}
    assert {step: length for step, length in many.items() if length > few[step] + 4} == {}, few


def test_no_more_lines_are_read_than_are_measured() -> None:
    read = []

    def documents(language: str) -> Iterator[Document]:
        for number in range(100):
            read.append(number)
            yield Document(language, (f"{language} {number}", "more"), "a.txt", number)

    texts: list[Any] = [
        SimpleNamespace(languages=(code,), records=lambda code=code: documents(code)) for code in ("en", "de", "en")
    ]
    assert {code: len(lines) for code, lines in first_lines(texts, 10).items()} == {"en": 10, "de": 10}
    assert len(read) == 6 + 6 + 1
    assert {code: len(lines) for code, lines in first_lines(texts).items()} == {"en": 400, "de": 200}


def test_a_finished_folder_is_opened_and_not_made_again(prepared: Prepared, config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*")}
    assert prepare_here(config) == prepared
    assert {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*")} == before


def test_bad_rows_stop_prepare_before_a_tokenizer_and_shards_are_made(fresh: RunConfig) -> None:
    path = Path(fresh.data.root) / "en.txt"
    path.write_bytes(path.read_bytes() + b"\xff\n" * 75)
    with pytest.raises(DataError, match=r"text/en \(en\.txt\): 75 of 1,575 rows \(4\.76%\) cannot be used"):
        prepare_here(fresh)
    made = {file.name for file in Path(fresh.output).glob("data/*/*")}
    assert "bad_rows.jsonl" in made
    assert not made & {"tokenizer", "shards", "parts"}


def test_changed_content_is_other_data(prepared: Prepared, fresh: RunConfig) -> None:
    path = Path(fresh.data.root) / "en-de.txt"
    path.write_text(path.read_text() + "more mehr\n")
    assert prepare_here(fresh).fingerprint != prepared.fingerprint


def test_an_interrupted_prepare_goes_on_with_what_is_missing(fresh: RunConfig) -> None:
    whole = prepare_here(fresh)
    wanted = shards(whole)
    (whole.folder / "manifest.json").unlink()
    (whole.folder / "parts" / "text" / "de" / "part-00000.json").unlink()
    (whole.folder / "shards" / "text" / "de" / "part-00000-0000.parquet").unlink()
    untouched = whole.folder / "shards" / "text" / "en" / "part-00000-0000.parquet"
    before = untouched.stat().st_mtime_ns
    assert shards(prepare_here(fresh)) == wanted
    assert untouched.stat().st_mtime_ns == before


def test_verify_mends_a_damaged_shard_and_nothing_else(fresh: RunConfig) -> None:
    whole = prepare_here(fresh)
    wanted = shards(whole)
    path = whole.folder / "shards" / "text" / "en" / "part-00000-0000.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} is damaged: .* {HINT}$"):
        read_group(whole.shards("text/en")[0], 0)
    assert shards(prepare_here(fresh, verify=True)) == wanted


def test_a_folder_without_a_manifest_is_not_opened(prepared: Prepared, tmp_path: Path) -> None:
    shutil.copytree(prepared.folder, tmp_path / "copy")
    (tmp_path / "copy" / "manifest.json").unlink()
    with pytest.raises(DataError) as told:
        Prepared.open(tmp_path / "copy")
    assert str(told.value) == f"{tmp_path / 'copy'} has no manifest.json: prepare has not finished it. {HINT}"


def test_dictionary_pairs_are_split_by_concept(prepared: Prepared) -> None:
    trained, held_out = prepared.pair_words("trained"), prepared.pair_words("held_out")
    assert len(trained) + len(held_out) == WORDS
    assert 0.1 < len(held_out) / WORDS < 0.45
    assert not {tuple(p) for p in trained} & {tuple(p) for p in held_out}
    assert all((a, c) == ("en", "de") and b.replace("en", "de") == d for a, b, c, d in trained + held_out)


def test_pairs_as_pieces_are_the_pairs_as_words(prepared: Prepared) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared.tokenizer_folder)
    for split in ("trained", "held_out"):
        pairs, words = prepared.pairs(split), prepared.pair_words(split)
        assert pairs is not None
        assert len(pairs) == len(words)
        for row, (_, left, _, right) in enumerate(words):
            for pieces, word in ((pairs.left[row], left), (pairs.right[row], right)):
                assert pieces[pieces >= 0].tolist() == tokenizer(word, add_special_tokens=False)["input_ids"]
        assert set(pairs.left_language.tolist()) == {0}
        assert set(pairs.right_language.tolist()) == {1}


def test_labels_are_in_the_case_of_the_dictionary_and_found_in_any(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    text = tmp_path / "de.txt"
    text.write_text(text.read_text() + text.read_text().replace("de", "De"))
    lines = [f"en{n} De{n}\n" for n in range(WORDS)]
    (tmp_path / "en-de.txt").write_text("".join([*lines, "en7 de7\n", "en9 de8\n"]))
    cased = "data.tokenizer={kind: bpe, vocab_size: 400, lowercase: false}"
    prepared = prepare_here(make_config(tmp_path, "data.dictionary_held_out_fraction=0", cased))
    labels = {label for _, _, _, label in prepared.pair_words("trained")}
    assert labels == {f"De{n}" for n in range(WORDS) if n not in (7, 8)} | {"de7", "de8"}
    lexicon, tokenizer = prepared.lexicon, Tokenizer.from_file(str(prepared.tokenizer_folder / "tokenizer.json"))
    assert lexicon is not None
    entries = json.loads((prepared.folder / "entries.json").read_text())
    (place,) = [number for number, entry in enumerate(entries) if entry == [0, "en6"]]
    synonym = lexicon.first_synonym[lexicon.first_group[place]]
    begin = lexicon.first_piece[synonym]
    pieces = lexicon.pieces[begin : begin + lexicon.synonym_length[synonym]].tolist()
    assert tokenizer.decode(pieces) == "De6"
    known = prepared.manifest["pools"]["text/de"]["counts"]
    assert known["words_in_dictionary"] == known["words"], "whatever the case of the text"


def test_pieces_are_kept_and_started_by_translations_as_they_are_written() -> None:
    pair = ((0, "house"), (1, "haus"))
    found = Translations(trained={pair: None}, labels=dict(zip(pair, ("house", "Haus"), strict=True)))
    assert trained_translations(found) == {"house": ["Haus"], "haus": ["house"]}


def test_words_held_out_are_no_entries(prepared: Prepared) -> None:
    entries = {tuple(entry) for entry in json.loads((prepared.folder / "entries.json").read_text())}
    assert not entries & {(0, pair[1]) for pair in prepared.pair_words("held_out")}
    assert {(0, pair[1]) for pair in prepared.pair_words("trained")} <= entries


def test_held_out_rows_are_not_trained_on(prepared: Prepared) -> None:
    for language in ("en", "de"):
        shard = prepared.manifest["held_out"][f"text/{language}"]
        assert shard["rows"] == len(prepared.first_rows(f"text/{language}", EVERY, held_out=True)) > 0
        tokens = prepared.manifest["pools"][f"text/{language}"]["tokens"] + shard["tokens"]
        assert tokens < prepared.manifest["counts"]["tokens"]
    (first, *_) = prepared.held_out(0, 1, 4)
    assert (first[1]["labels"] != IGNORED).any()


def test_a_dictionary_with_a_held_out_file_is_not_split_by_hash(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "test.txt").write_text("".join(f"de{n} en{n}\n" for n in range(20)))
    (tmp_path / "en-de.txt").write_text("".join(f"en{n} de{n}\n" for n in range(20, WORDS)))
    dictionaries = (
        "data.dictionaries=[{languages: [en, de], paths: [en-de.txt]},"
        " {languages: [de, en], paths: [test.txt], split: held_out}]"
    )
    prepared = prepare_here(make_config(tmp_path, dictionaries))
    assert len(prepared.pair_words("trained")) == WORDS - 20
    assert [pair[1] for pair in prepared.pair_words("held_out")] == [f"de{n}" for n in range(20)]


def test_a_part_is_done_in_windows_that_do_not_change_what_is_kept(
    prepared: Prepared, fresh: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xalign_ray.tokens.part.WINDOW_CHARACTERS", 4000)
    windowed = prepare_here(fresh)
    assert shards(windowed) != shards(prepared), "rows are packed and shuffled window by window"
    for name, pool in windowed.manifest["pools"].items():
        wanted = prepared.manifest["pools"][name]
        assert {key: pool[key] for key in ("tokens", "examples", "counts")} == {
            key: wanted[key] for key in ("tokens", "examples", "counts")
        }
        assert pieces_of(windowed, name) == pieces_of(prepared, name)


def test_hard_negatives_count_in_the_size_of_a_window_and_in_the_vocabulary() -> None:
    pairs = [Pair(("en", "de"), ("a", "b"), "x", line, negatives=("c" * 4,) * (2 - line)) for line in range(3)]
    assert [*map(len, windows(pairs, 10))] == [1, 2]
    source: Any = SimpleNamespace(records=lambda: iter(pairs[1:]))
    assert [*_sampler([source], 100, ["de"])()] == ["b", "cccc", "b"]


def test_no_word_is_longer_than_the_trainer_of_a_vocabulary_is_fast_with() -> None:
    lines = ("a  " + "b" * (2 * LONG + 5) + "\tc", "d" * LONG + " e")
    source: Any = SimpleNamespace(records=lambda: iter([Pair(("en", "de"), lines, "x", 1)]))
    assert [*_sampler([source], 100)()] == [f"a  {'b' * LONG} {'b' * LONG} bbbbb\tc", lines[1]]


def pieces_of(prepared: Prepared, pool: str) -> list[int]:
    """All pieces of a pool, sorted."""
    return sorted(prepared.first_rows(pool, EVERY).pieces.tolist())


def test_duplicate_lines_and_pairs_are_dropped_across_parts(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    shutil.copy(tmp_path / "en.txt", tmp_path / "en2.txt")
    corpora = "data.corpora=[{format: text, language: en, paths: [en.txt, en2.txt]}]"
    whole = prepare_here(make_config(tmp_path, corpora))
    config = make_config(tmp_path, corpora, "data.filters={drop_duplicates: true}")
    once = prepare_here(config)
    lines = (tmp_path / "en.txt").read_text().split("\n")[:-1]
    pairs = list(zip(*((tmp_path / f"pairs.{c}").read_text().split("\n")[:-1] for c in ("en", "de")), strict=True))
    assert once.manifest["counts"]["dropped: duplicate line"] == 2 * len(lines) - len(set(lines))
    assert once.manifest["counts"].get("dropped: duplicate pair", 0) == len(pairs) - len(set(pairs))
    assert once.manifest["counts"]["lines"] == whole.manifest["counts"]["lines"] == 2 * len(lines)
    assert len(once.shards("text/en")) == 1, "all of the second part stood in the first"
    assert once.fingerprint != whole.fingerprint
    wanted = shards(once)
    (once.folder / "manifest.json").unlink()
    (once.folder / "parts" / "text" / "en" / "part-00001.json").unlink()
    (column,) = (tmp_path / "out" / "duplicates").glob("*/part-00001.parquet")
    column.unlink()
    assert shards(prepare_here(config)) == wanted


def test_recipes_of_the_same_text_share_one_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inputs(tmp_path)
    trained: list[int] = []

    def watched(settings: BpeTokenizer, lines: Any) -> Any:
        trained.append(settings.vocab_size)
        return train_bpe(settings, lines)

    monkeypatch.setattr("xalign_ray.tokens.vocabulary.train_bpe", watched)

    def pieces(*settings: str) -> bytes:
        return (prepare_here(make_config(tmp_path, *settings)).tokenizer_folder / "tokenizer.json").read_bytes()

    first = pieces()
    assert pieces("data.max_seq_length=32", "data.filters={min_words: 2}") == first
    assert trained == [400]
    assert pieces("data.tokenizer.vocab_size=150") != first
    assert pieces("data.parallel=[]", "streams=[{kind: masked_text}]", "objectives=[{kind: masked_lm}]") != first
    assert trained == [400, 150, 400]
    (kept,) = {path for path in (tmp_path / "out" / "vocabularies").glob("*/tokenizer/tokenizer.json")
               if path.read_bytes() == first}  # fmt: skip
    kept.write_bytes(first[:-1])
    assert pieces("data.max_seq_length=40") == first
    assert trained == [400, 150, 400, 400]


def test_the_first_pairs_that_pass_are_kept_however_large_a_part_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path)
    english, german = ((tmp_path / f"pairs.{code}").read_text().split("\n")[:-1] for code in ("en", "de"))
    passing = [number for number, line in enumerate(english) if len(line.split()) >= 5][:100]
    kept = ("data.filters={min_words: 5}", "data.held_out_fraction=0")
    monkeypatch.setattr("xalign_ray.sources.records.PART_BYTES", 1000)
    monkeypatch.setattr("xalign_ray.tokens.part.WINDOW_CHARACTERS", 700)
    few = prepare_here(make_config(tmp_path, *kept, "data.max_pairs=100"))
    assert len(prepare_here(make_config(tmp_path, *kept)).shards("pairs/de-en")) > 3
    pool = few.manifest["pools"]["pairs/de-en"]
    assert (len(few.shards("pairs/de-en")), pool["examples"]) == (1, 100)
    assert few.manifest["counts"]["documents"] == 1800, "text is not limited"
    assert few.manifest["counts"]["pairs"] < 250, "the rest of the file is not read"
    monkeypatch.undo()
    for code, lines in (("en", english), ("de", german)):
        (tmp_path / f"pairs.{code}").write_text("".join(f"{lines[number]}\n" for number in passing))
    tokenizer = f"data.tokenizer={{kind: folder, path: {few.folder / 'tokenizer'}}}"
    only = prepare_here(make_config(tmp_path, tokenizer, "data.held_out_fraction=0"))
    assert pieces_of(few, "pairs/de-en") == pieces_of(only, "pairs/de-en")


def test_the_cap_is_on_all_files_of_two_languages_in_their_order(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    english, german = ((tmp_path / f"pairs.{code}").read_text().split("\n")[:-1] for code in ("en", "de"))
    files = []
    for name, span in (("a", slice(0, 90)), ("b", slice(90, 150)), ("c", slice(150, 250))):
        (tmp_path / f"{name}.en").write_text("\n".join(english[span]) + "\n")
        (tmp_path / f"{name}.de").write_text("\n".join(german[span]) + "\n")
        files.append(f"{{format: moses, languages: [en, de], paths: [{name}.en, {name}.de]}}")
    corpora = (f"data.parallel=[{', '.join(files)}]", "data.held_out_fraction=0")
    config = make_config(tmp_path, *corpora, "data.max_pairs=120")
    capped = prepare_here(config)
    assert capped.manifest["pools"]["pairs/de-en"]["examples"] == 120
    assert [one["kept"] for one in capped.manifest["sources"] if one["name"] == "pairs/de-en"] == [90, 30, 0]
    assert [one["files_not_read_on"] for one in capped.manifest["sources"] if one["name"] == "pairs/de-en"] == [0, 0, 1]
    wanted = shards(capped)
    (capped.folder / "manifest.json").unlink()
    (capped.folder / "parts" / "pairs" / "de-en" / "part-00001.json").unlink()
    assert shards(prepare_here(config)) == wanted
    many = prepare_here(make_config(tmp_path, *corpora, "data.max_pairs=1000"))
    assert many.manifest["pools"]["pairs/de-en"]["examples"] == 250


def test_a_corpus_that_asks_for_it_is_aligned_on_the_tokenizers_words(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    for code in ("en", "de"):  # no blanks between words: the tokenizer parts them at the stops
        path = tmp_path / f"pairs.{code}"
        path.write_text(path.read_text().replace(" ", "."))
    aligned = "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de], align: hmm}]"
    settings = (aligned, "streams=[{kind: aligned_pairs}]", "data.max_seq_length=48")
    prepared = prepare_here(make_config(tmp_path, *settings))
    rows = prepared.first_rows("pairs/de-en", EVERY)
    owned = int(rows.segment_words[::2].sum())
    exact = int((rows.link_from == rows.link_to).sum())
    assert exact > 0.9 * owned, "word k of a line translates word k, stops included"
    assert prepared.manifest["counts"]["links"] == len(rows.link_from)
    (alignment,) = (tmp_path / "out" / "word_alignments").iterdir()
    assert json.loads((alignment / "manifest.json").read_text())["counts"]["pairs"] == 250
    assert prepared.fingerprint != prepare_here(make_config(tmp_path, "data.max_seq_length=48")).fingerprint

    def written() -> dict[str, tuple[int, str]]:
        files = [path for path in alignment.rglob("*") if path.is_file()]
        return {path.relative_to(alignment).as_posix(): (path.stat().st_mtime_ns, hash_file(path)) for path in files}

    before = written()
    again = prepare_here(make_config(tmp_path, *settings, "data.max_pairs=90"))
    assert again.fingerprint != prepared.fingerprint
    assert written() == before, "another recipe with the same pairs and tokenizer aligns nothing again"
    column = alignment / "parts" / "part-00000.parquet"
    column.write_bytes(column.read_bytes()[:-9])
    prepare_here(make_config(tmp_path, *settings, "data.max_pairs=80"))
    assert {name: digest for name, (_, digest) in written().items()} == {
        name: digest for name, (_, digest) in before.items()
    }, "what was damaged is made again"


def test_alignments_reach_the_shards_and_bad_ones_the_bad_rows(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    english = (tmp_path / "pairs.en").read_text().split("\n")[:-1]
    alignments = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in english]
    alignments[3], alignments[7] = "0:0", "0-99"
    (tmp_path / "pairs.align").write_text("\n".join(alignments) + "\n")
    paths = "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de, pairs.align]}]"
    prepared = prepare_here(make_config(tmp_path, paths, "data.max_bad_fraction=0.05"))
    rows = prepared.first_rows("pairs/de-en", EVERY)
    assert rows.segment_links[1::2].sum() == 0, "the first side owns the links"
    np.testing.assert_array_equal(rows.link_from, rows.link_to)
    assert len(rows.link_from) == prepared.manifest["counts"]["links"] > 1000
    assert prepared.manifest["bad_rows"] == {
        "alignment is not of the form i-j i-j": 1,
        "alignment points beyond the sentence": 1,
    }
    reasons = [json.loads(line) for line in (prepared.folder / "bad_rows.jsonl").read_text().splitlines()]
    assert [row["line"] for row in reasons] == [4, 8]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Inside, the kernel refuses files of more bytes, as it does when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 3_000, 20_000])
def test_a_disk_that_fills_up_in_a_task_is_a_sentence_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    def run(tasks: Sequence[Task], work: Callable[[Task], None], *_: object) -> None:
        with full_disk(size):
            done = [stage._do_row(row, work) for row in stage._as_rows(tasks)]
        stage._raise_faults(done)

    write_inputs(tmp_path)
    config = make_config(tmp_path)
    monkeypatch.setattr(stage, "_run_tasks", run)
    code = exit_code(lambda: preparation.prepare(config))
    assert code == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "out" / ("text" if size < 20_000 else "data")) in said
    assert "File too large. Make room" in said
    prepare_here(config)  # whatever was left by the tasks that failed is done again


def test_a_dictionary_of_too_many_bad_lines_is_refused_before_a_cluster_starts(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "en-de.txt").write_text("house Haus\n" + "one\n" * 9)
    with pytest.raises(DataError, match=r"dictionary en-de \(.*en-de\.txt\): 9 of 10 rows .* cannot be used"):
        preparation.prepare(make_config(tmp_path), connect=lambda: pytest.fail("a cluster starts"))
