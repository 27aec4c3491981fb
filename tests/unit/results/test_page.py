"""The page and its files: whole in itself, the numbers those of the scores, honest about what they are."""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from rich.console import Console

from tests.unit.results.run_folders import (
    compare_folders,
    held_out,
    open_folders,
    report_on,
    score,
    start,
    step,
    write_run,
    write_study,
)
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.charts import (
    MAX_DRAWN,
    NAMES,
    curves_of,
    draw_file,
    draw_svgs,
    held_out_chart,
    loss_frame,
    training_chart,
)
from xalign_ray.results.compare import score_frame
from xalign_ray.results.finding import find
from xalign_ray.results.report import report
from xalign_ray.results.report_tables import terminal_table
from xalign_ray.results.run import NO_SCORES, Log, Run, frame_scores, label_runs
from xalign_ray.results.score_charts import layer_chart, score_chart, size_chart
from xalign_ray.results.sentences import ENVIRONMENT, caveats, how_to_read, origins
from xalign_ray.results.tables import Entry, Table, as_markdown, plain_grid, run_table, score_table
from xalign_ray.studies.declared import StudyConfig, load_study
from xalign_ray.studies.rates import trial_study
from xalign_ray.work.artifacts import write_json

LAYERS = [
    score(value=value, layer=layer, language=code) for code in ("all", "qgr") for layer, value in enumerate((0.1, 0.2))
]


class Reader(HTMLParser):
    """Collects what a page refers to, its ids, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.rows: list[list[str]] = []
        self.open = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "data", "srcset", "action") and value:
                self.references.append(value)
            if name == "id" and value:
                self.ids.append(value)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.open += 1

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    align = [
        start(data=folder / "data"),
        *(step(n, 5.0 - 10 * n / 4, loss_dictionary_alignment=-n / 4) for n in range(1, 5)),
        held_out(4, {"en": 4.5, "qgr": 4.25}),
        {"event": "end", "attempt": 1, "time": 1009.0, "step": 4, "metrics": {"run/tokens": 10, "run/tokens_per_s": 1}},
    ]
    return [
        write_run(folder / "mlm", scores={"tatoeba": [score(value=0.0021), *LAYERS]}),
        write_run(folder / "align", "tiny/align-mlm", scores={"tatoeba": [score(value=0.1234)]}, events=align),
    ]


@pytest.fixture(scope="module")
def files(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report."""
    return report_on(runs, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def page(files: Path) -> str:
    return (files / "index.html").read_text(encoding="utf-8")


def curve_of(folders: list[Path]) -> pd.DataFrame:
    """The one curve of the masked-LM loss of these runs."""
    losses = loss_frame(open_folders(folders))
    own = losses[losses.series == "train/loss_masked_lm"]
    return curves_of(own.rename(columns={"series": "panel", "step": "x", "run": "across"}))


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_needs_nothing_outside_itself_and_links_to_what_lies_beside_it(files: Path, page: str) -> None:
    references = [reference for reference in Reader(page).references if not reference.startswith("#")]
    assert sorted(set(references) | {"index.html"}) == sorted(os.listdir(files))
    assert {"headline.svg", "losses.svg", "held-out.svg", "layers.svg"} <= set(references)
    assert all((files / name).read_bytes().startswith(b"<?xml") for name in references if name.endswith("svg"))
    assert "http" not in page
    assert not re.search(r"url\((?!#)|@import|<script|<link|<iframe", page)


def test_the_page_has_scores_charts_costs_and_its_command(page: str) -> None:
    reader = Reader(page)
    inner = {reference.removeprefix("#") for reference in reader.references if reference.startswith("#")}
    inner |= {name.removeprefix("url(#").rstrip(")") for name in re.findall(r"url\(#[^)]*\)", page)}
    assert inner <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    rows = {" ".join(row[0].split()): [" ".join(cell.split()) for cell in row[1:]] for row in reader.rows}
    name = "Sentence retrieval (Tatoeba) tatoeba_accuracy"
    assert rows[name] == ["0.2 at chance", "12.3 +12.1", "0.2", "1,000", "1"]
    assert all(float(one) >= 0 for one in rows["Worker hours time x training processes"])
    figures = re.findall(r'<figure class="(.*?)">(.*?)</figure>', page, re.DOTALL)
    assert [name for name, _ in figures] == ["headline", "losses", "held-out", "layers"]
    for title in ("masked LM loss", "dictionary alignment loss", "total loss (weighted sum)", "mean over languages"):
        assert f">{title}</text>" in page
    sections = re.findall(r'<details class="section"( open)?>\s*<summary><h2>(.*?)</h2>', page)
    assert [title for is_open, title in sections if is_open] == ["Scores"]
    assert {"Losses", "Recipes", "Running"} <= {title for _, title in sections}
    footer = page[page.index("<footer>") :]
    assert "Made by xalign pretrain tiny/" in footer
    assert "MLflow: experiment xalign at sqlite." in footer


def test_two_reports_of_the_same_runs_are_the_same_bytes(runs: list[Path], files: Path, tmp_path: Path) -> None:
    report_on(runs, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in files.iterdir()
    }


@pytest.mark.parametrize(
    ("study", "made_by"),
    [
        (load_study("demo-pos"), "xalign study demo-pos"),
        (
            load_study("align/two-cores", ["data.root=DATA", "seeds=[1]"], "models/my e5"),
            "xalign study align --scale two-cores --encoder 'models/my e5' --set data.root=DATA --set 'seeds=[1]'",
        ),
        (trial_study(load_study("align/two-cores")), "xalign study align --scale two-cores"),
        (None, "the study mine"),
    ],
)
def test_a_study_is_made_by_a_command_that_can_be_given(study: StudyConfig | None, made_by: str) -> None:
    declared = {"study": study.model_dump(mode="json")} if study else {}
    runs = [Run(Path("x"), {}, Log(), NO_SCORES, label="mlm", study={"name": "mine", **declared})]
    assert origins(runs) == [f"Made by {made_by}."]


def test_a_released_encoder_that_was_tuned_once_has_one_seed() -> None:
    """What needs no training has no seed, which is no second one."""
    own = (score(seed=None), score("pos_accuracy", task="pos", seed=0))
    frame = frame_scores(own)
    runs = [Run(Path("e5"), {}, Log(), frame, label="e5"), Run(Path("x"), {"seed": 0}, Log(), frame, label="mlm")]
    assert "One seed of each recipe was run" in " ".join(how_to_read(runs))
    plain = [replace(run, scores=NO_SCORES) for run in (runs[1], replace(runs[1], label="align"))]
    assert "One seed of each recipe was run" in " ".join(how_to_read(plain))
    twice = replace(runs[0], scores=frame_scores([*own, score("pos_accuracy", task="pos", seed=1)]))
    assert "One seed only: mlm." in " ".join(how_to_read([twice, runs[1]]))


def test_layers_are_of_one_test_set(tmp_path: Path) -> None:
    """Two folders of retrieval, of which the second has a language more: no curve is a mean of both."""
    found = [
        score(value=value, layer=layer, language=code, split=split, run="x")
        for split, value, codes in (("other", 0.2, ("de", "fr")), ("tatoeba", 0.9, ("de",)))
        for code in codes
        for layer in (0, 1)
    ]
    runs = label_runs([Run(tmp_path, {}, Log(), frame_scores(found))])
    chart = layer_chart(runs, score_frame(runs))
    assert chart is not None
    assert (chart.alt, [*chart.panels]) == ("Tatoeba accuracy (tatoeba) by layer", ["mean over languages", "de"])
    alone = layer_chart(runs, score_frame(runs).query("split == 'other'"))
    assert alone is not None
    assert alone.alt == "Tatoeba accuracy by layer"


def test_the_frames_beside_the_page_have_every_score_and_every_loss(files: Path) -> None:
    scores, layers, losses = (pd.read_csv(files / f"{name}.csv") for name in ("scores", "layers", "losses"))
    assert len(scores) == 6
    shown = scores[["label", "run", "metric", "value", "at_chance"]].iloc[[0, -1]].values.tolist()
    assert shown == [
        ["tiny/mlm", "mlm", "tatoeba_accuracy", 0.0021, True],
        ["tiny/align-mlm", "align", "tatoeba_accuracy", 0.1234, False],
    ]
    assert layers[["language", "layer", "value"]].values.tolist() == [
        *(["all", 0, 0.1], ["all", 1, 0.2], ["qgr", 0, 0.1], ["qgr", 1, 0.2])
    ]
    own = losses.loc[losses.label == "tiny/align-mlm"].fillna({"language": ""})
    found = dict(zip(zip(own.series, own.language, own.step, strict=True), own.value, strict=True))
    assert found["train/loss_dictionary_alignment", "", 3] == -0.75
    assert found["train/loss", "", 4] == -5.0
    assert (found["held_out/loss", "", 4], found["held_out/loss", "qgr", 4]) == (4.375, 4.25)
    assert len(found) == 3 * 4 + 3


def test_text_of_users_cannot_become_markup(tmp_path: Path) -> None:
    run = write_run(tmp_path / "<b>&", settings=["notes=<script>alert(1)</script> & more"])
    page = report_on([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_text_of_a_study_and_of_labels_is_neither_markup_nor_mathematics(tmp_path: Path) -> None:
    cells: list[dict[str, object]] = []
    for number, label in enumerate(("<i>$\\frac{$</i>", '"><script>')):
        scores = [
            score(value=0.2 + number / 10, language=code, run=None, encoder=label) for code in ("de", "fr", "<u>")
        ]
        cells.append({"kind": "evaluation", "label": label, "scores": scores})
    cells.append({"kind": "finetuning", "label": "<i>$\\frac{$</i>", "state": "failed", "reason": "<em>x</em>"})
    study = write_study(tmp_path / "<s>", cells)
    (study / "study.json").write_text((study / "study.json").read_text().replace("Why.", "<em>Why</em>"))
    page = report_on([study], tmp_path / "out").read_text(encoding="utf-8")
    for markup in ("<i>", "<script>", "<u>", "<em>", "<s>"):
        assert markup not in page
    assert page.count("&lt;em&gt;") == 2
    assert "points above &lt;i&gt;$\\frac{$&lt;/i&gt;</text>" in page


def test_the_embedded_world_is_named_where_it_was_used_and_only_there(tmp_path: Path) -> None:
    demo = write_run(tmp_path / "demo")
    real = write_run(tmp_path / "real", settings=["data.root=/somewhere/real"])
    said = [any("embedded world" in line for line in caveats(open_folders([run]))) for run in (demo, real)]
    assert said == [True, False]


def test_a_restarted_run_shows_attempts_their_cost_and_only_the_surviving_curve(tmp_path: Path) -> None:
    events = [
        start(time=1000.0),
        step(1, 6.0, time=1001.0),
        step(2, 5.0, time=1002.0),
        step(3, 99.0, time=1004.0),
        start(step=2, attempt=2, time=1100.0),
        step(3, 4.0, attempt=2, time=1101.0),
    ]
    runs = open_folders([write_run(tmp_path / "run", events=events)])
    assert runs[0].log.seconds == 5.0
    (row,) = run_table(runs).rows
    assert row[4] == Entry("3 of 4", "not finished")
    assert row[-1] == Entry("2", "resumed at 2")
    assert curve_of([tmp_path / "run"])["mean"].tolist() == [6.0, 5.0, 4.0]


def test_a_curve_has_mean_and_range_at_the_steps_that_all_seeds_have_and_few_points(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", seed=0, events=[start(), step(1, 6.0), step(2, 4.0), step(3, 3.0)])
    second = write_run(tmp_path / "b", seed=1, events=[start(), step(1, 8.0), step(2, 5.0)])
    curve = curve_of([first, second])
    assert (curve.x.tolist(), curve["mean"].tolist()) == ([1, 2], [7.0, 4.5])
    assert (curve.low.tolist(), curve.high.tolist()) == ([6.0, 4.0], [8.0, 5.0])
    long = [start(), *(step(n, float(n % 2)) for n in range(1, 2 * MAX_DRAWN + 1))]
    curve = curve_of([write_run(tmp_path / "long", events=long)])
    assert (len(curve), set(curve["mean"])) == (MAX_DRAWN, {0.5})


def test_a_run_that_goes_on_has_a_page_without_losses_that_were_not_finite(tmp_path: Path) -> None:
    broken = step(2, 5.0)
    broken["metrics"]["train/loss"] = None
    page = report_on([write_run(tmp_path / "run", events=[start(), step(1, 6.0), broken])], tmp_path / "out")
    rows = read_csv(page.with_name("losses.csv"))
    assert [row["step"] for row in rows if row["series"] == "train/loss"] == ["1"]
    assert read_csv(page.with_name("scores.csv")) == []
    text = page.read_text(encoding="utf-8")
    assert "Not finished yet: tiny/mlm." in text
    assert "How it was run" in text


@pytest.mark.parametrize(
    ("losses", "titles"),
    [({"qgr": 4.0}, ["qgr"]), ({"zz": 3.0, "qgr": 4.0, "en": 5.0}, ["mean over languages", "en", "qgr", "zz"])],
)
def test_held_out_losses_stand_in_the_order_of_the_data_their_mean_first(
    losses: dict[str, float], titles: list[str], tmp_path: Path
) -> None:
    runs = open_folders([write_run(tmp_path / "run", events=[start(), held_out(1, losses)])])
    chart = held_out_chart(runs, loss_frame(runs))
    assert chart is not None
    assert list(chart.panels) == titles


def test_of_many_languages_those_with_most_text_have_a_panel(tmp_path: Path) -> None:
    losses = {f"q{number:02}": 4.0 for number in range(40)}
    runs = open_folders([write_run(tmp_path / "run", events=[start(), held_out(1, losses)])])
    pools = {f"text/q{number:02}": {"tokens": number} for number in range(40)}
    runs = [replace(run, data={"languages": [*losses], "pools": pools}) for run in runs]
    chart = held_out_chart(runs, loss_frame(runs))
    assert chart is not None
    assert list(chart.panels) == ["mean over languages", *(f"q{number}" for number in range(39, 28, -1))]
    assert chart.notes == ["29 more are in losses.csv."]


def test_a_table_has_the_same_text_in_markdown_and_html() -> None:
    table = Table("T", ("", "a|b"), [(Entry("all"),), ("x<y", Entry("1.0", "at chance", "quiet"))], "Note.")
    rows = "| **all** |  |\n| x&lt;y | 1.0 (at chance) |"
    assert as_markdown(table) == f"### T\n\n|  | a\\|b |\n| --- | ---: |\n{rows}\n\nNote.\n"
    html = ENVIRONMENT.get_template("tables.html").module.html(table)  # type: ignore[attr-defined]
    assert '<th colspan="2" class="name"><span>all</span></th>' in html
    assert '<th class="name">x&lt;y</th><td class=" quiet">1.0 <small>at chance</small></td>' in html


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path} is not a run: it holds neither events.jsonl nor a scores.json"):
        report_on([tmp_path], tmp_path / "out")
    with pytest.raises(ConfigError, match="A report needs at least one run"):
        label_runs([])


def write_scores_of(path: Path, values: Mapping[str, Sequence[float]], metric: str = "acc", seeds: int = 1) -> Path:
    """A CSV file: the scores of each encoder in as many languages, without a seed where there is one."""
    codes = ("de", "fi", "hi", "tr", "ar", "zh", "sw", "ru")
    rows = [
        (label, seed if seeds > 1 else "", code, metric, value + seed / 100)
        for label, own in values.items()
        for code, value in zip(codes, own, strict=False)
        for seed in range(seeds)
    ]
    pd.DataFrame(rows, columns=["encoder", "seed", "language", "metric", "value"]).to_csv(path, index=False)
    return path


def test_an_encoder_of_a_table_a_bundle_or_a_score_is_not_looked_for_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to("elsewhere")
    write_json(tmp_path / "mine" / "comparison.json", {"base": 1})
    labels = ["mine", "linked", "n" * 300]
    table = write_scores_of(tmp_path / "x.csv", {label: [0.5] for label in labels})
    report([str(table)], tmp_path / "out", bundle=tmp_path / "x.zip")
    assert [row["run"] for row in read_csv(tmp_path / "out/scores.csv")] == labels
    assert [run.name for run in open_folders([tmp_path / "x.zip"])] == labels
    evaluated = {"kind": "evaluation", "label": "a", "scores": [score(run=None, encoder="mine")]}
    report_on([tmp_path / "x.zip", write_study(tmp_path / "study", [evaluated])], tmp_path / "again")


def test_a_report_leaves_no_file_of_another_one_and_takes_no_file_of_others(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    charts = {f"{name}.svg" for name in NAMES}
    for name in {*charts, *os.listdir(files), "claims.csv", "papers.csv", "headline.txt", "mine.csv"}:
        (out / name).write_text("old")
    page = report_on([write_scores_of(tmp_path / "x.csv", {"a": [0.5], "b": [0.6]})], out)
    linked = {name for name in Reader(page.read_text(encoding="utf-8")).references if not name.startswith("#")}
    assert {*os.listdir(out)} == linked | {"index.html", "headline.txt", "mine.csv"}
    template = Path(ENVIRONMENT.get_template("page.html").filename or "").read_text(encoding="utf-8")
    assert {*re.findall(r'^  "(.*?)": "', template, re.MULTILINE)} == {*NAMES}


@pytest.mark.parametrize("metric", ["f1[/x]", "f1 [macro]", "f1 :smile:"])
def test_brackets_and_colons_of_users_are_text_in_the_terminal(metric: str, tmp_path: Path) -> None:
    comparison = compare_folders([write_scores_of(tmp_path / "x.csv", {"e5 [base]": [0.5], "[b]": [0.6]}, metric)])
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(*(plain_grid(terminal_table(comparison, by)) for by in ("task", "language")))
    console.print(plain_grid(Table("[t]", ("[h]", "e5 [large]"), [(metric, "1 [i]")])))
    text = console.export_text()
    assert text.count(metric) == 3
    assert all(word in text for word in ("e5 [base]", "[b]", "[t]", "[h]", "e5 [large]", "1 [i]"))
    assert " n " not in text, "a number of questions that is not known"
    assert [str(cell) for cell in score_table(comparison, "task").rows[0][-3:]] == ["-", "- (1 language)", "1"]


TEXTS = [
    *(
        "a|b",
        "two\nlines",
        "<script>alert(1)</script>",
        "$x$ and $y$",
        "*x* and **y**",
        "_x_ and __y__",
        "a_b_c",
        "`x`",
    ),
    *("[x](y)", "[3.0, 4.0]", "![x](y)", "~~x~~", "R&D &lt;", "\\*", "[first", "*first"),
]


def test_no_letter_of_users_is_markup_in_markdown() -> None:
    table = Table("T", ("", *TEXTS), [(text, *TEXTS) for text in TEXTS], "; ".join(TEXTS))
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = [token for token in parser.parse(as_markdown(table)) if token.type == "inline"]
    expected = [
        text.replace("\n", " ") for text in ["T", "", *TEXTS, *(c for t in TEXTS for c in (t, *TEXTS)), table.note]
    ]
    assert ["".join(part.content for part in token.children or ()) for token in tokens] == expected
    assert {part.type for token in tokens for part in token.children or ()} <= {"text", "text_special"}
    assert not re.search(r"(?<!\\)\$", as_markdown(table)), "GitHub reads it as mathematics"


HUB = [f"sentence-transformers/paraphrase-multilingual-mpnet-base-v{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("labels", "languages", "rows", "drawn"),
    [
        (HUB[:2], 3, 4, HUB[:2]),
        (HUB[:15], 3, 4, HUB[:15]),
        (HUB[:6], 8, 9, HUB[:6]),
        (HUB, 8, 1, [HUB[0], *HUB[33:]]),
        (["base", "\u65e5\u672c\u8a9e", "n" * 300], 3, 4, ["base", "\u65e5\u672c\u8a9e", "n" * 300]),
    ],
)
def test_the_headline_has_room_for_its_legend_and_draws_the_best_of_many(
    labels: list[str], languages: int, rows: int, drawn: list[str], tmp_path: Path
) -> None:
    values = {label: [0.3 + place / 100] * languages for place, label in enumerate(labels)}
    comparison = compare_folders([write_scores_of(tmp_path / "x.csv", values, seeds=2)])
    chart = score_chart(comparison, find(comparison).key or ())
    assert list(chart.styles) == drawn
    assert len({(style["color"], style["marker"]) for style in chart.styles.values()}) == len(drawn)
    told = [note for note in chart.notes if "encoders:" in note]
    assert told == (
        [f"28 of 60 encoders: {HUB[0]} and the best others; comparison.csv has all."] if labels == HUB else []
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, *_ = draw_svgs(chart)
        drawn_file = draw_file(chart)
    assert first.count("languages</text>") + len(re.findall(r">[a-z]{2}</text>", first)) == rows
    height = float(re.findall(r'height="([\d.]+)pt"', drawn_file)[0]) / 72
    assert height > chart.size[1] + 0.17 * len(drawn), "the legend lies on the panels"


def test_labels_that_end_in_sizes_are_lines_by_size(tmp_path: Path) -> None:
    values = {
        "base": [0.5] * 3,
        "mnrl 200": [0.6] * 3,
        "mnrl 1000": [0.8] * 3,
        "mse 200": [0.4] * 3,
        "other": [0.9] * 3,
    }
    comparison = compare_folders([write_scores_of(tmp_path / "x.csv", values, seeds=2)])
    chart = size_chart(comparison)
    assert chart
    assert [*chart.styles] == ["mnrl"]  # one size of mse is no line
    axes = Figure().subplots()
    next(iter(chart.panels.values()))(axes)
    line = axes.lines[1]
    assert (axes.get_xscale(), [*line.get_xdata()]) == ("log", [200, 1000])
    assert [*line.get_ydata()] == pytest.approx([10, 30])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["200", "1,000"]
    del values["mnrl 1000"]
    assert size_chart(compare_folders([write_scores_of(tmp_path / "y.csv", values, seeds=2)])) is None


def test_curves_that_cannot_be_told_apart_are_left_out(tmp_path: Path) -> None:
    run, *_ = open_folders([write_run(tmp_path / "run")])
    many = [replace(run, label=f"run {number}", config={}) for number in range(30)]
    chart = training_chart(many, loss_frame(many))
    assert chart is not None
    assert (
        len({(style["color"], str(style["linestyle"])) for style in chart.styles.values()}) == len(chart.styles) == 28
    )
    assert "The first 28 of 30 encoders; losses.csv has all." in chart.notes
