"""A continued run against its base: for the terminal, its page, the card."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from xalign_ray.results.aggregate import over_rows
from xalign_ray.results.tables import NONE, Entry, Table, plain_grid, points
from xalign_ray.work.artifacts import read_json
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import duration

Row = Mapping[str, Any]
THE_TEST = "the test"  # the split of a run's own test pairs


class MeasureKind(NamedTuple):
    """A measure of a continued encoder and its base.

    Attributes:
        title: of its tables. short: in a chart, and in a table of mixtures.
        unit: name of the items: pairs, queries.
        better: 1 where more is better, -1 where less is, 0 where there is no verdict.
        is_bound: whether `--lose-at-most` bounds it, and the terminal shows it.
        in_points: of 100; else in nats a masked token.
    """

    title: str
    short: str
    unit: str
    better: int
    is_bound: bool = True
    in_points: bool = True


MEASURES = {
    "retrieval": MeasureKind("Translations found", "translations found", "pairs", 1),
    "retrieval_csls": MeasureKind("Translations found, by CSLS", "by CSLS", "pairs", 1, is_bound=False),
    "cosine_spearman": MeasureKind("Similarity of scored pairs (Spearman)", "similarity", "pairs", 1),
    "ndcg_at_10": MeasureKind("Passages found (nDCG@10)", "passages found", "queries", 1),
    "mlm_loss": MeasureKind("Masked-LM loss (lower is better)", "masked-LM loss", "sentences", -1, in_points=False),
    "drift": MeasureKind("Distance of the vectors from the base's", "distance", "sentences", 0, is_bound=False),
}


def is_kept(row: Row) -> bool:
    """Whether a row is of what must not get worse: all but the test in trained languages."""
    return not row["trained"] or row["split"] != THE_TEST


_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_VERDICTS = ("gained", "kept", "unclear", "lost")
_SHORTEST = 60  # characters of a line in a terminal


@dataclass(frozen=True)
class Continued:
    """The comparison of a continued run with its base.

    Attributes:
        base: absolute folder or NAME@COMMIT of the encoder that it began from.
        rows: one a measure and language, see `continuing/comparison.py`.
        price: of an hour of a device, where the user gave one.
        during: retrieval in each language while it trained, in order of steps.
        command: that made the run, where it is known.
        keep: the files of what must not get worse, as they were named.
        margin: points; a loss that is surely smaller is "kept".
        bound: what `continuing.bound.find_mixture` found; None where nothing was bound.
    """

    base: str
    run: str
    steps: int
    seconds: float
    device_hours: float
    methods: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]
    during: Mapping[str, Sequence[float]]
    price: float | None
    keep: Sequence[str]
    margin: float
    bound: Mapping[str, Any] | None
    command: str

    @property
    def name(self) -> str:
        """The base's name: a hub id, or its folder's last part."""
        return Path(self.base).name if Path(self.base).is_absolute() else self.base.partition("@")[0]

    def of(self, measure: str, kept: bool) -> list[Row]:
        """The rows of a measure: of what must not get worse, or of the test in trained languages."""
        return [row for row in self.rows if row["measure"] == measure and is_kept(row) == kept]

    @property
    def cost(self) -> str:
        """Steps, time, device hours and money in words."""
        money = "" if self.price is None else f" at {self.price:g}: {self.device_hours * self.price:.2f}"
        hours = f"{self.device_hours:.2g} device hours{money}"
        return f"{self.steps:,} steps, {duration(self.seconds)} of training, {hours}"


def read_continued(folder: Path) -> Continued | None:
    """The comparison of a run, None where there is none.

    Raises:
        DataError: its file is damaged.
    """
    path = RunFolder(folder).comparison
    if not path.is_file():
        return None
    names = [field.name for field in fields(Continued)]
    content = read_json(path, "Delete it and give the same `xalign continue` again.", *names)
    return Continued(**{name: content[name] for name in names})


def sentence(found: Continued) -> str:
    """The finding: what retrieval gained and lost, over trained languages."""
    if rows := found.of("retrieval", kept=False):
        return f"{_before_and_after('retrieval', rows)}."
    return f"{found.run} was continued from {found.name} for {found.steps:,} steps; no test pairs were scored."


def _before_and_after(measure: str, rows: Sequence[Row]) -> str:
    """The means of a measure over languages, and how many rows have each verdict."""
    kind = MEASURES[measure]
    base, yours = (over_rows(rows, name) for name in ("base", "yours"))
    verdicts = [row["verdict"] for row in rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in verdicts)
    languages = dict.fromkeys(row["language"] for row in rows)
    of = f"over {len(languages)} languages" if len(languages) > 1 else f"in {rows[0]['language']}"
    before, after = ((f"{100 * v:.1f}" if kind.in_points else f"{v:.3f}") for v in (base, yours))
    unit = " %" if measure.startswith("retrieval") else ""
    title = kind.title.partition(" (lower")[0]
    return f"{title} {of}: {before}{unit} before, {after}{unit} after ({counts})"


def of_bound(bound: Mapping[str, Any]) -> str:
    """What is exported, and whether it holds the bound."""
    weights = f"{100 * bound['share']:g}% of the trained weights and {100 - 100 * bound['share']:g}% of the base's"
    asked = f"a loss of at most {bound['lose_at_most']:g} points of what is kept"
    if bound["holds"]:
        return (
            f"Exported: {weights}, the mixture that gains most with {asked}, by the half of the sentences that chooses."
        )
    return (
        f"The bound is not shown to hold: no mixture excludes more than {asked}. Exported: {weights}, which may have "
        "lost least. More kept sentences show smaller losses."
    )


def kept_sentence(found: Continued) -> str:
    """Losses, means and verdicts of the kept sets by measure, and the bound; empty where nothing was kept."""
    rows = {name: found.of(name, kept=True) for name, measure in MEASURES.items() if measure.is_bound}
    if not any(rows.values()):
        return ""
    surely = {name: [row["language"] for row in of if row["verdict"] == "lost"] for name, of in rows.items()}
    lost = [f"{', '.join(languages)} ({MEASURES[name].short})" for name, languages in surely.items() if languages]
    what = f"lost in {', '.join(lost)}" if lost else "no loss is certain"
    means = [_before_and_after(name, of_measure) for name, of_measure in rows.items() if of_measure]
    bound = f" {of_bound(found.bound)}" if found.bound else ""
    return f"Of what must not get worse: {what}. {'; '.join(means)}.{bound}"


def origin_sentence(found: Continued) -> str:
    """The base, the methods, and the cost."""
    return f"Continued from {found.name} by {', '.join(found.methods)}: {found.cost}."


def of_comparison(found: Continued) -> Iterator[Table]:
    """The mixtures; a table of each measure that has rows: trained languages first, then what must not get worse."""
    if found.bound:
        yield _of_mixtures(found.bound)
    yield from (table for _, table in _of_measures(found))


def _of_measures(found: Continued) -> Iterator[tuple[MeasureKind, Table]]:
    for kept in (False, True):
        for name, measure in MEASURES.items():
            if rows := found.of(name, kept):
                where = "what must not get worse" if kept else "trained languages"
                during = found.during if not kept and name == "retrieval" else {}
                yield measure, _table(f"{measure.title}: {where}", name, rows, during, found.margin)


def comparison_text(found: Continued, width: int) -> str:
    """The finding, its tables and its cost, as lines of at most `width` characters."""
    console = Console(file=io.StringIO(), width=max(width, _SHORTEST), highlight=False)
    console.print(Text(f"{found.name} -> {found.run}: {', '.join(found.methods)}, {found.cost}."))
    mixtures = [_of_mixtures(found.bound)] if found.bound else []
    for table in [*mixtures, *(table for measure, table in _of_measures(found) if measure.is_bound)]:
        drawn = plain_grid(replace(table, title=""))  # a title above a narrow table would be wrapped
        console.print("", Text(table.title, "bold"), drawn, Text(table.note), sep="\n")
    console.print()
    for line in filter(None, (sentence(found), kept_sentence(found), *found.notes)):
        console.print(Text(line))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def _of_mixtures(bound: Mapping[str, Any]) -> Table:
    measures = [name for name in MEASURES if any(name in mixture["kept"] for mixture in bound["mixtures"])]
    body = []
    for mixture in bound["mixtures"]:
        kept = [mixture["kept"][measure] for measure in measures]
        changes = [Entry(points(value), f"{points(low)} to {points(high)}") for value, low, high in kept]
        lost = f"lost in {', '.join(mixture['lost'])}" if mixture["lost"] else "not shown"
        verdict = "holds" if mixture["holds"] else lost
        exported = Entry(verdict, "exported", "best") if mixture["share"] == bound["share"] else verdict
        gain = NONE if mixture["gain"] is None else points(mixture["gain"])
        body.append((f"{100 * mixture['share']:g}%", gain, *changes, exported))
    note = (
        "Share: of the trained weights. In points (of a loss: hundredths of a nat, + is better), on the half of the "
        f"sentences that chooses; 95 % intervals of the mean over what is kept. A mixture holds where a mean loss of "
        f"{bound['lose_at_most']:g} is excluded and no kept set has surely lost more. Other tables: the other half."
    )
    header = ("share", "gain", *(f"kept: {MEASURES[name].short}" for name in measures), "bound")
    return Table("Mixtures of the trained weights with the base's", header, body, note)


def _table(
    title: str, measure: str, rows: Sequence[Row], during: Mapping[str, Sequence[float]], margin: float
) -> Table:
    kind = MEASURES[measure]

    def number(value: float) -> str:
        return f"{100 * value:.1f}" if kind.in_points else f"{value:.3f}"

    def signed(value: float) -> str:
        return points(value) if kind.in_points else f"{value:+z.3f}"

    body = []
    for row in rows:
        interval = "" if row["low"] is None else f"{signed(row['low'])} to {signed(row['high'])}"
        verdict = Entry(row["verdict"], mark="best" if row["verdict"] == "gained" else "") if row["verdict"] else NONE
        values = (number(row["base"]), number(row["yours"]), Entry(signed(row["difference"]), interval), verdict)
        body.append((row["language"], f"{row['count']:,}", *values, sparkline(during.get(row["language"], ()))))
    if len(rows) > 1:
        base, yours = over_rows(rows, "base"), over_rows(rows, "yours")
        body.append(("mean", NONE, number(base), number(yours), signed(yours - base), NONE, NONE))
    header = ("language", "n", "base", "yours", "difference", "verdict", "during")
    files = ", ".join(dict.fromkeys(row["split"] for row in rows))
    unit = "percent; differences in points" if kind.in_points else "nats a masked token"
    note = f"In {unit}. n: {kind.unit} of {files}. 95 % interval"
    if kind.better:
        loss = f"{margin:g} point{'s' * (margin != 1)}" if kind.in_points else f"{margin / 100:g}"
        note += f"s, corrected for the number of languages (Holm); kept: a loss of {loss} is excluded"
    if measure == "retrieval_csls":
        note += ". CSLS corrects for sentences that are near to all others; the page's first sentence is by cosine"
    shown = len(header) - (not during)
    return Table(title, header[:shown], [row[:shown] for row in body], f"{note}.")


def sparkline(values: Sequence[float]) -> str:
    """Values as eight heights of blocks, the least as the lowest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    width = (high - low) or 1.0
    return "".join(_BLOCKS[round((value - low) / width * (len(_BLOCKS) - 1))] for value in values)
