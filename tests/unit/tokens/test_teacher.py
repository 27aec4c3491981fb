"""The teacher's vectors in prepared data: of which text they are, what they depend on, and what is refused."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.unit.conftest import make_config, prepare_here, write_inputs
from tests.unit.tasks.conftest import WIDTH, make_bert_in
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.feed.batches import BatchReader
from xalign_ray.models.nearest import mined_negatives, unit_rows
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import STORED
from xalign_ray.tokens.teacher import check_teacher, open_teacher

DISTILL = [
    "streams=[{kind: contrasted_pairs, text: none}]",
    "objectives=[{kind: distillation}]",
    f"model.hidden_size={WIDTH}",
    "model.num_attention_heads=2",
    "train.max_steps=4",
]
PIECES = ["en", "de", *(f"##{digit}" for digit in range(10))]


def taught(folder: Path, teacher: Path, *settings: str) -> RunConfig:
    return make_config(folder, f"data.teacher={{path: {teacher}}}", *DISTILL, *settings)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Prepared]:
    """A folder of inputs, a teacher, and the data that it has taught."""
    root = tmp_path_factory.mktemp("taught")
    write_inputs(root)
    teacher = make_bert_in(root / "teacher", PIECES)
    return root, teacher, prepare_here(taught(root, teacher))


@cache
def tokenizer_in(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def text_of(prepared: Prepared, ids: np.ndarray) -> str:
    return tokenizer_in(prepared.tokenizer_folder).decode(ids.tolist(), skip_special_tokens=True)


def test_each_pair_brings_the_vector_of_its_english_sentence(world: tuple[Path, Path, Prepared]) -> None:
    root, teacher, prepared = world
    config = taught(root, teacher)
    shape = prepared.teacher
    assert shape is not None
    assert shape.width == WIDTH
    reader, encoder, seen = BatchReader(prepared, config), SentenceVectors(open_encoder(teacher)), 0
    for columns in map(reader, reader.requests(0, 0)):
        vectors = columns["teacher"].view(STORED)
        assert vectors.shape[1:] == shape
        for row in range(len(vectors)):
            pairs = int(columns["query_example_ids"][row].max())
            assert not vectors[row, pairs:].any()
            for pair in range(1, pairs + 1):
                sides = [columns[f"{side}_input_ids"][row][columns[f"{side}_example_ids"][row] == pair]
                         for side in ("query", "key")]  # fmt: skip
                (english,) = [text for ids in sides if "en" in (text := text_of(prepared, ids))]
                np.testing.assert_allclose(vectors[row, pair - 1], encoder.encode([english])[0], atol=2e-3)
                seen += 1
    assert seen > 40


def test_a_teacher_whose_files_changed_is_opened_again(tmp_path: Path) -> None:
    folder = make_bert_in(tmp_path / "teacher", PIECES)
    first = open_teacher(str(folder), "en")
    assert open_teacher(str(folder), "en") is first
    make_bert_in(folder, PIECES)
    assert open_teacher(str(folder), "en") is not first


def test_shards_without_a_teacher_have_no_column_of_it(world: tuple[Path, Path, Prepared]) -> None:
    root, _, taught_data = world
    plain = prepare_here(make_config(root, "streams=[{kind: contrasted_pairs}]"))
    assert plain.teacher is None
    reader = BatchReader(plain, make_config(root, "streams=[{kind: contrasted_pairs}]"))
    assert "teacher" not in next(map(reader, reader.requests(0, 0)))
    assert plain.fingerprint != taught_data.fingerprint


def test_the_fingerprint_is_that_of_the_teachers_content(world: tuple[Path, Path, Prepared], tmp_path: Path) -> None:
    root, teacher, prepared = world
    moved = Path(shutil.copytree(teacher, tmp_path / "moved"))
    (moved / "README.md").write_text("no part of it")
    assert prepare_here(taught(root, moved)).fingerprint == prepared.fingerprint
    weights = moved / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert prepare_here(taught(root, moved)).fingerprint != prepared.fingerprint


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (["data.teacher=null"], "objective distillation needs data.teacher; the recipe names none"),
        (["objectives=[{kind: masked_lm}]"], "data.teacher makes vectors that no objective reads"),
        (["data.teacher.language=fr"], "parallel.0 is of en and de, and the teacher reads fr"),
    ],
)
def test_a_recipe_that_cannot_be_taught_is_refused(
    world: tuple[Path, Path, Prepared], settings: list[str], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        taught(world[0], world[1], *settings)
    assert fault in str(refused.value)


def test_a_teacher_that_does_not_fit_is_refused_before_anything_starts(
    world: tuple[Path, Path, Prepared], tmp_path: Path
) -> None:
    root, teacher, _ = world
    with pytest.raises(ConfigError, match=f"makes vectors of {WIDTH} numbers, and the encoder that learns them has 32"):
        check_teacher(taught(root, teacher, "model.hidden_size=32"))
    with pytest.raises(ConfigError, match=r"data.teacher.path: there is no folder .*gone"):
        check_teacher(taught(root, tmp_path / "gone"))
    other = Path(shutil.copytree(teacher, tmp_path / "other"))
    (other / "modules.json").write_text('[{"type": "x.Transformer", "path": ""}, {"type": "x.CNN", "path": "1_CNN"}]')
    with pytest.raises(ConfigError, match="makes its vectors by a module CNN, whose width is unknown here"):
        check_teacher(taught(root, other))
    check_teacher(taught(root, teacher))


def mined(folder: Path, teacher: Path, *settings: str) -> RunConfig:
    asked = f"data.teacher={{path: {teacher}, gives: hard_negatives}}"
    return make_config(folder, asked, *DISTILL, "objectives=[{kind: sentence_contrast}]", *settings)


def test_each_sentence_brings_the_hard_negative_that_the_teacher_mined(world: tuple[Path, Path, Prepared]) -> None:
    root, teacher, taught_data = world
    config = mined(root, teacher, "train.max_steps=60")  # some passes, so that every pair is seen
    prepared = prepare_here(config)
    assert (prepared.teacher, config.data.negatives_of) == (None, (0, 1))
    assert prepared.fingerprint != taught_data.fingerprint
    reader, found = BatchReader(prepared, config), set()
    for columns in map(reader, reader.requests(0, 0)):
        for row, held in enumerate(columns["query_example_ids"].max(axis=1)):
            for pair in range(1, held + 1):
                query, key, hard_key, hard_query = (
                    text_of(prepared, columns[f"{role}_input_ids"][row][columns[f"{role}_example_ids"][row] == pair])
                    for role in ("query", "key", "hard_key", "hard_query")
                )
                sides = (query, key, hard_key, hard_query) if "en" in query else (key, query, hard_query, hard_key)
                found.add(sides)
    english, german, of_english, of_german = zip(*sorted(found), strict=True)
    assert len(found) > 200
    encoder = SentenceVectors(open_encoder(teacher))
    texts = [sorted(set(side)) for side in (english, german)]
    vectors = [unit_rows(encoder.encode(side)) for side in texts]
    places = [np.array([of.index(text) for text in side]) for of, side in zip(texts, (english, german), strict=True)]
    numbers = mined_negatives(vectors[0], vectors[1], places[0], places[1])
    assert all(text not in own for text, own in zip(of_english, german, strict=True) if "en" in text), (
        "of the other side"
    )
    for side, brought, own in ((german, of_english, german), (english, of_german, english)):
        expected = [side[n] if n >= 0 else mine for n, mine in zip(numbers[side is english], own, strict=True)]
        assert all(whole.startswith(cut) for whole, cut in zip(expected, brought, strict=True))
    assert sum(n >= 0 for n in numbers[0]) > len(found) // 2


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            ["objectives=[{kind: masked_lm}]"],
            "data.teacher gives hard_negatives that no objective reads; add objective sen",
        ),
        (
            ["objectives=[{kind: distillation}]"],
            "distillation needs a data.teacher that gives vectors; it gives hard_neg",
        ),
    ],
)
def test_negatives_that_no_loss_reads_are_refused(
    world: tuple[Path, Path, Prepared], settings: list[str], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        mined(world[0], world[1], *settings)
    assert fault in str(refused.value)


def test_a_teacher_of_another_width_and_language_may_mine(world: tuple[Path, Path, Prepared]) -> None:
    check_teacher(mined(world[0], world[1], "model.hidden_size=32", "data.teacher.language=fr"))


def test_each_query_brings_its_given_negatives_in_turn(world: tuple[Path, Path, Prepared]) -> None:
    root, _, _ = world
    rows = [(f"en{n}", f"en{n + 1}", [f"en{n + k}" for k in range(2, 2 + n % 4)]) for n in range(100, 160)]
    lines = [json.dumps({"query": query, "pos": answer, "neg": some}) for query, answer, some in rows]
    (root / "queries.jsonl").write_text("\n".join(lines) + "\n")
    source = "{format: jsonl, languages: [en, en], paths: [queries.jsonl], columns: [query, pos], negatives: [neg]}"
    streams = "streams=[{kind: contrasted_pairs, text: none, random_order: false}]"
    contrast = [f"data.parallel=[{source}]", streams, "objectives=[{kind: sentence_contrast}]", "train.max_steps=90"]
    config = make_config(root, *contrast)
    prepared = prepare_here(config)
    reader, found = BatchReader(prepared, config), set()
    for columns in map(reader, reader.requests(0, 0)):
        assert "hard_query_input_ids" not in columns
        for row, held in enumerate(columns["query_example_ids"].max(axis=1)):
            for pair in range(1, held + 1):
                ids = [
                    columns[f"{side}_input_ids"][row][columns[f"{side}_example_ids"][row] == pair]
                    for side in ("query", "key", "hard_key")
                ]
                found.add(tuple(text_of(prepared, one) for one in ids))
    assert len({query for query, *_ in found}) > 45
    drawn = {query: {negative for other, _, negative in found if other == query} for query, *_ in found}
    tokenizer = tokenizer_in(prepared.tokenizer_folder)

    def cut(text: str, answer: str) -> str:
        ids, room = (tokenizer.encode(one, add_special_tokens=False).ids for one in (text, answer))
        return tokenizer.decode(ids[: len(room)])

    given = {query: {cut(one, answer) for one in some} or {answer} for query, answer, some in rows}
    assert drawn == {query: given[query] for query in drawn}
    without = sum(query in drawn and not some for query, _, some in rows)
    assert prepared.manifest["counts"]["pairs_without_negatives"] == without > 0
