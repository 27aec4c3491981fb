"""Aligning a corpus, its tasks run one after the other in this process instead of as Ray Data tasks."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.exits import exit_code
from tests.unit.conftest import one_after_the_other
from xalign_ray.align import corpus
from xalign_ray.align.corpus import (
    HELD,
    align_corpus,
    hash_pair,
    read_samples,
    smallest,
    write_sample,
)
from xalign_ray.align.links import NO_FORM, BlankSplitter, TokenizerSplitter, read_pharaoh
from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.config.sources import BpeTokenizer, WordAlignment
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import stage
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import Pair
from xalign_ray.sources.stored import read_column
from xalign_ray.train import cluster
from xalign_ray.verbs.data import data_align
from xalign_ray.vocabulary.tokenizer import tokenize_lines, train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer
from xalign_ray.work.artifacts import read_manifest

CORPUS = ParallelCorpus(format="moses", languages=("en", "de"), paths=("pairs.en", "pairs.de"))
LINES = 200


@pytest.fixture
def root(tmp_path: Path) -> Path:
    source = random.Random(2)
    words = [source.choices(range(50), k=source.randint(2, 8)) for _ in range(LINES)]
    english = [" ".join(f"en{word}" for word in line) for line in words]
    german = [" ".join(f"de{word}" for word in reversed(line)) for line in words]
    german[3] = ""  # real noise: no translation
    (tmp_path / "pairs.en").write_text("\n".join(english) + "\n")
    (tmp_path / "pairs.de").write_text("\n".join(german) + "\n")
    return tmp_path


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was done, a name and a number for each task."""
    done: list[tuple[str, int]] = []

    def run_tasks(tasks: Sequence[Any], work: Callable[[Any], None], step: Any, _: object) -> None:
        done.extend((step.work.__name__, task.number) for task in tasks)
        one_after_the_other(tasks, work)

    monkeypatch.setattr(stage, "_run_tasks", run_tasks)
    return done


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_each_line_of_the_corpus_has_its_links_and_a_bad_line_an_empty_one(root: Path) -> None:
    out = align_corpus(CORPUS, root / "out", root)
    found = lines(out / "alignment.txt")
    assert len(found) == LINES
    assert found[3] == ""
    pairs = list(zip(lines(root / "pairs.en"), found, strict=True))
    right = sum(j == len(en.split()) - 1 - i for en, line in pairs for i, j in read_pharaoh(line))
    words = sum(len(en.split()) for en, _ in pairs)
    assert right / words > 0.9
    manifest = read_manifest(out)
    assert manifest is not None
    assert manifest["counts"]["pairs"] == LINES - 1
    assert manifest["counts"]["bad_rows"] == 1
    assert manifest["model"]["pairs"] == LINES - 1


def test_aligner_is_trained_on_as_many_pairs_as_the_recipe_says(root: Path, steps: list[tuple[str, int]]) -> None:
    models = []
    for number, settings in enumerate(
        (WordAlignment(train_pairs=40), WordAlignment(train_pairs=40, seed=1), WordAlignment(train_pairs=None))
    ):
        steps.clear()
        out = align_corpus(CORPUS, root / f"out{number}", root, settings=settings)
        manifest = read_manifest(out)
        assert manifest is not None
        assert manifest["model"]["pairs"] == (settings.train_pairs or LINES - 1)
        models.append((out / "model" / "model.npz").read_bytes())
    assert len(set(models)) == 3


def test_the_file_is_read_as_the_third_of_a_moses_corpus(root: Path) -> None:
    out = align_corpus(CORPUS, root / "out", root)
    records = read("moses", [str(root / "pairs.en"), str(root / "pairs.de"), str(out / "alignment.txt")], ["en", "de"])
    aligned = [record.alignment for record in records if isinstance(record, Pair)]
    assert len(aligned) == LINES - 1
    assert [line for number, line in enumerate(lines(out / "alignment.txt")) if number != 3] == aligned


@pytest.mark.parametrize(
    ("damaged", "redone"),
    [("", []), ("parts/part-00000.parquet", [("align_part", 0)]), ("model/model.npz", [("train_model", 0)])],
)
def test_only_what_is_damaged_is_done_again(
    root: Path, steps: list[tuple[str, int]], damaged: str, redone: list[tuple[str, int]]
) -> None:
    out = align_corpus(CORPUS, root / "out", root)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    written = {path: path.stat().st_mtime_ns for path in out.glob("parts/*")}
    if damaged:
        (out / damaged).write_bytes(before[out / damaged][:-9])
    if damaged.endswith(".parquet"):
        with pytest.raises(DataError, match=r"part-00000.parquet is damaged"):
            list(read_column(out / damaged))
    steps.clear()
    align_corpus(CORPUS, root / "out", root)
    assert steps == redone
    assert {path: path.read_bytes() for path in before} == before
    assert redone or {path: path.stat().st_mtime_ns for path in written} == written


def test_a_folder_is_not_overwritten_by_the_alignment_of_something_else(root: Path) -> None:
    align_corpus(CORPUS, root / "out", root)
    with pytest.raises(DataError, match=r"holds the word alignment of other texts, or by other settings. Give another"):
        align_corpus(CORPUS, root / "out", root, settings=WordAlignment(join="intersection"))


def test_a_corpus_without_pairs_is_refused(root: Path) -> None:
    for name in ("pairs.en", "pairs.de"):
        (root / name).write_text("\n\n")
    with pytest.raises(DataError, match=r"pairs\.en.* hold no pairs"):
        align_corpus(CORPUS, root / "out", root)


@pytest.fixture
def tokenizer(root: Path) -> Path:
    text = [*lines(root / "pairs.en"), *lines(root / "pairs.de")]
    save_tokenizer(wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=80), lambda: iter(text))), root / "tokenizer")
    return root / "tokenizer"


def test_links_over_the_tokenizers_words_count_the_words_that_prepare_cuts(root: Path, tokenizer: Path) -> None:
    (root / "pairs.en").write_text("en1, (en2)!\n" * 40)
    (root / "pairs.de").write_text("de1, (de2)!\n" * 40)
    out = align_corpus(CORPUS, root / "out", root, words=TokenizerSplitter(str(tokenizer)))
    backend = TokenizerSplitter(str(tokenizer))
    assert backend.split(["En1, (EN2)!"]) == [["en1", ",", "(", "en2", ")", "!"]]
    assert list(read_column(out / "parts" / "part-00000.parquet")) == ["0-0 1-1 2-2 3-3 4-4 5-5"] * 40
    assert not (out / "alignment.txt").exists()  # its numbers are not those of words between blanks


def test_each_piece_of_a_word_that_prepare_takes_apart_is_a_word(tokenizer: Path) -> None:
    words = TokenizerSplitter(str(tokenizer), longest=2)
    line = "en1 nnnnnnnn"
    cut = tokenize_lines(Tokenizer.from_file(str(tokenizer / "tokenizer.json")), [line], 2)
    [found] = words.split([line])
    assert len(found) == len(cut.forms)
    assert sum(word.startswith(NO_FORM) for word in found) == cut.forms.count("") > 2


def test_a_folder_without_a_tokenizer_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no tokenizer: it has no tokenizer.json"):
        align_corpus(CORPUS, root / "out", root, words=TokenizerSplitter(str(root)))


def test_words_between_blanks_are_those_of_moses_files_in_lower_case() -> None:
    assert BlankSplitter().split(["Ein  Ärger .", ""]) == [["ein", "ärger", "."], []]


@pytest.mark.parametrize("number", [50, HELD + 5, None])
def test_the_sample_is_the_same_however_the_corpus_is_cut(number: int | None) -> None:
    pairs = [Pair(("en", "de"), (f"en {n}", f"de {n}"), "file", n + 1) for n in range(2 * HELD)]
    hashed = [(hash_pair(pair, 0), pair) for pair in pairs]
    whole = smallest([*hashed, hashed[0]], number)
    halves = [smallest(hashed[:700], number), smallest(hashed[700:], number)]
    assert list(smallest((item for half in halves for item in half.items()), number).items()) == list(whole.items())
    assert list(whole) == sorted(key for key, _ in hashed)[:number]
    assert hash_pair(pairs[0], 1) != hashed[0][0]


def test_a_pair_that_stands_in_two_parts_is_trained_on_once(tmp_path: Path) -> None:
    write_sample(tmp_path / "a", [(9, (["x"], ["y"])), (3, (["u"], ["v"]))])
    write_sample(tmp_path / "b", [(9, (["x"], ["y"])), (5, (["\u00e4"], ["w"]))])
    both = [(["u"], ["v"]), (["\u00e4"], ["w"]), (["x"], ["y"])]
    assert read_samples([tmp_path / "a", tmp_path / "b"], None) == both
    assert read_samples([tmp_path / "a", tmp_path / "b"], 2) == both[:2]


def test_a_word_pair_that_comes_late_is_counted_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_COUNTED", 2000)
    texts = [("often", "oft"), *((f"w{n}", f"v{n}") for n in range(4000)), *[("late", "spät"), ("x", "y")] * 5]
    texts += [(f"u{n}", f"t{n}") for n in range(4000)] + [("often", "oft")] * 3
    pairs = (Pair(("en", "de"), both, "file", n, "0-0") for n, both in enumerate(texts))
    assert corpus.translations(pairs, ("en", "de")) == [("late", "spät", 5, 1.0), ("x", "y", 5, 1.0),
                                                        ("often", "oft", 3, 0.75)]  # fmt: skip


TMX = "<tmx><body>{}</body></tmx>"
UNIT = '<tu><tuv xml:lang="en"><seg>one {0}</seg></tuv><tuv xml:lang="de"><seg>eins {0}</seg></tuv></tu>'


def write_half_packed(root: Path) -> list[str]:
    packed = gzip.compress((root / "pairs.en").read_bytes())
    (root / "pairs.en.gz").write_bytes(packed[: len(packed) // 2])
    return ["pairs.en.gz", "pairs.de"]


def write_broken_tmx(root: Path) -> list[str]:
    whole = TMX.format("".join(UNIT.format(number) for number in range(LINES)))
    (root / "pairs.tmx").write_text(whole.replace("one 150</seg>", "one 150</sge>"))
    return ["pairs.tmx"]


@pytest.mark.parametrize(
    ("form", "write", "said"),
    [
        ("moses", write_half_packed, r"pairs\.en\.gz cannot be read from byte \d+ of \d+ on: truncated archive"),
        ("tmx", write_broken_tmx, r"pairs\.tmx:\d+ cannot be read on: XML is not well-formed"),
    ],
)
def test_the_verb_stops_at_a_broken_file_in_one_sentence(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
    write: Callable[[Path], list[str]],
    said: str,
) -> None:
    monkeypatch.setattr(cluster, "connect", lambda _: None)
    paths = [str(root / name) for name in write(root)]
    code = exit_code(lambda: data_align(paths, ["en", "de"], root / "out", form))
    assert code == 1
    told = capsys.readouterr().err
    assert re.search(rf"\nxalign: {root}/{said}", told), told
    assert told.count("\n") == 2
    assert not (root / "out" / "manifest.json").exists()
