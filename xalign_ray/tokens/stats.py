"""Statistics of prepared data, and how often a run sees it: per language and pair, as a table and as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
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
from xalign_ray.sources.summary import merge_counts
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
    held, length = manifest["pools"], manifest["max_seq_length"]
    pools = [_pool(name, {name: held[name]}, length) for name in sorted(held)]
    covered = {
        pool.pool: held[pool.pool] for pool in pools if pool.pool.startswith("text/") and pool.words_in_dictionary
    }
    return Stats(
        shards=str(prepared.folder),
        steps=config.train.max_steps if config else None,
        pools=pools,
        all=_pool("all", held, length),
        with_dictionary=_pool("dictionary", covered, length) if covered else None,
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
    """The pools and, where a recipe is known, what it draws from them; word% and tok.% have a dictionary entry."""
    pools = [
        (
            pool.pool,
            *map(_count, (pool.documents, pool.sentences, pool.words, pool.source_tokens, pool.rows)),
            *map(_percent, (pool.padding, pool.words_in_dictionary, pool.tokens_in_dictionary)),
        )
        for pool in (*stats.pools, stats.all, stats.with_dictionary)
        if pool
    ]
    tables = [
        _table(stats.shards, ("pool", "docs", "lines", "words", "tokens", "rows", "pad", "word%", "tok.%"), pools)
    ]
    if stats.sampling:
        draws = [
            (
                draw.pool,
                draw.stream,
                f"{draw.probability:.4f}",
                f"{draw.expected_rows:.1f}" if draw.expected_rows < 1000 else _count(draw.expected_rows),
                "<0.01" if 0 < draw.expected_passes < 0.005 else f"{draw.expected_passes:.2f}",
                _count(draw.drawn_rows),
            )
            for draw in stats.sampling
        ]
        columns = ("pool", "stream", "share", "expected rows", "passes", "drawn")
        tables.append(_table(f"drawn in {stats.steps:,} steps", columns, draws))
    return tables


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table that fits in 80 columns."""
    import rich.box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title), title_justify="left", box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


_UNITS = (("k", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12))


def _count(number: float) -> str:
    """At most six characters, so that a table of five such columns fits in 80."""
    if number < 99_999.5:
        return f"{number:,.0f}"
    unit, scale = next((unit, scale) for unit, scale in _UNITS if number < 999.95 * scale)
    return f"{number / scale:.1f}{unit}"


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


def _pool(name: str, pools: Mapping[str, dict[str, Any]], max_seq_length: int) -> PoolStats:
    """The counts of pools together, by their facts in the manifest."""
    counts = merge_counts([facts["counts"] for facts in pools.values()])
    special = sum(specials(2 if pool.startswith(PAIRS) else 1) * facts["examples"] for pool, facts in pools.items())
    rows, tokens = (sum(facts[key] for facts in pools.values()) for key in ("rows", "tokens"))

    def share(part: str, whole: str) -> float | None:
        return counts.get(part, 0) / counts[whole] if counts[whole] else None

    return PoolStats(
        pool=name,
        documents=counts.get("documents", 0),
        sentences=counts.get("lines", 0) + counts.get("pairs", 0),
        words=counts["words"],
        source_tokens=counts["tokens"],
        words_in_dictionary=share("words_in_dictionary", "words"),
        phrases_in_dictionary=share("phrases_in_dictionary", "words"),
        tokens_in_dictionary=share("tokens_in_dictionary", "tokens"),
        rows=rows,
        tokens=tokens,
        padding=1 - (tokens + special) / (rows * max_seq_length),
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
