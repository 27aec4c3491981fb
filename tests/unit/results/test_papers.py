"""The papers' numbers next to ours: cells by hand, claims with their verdicts, and no word where no paper is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from tests.unit.results.run_folders import open_folders, report_on, score, write_run, write_study
from tests.unit.results.test_page import Reader
from xalign_ray.results.claims import AgainstPapers, against_papers, claim_table, measured
from xalign_ray.results.compare import score_frame
from xalign_ray.results.printed import printed_values, read_claims
from xalign_ray.results.tables import plain_grid

# EM of MLQA by label, language and seed.
WEAM = {
    "mlm": {"en": (0.5, 0.6), "es": (0.30, 0.32), "de": (0.20, 0.22), "zh": (0.10, 0.12)},
    "weam": {"en": (0.5, 0.6), "es": (0.34, 0.36), "de": (0.24, 0.26), "zh": (0.14, 0.16)},
}


def study(
    folder: Path,
    values: Mapping[str, Mapping[str, tuple[float, ...]]],
    seeds: int,
    metrics: Sequence[str] = ("mlqa_em", "mlqa_f1"),
) -> Path:
    cells = []
    for label, own in values.items():
        for seed in range(seeds):
            run = write_run(folder / f"{label}-{seed}", f"tiny/{label}", seed=seed)
            cells.append({"kind": "pretraining", "label": label, "folder": str(run)})
            scores = [
                score(metric, each[seed], task="mlqa", language=language, run=run.name, layer=None, pooling=None)
                for metric in metrics
                for language, each in own.items()
            ]
            cells.append({"kind": "evaluation", "label": label, "scores": scores})
    return write_study(folder / "study", cells)


def beside(folder: Path) -> AgainstPapers:
    runs = open_folders([folder])
    return against_papers(measured(runs, score_frame(runs)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weam")
    return report_on([study(folder, WEAM, seeds=2)], folder / "report")


def test_cells_that_both_have_stand_side_by_side_with_what_follows_from_print_and_what_is_quoted(page: Path) -> None:
    frame = pd.read_csv(page.with_name("papers.csv")).set_index(["section", "row", "column"])
    (table,) = set(frame.table)  # no XNLI here
    own = frame.loc["zero-shot", "mBERT+WEAM", "avg_zero_shot_EM"]
    assert (table, own.printed, round(own.recomputed, 4)) == ("Table 1", 48.2, 47.0)
    assert (own.ours, own.standard_deviation) == (pytest.approx(25.0), pytest.approx(2**0.5))  # seeds: 24 and 26
    assert (own.difference, own.seeds, own.languages, own.scale) == (pytest.approx(-22.0), 2, "de es zh", "tiny")
    assert frame.loc["zero-shot", "mBERT+WEAM", "es_EM"].difference == pytest.approx(35.0 - 49.6)
    assert pd.isna(frame.loc["zero-shot", "mBERT+TLM", "es_EM"].ours)
    rows = [[" ".join(cell.split()) for cell in row] for row in Reader(page.read_text(encoding="utf-8")).rows]
    shown = {row[0]: row[1:] for row in rows}
    assert shown["zero-shot, mBERT+WEAM, en EM"] == ["66.7", "55.0 ± 7.1", "-11.7", "1 en", "2", "tiny"]
    assert shown["zero-shot, mBERT+WEAM, avg zero shot EM"][:3] == ["48.2 / 47.0", "25.0 ± 1.4", "-22.0"]
    quoted = shown["zero-shot, mBERT (Lewis et al.), en EM quoted from Lewis et al. 2020"]
    assert quoted[:3] == ["65.2", "55.0 ± 7.1", "-10.2"]
    assert not [name for name in shown if "mBERT+TLM" in name]


def test_claims_are_judged_next_to_what_is_printed(page: Path) -> None:
    frame = pd.read_csv(page.with_name("claims.csv"), keep_default_na=False).set_index("claim")
    assert set(frame.paper) == {"weam"}
    known = frame.loc["weam-over-translations"]
    assert (known.verdict, known.why, known.estimate) == ("undecided", "no mlm translated_per_language", "")
    assert list(frame.loc["weam-questions"].step) == ["weam less weam-tlm", "weam-tlm less mlm"]
    assert "no weam-tlm" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("seeds", "said"), [(2, "holds"), (1, "too few seeds (one)")])
def test_the_terminal_has_verdicts_and_one_seed_decides_nothing(seeds: int, said: str, tmp_path: Path) -> None:
    tlm = {language: tuple(value - 0.01 for value in own) for language, own in WEAM["weam"].items()}
    found = beside(study(tmp_path, WEAM | {"weam-tlm": tlm}, seeds))
    steps = found.claims.loc[found.claims.claim == "weam-questions"]
    assert [*steps.estimate.round(6)] == [1.0, 3.0]
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(plain_grid(claim_table(found.claims.loc[found.claims.seeds > 0])))
    text = " ".join(console.export_text().split())
    assert said in text
    assert f"+1.7 ({'excluded' if seeds == 2 else 'undecided'}" in text


def test_the_same_method_under_the_label_of_the_align_study_stands_in_for_a_papers_arm(tmp_path: Path) -> None:
    higher = {language: tuple(value + 0.02 for value in own) for language, own in WEAM["mlm"].items()}
    found = beside(study(tmp_path / "own", WEAM | {"xlm": higher, "ppa": WEAM["weam"]}, seeds=2))
    frame = found.claims.set_index("claim")
    assert [*frame.loc["weam-questions"].step] == ["weam less xlm", "xlm less mlm"]
    assert {*frame.loc["weam-questions"].verdict} == {"holds"}
    ppa = frame.loc["ppa-questions"]
    printed, base = printed_values(read_claims()["ppa-questions"])
    assert (ppa.step, ppa.verdict, ppa.estimate) == ("ppa less mlm", "undecided", pytest.approx(3.0))
    assert ppa.printed == pytest.approx(printed - base)
    assert {*found.cells.paper} == {"weam", "ppa"}
    assert beside(study(tmp_path / "other", {"mlm": WEAM["mlm"], "xlm": higher}, seeds=2)).papers == [], (
        "xlm alone is no study of WEAM"
    )


def test_a_paper_whose_own_labels_or_numbers_are_not_there_is_not_named(tmp_path: Path) -> None:
    plain = study(tmp_path / "plain", {"mlm": WEAM["mlm"]}, seeds=1)  # a label of every paper
    other = study(tmp_path / "other", WEAM, seeds=1, metrics=["tatoeba_accuracy"])  # none that it prints
    for folder in (plain, other):
        assert beside(folder).papers == []
    out = report_on([plain], tmp_path / "report").parent
    assert not list(out.glob("papers.csv")) + list(out.glob("claims.csv"))
    assert "Against the papers" not in (out / "index.html").read_text(encoding="utf-8")


def test_the_nine_languages_of_a_printed_mean_are_those_of_ours(tmp_path: Path) -> None:
    values = {"en": (0.9,), "de": (0.7,), "sw": (0.2,)}  # Swahili is none of them
    page = report_on([study(tmp_path, {"mlm": values, "dict-mlm-50": values}, 1, ["ner_f1"])], tmp_path / "report")
    frame = pd.read_csv(page.with_name("papers.csv")).set_index(["table", "row", "column"])
    assert frame.loc["Table 1", "mBERT (ours)", "NER_F1"].ours == pytest.approx(60.0)
    own = frame.loc["Table 2", "mBERT (ours)", "NER_F1"]
    assert (own.ours, own.languages) == (pytest.approx(80.0), "de en")
