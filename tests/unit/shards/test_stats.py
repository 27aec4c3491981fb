"""What `data stats` tells, against the shards, the order and the streams themselves."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.unit.conftest import STREAMS, make_config, prepare_here, write_inputs
from xalign_ray.cli import app
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.identity import inputs_of
from xalign_ray.config.load import Recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.shards.order import Request
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import NO_ENTRY
from xalign_ray.streams.prediction import stream_columns
from xalign_ray.tokens.stats import as_tables, measure
from xalign_ray.track.events import EventLog


def stats_of(inputs: Path, out: Path, *settings: str):
    return measure(str(inputs / "recipe.yaml"), [STREAMS, *settings], out)[0]


@pytest.mark.usefixtures("prepared")
def test_counts_padding_and_coverage_are_those_of_the_shards(inputs: Path, prepared: Prepared, tmp_path: Path) -> None:
    stats = stats_of(inputs, tmp_path)
    assert [pool.pool for pool in stats.pools] == ["pairs/de-en", "text/de", "text/en"]
    (english,) = (pool for pool in stats.pools if pool.pool == "text/en")
    rows = prepared.first_rows("text/en", 1 << 60)
    assert (english.rows, english.tokens, english.documents, english.sentences) == (
        len(rows),
        len(rows.pieces),
        1500,
        1500,
    )
    context = prepared.context(make_config(inputs))
    columns = stream_columns(MaskedText(), rows, np.arange(len(rows)), context)
    assert english.padding == pytest.approx((columns["example_ids"] == 0).mean())
    assert english.words_in_dictionary == pytest.approx(
        (rows.entry != NO_ENTRY).mean(), abs=0.02
    )  # held-out rows apart
    assert english.phrases_in_dictionary == 0
    assert stats.all.rows == sum(pool.rows for pool in stats.pools)
    assert stats.dictionary["pairs_trained"] > 0


@pytest.mark.parametrize("steps", [40, 45, 7])  # whole chunks or not
@pytest.mark.usefixtures("prepared")
def test_draws_are_the_rows_that_the_order_deals(inputs: Path, config: RunConfig, tmp_path: Path, steps: int) -> None:
    stats = stats_of(inputs, tmp_path, f"train.max_steps={steps}", "sampling={alpha: [[0, 1.0], [40, 0.0]]}")
    run = make_config(inputs, f"train.max_steps={steps}", "sampling={alpha: [[0, 1.0], [40, 0.0]]}")
    prepared = prepare_here(run)
    order, sources = prepared.order(run), prepared.sources(run)
    dealt = np.zeros(len(sources), np.int64)
    for request in order.requests(0, steps, 0, 12, 32):
        assert isinstance(request, Request)
        dealt += np.bincount(order.places(request).source, minlength=len(sources))
    assert [draw.drawn_rows for draw in stats.sampling] == dealt.tolist()
    assert sum(draw.expected_rows for draw in stats.sampling) == pytest.approx(steps * 12)
    assert sum(draw.probability for draw in stats.sampling) == pytest.approx(1)
    assert {draw.stream for draw in stats.sampling} == {stream.kind for stream in config.streams}


@pytest.mark.usefixtures("prepared")
def test_draws_lie_where_their_probabilities_say(inputs: Path, tmp_path: Path) -> None:
    stats = stats_of(inputs, tmp_path, "train.max_steps=2000", "sampling={alpha: 0.3}")
    total = 2000 * 12
    for draw in stats.sampling:
        deviation = (total * draw.probability * (1 - draw.probability)) ** 0.5
        assert abs(draw.drawn_rows - draw.expected_rows) < 3.5 * deviation
        (pool,) = (pool for pool in stats.pools if pool.pool == draw.pool)
        assert draw.expected_passes == pytest.approx(draw.expected_rows / pool.rows)


@pytest.mark.usefixtures("prepared")
def test_files_and_tables_hold_the_same_numbers(inputs: Path, tmp_path: Path) -> None:
    stats, files = measure(str(inputs / "recipe.yaml"), [STREAMS], tmp_path)
    assert [path.name for path in files] == ["stats-recipe.json", "stats-recipe.csv"]
    told = json.loads(files[0].read_text())
    assert told["all"]["rows"] == stats.all.rows
    assert told["sampling"][0]["drawn_rows"] == stats.sampling[0].drawn_rows
    lines = list(csv.DictReader(files[1].open()))
    assert [(line["pool"], line["stream"]) for line in lines] == [
        ("pairs/de-en", "masked_pairs"),
        ("text/de", "masked_text"),
        ("text/de", "code_switched_labels"),
        ("text/en", "masked_text"),
        ("text/en", "code_switched_labels"),
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*as_tables(stats))
    shown = console.export_text()
    assert f"{stats.all.rows:,}" in shown
    assert f"{stats.sampling[0].drawn_rows:,}" in shown


@pytest.mark.parametrize("tokens", [99_999, 100_000, 9_999_499, 999_949_999, 1_000_000_000, 150_000_000_000])
@pytest.mark.usefixtures("prepared")
def test_tables_of_any_size_fit_in_80_columns(inputs: Path, tmp_path: Path, tokens: int) -> None:
    stats, _ = measure(str(inputs / "recipe.yaml"), [STREAMS], tmp_path)
    counts = dict.fromkeys(("documents", "sentences", "words", "source_tokens", "rows"), tokens)
    pool = replace(stats.all, pool="text/zh-Hant", padding=1.0, **counts)
    draw = replace(stats.sampling[0], stream="contrasted_pairs", drawn_rows=tokens, expected_rows=float(tokens))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*as_tables(replace(stats, shards="data [x]", pools=[pool], sampling=[draw])))
    shown = console.export_text()
    assert "…" not in shown
    assert "data [x]" in shown, "not taken for markup"


def test_a_share_of_a_pass_is_not_shown_as_none(inputs: Path, prepared: Prepared, tmp_path: Path) -> None:
    del prepared
    stats, _ = measure(str(inputs / "recipe.yaml"), [STREAMS], tmp_path)
    rare, never = (replace(stats.sampling[0], pool=str(passes), expected_passes=passes) for passes in (0.0004, 0.0))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*as_tables(replace(stats, sampling=[rare, never])))
    shown = console.export_text()
    assert "<0.01" in shown
    assert "0.00 " in shown


def test_a_folder_has_no_draws_and_a_run_has_its_own(prepared: Prepared, config: RunConfig, tmp_path: Path) -> None:
    stats, files = measure(str(prepared.folder), out=tmp_path)
    assert stats.sampling == []
    assert [path.name for path in files] == ["stats.json", "stats.csv"]
    run = tmp_path / "run"
    run.mkdir()
    write_saved(run, describe_saved(Recipe("recipe", config, {}), inputs_of(config, prepared.fingerprint)))
    with pytest.raises(DataError) as caught:
        measure(str(run))
    assert str(caught.value) == (f"{run} has not begun to train, so its data are not known yet. Name its recipe.")
    with EventLog(run / "events.jsonl", 1) as log:
        log.write("start", 0, data=str(prepared.folder))
    stats, files = measure(str(run))
    assert stats.steps == 40
    assert files == [run / "stats.json", run / "stats.csv"]


def test_dropped_identical_entries_are_counted(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    with (tmp_path / "en-de.txt").open("a") as file:
        file.write("same same\nen1 de1\n")
    config = make_config(tmp_path)
    with pytest.raises(DataError) as caught:
        stats_of(tmp_path, tmp_path)
    recipe = tmp_path / "recipe.yaml"
    assert str(caught.value) == (f"The shards of {recipe} are not there yet. Make them with `xalign prepare {recipe}`.")
    prepare_here(config)
    stats = stats_of(tmp_path, tmp_path)
    assert (stats.dictionary["identical"], stats.dictionary["duplicates"], stats.dictionary["lines"]) == (1, 1, 122)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        measure(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path} holds no prepared data: it has no manifest with pools. Name a recipe or a run."
    )


def test_the_command_shows_tables_and_names_its_files(prepared: Prepared, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "stats", str(prepared.folder), "--out", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.split() == [str(tmp_path / "stats.json"), str(tmp_path / "stats.csv")]
    assert "text/en" in done.stderr
    assert max(map(len, done.stderr.splitlines()[1:])) <= 80
