"""Judges the papers' claims by a report's scores, and shows their printed tables beside what its arms reached"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from xalign_ray.results.aggregate import (
    ALL_LANGUAGES,
    EMPTY,
    Block,
    average,
    means,
    over_languages,
    seed_values,
)
from xalign_ray.results.compare import WITH, WITHOUT, known_groupings, other_languages, related_languages
from xalign_ray.results.difference import (
    ONE_RUN,
    TOO_FEW,
    TOO_FEW_GROUPS,
    TOO_FEW_LANGUAGES,
    TOO_FEW_SEEDS,
    Grouping,
    Interval,
    difference,
    reason,
)
from xalign_ray.results.printed import (
    CELL_COLUMNS,
    PAPERS,
    Claim,
    Quantity,
    printed_cells,
    printed_values,
    read_claims,
    read_paper,
)
from xalign_ray.results.run import Run, columns_of
from xalign_ray.results.tables import PLUS_MINUS, Entry, Row, Table, percent, with_deviation, with_interval

CELLS, CLAIMS = "papers.csv", "claims.csv"
OURS_COLUMNS = ["label", "metric", "ours", "standard_deviation", "difference", "seeds", "languages", "scale"]
CLAIM_COLUMNS = [
    *("claim", "paper", "table", "says", "verdict", "why", "step", "printed", "size", "estimate", "low_95", "high_95"),
    *("ours", "languages", "seeds", "scale"),
]
HOLDS, DOES_NOT, UNDECIDED = "holds", "does not hold", "undecided"
COMPATIBLE, EXCLUDED = "compatible", "excluded at this size"
ZERO_SHOT = "zero-shot"
STAND_INS = {"weam-tlm": "xlm", "ppa-2m": "ppa"}  # where a report lacks an arm: the same method in `study align`
_ENGLISH = "en"
_JUDGED = (
    "A claim holds where the 95 % interval of each of its differences is above zero, and does not where one is below; "
    "the intervals of a claim are all right in 95 % of the cases. One seed is undecided. A printed size is compatible "
    "where the interval includes it, else excluded. A correlation is described, not judged: its arms are few. All arms "
    "of a claim are scored on the same test set. Percent and points; what is printed is compared with what it is about "
    "here, at our scale and on our languages: a verdict is on the claim at that scale, not on the paper."
)


@dataclass(frozen=True)
class Measured:
    """All scores of a report, one a label, metric, test set, language and seed.

    Attributes:
        frame: label, metric, test_set (a split with its layer and pooling), language, seed, value, n, chance and place,
            with lower ones preferred. A pair with English is called by its other language.
        has_dictionary: whether a language has one in every run that has any; None of English, or where runs differ.
        group: of the languages that vary together, as `related_languages` has it.
        scales: of each label's runs, such as tiny.
    """

    frame: pd.DataFrame
    has_dictionary: Callable[[str], bool | None]
    group: Grouping | None = None
    scales: Mapping[str, str] | None = None

    @property
    def labels(self) -> list[str]:
        """Of the arms that have a score, in the order of the report."""
        return list(self.frame.label.unique())

    def scale(self, labels: Collection[str]) -> str:
        """The scales of these arms, as far as they were run."""
        return ", ".join(dict.fromkeys(filter(None, ((self.scales or {}).get(label, "") for label in labels))))

    def values(self, quantity: Quantity) -> Block:
        """The known values of one quantity, as `values_of` has them."""
        return self.values_of([quantity])[0]

    def values_of(self, quantities: Sequence[Quantity]) -> list[Block]:
        """The known values of quantities that are compared with each other, all on one test set.

        Each has the languages that it is about and all its seeds have. All are empty where no test set is in common.
        """
        first, *others = (self._of(part) for quantity in quantities for part in quantity.parts)
        shared = next((name for name in first if all(name in other for other in others)), None)
        return [EMPTY if shared is None else self._values(shared, quantity) for quantity in quantities]

    def why_apart(self, quantities: Sequence[Quantity]) -> str:
        """The test sets of quantities that all have scores and share no test set; empty where they can be compared."""
        parts = [part for quantity in quantities for part in quantity.parts]
        sets = [self._of(part) for part in parts]
        if not all(sets) or set.intersection(*map(set, sets)):
            return ""
        named = (f"{part.label} on {', '.join(languages)}" for part, languages in zip(parts, sets, strict=True))
        return f"not scored alike: {'; '.join(dict.fromkeys(named))}"

    @cached_property
    def _scored(self) -> dict[Any, dict[Any, pd.DataFrame]]:
        cells = self.frame.sort_values("place", kind="stable").groupby(["label", "metric"])
        return {key: dict(iter(rows.groupby("test_set", sort=False))) for key, rows in cells}

    def _of(self, part: Quantity) -> Mapping[Any, pd.DataFrame]:
        """The scores of a label and metric by test set, the preferred one first."""
        return self._scored.get((part.label, part.metric), {})

    def _values(self, test_set: str, quantity: Quantity) -> Block:
        tables = []
        for part in quantity.parts:
            rows = self._of(part)[test_set]
            rows = rows.loc[[self._is_meant(part, language) for language in rows.language]]
            tables.append(next(iter(means(rows, ["label"]).block), EMPTY))
        if not quantity.less:
            return tables[0]
        first, second = tables[0].align(tables[1], join="inner")
        return first - second if first.size else EMPTY

    def _is_meant(self, quantity: Quantity, language: str) -> bool:
        if quantity.dictionary is not None and self.has_dictionary(language) is not quantity.dictionary:
            return False
        if quantity.languages and language not in quantity.languages:
            return False
        if quantity.language == ZERO_SHOT:
            return language not in (_ENGLISH, ALL_LANGUAGES)
        return language != ALL_LANGUAGES if not quantity.language else language == quantity.language


def measured(runs: Sequence[Run], scores: pd.DataFrame) -> Measured:
    """The headline scores of labelled runs, `scores` as `compare.score_frame` makes them."""
    coverage = known_groupings(runs).get("dictionary")
    columns = columns_of(runs)

    def has_dictionary(language: str) -> bool | None:
        return {WITH: True, WITHOUT: False}.get(coverage(language)[1]) if coverage else None

    values = seed_values(scores)
    parts = zip(values.split, values.layer, values.pooling, strict=True)
    values = values.assign(
        language=["-".join(other_languages(language)) for language in values.language],
        test_set=[", ".join(filter(None, words)) for words in parts],
    )
    # Both directions of a pair are one language, and count as their mean.
    of_pair = {"value": "mean", "n": "first", "chance": "first", "place": "min"}
    frame = values.groupby(["label", "metric", "test_set", "language", "seed"], sort=False).agg(of_pair).reset_index()
    frame = frame.sort_values("label", key=lambda column: column.map([*columns].index), kind="stable")
    scales = {
        label: ", ".join(dict.fromkeys(run.scale for run in label_runs if run.scale))
        for label, label_runs in columns.items()
    }
    return Measured(frame, has_dictionary, related_languages(runs), scales)


class Step(NamedTuple):
    """A number of a claim: a difference of shares, or a correlation.

    Attributes:
        name: of the difference, `A - B`.
        estimate, interval: of it, and its 95 % interval; None where there is none.
        why: it is undecided; empty where the interval lies on one side of the claim.
        is_against: whether the interval lies on the other side.
        ours: the averages that it is the difference of.
    """

    name: str
    estimate: float | None = None
    interval: Interval | None = None
    why: str = ""
    is_against: bool = False
    ours: str = ""


class Verdict(NamedTuple):
    """HOLDS, DOES_NOT or UNDECIDED and why; the languages and seeds that all arms have; nothing known without steps."""

    verdict: str
    why: str
    steps: Sequence[Step] = ()
    languages: int = 0
    seeds: int = 0


def judge(claim: Claim, known: Measured) -> Verdict:
    """Judges a claim, whose arms are labels of `known`.

    It holds where the 95 % interval of each of its steps lies on its side of zero, or of `by` or `within` points, and
    does not where one lies on the other side. The intervals of several steps are all right in 95 % of the cases.
    One seed is undecided: nothing is known of another.
    """
    if missing := [arm for arm in claim.arms if arm not in known.labels]:
        return Verdict(UNDECIDED, f"no {', '.join(missing)}")
    values, covers = known.values_of(claim.quantities), claim.kind == "coverage"
    if claim.kind == "correlation":
        return _correlate(claim, known, values)
    if claim.kind == "order":
        languages = sorted(set.intersection(*(set(arm.index) for arm in values)))
        pairs = [*pairwise(arm.loc[languages] for arm in values)]
    elif claim.kind == "near":
        pairs = [(arm, 0 * arm) for arm in values]
    else:  # both groups have the same seeds, and languages of their own: the roles of the two are exchanged
        pairs = [(values[0].T, values[1].T)]
    differences = [difference(*pair, len(pairs), None if covers else known.group) for pair in pairs]
    gaps = [gap for gap in differences if gap]
    if len(gaps) < len(pairs):
        nothing = f"no {claim.measure.metric} of all arms in one language"
        if covers:
            nothing = f"no language {'without' if len(values[0]) else 'with'} a dictionary has {claim.measure.metric}"
        return Verdict(UNDECIDED, known.why_apart(claim.quantities) or nothing)
    steps, show = [], partial(percent, claim.measure.metric)
    for name, pair, gap in zip(_names(claim), pairs, gaps, strict=True):
        low, high = gap.interval or (-np.inf, np.inf)
        if claim.kind == "near":
            limit, why = claim.within / 100, gap.undecided()
            is_against = low > limit or high < -limit
            if why not in (TOO_FEW, ONE_RUN, TOO_FEW_GROUPS):
                more = TOO_FEW_SEEDS if gap.by_seeds or gap.languages == 1 else TOO_FEW_LANGUAGES
                why = "" if is_against or -limit < low <= high < limit else more
        elif covers:
            is_against, why = high < 0, reason(gap.interval, gap.fewest_seeds, gap.languages, not gap.by_seeds)
        else:
            is_against, why = high < claim.by / 100, gap.undecided(claim.by / 100)
        arms = () if claim.kind == "near" else values if covers else pair
        ours = " less ".join(with_deviation(show, *average(arm)) for arm in arms)
        steps.append(Step(name, gap.estimate.value, gap.interval, why, is_against, ours))
    languages, seeds = min(gap.languages for gap in gaps), min(gap.fewest_seeds for gap in gaps)
    if covers:
        languages, seeds = sum(map(len, values)), languages
    why = f"{TOO_FEW_SEEDS} (one)" if seeds < 2 else next((step.why for step in steps if step.why), "")
    if seeds >= 2 and any(step.is_against and not step.why for step in steps):
        return Verdict(DOES_NOT, "", steps, languages, seeds)
    return Verdict(UNDECIDED if why else HOLDS, why, steps, languages, seeds)


def _names(claim: Claim) -> list[str]:
    """The names of the steps of a claim: two arms and their difference."""
    if claim.kind == "correlation":
        return ["Spearman's correlation"]
    if claim.kind == "near":
        return [*claim.arms]
    names = [" less ".join(both) for both in pairwise(claim.arms)]
    return [f"{names[0]}, with less without a dictionary"] if claim.kind == "coverage" else names


def _correlate(claim: Claim, known: Measured, tables: Sequence[Block]) -> Verdict:
    """Spearman's correlation over arms and languages, described only: the sample is the arms, and they are few."""
    number, axes = len(claim.arms), zip(*(block.axes for block in tables), strict=True)
    languages, seeds = (sorted(set.intersection(*map(set, axis))) for axis in axes)
    if not languages or not seeds:
        why = known.why_apart(claim.quantities[:number]) or known.why_apart(claim.quantities[number:])
        return Verdict(UNDECIDED, why or f"no {claim.x.metric} with {claim.y.metric} of all arms")
    points = np.concatenate([over_languages(block.loc[languages, seeds].T) for block in tables])
    first, second = map(pd.Series, np.split(points, 2))
    step = Step(_names(claim)[0], float(first.corr(second, method="spearman")))
    return Verdict(UNDECIDED, f"described, not judged: {number} arms", [step], len(languages), len(seeds))


class AgainstPapers(NamedTuple):
    """The claims and tables of the papers whose arms a report has.

    Attributes:
        cells: as `printed_cells` and OURS_COLUMNS; a row a cell of the printed tables that the report has a cell of.
        claims: CLAIM_COLUMNS; a row a step of each claim.
    """

    cells: pd.DataFrame
    claims: pd.DataFrame

    @property
    def papers(self) -> list[str]:
        """In the order of PAPERS."""
        return [name for name in PAPERS if name in {*self.cells.paper, *self.claims.paper}]

    @property
    def files(self) -> dict[str, pd.DataFrame]:
        """The frames by the names of their files, in percent but for correlations; none where no paper is meant."""
        return (
            {CELLS: self.cells.reindex(columns=[*CELL_COLUMNS, *OURS_COLUMNS]), CLAIMS: self.claims}
            if self.papers
            else {}
        )


def against_papers(known: Measured) -> AgainstPapers:
    """The cells that these scores share with the papers' tables, and the verdicts on the papers' claims.

    A paper is one that they are about if they have a label that no other paper has (so not `mlm`), and a cell of
    its tables or scores of all arms of a claim.
    """
    named = _papers_of(known.scales or {})
    cells = _join_cells(known, named)
    claims = pd.DataFrame(
        [row for claim in read_claims().values() if claim.paper in named for row in _claim_rows(claim, known)],
        columns=CLAIM_COLUMNS,
    )
    judged = {*claims.loc[claims.seeds > 0].paper, *cells.paper}
    claims = claims.loc[claims.paper.isin(judged)]
    # Those first that could be judged at all.
    order = claims.assign(place=claims.paper.map(PAPERS.index), last=(claims.seeds == 0) & (claims.why != ""))
    return AgainstPapers(cells, claims.loc[order.sort_values(["place", "last"], kind="stable").index])


def with_stand_ins(labels: Collection[str]) -> dict[str, str]:
    """The arms of the papers that these labels have, by the label that each has here."""
    return {arm: stand_in for arm, stand_in in STAND_INS.items() if stand_in in labels} | {
        label: label for label in labels
    }


def _papers_of(labels: Collection[str]) -> list[str]:
    """Papers that at least one label identifies: an arm of no other paper, or a stand-in for one of its arms."""
    cells = printed_cells().dropna(subset="quantity")
    labels_of = {
        name: {part.label for quantity in cells.quantity[cells.paper == name] for part in quantity.parts}
        for name in PAPERS
    }
    count = Counter(label for named in labels_of.values() for label in named)
    arms = {
        arm for arm, label in with_stand_ins(labels).items() if count[arm] == 1 and (label == arm or label not in count)
    }
    return [name for name in PAPERS if labels_of[name] & arms]


def _join_cells(known: Measured, papers: Sequence[str]) -> pd.DataFrame:
    cells = printed_cells()
    cells, rows = cells.loc[cells.paper.isin(papers)], {}
    for cell in _rows(cells.dropna(subset=["quantity", "printed"])):
        if len(block := known.values(cell.quantity)):
            mean, deviation = average(block)
            of_print = cell.printed if cell.recomputed is None else cell.recomputed
            rows[cell.Index] = (
                *(cell.quantity.label, cell.quantity.metric, 100 * mean, deviation and 100 * deviation),
                *(100 * mean - of_print, block.shape[1], " ".join(block.index), known.scale([cell.quantity.label])),
            )
    joined = cells.join(pd.DataFrame.from_dict(rows, "index", columns=OURS_COLUMNS).astype({"seeds": "Int64"}))
    return joined.loc[joined.groupby(["paper", "table"]).ours.transform("count") > 0]


def _claim_rows(claim: Claim, known: Measured) -> Iterator[tuple[Any, ...]]:
    """A row a step; without scores of ours a step has no numbers of ours."""
    arms = with_stand_ins(known.labels)
    asked = replace(claim, arms=tuple(arms.get(arm, arm) for arm in claim.arms))
    judged = judge(asked, known)
    if claim.kind == "correlation":
        printed, factor = [claim.printed], 1
    else:
        printed, factor = printed_values(claim), 100
        printed = printed if claim.kind == "near" else [left - other for left, other in pairwise(printed)]
    for step, value in zip(judged.steps or map(Step, _names(asked)), printed, strict=True):
        low, high = (factor * end for end in step.interval or (np.nan, np.nan))
        size = COMPATIBLE if low <= value <= high else EXCLUDED
        size = UNDECIDED if np.isnan(low) or judged.seeds < 2 else size
        estimate = None if step.estimate is None else factor * step.estimate
        yield (
            *(claim.name, claim.paper, claim.table, claim.says, judged.verdict, judged.why),
            *(step.name, value, size, estimate, low, high),
            *(step.ours, judged.languages, judged.seeds, known.scale(asked.arms)),
        )


def citations(papers: Sequence[str]) -> list[str]:
    """What to cite, a line a paper."""
    return [f"{name.upper()}: {read_paper(name)['title']}. {read_paper(name)['citation']}." for name in papers]


def claim_table(claims: pd.DataFrame) -> Table:
    """The claims with their steps, of `AgainstPapers.claims`; of one without scores the verdict and its reason."""
    rows = list[Row]()
    for _, steps in claims.groupby("claim", sort=False):
        first, claim = steps.iloc[0], read_claims()[steps.iloc[0].claim]
        notes = (first.why, f"{first.paper.upper()}, {first.table}", claim.note)
        says = first.says[0].upper() + first.says[1:]
        rows.append((Entry(f"{first.verdict}: {says}", "; ".join(filter(None, notes))),))
        for step in _rows(steps) if first.seeds else ():
            show = "{:+.2f}".format if claim.kind == "correlation" else "{:+z.1f}".format
            ours = with_interval(show, step.estimate, step.low_95, step.high_95) or "-"
            numbers = (Entry(show(step.printed), step.size), Entry(ours, step.ours), str(step.languages))
            rows.append((step.step, *numbers, str(step.seeds), step.scale or "-"))
    header = ("verdict: claim", "printed", "ours", "languages", "seeds", "scale")
    return Table("Claims judged", header, rows, _JUDGED if rows else "", link=CLAIMS)


def cell_table(cells: pd.DataFrame) -> Table:
    """Printed numbers and the report's own, where both exist, below a heading for each table of a paper."""
    rows, recomputed = list[Row](), cells.recomputed.notna() & cells.ours.notna()
    for _, of_table in cells.dropna(subset="ours").groupby(["paper", "table"], sort=False):
        paper, name = of_table.paper.iloc[0], of_table.table.iloc[0]
        printed = read_paper(paper)["tables"][name]
        rows.append((Entry(f"{paper.upper()}, {name}: {printed['caption']}", "; ".join(printed.get("notes", ()))),))
        for cell in _rows(of_table):
            follows = "" if cell.recomputed is None else f" / {cell.recomputed:.1f}"
            quoted = f"quoted from {cell.quoted}" if cell.quoted else ""
            rows.append(
                (
                    Entry(", ".join(filter(None, (cell.section, cell.row, cell.column.replace("_", " ")))), quoted),
                    with_deviation("{:z.1f}".format, cell.printed, cell.printed_deviation) + follows,
                    with_deviation("{:z.1f}".format, cell.ours, cell.standard_deviation),
                    f"{cell.difference:+z.1f}",
                    Entry(str(len(cell.languages.split())), cell.languages),
                    *(str(cell.seeds), cell.scale or "-"),
                )
            )
    note = f"Percent; {PLUS_MINUS} is the deviation over seeds. Numbers of print without one of ours are in {CELLS}."
    if recomputed.any():
        note += " a / b: printed, and what follows from the other printed numbers; the difference is from b."
    header = ("", "printed", "ours", "difference", "languages", "seeds", "scale")
    return Table("Printed numbers beside ours", header, rows, note if rows else "", link=CELLS)


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    return iter(frame.astype(object).where(frame.notna(), None).itertuples())
