"""Scores of other programs in a report: CSV rows and mteb's files get the same means, intervals and bundle."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.unit.results.run_folders import open_folders, score, write_run
from tests.unit.results.whole_study import write_bundle_of, write_whole_study
from xalign_ray.errors import DataError
from xalign_ray.results.bundle import report_numbers, verify_bundle
from xalign_ray.results.compare import compare_runs, score_frame
from xalign_ray.results.difference import difference
from xalign_ray.results.finding import find
from xalign_ray.results.report import report

HEADER = "encoder,seed,language,metric,value\n"
LANGUAGES, SEEDS = ("de", "fi", "hi", "tr"), (0, 1, 2)


def value(encoder: str, seed: int, language: str) -> float:
    return round(
        0.4 + (0.1 if encoder == "mine" else 0) + seed / 90 + LANGUAGES.index(language) / 20 + hash_of(language, seed),
        4,
    )


def hash_of(language: str, seed: int) -> float:
    return (sum(map(ord, language)) * (seed + 3) % 17) / 900


def write_csv(path: Path) -> Path:
    rows = [
        f"{encoder},{seed},{language},recall,{value(encoder, seed, language)}"
        for encoder in ("theirs", "mine")
        for seed in SEEDS
        for language in LANGUAGES
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_csv_scores_get_our_means_and_paired_intervals(tmp_path: Path) -> None:
    runs = open_folders([write_csv(tmp_path / "scores.csv")])
    (base, own) = compare_runs(runs, score_frame(runs)).records("task")
    assert (base["label"], own["label"], own["metric"], own["seeds"]) == ("theirs", "mine", "recall", 3)
    tables = [
        pd.DataFrame(
            {f"pretraining {seed}": [value(encoder, seed, language) for language in LANGUAGES] for seed in SEEDS},
            [*LANGUAGES],
        )
        for encoder in ("mine", "theirs")
    ]
    expected = difference(*tables)
    assert expected is not None
    assert own["mean"] == pytest.approx(tables[0].to_numpy().mean())
    assert (own["difference"], own["low_95"], own["high_95"]) == pytest.approx(
        (expected.estimate.value, *expected.interval)
    )
    assert own["difference_seeds"] == 3


def test_a_page_and_a_bundle_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = report([str(write_csv(tmp_path / "scores.csv"))], bundle=tmp_path / "x.zip")
    assert page.absolute() == tmp_path / "report/index.html"
    assert "mine is best on recall" in page.read_text()
    (tmp_path / "scores.csv").unlink()
    assert verify_bundle(tmp_path / "x.zip").problems == []


def test_optional_columns_and_a_pair_of_languages(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(
        "encoder,seed,language,metric,value,task,split,n,chance,note\na,,deu-fra,f1,0.5,mine,dev,10,0.1,x\n"
    )
    (run,) = open_folders([path])
    (own,) = run.scores.itertuples()
    assert (own.language, own.task, own.split, own.n, own.chance, own.seed) == ("de-fr", "mine", "dev", 10, 0.1, None)
    assert own.metric == "mine f1"


def test_one_metric_of_two_tasks_is_two_rows_and_ours_keep_their_names(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    rows = ["xnli,accuracy,0.4", "paws,accuracy,0.6", "pos,pos_accuracy,0.7", ",accuracy,0.5"]
    path.write_text("encoder,seed,language,task,metric,value\n" + "\n".join(f"a,0,de,{row}" for row in rows) + "\n")
    runs = open_folders([path])
    found = {record["metric"]: record["mean"] for record in compare_runs(runs, score_frame(runs)).records("task")}
    assert found == {"xnli accuracy": 0.4, "paws accuracy": 0.6, "pos_accuracy": 0.7, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "encoder,language,metric,value\na,de,f1,0.5\n",
            "has no column seed; give a CSV file with the columns enc",
        ),
        (HEADER, "has no row below its header"),
        (HEADER + "a,0,de,f1,87.2\n", r"line 2: value is 87.2; write shares, such as 0.872 for 87.2 %"),
        (HEADER + "a,0,de,f1,0.5\na,0,xx,f1,0.5\n", "line 3: "),
        (HEADER + "a,0,avg,f1,0.5\n", r"line 2: 'avg' is not a known.* A mean over languages is called all\."),
        (HEADER + "a,one,de,f1,0.5\n", "line 2: seed is one; it must be a number"),
        (HEADER + "a,0.5,de,f1,0.5\n", "line 2: seed is 0.5; it must be a whole number"),
        (HEADER + 'a,0,de,f1,"0,5"\n', "line 2: value is 0,5; it must be a number"),
        (f"{HEADER.strip()},chance\na,0,de,f1,0.5,25\n", r"line 2: chance is 25; write a share, such as 0.25 for 25 %"),
        (f"{HEADER.strip()},n\na,0,de,f1,0.5,-3\n", "line 2: n is -3; write how many things were scored"),
        (HEADER + "a,0,de,f1,nan\n", "line 2: value is nan; it must be a number"),
        (HEADER + ",0,de,f1,0.5\n", "line 2: encoder is empty"),
        (HEADER + "a,0,de,f1,0.5\na,0,de,f1,0.6\n", "line 3: a second f1 of a, seed 0, in de"),
        (HEADER + "a,0,zh,f1,0.5\na,0,zho_Hans,f1,0.6\n", "line 3: a second f1 of a, seed 0, in zh"),
        (HEADER + "XLM-R, base,0,de,f1,0.5\n", "line 2: 6 columns, and the header has 5. Put quotes around a name"),
        (HEADER + "a,0,de,f1\n", "line 2: 4 columns, and the header has 5"),
        (HEADER + "\n\na,0,de,f1,2\n", "line 4: value is 2"),
        (f'{HEADER.strip()},task\na,0,de,f1,0.5,"of\ntwo"\na,0,xx,f1,0.5,b\n', "line 4: "),
        ("encoder,seed,language,metric,value,value\n", "has the column value twice"),
    ],
)
def test_rows_that_mean_nothing_are_named(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        open_folders([tmp_path / "scores.csv"])


def test_whole_numbers_may_be_written_as_pandas_writes_those_of_a_column_with_gaps(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(f"{HEADER.strip()},n\na,1.0,de,f1,0.5,1000.0\nb,,de,f1,0.5,\n")
    runs = open_folders([tmp_path / "scores.csv"])
    assert [(run.seed, [*run.scores.n]) for run in runs] == [(1, [1000]), (None, [0])]


def found_of(path: Path, text: str) -> tuple[str, list[Any]]:
    """The first sentence of a report on a CSV file, and its rows."""
    path.write_text(text)
    runs = open_folders([path])
    comparison = compare_runs(runs, score_frame(runs))
    return find(comparison).brief, comparison.records("task")


def test_where_n_is_not_known_nothing_is_at_chance_and_encoders_are_compared(tmp_path: Path) -> None:
    rows = [
        f"{encoder},{seed},{language},accuracy,{value(encoder, seed, language)},0.33"
        for encoder in ("theirs", "mine") for seed in SEEDS for language in LANGUAGES
    ]  # fmt: skip
    said, _ = found_of(tmp_path / "x.csv", "\n".join([f"{HEADER.strip()},chance", *rows, ""]))
    assert said.startswith("mine is best on accuracy")
    some = ["a,,de,acc,0.5,", "a,,es,acc,0.6,", "b,,de,acc,0.7,10", "b,,es,acc,0.9,20", ""]
    _, (_, own) = found_of(tmp_path / "y.csv", "\n".join([f"{HEADER.strip()},n", *some]))
    assert own["difference"] == pytest.approx(0.25)


def tables(*sources: Path) -> dict[str, str]:
    """The numbers of a report, by file."""
    return {name: frame.to_csv() for name, frame in report_numbers(open_folders(sources)).files.items()}


def test_an_encoder_that_is_called_as_one_of_a_study_is_a_column_of_its_own(tmp_path: Path) -> None:
    """Paired by its seeds with those of the study, whether the CSV file is given, its bundle, or both."""
    study, own, other = write_whole_study(tmp_path, seeds=(0, 1)), tmp_path / "x.csv", tmp_path / "y.csv"
    header = f"{HEADER.strip()},task,n\n"
    rows = [f"{name},{seed},de,pos_accuracy,0.{seed + 7},pos,200\n" for name in ("mlm", "other") for seed in (0, 1)]
    own.write_text(header + "".join(rows))
    other.write_text(header + rows[0].replace("0.7", "0.6"))
    expected, bundle = tables(study, own), write_bundle_of(own)
    runs = open_folders([study, own])
    assert {run.label for run in runs} == {"mlm", "dict-mlm-50", "mlm (given)", "other"}
    paired = [one for one in compare_runs(runs, score_frame(runs)).records("task") if one["metric"] == "pos_accuracy"]
    assert [one["difference_seeds"] for one in paired] == [None, 2, 2, 2]
    together = write_bundle_of(study, own)
    for sources in ([study, bundle], [study, own, bundle], [together], [together, own], [own, together]):
        assert tables(*sources) == expected
    differs = r"both have seed 0 of mlm \(given\), with other scores\. Give one of them"
    for first in (together, own, bundle):
        with pytest.raises(DataError, match=differs):
            open_folders([study, first, other])


def test_a_score_that_two_files_have_counts_once_and_is_refused_where_they_differ(tmp_path: Path) -> None:
    one, other = write_csv(tmp_path / "scores.csv"), tmp_path / "others.csv"
    other.write_text(HEADER + "theirs,0,de,recall,0.9\n")
    write_mteb(tmp_path / "results", "org/A", "1", 0.8)
    write_mteb(tmp_path / "other-results", "org/A", "1", 0.7)
    for same, differing in ((one, other), (tmp_path / "results", tmp_path / "other-results")):
        expected, bundle = tables(same), write_bundle_of(same)
        copy = tmp_path / f"copy-of-{same.name}"
        (shutil.copytree if same.is_dir() else shutil.copy)(same, copy)
        for sources in ([bundle], [same, bundle], [bundle, same], [same, copy], [bundle, write_bundle_of(copy)]):
            assert tables(*sources) == expected
        for first, second in product((same, bundle), (differing, write_bundle_of(differing))):
            with pytest.raises(DataError, match=r"both have .*, with other scores\. Give one of them"):
                open_folders([first, second])


def write_mteb(folder: Path, model: str, revision: str, main_score: float, experiment: str = "") -> None:
    rows = [
        {"hf_subset": "deu-eng", "languages": ["deu-Latn", "eng-Latn"], "main_score": main_score, "f1": 0.1},
        {"hf_subset": "jpn-eng", "languages": ["jpn-Jpan", "eng-Latn"], "main_score": main_score / 2, "f1": 0.1},
    ]
    write_mteb_rows(folder / model.replace("/", "__") / revision / experiment, model, revision, rows)


def write_mteb_rows(own: Path, model: str, revision: str, rows: list[dict[str, Any]]) -> None:
    own.mkdir(parents=True)
    (own / "model_meta.json").write_text(json.dumps({"name": model, "revision": revision}))
    result = {"task_name": "Tatoeba", "dataset_revision": "69e8", "scores": {"test": rows}, "mteb_version": "2"}
    (own / "Tatoeba.json").write_text(json.dumps(result))


def test_mteb_results_are_encoders_beside_a_run_of_ours(tmp_path: Path) -> None:
    write_mteb(tmp_path / "results", "intfloat/e5", "abcdef123", 0.8)
    write_mteb(tmp_path / "results", "other/model", "0000000", 0.6)
    ours = write_run(tmp_path / "tiny-mlm-0", scores={"tatoeba": [score(language="de")]})
    runs = open_folders([ours, tmp_path / "results"])
    assert [run.label for run in runs] == ["tiny/mlm", "intfloat/e5", "other/model"]
    found = {(one.language, one.metric): one.value for one in runs[1].scores.itertuples()}
    assert found == {("de", "mteb:Tatoeba"): 0.8, ("ja", "mteb:Tatoeba"): 0.4}
    records = compare_runs(runs, score_frame(runs), baseline="other/model").records("task")
    assert {one["label"]: one["mean"] for one in records if one["metric"] == "mteb:Tatoeba"} == pytest.approx(
        {"intfloat/e5": 0.6, "other/model": 0.45}
    )


def test_two_revisions_are_two_columns_and_damage_is_named(tmp_path: Path) -> None:
    for revision, reached in (("abcdef123", 0.8), ("1234567890", 0.7)):
        write_mteb(tmp_path, "intfloat/e5", revision, reached)
    assert [run.label for run in open_folders([tmp_path])] == ["intfloat/e5 (1234567890)", "intfloat/e5 (abcdef123)"]
    file = tmp_path / "intfloat__e5/abcdef123/Tatoeba.json"
    file.write_text('{"task_name": "Tatoeba"}')
    with pytest.raises(DataError, match=r"Tatoeba.json is not a result of mteb \(KeyError: 'scores'\)"):
        open_folders([tmp_path])
    good = {"hf_subset": "deu-eng", "languages": ["deu-Latn"], "main_score": 0.5}
    result = {"task_name": "Tatoeba", "mteb_version": "1.14"}
    for wrong, message in (
        (
            result | {"scores": {"test": [good | {"main_score": 80}]}},
            "main_score of deu-eng, split test, is 80; it must",
        ),
        (
            result | {"scores": {"test": [good | {"main_score": np.nan}]}},
            "main_score of deu-eng, split test, is nan; it",
        ),
        (
            result | {"scores": {"test": [good, good]}},
            r"Tatoeba\.json: a second score of deu-eng, split test; keep one\.",
        ),
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=message):
            open_folders([tmp_path])
    file.write_text(json.dumps(result | {"scores": {"test": [good]}}))
    (file.parent / "Tatoeba_predictions.json").write_text('{"deu-eng": {"test": []}}')
    assert len(open_folders([tmp_path])) == 2
    (file.parent / "model_meta.json").write_text("{}")
    file.unlink()
    with pytest.raises(DataError, match=r"has no result beside its model_meta\.json"):
        open_folders([tmp_path])


def test_parts_of_an_mteb_task_that_have_one_language_keep_their_own_names(tmp_path: Path) -> None:
    parts = {"ar-ar": ["ara-Arab"], "en-ar": ["eng-Latn", "ara-Arab"], "en-de": ["eng-Latn", "deu-Latn"]}
    for model, lacking in (("A", ""), ("B", "en-ar")):
        rows = [
            {"hf_subset": part, "languages": languages, "main_score": 0.9 if part == "ar-ar" else 0.5}
            for part, languages in parts.items()
            if part != lacking
        ]
        write_mteb_rows(tmp_path / model / "1", model, "1", rows)
    runs = open_folders([tmp_path])
    assert [[*run.scores.language] for run in runs] == [["ar-ar", "en-ar", "de"], ["ar-ar", "de"]]
    _, other = compare_runs(runs, score_frame(runs), baseline="A").records("task")
    assert (other["difference"], other["difference_languages"]) == (0.0, 2)


def test_results_of_one_model_that_were_made_apart_are_columns_of_their_own(tmp_path: Path) -> None:
    """Revisions that begin alike, and experiments of one revision, below mteb's own cache folder."""
    made = [("no_revision", ""), ("no_revision_available", ""), ("no_revision", "experiments/short")]
    for number, (revision, experiment) in enumerate(made):
        write_mteb(tmp_path / "results", "org/A", revision, 0.2 * number + 0.1, experiment)
    found = {run.label: run.scores.value[0] for run in open_folders([tmp_path])}
    assert found == pytest.approx(
        {"org/A (no_revision)": 0.1, "org/A (no_revision_available)": 0.3, "org/A (short)": 0.5}
    )
    copy = tmp_path / "org__A/no_revision"
    write_mteb_rows(copy, "org/A", "no_revision", [{"hf_subset": "x", "languages": ["deu-Latn"], "main_score": 0.1}])
    with pytest.raises(DataError, match=r"is a second org/A \(no_revision\), as model_meta\.json says; give one"):
        open_folders([tmp_path])


def test_codes_of_flores_and_short_ones_are_the_same_language(tmp_path: Path) -> None:
    """Minangkabau, Newari and Serbo-Croatian too, whose codes are words in the names of columns."""
    for encoder, codes in (
        ("a", ("zho_Hans", "yor_Latn", "zho_Hant", "min_Latn", "new", "sh")),
        ("b", ("zh", "yo", "zh-Hant", "min", "new", "hbs")),
    ):
        rows = [f"{encoder},0,{code},acc,0.5\n" for code in codes]
        (tmp_path / f"{encoder}.csv").write_text(HEADER + "".join(rows))
    runs = open_folders([tmp_path / "a.csv", tmp_path / "b.csv"])
    _, own = compare_runs(runs, score_frame(runs)).records("task")
    assert (own["languages"], own["difference_languages"]) == ("min new sh yo zh zh-Hant", 6)


def test_two_files_of_one_encoder_may_have_other_metrics(tmp_path: Path) -> None:
    for metric in ("f1", "acc"):
        (tmp_path / f"{metric}.csv").write_text(f"{HEADER}a,0,de,{metric},0.5\n")
    (run,) = open_folders([tmp_path / "f1.csv", tmp_path / "acc.csv"])
    assert {*run.scores.metric} == {"f1", "acc"}
