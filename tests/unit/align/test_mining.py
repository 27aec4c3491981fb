"""Mining two files: an encoder that gives translations one vector finds them, and dev pairs choose the threshold."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from tests.unit.tasks.conftest import WIDTH, make_bert_in
from xalign_ray.align.mining import FACTS, mine_files
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs
from xalign_ray.verbs.data import data_mine

LETTERS = "bcdfghjklm"
ENGLISH = [f"{one}a{other}" for one in LETTERS for other in "bcd"]
GERMAN = [word.replace("a", "u") for word in ENGLISH]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files: 60 translations, and on each side 40 sentences that have none; ten other pairs are known."""
    root, draw = tmp_path_factory.mktemp("mining"), random.Random(3)
    values = np.random.default_rng(5).normal(size=(len(ENGLISH), WIDTH))
    rows = dict(zip(ENGLISH, values.tolist(), strict=True)) | dict(zip(GERMAN, values.tolist(), strict=True))
    make_bert_in(root / "encoder", [*ENGLISH, *GERMAN], vectors=rows)
    drawn = [draw.sample(range(len(ENGLISH)), 6) for _ in range(150)]
    english, german = ([" ".join(words[i] for i in one) for one in drawn] for words in (ENGLISH, GERMAN))
    (root / "a.txt").write_text("\n".join([*english[:60], "", *english[60:100], english[0]]) + "\n")
    (root / "b.txt").write_text("\n".join([*reversed(german[:60]), *german[100:140]]) + "\n")
    lines = [f"{one}\t{other}" for one, other in zip(english[140:], german[140:], strict=True)]
    (root / "dev.en-de.tsv").write_text("\n".join(["en\tde", *lines]) + "\n")
    (root / "expected.json").write_text(json.dumps([english[:60], german[:60], english[140:]]))
    return root


def test_pairs_above_the_threshold_are_translations_and_dev_pairs_are_not_among_them(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english, german, dev = json.loads((world / "expected.json").read_text())
    out = data_mine(
        world / "a.txt", world / "b.txt", "en,de", str(world / "encoder"), tmp_path, world / "dev.en-de.tsv"
    )
    (corpus,) = look_at_pairs([str(out)])
    assert corpus.languages == ("en", "de")
    assert out.name == "mined.en-de.tsv"
    pairs = [*read_pairs(corpus)]
    assert set(pairs) <= set(zip(english, german, strict=True))
    assert len(pairs) > 30, "of 60: few dev pairs give a threshold that is high"
    assert not {one for one, _ in pairs} & set(dev)
    facts = json.loads((tmp_path / FACTS).read_text())
    assert facts["sentences"] == [100, 100], "the empty line and the copy do not count"
    assert facts["dev"]["f1"] > 0.95
    assert not [*tmp_path.glob(".vectors*")]
    assert "Mining 110 and 110 sentences on " in capsys.readouterr().err
    scores = [float(line.split("\t")[2]) for line in out.read_text().splitlines()[1:]]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= facts["threshold"] - 1e-6


def test_a_disk_that_is_full_under_the_vectors_is_an_error_and_not_the_end_of_the_process(
    world: Path, tmp_path: Path
) -> None:
    (tmp_path / ".vectors-0.f32").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        data_mine(world / "a.txt", world / "b.txt", "en,de", world / "encoder", tmp_path, threshold=1.0)


def test_a_threshold_keeps_what_is_above_it(world: Path, tmp_path: Path) -> None:
    files = (world / "a.txt", world / "b.txt")
    english, german, _ = json.loads((world / "expected.json").read_text())
    found = []
    for least in (0.0, 1.05, 9.0):
        out = mine_files(files, ("en", "de"), str(world / "encoder"), tmp_path, 4, threshold=least)
        found.append({tuple(line.split("\t")[:2]) for line in out.read_text().splitlines()[1:]})
    assert set(zip(english, german, strict=True)) <= found[0], "each translation is found"
    assert found[0] > found[1] > found[2] == set()


def test_known_pairs_that_the_files_hold_are_mined_down_to_the_worst_of_them(world: Path, tmp_path: Path) -> None:
    files = (world / "a.txt", world / "b.txt")
    english, german, _ = json.loads((world / "expected.json").read_text())
    known = list(zip(english[:9], german[:9], strict=True))
    spaced = [(one.replace(" ", "  "), other) for one, other in known]
    out = mine_files(files, ("en", "de"), str(world / "encoder"), tmp_path, 4, spaced)
    assert {tuple(line.split("\t")[:2]) for line in out.read_text().splitlines()} > set(known)


@pytest.mark.parametrize(
    ("languages", "options", "fault"),
    [
        ("en", {"threshold": 1.0}, "--languages: give the codes of FIRST and SECOND"),
        ("en,de", {}, "Give --dev PAIRS, by which the threshold is chosen, or --threshold X; not both."),
        ("en,de", {"dev": "dev", "threshold": 1.0}, "not both"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    world: Path, tmp_path: Path, languages: str, options: dict[str, object], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        data_mine(world / "a.txt", world / "b.txt", languages, str(world / "encoder"), tmp_path, **options)  # type: ignore[arg-type]
    assert fault in str(refused.value)


def test_dev_pairs_that_are_not_found_are_reported(world: Path, tmp_path: Path) -> None:
    files = (world / "a.txt", world / "b.txt")
    english, german, _ = json.loads((world / "expected.json").read_text())
    wrong = list(zip(english[:9], german[1:10], strict=True))
    with pytest.raises(DataError, match="None of the dev pairs was found"):
        mine_files(files, ("en", "de"), str(world / "encoder"), tmp_path, 4, wrong)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError, match=r"empty.txt holds no sentence"):
        mine_files((tmp_path / "empty.txt", files[1]), ("en", "de"), str(world / "encoder"), tmp_path, 4, threshold=1.0)
