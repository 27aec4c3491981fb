"""The tables of scores: headline, gaps to the baseline, one row a language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xalign_ray.report.columns import Column
from xalign_ray.report.numbers import Cell, Gap, Key, headline_keys, measure, sort_keys
from xalign_ray.report.table import Entry, Table
from xalign_ray.tasks.scores import ALL_LANGUAGES

TITLES = {
    "tatoeba_accuracy": "Sentence retrieval (Tatoeba)",
    "alignment_heldout": "Word translation, held-out pairs",
    "alignment_heldout_csls": "Word translation, held-out pairs, CSLS",
    "alignment_trained": "Word translation, trained pairs",
    "alignment_trained_csls": "Word translation, trained pairs, CSLS",
    "cloze_accuracy": "Masked words beside their translation",
    "cloze_accuracy_alone": "Masked words without it",
    "pair_cosine": "Mean cosine of translations",
    "pair_cosine_random": "Mean cosine of other sentences",
    "mean_cosine_random": "Mean cosine of random words",
    "pos_accuracy": "Parts of speech, zero-shot from English",
    "pos_accuracy_supervised": "Parts of speech, fine-tuned on the language itself",
}
_NOT_A_SHARE = frozenset({"mean_cosine_random", "pair_cosine", "pair_cosine_random"})
_UNIT = "Percent; cosines as they are."
_ABSENT = Entry("-", quiet=True)
AT_CHANCE = "at chance"
PLUS_MINUS = "\u00b1"

Measured = Sequence[dict[Key, Cell]]


def headline_table(columns: Sequence[Column]) -> Table:
    """One row a metric, mean over languages; one column a recipe; chance, n, languages and seeds beside."""
    measured = [measure(column) for column in columns]
    keys = headline_keys(measured)
    rows = [
        (
            Entry(title_of(key, keys), key.metric),
            *_score_entries(key, measured),
            *_chance_and_n(key, measured),
            _span((str(len(cells[key].values)) for cells in measured if key in cells), ", "),
        )
        for key in keys
    ]
    several = any(cell.spread is not None for cells in measured for cell in cells.values())
    spread = f" {PLUS_MINUS} is the sample standard deviation over seeds." if several else ""
    unfinished = [column.label for column in columns if not all(run.finished for run in column.runs)]
    warning = f" Not finished yet: {', '.join(unfinished)}." if unfinished else ""
    header = ("", *_headings(columns), "chance", "n", "seeds")
    return Table("Scores, mean over languages", header, tuple(rows), f"{_UNIT}{spread}{warning}")


def narrow_table(columns: Sequence[Column]) -> Table:
    """The headline scores with a row a recipe below each metric: fits a terminal, however many recipes there are."""
    measured = [measure(column) for column in columns]
    rows = []
    for key in (keys := headline_keys(measured)):
        rows.append((title_of(key, keys, short=True), "", "", "", ""))
        for column, cells in zip(columns, measured, strict=True):
            if key in cells:
                seeds = str(len(cells[key].values))
                rows.append((f"  {column.label}", _score_entry(key, cells[key]), *_chance_and_n(key, [cells]), seeds))
    header = ("mean over languages", "score, %", "chance", "n", "seeds")
    return Table("Scores", header, tuple(rows))


def language_table(columns: Sequence[Column]) -> Table:
    """One row a metric and language."""
    measured = [measure(column) for column in columns]
    found = {key for cells in measured for key in cells}
    keys = sort_keys(key for key in found if key.language != ALL_LANGUAGES and not isinstance(key.layer, int))
    rows = []
    for number, key in enumerate(keys):
        first = number == 0 or title_of(keys[number - 1], keys) != title_of(key, keys)
        name = Entry(title_of(key, keys), key.metric) if first else ""
        rows.append((name, key.language, *_score_entries(key, measured), *_chance_and_n(key, measured)))
    header = ("", "language", *_headings(columns), "chance", "n")
    return Table("Scores by language", header, tuple(rows), names=2)


def gap_table(gaps: Sequence[Gap], baseline: str) -> Table:
    """One row a metric and column: mean gap, every seed's gap, in how many seeds the column is above the baseline."""
    keys = list(dict.fromkeys(gap.key for gap in gaps))
    first = {key: next(gap for gap in gaps if gap.key == key) for key in keys}
    rows = [
        (
            title_of(gap.key, keys) if gap is first[gap.key] else "",
            gap.label,
            Entry(_points(gap.mean), "both at chance" if gap.both_at_chance else "", quiet=gap.both_at_chance),
            ", ".join(map(_points, gap.by_seed.values())) or "no seed in common",
            f"{sum(value > 0 for value in gap.by_seed.values())} of {len(gap.by_seed)}" if gap.by_seed else "-",
        )
        for gap in gaps
    ]
    header = ("", "recipe", "mean gap", "gap in each seed", "above in")
    note = "In points of percent. A seed is compared with the same seed of the baseline."
    return Table(f"Difference from {baseline}", header, tuple(rows), note, names=2)


def title_of(key: Key, among: Iterable[Key], short: bool = False) -> str:
    """A metric in words, or by its name; what else tells it apart is added where it stands in the table twice."""
    title = key.metric if short else TITLES.get(key.metric, key.metric)
    namesakes = {(other.split, other.layer, other.pooling) for other in among if other.metric == key.metric}
    if len(namesakes) == 1:
        return title
    parts = zip((key.split, key.layer, key.pooling), zip(*namesakes, strict=True), strict=True)
    own = [str(value) for value, values in parts if len(set(values)) > 1]
    return f"{title} ({', '.join(own)})"


def _headings(columns: Sequence[Column]) -> list[str]:
    return [column.label for column in columns]


def _score_entries(key: Key, measured: Measured) -> list[Entry]:
    return [_score_entry(key, cells[key]) if key in cells else _ABSENT for cells in measured]


def _score_entry(key: Key, cell: Cell) -> Entry:
    text = _number(key, cell.mean)
    if cell.spread is not None:
        text += f" {PLUS_MINUS} {_number(key, cell.spread)}"
    return Entry(text, AT_CHANCE, quiet=True) if cell.at_chance else Entry(text)


def _chance_and_n(key: Key, measured: Measured) -> tuple[str, Entry]:
    cells = [cells[key] for cells in measured if key in cells]
    chances = sorted({_chance(cell.chance) for cell in cells if cell.chance is not None}, key=float)
    sizes = [f"{n:,}" for n in sorted({cell.n for cell in cells})]
    return " to ".join(_ends(chances)) or "-", Entry(
        " to ".join(_ends(sizes)), _languages(key, measured) if key.language == ALL_LANGUAGES else ""
    )


def _languages(key: Key, measured: Measured) -> str:
    """Over how many languages or pairs the mean is, and whether English itself is one of them."""
    same = {
        other.language
        for cells in measured
        if key in cells
        for other in cells
        if (other.metric, other.split, other.layer, other.pooling) == (key.metric, key.split, key.layer, key.pooling)
    } - {ALL_LANGUAGES}
    return f"{len(same)} language{'s' * (len(same) > 1)}" + (", with en" if "en" in same else "") if same else ""


def _span(values: Iterable[str], between: str) -> str:
    every = list(values)
    return every[0] if len(set(every)) == 1 else between.join(every)


def _ends(values: Sequence[str]) -> list[str]:
    return [values[0], values[-1]] if len(values) > 1 else list(values)


def _number(key: Key, value: float) -> str:
    return f"{value:.2f}" if key.metric in _NOT_A_SHARE else f"{100 * value:.1f}"


def _points(gap: float) -> str:
    return f"{round(100 * gap, 1) + 0.0:+.1f}"  # adding zero makes -0.0 a plain zero


def _chance(value: float) -> str:
    return f"{100 * value:.2g}"
