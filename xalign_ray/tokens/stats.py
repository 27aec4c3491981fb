"""Statistics of prepared data, and how often a run sees it: per language and pair, as a table and as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import PAIRS
from xalign_ray.config.derive import base_recipe, settle
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.saved import open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.shards.order import Order, Request
from xalign_ray.shards.planned import count_steps, expected_rows
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import specials
from xalign_ray.track.events import EVENT_LOG, newest_data
from xalign_ray.work.artifacts import read_manifest, write_atomic, write_json
from xalign_ray.work.mirror import data_of_run
from xalign_ray.work.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class PoolStats:
    """Counts of a language or pair. Documents to words are counted in the sources, held-out ones included."""

    pool: str
    documents: int
    sentences: int  # lines of text, or pairs
    words: int
    source_tokens: int
    words_in_dictionary: float | None  # share of the words that have an entry; one of several words counts as one
    phrases_in_dictionary: float | None  # share of the words that are entries of several words
    tokens_in_dictionary: float | None  # share of the tokens that such words have
    rows: int
    tokens: int  # in the rows to train on, special tokens not counted
    padding: float  # share of the rows' positions that hold no token


@dataclass(frozen=True)
class SamplingStats:
    """How often a stream of a run draws from a pool."""

    stream: str
    pool: str
    probability: float  # of a row, averaged over the steps
    expected_rows: float
    expected_passes: float
    drawn_rows: int  # as the order deals them: the run sees exactly these


@dataclass(frozen=True)
class _Subject:
    """The shards, the recipe that draws from them if known, and the folder of the statistics."""

    prepared: Prepared
    config: RunConfig | None
    folder: Path
    stem: str


@dataclass(frozen=True)
class Stats:
    """All of it; `sampling` is empty where no recipe is known."""

    shards: str  # their folder
    steps: int | None
    pools: list[PoolStats]
    all: PoolStats
    with_dictionary: PoolStats | None  # the texts of languages that have one, together: what DICT reports 34.15 % of
    sampling: list[SamplingStats]
    dictionary: dict[str, int]
    bad_rows: dict[str, int]
    dropped: dict[str, int]
    exchange: dict[str, dict[str, float]]  # of an exchanged vocabulary: see Prepared.exchange


def measure(name: str, settings: Sequence[str] = (), out: Path | None = None) -> tuple[Stats, list[Path]]:
    """The numbers of a recipe's data, of a run, or of a prepared folder (then without sampling), also written to files.

    Args:
        name: a recipe's name or file, a run folder, or a folder that prepare wrote.
        settings: for a recipe, `--set` of its keys.
        out: where stats.json (all of it) and stats.csv (a line for each pool and stream) go: next to the shards or run
            if not given, and called stats-RECIPE next to shards, which recipes share and draw from differently.

    Raises:
        DataError: there are no finished shards.
    """
    subject = _open(name, settings)
    stats = _measure(subject.prepared, subject.config)
    files = [(out or subject.folder) / f"{subject.stem}.{kind}" for kind in ("json", "csv")]
    write_json(files[0], asdict(stats))
    write_atomic(files[1], _as_csv(stats))
    return stats, files


def _measure(prepared: Prepared, config: RunConfig | None) -> Stats:
    manifest = prepared.manifest
    pools = [_pool(pool, facts, manifest["max_seq_length"]) for pool, facts in sorted(manifest["pools"].items())]
    covered = [pool for pool in pools if pool.pool.startswith("text/") and pool.words_in_dictionary]
    return Stats(
        shards=str(prepared.folder),
        steps=config.train.max_steps if config else None,
        pools=pools,
        all=_together("all", pools),
        with_dictionary=_together("dictionary", covered) if covered else None,
        sampling=_sampling(prepared, config) if config else [],
        dictionary=manifest["dictionary"],
        bad_rows=manifest["bad_rows"],
        dropped={key: value for key, value in manifest["counts"].items() if key.startswith("dropped")},
        exchange=prepared.exchange,
    )


def _as_csv(stats: Stats) -> str:
    drawn: dict[str, list[dict[str, Any]]] = {}
    for draw in stats.sampling:
        drawn.setdefault(draw.pool, []).append(asdict(draw))
    lines = [asdict(pool) | draw for pool in stats.pools for draw in drawn.get(pool.pool, [{}])]
    out = io.StringIO()
    names = [field.name for field in (*fields(PoolStats), *fields(SamplingStats)[2:])]
    writer = csv.DictWriter(out, [names[0], "stream", *names[1:]])
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def as_tables(stats: Stats) -> list[Table]:
    """The same for a terminal."""
    columns = ("pool", "docs", "lines", "words", "tokens", "rows", "pad", "word%", "tok.%")
    held = _table(stats.shards, columns)
    for pool in [*stats.pools, stats.all, *([stats.with_dictionary] if stats.with_dictionary else [])]:
        numbers = (pool.documents, pool.sentences, pool.words, pool.source_tokens, pool.rows)
        shares = (pool.padding, pool.words_in_dictionary, pool.tokens_in_dictionary)
        held.add_row(pool.pool, *(_count(number) for number in numbers), *(_percent(share) for share in shares))
    tables = [held]
    if any(pool.phrases_in_dictionary for pool in stats.pools):
        phrases = _table("entries of several words", ("pool", "share of the words"))
        for pool in stats.pools:
            phrases.add_row(pool.pool, _percent(pool.phrases_in_dictionary))
        tables.append(phrases)
    if stats.exchange:
        cut = _table("pieces for a word, by the encoder's vocabulary and the new one", ("text", "own", "new"))
        for language, before in stats.exchange["before"].items():
            cut.add_row(language, f"{before:.2f}", f"{stats.exchange['after'][language]:.2f}")
        tables.append(cut)
    if stats.sampling:
        columns = ("pool", "stream", "share", "expected rows", "passes", "drawn")
        seen = _table(f"drawn in {stats.steps:,} steps", columns)
        for draw in stats.sampling:
            expected = f"{draw.expected_rows:.1f}" if draw.expected_rows < 1000 else _count(draw.expected_rows)
            shown = (expected, _passes(draw.expected_passes), _count(draw.drawn_rows))
            seen.add_row(draw.pool, draw.stream, f"{draw.probability:.4f}", *shown)
        tables.append(seen)
    counted = {"dictionary": stats.dictionary, "bad rows": stats.bad_rows, "dropped": stats.dropped}
    for title, counts in {**counted, "rows of the new vocabulary": stats.exchange.get("pieces", {})}.items():
        if counts:
            table = _table(title, ("what", "count"))
            for reason, count in counts.items():
                table.add_row(reason.removeprefix("dropped: "), f"{int(count):,}")
            tables.append(table)
    return tables


def _table(title: str, columns: Sequence[str]) -> Table:
    """A table that fits in 80 columns; word% and tok.% are the shares that have a dictionary entry."""
    import rich.box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title), title_justify="left", box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


_UNITS = (("k", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12))


def _count(number: float) -> str:
    """At most six characters, so that a table of five such columns fits in 80."""
    if number < 99_999.5:
        return f"{number:,.0f}"
    unit, scale = next((unit, scale) for unit, scale in _UNITS if number < 999.95 * scale)
    return f"{number / scale:.1f}{unit}"


def _passes(passes: float) -> str:
    return "<0.01" if 0 < passes < 0.005 else f"{passes:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _open(name: str, settings: Sequence[str]) -> _Subject:
    folder = Path(name)
    if RunFolder(folder).config.is_file():
        return _open_run(folder)
    if folder.is_dir():
        if "pools" not in (read_manifest(folder) or {}):
            raise DataError(f"{folder} holds no prepared data: it has no manifest with pools. Name a recipe or a run.")
        return _Subject(Prepared.open(folder), None, folder, "stats")
    settled = find_settled(load_recipe(name, settings))
    if settled is None:
        raise DataError(f"The shards of {name} are not there yet. Make them with `xalign prepare {name}`.")
    recipe, prepared = settled
    return _Subject(prepared, recipe.config, prepared.folder, f"stats-{recipe.name.replace('/', '-')}")


def find_settled(recipe: Recipe) -> tuple[Recipe, Prepared] | None:
    """The recipe as it would be run, its steps counted, and its shards; None if these are not there yet."""
    from xalign_ray.tokens.find import find_prepared

    settled = _settled(recipe)
    prepared = find_prepared(settled.config) if settled else None
    if settled is None or prepared is None:
        return None
    return replace(settled, config=count_steps(settled.config, prepared)), prepared


def _settled(recipe: Recipe) -> Recipe | None:
    """The recipe with the tokenizer it starts from, or None where that is another recipe's and not there yet."""
    from xalign_ray.tokens.find import find_prepared

    base = base_recipe(recipe)
    if base is None:
        return settle(recipe, recipe.config.model.init_from)
    base = _settled(base)
    prepared = find_prepared(base.config) if base else None
    return settle(recipe, str(prepared.tokenizer_folder)) if prepared else None


def _open_run(folder: Path) -> _Subject:
    config = open_saved(folder)[0].config
    log = folder / EVENT_LOG
    if (data := newest_data(log) if log.is_file() else None) is None:
        raise DataError(f"{folder} has not begun to train, so its data are not known yet. Name its recipe.")
    return _Subject(Prepared.open(data_of_run(folder, data)), config, folder, "stats")


def _pool(name: str, facts: dict[str, Any], max_seq_length: int) -> PoolStats:
    counts = facts["counts"]
    special = specials(2 if name.startswith(PAIRS) else 1) * facts["examples"]
    return PoolStats(
        pool=name,
        documents=counts.get("documents", 0),
        sentences=counts.get("lines", 0) + counts.get("pairs", 0),
        words=counts["words"],
        source_tokens=counts["tokens"],
        words_in_dictionary=_share(counts["words_in_dictionary"], counts["words"]),
        phrases_in_dictionary=_share(counts.get("phrases_in_dictionary", 0), counts["words"]),
        tokens_in_dictionary=_share(counts["tokens_in_dictionary"], counts["tokens"]),
        rows=facts["rows"],
        tokens=facts["tokens"],
        padding=1 - (facts["tokens"] + special) / (facts["rows"] * max_seq_length),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _together(name: str, pools: Sequence[PoolStats]) -> PoolStats:
    def mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
        total = sum(weights)
        return sum((value or 0.0) * weight for value, weight in zip(values, weights, strict=True)) / (total or 1)

    words, tokens = [pool.words for pool in pools], [pool.source_tokens for pool in pools]
    rows = [pool.rows for pool in pools]
    return PoolStats(
        pool=name,
        documents=sum(pool.documents for pool in pools),
        sentences=sum(pool.sentences for pool in pools),
        words=sum(words),
        source_tokens=sum(tokens),
        words_in_dictionary=mean([pool.words_in_dictionary for pool in pools], words),
        phrases_in_dictionary=mean([pool.phrases_in_dictionary for pool in pools], words),
        tokens_in_dictionary=mean([pool.tokens_in_dictionary for pool in pools], tokens),
        rows=sum(rows),
        tokens=sum(pool.tokens for pool in pools),
        padding=mean([pool.padding for pool in pools], rows) or 0.0,
    )


def _sampling(prepared: Prepared, config: RunConfig) -> list[SamplingStats]:
    """Probabilities as the order has them (one draw of shares a chunk of steps), and the rows that it deals."""
    order, sources, steps = prepared.order(config), prepared.sources(config), config.train.max_steps
    expected = expected_rows(order, steps)
    numbers = zip(sources, expected.tolist(), _drawn_rows(order, steps).tolist(), strict=True)
    return [
        SamplingStats(
            stream=config.streams[stream].kind,
            pool=pool,
            probability=rows / expected.sum(),
            expected_rows=rows,
            expected_passes=rows / prepared.manifest["pools"][pool]["rows"],
            drawn_rows=drawn,
        )
        for (stream, pool), rows, drawn in numbers
    ]


def _drawn_rows(order: Order, steps: int) -> NDArray[np.int64]:
    """[sources] rows that an order deals in a run of `steps`."""
    chunks, left = divmod(steps, order.chunk_steps)
    drawn = order.sampled_before(chunks)
    if left:
        rest = order.places(Request(steps - left, steps, 0, order.global_rows))
        drawn = drawn + np.bincount(rest.source, minlength=len(order.pools))
    return drawn
