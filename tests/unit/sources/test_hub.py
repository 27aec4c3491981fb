"""Format hf: snapshots with configurations, folders of `save_to_disk`, columns as they are published."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from xalign_ray.config.load import load_recipe
from xalign_ray.config.sources import Corpus, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError, XalignError
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.hub import choose_config, find_split
from xalign_ray.sources.inputs import find_sources
from xalign_ray.sources.language_id import column_of, language_of_name, same_language
from xalign_ray.sources.records import BadRow, Document, Pair
from xalign_ray.tasks.task_files import find_tables
from xalign_ray.verbs.arguments import as_data

YO, HA = ["Ẹ káàárọ̀ o.", "Bawo ni?"], ["Ina kwana?", "Lafiya lau."]
EN = ["Good morning.", "How are you?"]
CODES = [("en", "eng_Latn"), ("ha", "hau_Latn"), ("yo", "yor_Latn")]


def write_json(path: Path, rows: Sequence[Any], is_array: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows) if is_array else "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8").write(text)  # type: ignore[operator]


def write_parquet(path: Path, **columns: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)


def write_readme(folder: Path, configs: dict[str, dict[str, str]]) -> None:
    lines = ["---", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in splits.items():
            lines += [f"  - split: {split}", f"    path: {path}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", "# A data set", ""]))


def texts_of(source: Corpus | ParallelCorpus, root: Path) -> list[Any]:
    reader, files = find_source(source, root)
    languages = (source.language,) if isinstance(source, Corpus) else source.languages
    records = list(read(reader, files, languages, columns=source.read_columns))
    assert all(isinstance(record, Document | Pair) for record in records), records
    return ["\n".join(r.paragraphs) if isinstance(r, Document) else r.texts for r in records]  # type: ignore[union-attr]


def fineweb(folder: Path) -> None:
    """HuggingFaceFW/fineweb-2: a folder and a configuration a language, what was removed beside it."""
    write_parquet(folder / "data/yor_Latn/train/000_00000.parquet", text=YO, id=["1", "2"], language_score=[0.9, 0.8])
    write_parquet(folder / "data/hau_Latn/train/000_00000.parquet", text=HA, id=["1", "2"], language_score=[0.9, 0.8])
    write_parquet(folder / "data/yor_Latn_removed/train/000_00000.parquet", text=["no"], id=["1"], language_score=[0.1])
    names = ("yor_Latn", "yor_Latn_removed", "hau_Latn")
    write_readme(folder, {name: {"train": f"data/{name}/train/*.parquet"} for name in names})


def wikipedia(folder: Path) -> None:
    """wikimedia/wikipedia: a configuration is a date and a language."""
    for code, texts in (("yo", YO), ("ha", HA)):
        write_parquet(
            folder / f"20231101.{code}/train-00000-of-00001.parquet", id=["1", "2"], title=["a", "b"], text=texts
        )
    write_readme(folder, {f"20231101.{code}": {"train": f"20231101.{code}/train-*"} for code in ("yo", "ha")})


def nested(folder: Path) -> None:
    write_json(folder / "yo.jsonl.gz", [{"doc": {"text": text}, "meta": {"n": 1}} for text in YO])


def opus100(folder: Path) -> None:
    for pair, texts in (("en-yo", YO), ("en-ha", HA)):
        rows = [{"en": en, pair[3:]: text} for en, text in zip(EN, texts, strict=True)]
        write_parquet(folder / f"{pair}/train-00000-of-00001.parquet", translation=rows)
        write_parquet(folder / f"{pair}/validation-00000-of-00001.parquet", translation=rows[:1])
    splits = ("train", "validation")
    write_readme(folder, {p: {split: f"{p}/{split}-*" for split in splits} for p in ("en-yo", "en-ha")})


def flores(folder: Path) -> None:
    """facebook/flores: both languages in a row, in columns that name language and script."""
    write_parquet(folder / "eng_Latn-yor_Latn/dev.parquet", id=[1, 2], sentence_eng_Latn=EN, sentence_yor_Latn=YO)
    write_readme(folder, {"eng_Latn-yor_Latn": {"dev": "eng_Latn-yor_Latn/dev.parquet"}})


def flores_plus(folder: Path) -> None:
    """openlanguagedata/flores_plus: a configuration a language, whose rows translate each other's."""
    for code, texts in (("eng_Latn", EN), ("yor_Latn", YO), ("hau_Latn", HA[:1])):
        write_parquet(folder / f"dev/{code}.parquet", id=list(range(len(texts))), text=texts)
    write_readme(folder, {code: {"dev": f"dev/{code}.parquet"} for code in ("eng_Latn", "yor_Latn", "hau_Latn")})


def flores_lines(folder: Path) -> None:
    for code, texts in (("eng_Latn", EN), ("yor_Latn", [*YO[:1], " "])):
        write_json(folder / f"dev/{code}.jsonl", [{"sentence": text} for text in texts])
    write_readme(folder, {code: {"dev": f"dev/{code}.jsonl"} for code in ("eng_Latn", "yor_Latn")})


def in_cache(folder: Path) -> None:
    """As the hub's own client keeps a data set."""
    flores_plus(folder / "datasets--org--name/snapshots/abc")
    (folder / "datasets--org--name/refs").mkdir()
    (folder / "datasets--org--name/refs/main").write_text("abc")


def lafand(folder: Path) -> None:
    rows = [{"translation": {"en": en, "yo": yo}} for en, yo in zip(EN, YO, strict=True)]
    write_json(folder / "data/en-yor/train.json", rows)
    write_json(folder / "data/en-hau/train.json", [{"translation": {"en": "a", "ha": "b"}}])
    write_readme(folder, {f"en-{code}": {"train": f"data/en-{code}/train.json"} for code in ("yor", "hau")})


def array(folder: Path) -> None:
    write_json(folder / "train.json", [{"en": en, "yo": yo} for en, yo in zip(EN, YO, strict=True)], is_array=True)


def csv_texts(folder: Path) -> None:
    (folder / "train.csv").write_text('id,content\n1,"Ẹ káàárọ̀ o."\n2,Bawo ni?\n', encoding="utf-8")


def saved_splits(folder: Path) -> None:
    data = datasets.Dataset.from_dict({"text": YO})
    datasets.DatasetDict({"train": data, "validation": data.select([1])}).save_to_disk(str(folder / "x"))


def saved_pairs(folder: Path) -> None:
    rows = [{"translation": {"eng": en, "yor": yo}} for en, yo in zip(EN, YO, strict=True)]
    datasets.Dataset.from_list(rows).save_to_disk(str(folder / "x"))


PAIRS = list(zip(EN, YO, strict=True))
READ = [
    (fineweb, {}, YO),
    (fineweb, {"config": "yor_Latn_removed"}, ["no"]),
    (fineweb, {"language": "ha"}, HA),
    (wikipedia, {}, YO),
    (nested, {"column": "doc.text"}, YO),
    (csv_texts, {"column": "content"}, YO),
    (saved_splits, {"paths": ["x"]}, YO),
    (saved_splits, {"paths": ["x"], "split": "dev"}, YO[1:]),
    (opus100, {"languages": ["en", "yo"]}, PAIRS),
    (opus100, {"languages": ["yo", "en"], "split": "validation"}, [PAIRS[0][::-1]]),
    (flores, {"languages": ["en", "yo"], "split": "dev"}, PAIRS),
    (flores_plus, {"languages": ["en", "yo"], "split": "dev"}, PAIRS),
    (flores_plus, {"languages": ["yo", "en"], "split": "dev"}, [pair[::-1] for pair in PAIRS]),
    (in_cache, {"languages": ["en", "yo"], "split": "dev", "paths": ["datasets--org--name"]}, PAIRS),
    (lafand, {"languages": ["en", "yo"]}, PAIRS),
    (array, {"languages": ["en", "yo"]}, PAIRS),
    (saved_pairs, {"languages": ["en", "yo"], "paths": ["x"]}, PAIRS),
]


@pytest.mark.parametrize(("write", "given", "expected"), READ, ids=[f"{w.__name__} {g}" for w, g, _ in READ])
def test_split_of_a_data_set(tmp_path: Path, write: Any, given: dict[str, Any], expected: list[Any]) -> None:
    write(tmp_path)
    kind = ParallelCorpus if "languages" in given else Corpus
    given = {"format": "hf", "paths": [str(tmp_path)]} | ({} if "languages" in given else {"language": "yo"}) | given
    assert texts_of(kind.model_validate(given), tmp_path) == expected


REFUSED = [
    (fineweb, {"language": "de"}, "{0} has no configuration of de by name: yor_Latn, yor_Latn_removed, hau_Latn. Name "
     "one with config."),
    (fineweb, {"split": "dev"}, "{0} has the splits train, none of which is 'dev'. Name one of them."),
    (fineweb, {"config": "yor"}, "{0} cannot be read as a snapshot of a Hugging Face data set: BuilderConfig 'yor' "
     "not found. Available: ['yor_Latn', 'yor_Latn_removed', 'hau_Latn']"),
    (fineweb, {"column": "body"}, "{0}/data/yor_Latn/train/000_00000.parquet has no column of text 'body'; it has "
     "text, id; of other kinds language_score (number)."),
    (flores, {"languages": ["en", "de"], "split": "dev"}, "{0}/eng_Latn-yor_Latn/dev.parquet has no column of text "
     "'de'; it has sentence_eng_Latn, sentence_yor_Latn; of other kinds id (number)."),
    (flores_plus, {"languages": ["en", "ha"], "split": "dev"}, "{0}/dev/eng_Latn.parquet and {0}/dev/hau_Latn.parquet "
     "do not have the same rows (from row 2 on), so that no row can be trusted to translate the other. Fetch or write "
     "them together again."),
    (lambda _: None, {"paths": ["absent"]}, "{0}/absent is no folder here, and no id of a data set of the Hugging Face "
     "hub (org/name)."),
]  # fmt: skip


@pytest.mark.parametrize(("write", "given", "message"), REFUSED)
def test_what_a_data_set_lacks_is_said(tmp_path: Path, write: Any, given: dict[str, Any], message: str) -> None:
    write(tmp_path)
    kind = ParallelCorpus if "languages" in given else Corpus
    given = {"format": "hf", "paths": [str(tmp_path)]} | ({} if "languages" in given else {"language": "yo"}) | given
    with pytest.raises(XalignError) as caught:
        texts_of(kind.model_validate(given), tmp_path)
    assert str(caught.value) == message.format(tmp_path)


def test_a_side_that_is_empty_is_a_bad_row_of_two_files(tmp_path: Path) -> None:
    flores_lines(tmp_path)
    given = {"format": "hf", "paths": [str(tmp_path)], "languages": ["en", "yo"], "split": "dev"}
    source = ParallelCorpus.model_validate(given | {"columns": ["sentence", "sentence"]})
    reader, files = find_source(source, tmp_path)
    pair, bad = read(reader, files, source.languages, columns=source.read_columns)
    assert isinstance(pair, Pair)
    assert pair.texts == PAIRS[0]
    assert bad == BadRow(files[1], 2, "document is empty")


def test_data_set_of_a_task_by_its_id_or_its_folder_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_cache(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    expected = tmp_path / "datasets--org--name/snapshots/abc"
    assert as_data("org/name") == expected
    assert as_data("datasets--org--name") == expected
    assert as_data(tmp_path / "other") == tmp_path / "other"
    assert sorted(find_tables(expected)) == [(code, "dev", expected / f"dev/{name}.parquet") for code, name in CODES]
    with pytest.raises(DataError, match="org/absent is no file or folder here, and cannot be loaded as a data set"):
        as_data("org/absent")


def test_a_revision_without_a_network_is_the_commit_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `datasets` puts what it loads from the hub: a folder that is called by the commit."""
    commit = "0123456789abcdef" * 2 + "01234567"
    snapshot = tmp_path / "name"
    snapshot.mkdir()
    (snapshot / "train.jsonl").write_text('{"text": "yan"}\n')
    made = Path(
        datasets.load_dataset(str(snapshot), cache_dir=str(tmp_path / "made"))["train"].cache_files[0]["filename"]
    )
    held = tmp_path / "cache" / "org___name" / "default" / "0.0.0" / commit
    shutil.copytree(made.parent, held)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for revision in (None, commit):
        assert find_split("org/name", ["yo"], None, "train", revision).files == [str(held / made.name)]
    with pytest.raises(DataError) as caught:
        find_split("org/name", ["yo"], None, "train", "v2")
    assert str(caught.value) == (
        f"org/name: HF_HUB_OFFLINE is set, and the cache holds the commit {commit}, which may not be the revision v2. "
        "Unset it once, or name that commit."
    )


def test_keys_of_hf_belong_to_that_format() -> None:
    with pytest.raises(ValueError, match="split is of format hf, not of csv; leave it out"):
        Corpus.model_validate({"format": "csv", "language": "yo", "paths": ["x"], "split": "dev"})
    with pytest.raises(ValueError, match="format hf takes one path"):
        Corpus.model_validate({"format": "hf", "language": "yo", "paths": ["x", "y"]})
    with pytest.raises(ValueError, match="format text has no columns; leave out column"):
        Corpus.model_validate({"format": "text", "language": "yo", "paths": ["x"], "column": "y"})
    plain = Corpus.model_validate({"format": "text", "language": "yo", "paths": ["x"]})
    assert Corpus.model_validate(plain.model_dump()) == plain  # a saved recipe holds every key


def test_recipe_of_many_languages_names_one_data_set(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    fineweb(tmp_path / "web")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "extends: tiny/mlm\n"
        f"data:\n  root: {tmp_path}\n  parallel: []\n  dictionaries: []\n  tests: []\n"
        "  corpora:\n    - {format: hf, languages: [yo, ha], paths: [web]}\n"
    )
    data = load_recipe(str(recipe)).config.data
    found, *_ = find_sources(data, tmp_path)
    assert [(one.pool, one.format, Path(one.files[0]).parts[-3]) for one in found] == [
        ("text/yo", "parquet", "yor_Latn"),
        ("text/ha", "parquet", "hau_Latn"),
    ]


def test_hub_out_of_reach_is_said_within_seconds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xalign_ray", "data", "read", "--format", "hf", "org/name", "--languages", "yo"]
    for variable, words in (("HF_ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", "1")):
        done = subprocess.run(
            command,
            env={**os.environ, variable: words, "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "org/name is no file or folder here, and cannot be loaded as a data set of the" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("names", "languages", "chosen"),
    [
        (["default"], ["yo"], "default"),
        (["abc"], ["yo"], "abc"),
        (["en-yo", "en-ha"], ["yo", "en"], "en-yo"),
        (["eng_Latn-yor_Latn", "eng_Latn-hau_Latn"], ["en", "ha"], "eng_Latn-hau_Latn"),
        (["zho_Hans", "zho_Hant"], ["zh"], "zho_Hans"),
        (["zho_Hans", "zho_Hant"], ["zh-Hant"], "zho_Hant"),
        (["PAN-X.yo", "PAN-X.de"], ["yo"], "PAN-X.yo"),
        (["default", "other"], ["yo"], "default"),
        (["20220301.yo", "20231101.yo"], ["yo"], None),
    ],
)
def test_configuration_that_is_called_by_the_languages(
    names: list[str], languages: list[str], chosen: str | None
) -> None:
    if chosen:
        assert choose_config("x", names, languages) == chosen
    else:
        with pytest.raises(
            ConfigError, match=r"x has several configurations of yo by name: 20220301\.yo, 20231101\.yo"
        ):
            choose_config("x", names, languages)


def test_codes_and_columns_that_mean_one_language() -> None:
    same = [("yo", "yo-Latn"), ("zh", "zh-Hans"), ("zh-TW", "zh-Hant"), ("de", "de-CH"), ("sr", "sr-Cyrl")]
    other = [("zh", "zh-Hant"), ("sr", "sr-Latn"), ("ar", "arz"), ("en", "en-x-inv"), ("en-x-inv", "en-x-syn")]
    assert all(same_language(*pair) for pair in same)
    assert not any(same_language(*pair) for pair in other)
    assert language_of_name("sentence_eng_Latn") == "en"
    assert column_of(["sentence_eng_Latn", "sentence_yor_Latn"], "yo") == "sentence_yor_Latn"
    assert column_of(["id", "text"], "id") == "id"  # what is asked for by its name
    assert column_of(["translation.eng", "translation.yor"], "en") == "translation.eng"
    assert column_of(["text"], "en") == ""
