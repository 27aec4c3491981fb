"""The text stage: what parsers yield comes back from Parquet, once for all recipes, and is repaired."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.conftest import make_config, one_after_the_other, prepare_here, write_inputs
from xalign_ray.clean import text_stage
from xalign_ray.clean.text_stage import TEXT_FOLDER, make_text
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import DataError
from xalign_ray.sources import stage, stored
from xalign_ray.sources.formats import parse, parts, read, read_part
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.open import WHOLE
from xalign_ray.sources.records import BadRow, Document, Noted, Pair, Part, Skipped
from xalign_ray.work.artifacts import LOCK, hash_file, is_sealed, read_manifest, seal, write_json


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that a parser was asked to read, in order."""
    seen: list[str] = []

    def watched(part: Any, languages: Sequence[str]) -> Any:
        seen.append(Path(part.paths[0]).name)
        return parse(part, languages)

    monkeypatch.setattr(text_stage, "parse", watched)
    return seen


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_run_tasks", one_after_the_other)


@pytest.mark.parametrize("group", [1, 40, 1 << 20])
@pytest.mark.parametrize(
    ("languages", "records"),
    [
        (
            ("en",),
            [
                Skipped("redirect"),
                Document("en", ("One.", "\u2028two", "b\u0000"), "a.gz@70", 3),
                BadRow("a.gz", 9, "line is not UTF-8"),
                Noted("tables", 4),
                Document("en", ("Three.",), "a.gz", 10),
                Skipped("redirect"),
            ],
        ),
        (
            ("de", "en"),
            [
                Pair(("de", "en"), ("eins", "one"), "a.gz", 1, "0-0"),
                Pair(("de", "en"), ("zwei", "two"), "a.gz", 2, negatives=("three", "four")),
                Pair(("de", "en"), ("", ""), "a.gz", 3, ""),
            ],
        ),
        (("en",), []),
        (("en",), [Skipped("redirect")]),
    ],
)
def test_records_come_back_as_they_were_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, languages: tuple[str, ...], records: list[Any], group: int
) -> None:
    monkeypatch.setattr(stored, "GROUP_CHARACTERS", group)
    path = tmp_path / "part.parquet"
    write_json(stored.record_of(path), seal(stored.write_stored(path, iter(records), languages)))
    part = Part("text", ("a.gz",), (WHOLE,), text=str(path))
    found = list(stored.read_stored(part, languages))
    plain = [one for one in records if isinstance(one, Document | Pair | BadRow)]
    assert [one for one in found if isinstance(one, Document | Pair | BadRow)] == plain
    for kind in (Skipped, Noted):
        before, after = ([one for one in some if isinstance(one, kind)] for some in (records, found))
        assert sum(one.count for one in after) == sum(one.count for one in before)


def test_a_stage_holds_one_lock_however_many_sources_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def watched(tasks: Sequence[Any], work: Callable[[Any], None], *_: object) -> None:
        held.append((len([*tmp_path.rglob(LOCK)]), [one.name for one in threading.enumerate()].count("lock")))
        one_after_the_other(tasks, work)

    monkeypatch.setattr(stage, "_run_tasks", watched)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text(f"line {number}\n")
    paths = [str(tmp_path / f"{number}.txt") for number in range(9)]
    sources = [Input("text/en", ("en",), tuple(parts("text", [path])), (path,)) for path in paths]
    texts = make_text(sources, tmp_path, ParallelConfig())
    assert held == [(1, 1)]
    assert all((Path(part.text).parent / "manifest.json").is_file() for one in texts for part in one.parts)
    assert not [*tmp_path.rglob(LOCK)]


def test_a_second_recipe_parses_nothing(tmp_path: Path, parsed: list[str]) -> None:
    write_inputs(tmp_path)
    filters = "data.filters={drop_duplicates: true, near_duplicates: {}}"
    first = prepare_here(make_config(tmp_path, filters))
    assert sorted(parsed) == ["de.txt", "en.txt", "pairs.en"], "each once, with duplicates and near-duplicates on"
    second = prepare_here(make_config(tmp_path, "data.max_seq_length=32", "data.reserve_fraction=0"))
    capped = prepare_here(make_config(tmp_path, "data.max_pairs=100"))
    assert len({one.fingerprint for one in (first, second, capped)}) == 3
    assert len(parsed) == 3
    (tmp_path / "de.txt").open("a").write("ein Satz mehr\n")
    prepare_here(make_config(tmp_path))
    assert parsed[3:] == ["de.txt"], "a source that changed, and no other"
    prepare_here(make_config(tmp_path, "data.corpora=[{format: text, language: fr, paths: [en.txt]}]"))
    assert parsed[4:] == ["en.txt"], "another language may be parsed otherwise"


def test_text_is_what_other_programs_read(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "de.txt").open("ab").write(b"\xff\n")
    prepare_here(make_config(tmp_path, "data.max_bad_fraction=0.1"))
    tables = [pq.read_table(path) for path in (tmp_path / "out" / TEXT_FOLDER).glob("*/*.parquet")]
    (german,) = [one for one in tables if one["languages"][0].as_py() == ["de"]]
    lines = (tmp_path / "de.txt").read_bytes().split(b"\n")[:-1]
    assert german.column_names == ["languages", "texts", "source", "line", "alignment", "reason"]
    assert german["texts"].to_pylist() == [[line.decode()] for line in lines[:-1]] + [[]]
    assert german["line"].to_pylist() == list(range(1, len(lines) + 1))
    assert german["reason"].to_pylist()[-2:] == [None, "bytes are not UTF-8"]
    assert set(german["source"].to_pylist()) == {str(tmp_path / "de.txt")}


def test_damaged_text_is_named_by_its_reader_and_made_again_by_prepare(tmp_path: Path, parsed: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {number} of a text\n" for number in range(100)))
    one = Input("text/en", ("en",), tuple(parts("text", [str(path)])), (hash_file(path),))
    (made,) = make_text([one], tmp_path, ParallelConfig())
    wanted = list(read_part(one.parts[0], ("en",)))
    file = Path(made.parts[0].text)
    manifest = read_manifest(file.parent)
    assert manifest
    assert is_sealed(manifest)
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 4] ^= 1
    for damage in (lambda: file.write_bytes(flipped), file.unlink, lambda: file.write_bytes(content[:50])):
        damage()
        with pytest.raises(DataError, match=rf"^{file} is (damaged|missing).*{stored.HINT}$"):
            list(read_part(made.parts[0], ("en",)))
        assert make_text([one], tmp_path, ParallelConfig()) == [made]
        assert list(read_part(made.parts[0], ("en",))) == wanted
        assert file.read_bytes() == content
    assert parsed == ["a.txt"] * 4
    record = stored.record_of(file)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"left_out": []}))
    with pytest.raises(DataError, match=rf"^{record} is missing or damaged. {stored.HINT}$"):
        list(read_part(made.parts[0], ("en",)))
    make_text([one], tmp_path, ParallelConfig())
    assert list(read_part(made.parts[0], ("en",))) == wanted


def test_a_killed_stage_goes_on_with_the_parts_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[str]
) -> None:
    monkeypatch.setattr("xalign_ray.sources.records.PART_BYTES", 1000)
    path = tmp_path / "a.txt"
    lines = [f"line {number} of a text\n".encode() for number in range(200)]
    path.write_bytes(b"".join([*lines[:150], b"\xff\n", *lines[150:]]))
    one = Input("text/en", ("en",), tuple(parts("text", [str(path)])), (hash_file(path),))
    count = len(one.parts)
    assert count > 3

    def killed(tasks: Sequence[Any], work: Callable[[Any], None], *_: object) -> None:
        one_after_the_other(tasks[:2], work)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stage, "_run_tasks", killed)
        with pytest.raises(KeyboardInterrupt):
            make_text([one], tmp_path, ParallelConfig())
    (made,) = make_text([one], tmp_path, ParallelConfig())
    assert len(parsed) == count, "each part once"
    found = [record for part in made.parts for record in read_part(part, ("en",))]
    assert found == list(read("text", [str(path)], ["en"])), "lines of later parts follow those of the first"
    assert [row.line for part in made.parts for row in stored.read_bad_rows(part)] == [151]


def test_columns_beside_text_are_read_with_it_whatever_their_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "GROUP_CHARACTERS", 40)
    records = [
        Pair(("de", "en"), ("eins", f"one {number}"), "a", number) if number % 5 else BadRow("a", number, "bad")
        for number in range(23)
    ]
    text, links, marks = (tmp_path / name for name in ("text.parquet", "links.parquet", "marks.parquet"))
    write_json(stored.record_of(text), seal(stored.write_stored(text, iter(records), ("de", "en"))))
    values = [f"0-{number}" if number % 5 else None for number in range(23)]
    stored.write_column(links, "alignment", pa.string(), (pa.array(values[at : at + 4]) for at in range(0, 23, 4)))
    found = pa.array([[number % 3 == 0] if number % 5 else [] for number in range(23)])
    stored.write_column(marks, "duplicate", pa.list_(pa.bool_()), [found])
    part = Part("tsv", ("a",), (WHOLE,), text=str(text), beside=(str(links), str(marks)))
    read_back = list(read_part(part, ("de", "en")))
    assert [one for one in read_back if isinstance(one, BadRow)] == [one for one in records if isinstance(one, BadRow)]
    pairs = [one for one in read_back if isinstance(one, Pair)]
    assert [(one.line, one.alignment, one.duplicate) for one in pairs] == [
        (number, f"0-{number}", [number % 3 == 0]) for number in range(23) if number % 5
    ]
    stored.write_column(links, "alignment", pa.string(), [pa.array(values[:-1])])
    with pytest.raises(DataError, match=rf"^{links} has 22 rows, and {text} 23. {stored.HINT}$"):
        list(read_part(part, ("de", "en")))
    marks.write_bytes(marks.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"^{marks} is damaged .*{stored.HINT}$"):
        list(read_part(Part("tsv", ("a",), (WHOLE,), text=str(text), beside=(str(marks),)), ("de", "en")))
