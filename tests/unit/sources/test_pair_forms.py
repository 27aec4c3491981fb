"""Forms of pairs that are found by looking: each is read, or answered in a sentence that names the key."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from tests.unit.sources.pair_texts import (
    DE,
    EN,
    FR,
    IDS,
    PAIRS,
    SCORES,
    both,
    csv_text,
    po_text,
    table,
    tarred,
    tmx_text,
    tsv_text,
    workbook,
    write_parquet,
    write_texts,
    xliff2_text,
    xliff_text,
    zipped,
)
from xalign_ray.errors import XalignError
from xalign_ray.sources.formats import find_source, read
from xalign_ray.sources.pair_forms import fetch_dataset, look_at_pairs, read_pairs
from xalign_ray.sources.records import Pair


def json_lines(make: Callable[[str, str], dict]) -> str:
    return "".join(json.dumps(make(*pair), ensure_ascii=False) + "\n" for pair in PAIRS)


def json_array(make: Callable[[str, str], dict]) -> str:
    return json.dumps([make(*pair) for pair in PAIRS], indent=1)


# name of the file, its content, and what is said of it after the name.
FILES: dict[str, tuple[str, str | bytes, str]] = {
    "csv": ("x.csv", csv_text(table("en,de", EN, DE)), "CSV, columns en and de, 8 pairs"),
    "rows that say their languages": (
        "x.tsv",
        "".join(f"{n}\teng\t{en}\t{n + 90}\tdeu\t{de}\n" for n, (en, de) in enumerate(PAIRS)),
        "TSV without a header, columns 3 (en) and 6 (de), 8 pairs; left out: 1, 2, 4, 5",
    ),
    "in and out": ("x.csv", csv_text(table("in,out", EN, DE)), "CSV, columns in (en) and out (de), 8 pairs"),
    "swapped order": ("x.csv", csv_text(table("de,en", DE, EN)), "CSV, columns de and en, 8 pairs"),
    "semicolons": ("x.csv", csv_text(table("en,de", EN, DE), delimiter=";"), "CSV, columns en and de, 8 pairs"),
    "bom": ("x.csv", "\ufeff" + csv_text(table("en,de", EN, DE)), "CSV, columns en and de, 8 pairs"),
    "windows": ("x.csv", csv_text(table("en,de", EN, DE), lineterminator="\r\n"), "CSV, columns en and de, 8 pairs"),
    "utf-16": ("x.csv", csv_text(table("en,de", EN, DE)).encode("utf-16"), "CSV, columns en and de, 8 pairs"),
    "quoted newlines": (
        "x.csv",
        csv_text(table("en,de", [line.replace(" ", "\n", 1) for line in EN], DE)),
        "CSV, columns en and de, 8 pairs",
    ),
    "source": (
        "x.csv",
        csv_text(table("source,target", EN, DE)),
        "CSV, columns source (en) and target (de), 8 pairs",
    ),
    "Source": (
        "x.csv",
        csv_text(table("Source,Target", DE, EN)),
        "CSV, columns Source (de) and Target (en), 8 pairs",
    ),
    "anchor": (
        "x.csv",
        csv_text(table("anchor,positive,negative", EN, DE, DE[::-1])),
        "CSV, columns anchor (en) and positive (de), 8 pairs; negatives negative",
    ),
    "sentence1": (
        "x.csv",
        csv_text(table("sentence1,sentence2", EN, DE)),
        "CSV, columns sentence1 (en) and sentence2 (de), 8 pairs",
    ),
    "src": ("x.tsv", tsv_text(table("src,tgt", EN, DE)), "TSV, columns src (en) and tgt (de), 8 pairs"),
    "text_en": (
        "x.csv",
        csv_text(table("text_en,text_de", EN, DE)),
        "CSV, columns text_en (en) and text_de (de), 8 pairs",
    ),
    "english": (
        "x.csv",
        csv_text(table("English,German", EN, DE)),
        "CSV, columns English (en) and German (de), 8 pairs",
    ),
    "de_DE": ("x.csv", csv_text(table("de_DE,en-US", DE, EN)), "CSV, columns de_DE (de) and en-US (en), 8 pairs"),
    "flores": (
        "x.csv",
        csv_text(table("eng_Latn,deu_Latn", EN, DE)),
        "CSV, columns eng_Latn (en) and deu_Latn (de), 8 pairs",
    ),
    "id and score": (
        "x.csv",
        csv_text(table("id,en,score,de", IDS, EN, SCORES, DE)),
        "CSV, columns en and de, 8 pairs; left out: id, score",
    ),
    "unknown names": ("x.csv", csv_text(table("foo,bar", EN, DE)), "CSV, columns foo (en) and bar (de), 8 pairs"),
    "duplicate rows": (
        "x.csv",
        csv_text(table("en,de", *(column * 20 for column in (EN, DE)))),
        "CSV, columns en and de, 160 pairs",
    ),
    "id of letters": (
        "x.csv",
        csv_text(table("id,en,de", [*"abcdefgh"], EN, DE)),
        "CSV, columns en and de, 8 pairs; left out: id",
    ),
    "blanks after commas": (
        "x.csv",
        csv_text(table("en, de", EN, DE), quoting=csv.QUOTE_ALL).replace('","', '", "'),
        "CSV, columns en and de, 8 pairs",
    ),
    "pandas index": (
        "x.csv",
        csv_text(table(",en,de", [*map(str, range(8))], EN, DE)),
        "CSV, columns en and de, 8 pairs",
    ),
    "no header": ("x.csv", csv_text(table("", EN, DE)), "CSV without a header, columns 1 (en) and 2 (de), 8 pairs"),
    "no header, id": (
        "x.csv",
        csv_text(table("", IDS, DE, EN)),
        "CSV without a header, columns 2 (de) and 3 (en), 8 pairs; left out: 1",
    ),
    "tsv": ("x.tsv", tsv_text(table("en,de", EN, DE)), "TSV, columns en and de, 8 pairs"),
    "tsv, no header": (
        "x.tsv",
        tsv_text(table("", EN, DE)),
        "TSV without a header, columns 1 (en) and 2 (de), 8 pairs",
    ),
    "tsv called txt": ("x.txt", tsv_text(table("en,de", EN, DE)), "TSV, columns en and de, 8 pairs"),
    "quoted tsv": (
        "x.tsv",
        csv_text(table("en,de", EN, DE), delimiter="\t"),
        "TSV, columns en and de, 8 pairs",
    ),
    "csv.gz": ("x.csv.gz", gzip.compress(csv_text(table("en,de", EN, DE)).encode()), "CSV, columns en and de, 8 pairs"),
    "tsv.bz2": (
        "x.tsv.bz2",
        bz2.compress(tsv_text(table("en,de", EN, DE)).encode()),
        "TSV, columns en and de, 8 pairs",
    ),
    "csv.zst": (
        "x.csv.zst",
        pyarrow.compress(csv_text(table("en,de", EN, DE)).encode(), "zstd", asbytes=True),
        "CSV, columns en and de, 8 pairs",
    ),
    "jsonl": ("x.jsonl", json_lines(lambda en, de: {"en": en, "de": de}), "JSON lines, columns en and de, 8 pairs"),
    "translation": (
        "x.json",
        json_lines(lambda en, de: {"id": "1", "translation": {"en": en, "de": de}}),
        "JSON lines, columns translation.en (en) and translation.de (de), 8 pairs; left out: id",
    ),
    "anchor lines": (
        "x.jsonl",
        json_lines(lambda en, de: {"anchor": en, "positive": de}),
        "JSON lines, columns anchor (en) and positive (de), 8 pairs",
    ),
    "answers and negatives in lists": (
        "x.jsonl",
        json_lines(lambda en, de: {"query": en, "pos": [de], "neg": [de[::-1], "x"], "ids": [1]}),
        "JSON lines, columns query (en) and pos (de), 8 pairs; negatives neg; left out: ids",
    ),
    "numbers called neg": (
        "x.jsonl",
        json_lines(lambda en, de: {"en": en, "de": de, "neg": len(en) / 100}),
        "JSON lines, columns en and de, 8 pairs; left out: neg",
    ),
    "json array": ("x.json", json_array(lambda en, de: {"en": en, "de": de}), "JSON array, columns en and de, 8 pairs"),
    "tmx": (
        "x.tmx",
        tmx_text([{"en-US": en, "de_DE": de} for en, de in PAIRS]),
        "TMX, languages en and de, 8 pairs",
    ),
    "opus": (
        "x.zip",
        zipped({"x.de-en.en": "\n".join(EN), "x.de-en.de": "\n".join(DE), "LICENSE": "free"}),
        "archive of Moses files, languages en and de",
    ),
    "zip of a Mac": (
        "x.zip",
        zipped({"x.en": "\n".join(EN), "x.de": "\n".join(DE), "__MACOSX/._x.en": "\0", "._x.de": "\0"}),
        "archive of Moses files, languages en and de",
    ),
    "tar.gz": (
        "x.tar.gz",
        tarred({"x/._t.en": "\0", "x/t.en": "\n".join(EN), "x/t.de": "\n".join(DE)}),
        "archive of Moses files, languages en and de",
    ),
    "tar": (
        "x.tar",
        gzip.decompress(tarred({"t.de": "\n".join(DE), "t.en": "\n".join(EN)})),
        "archive of Moses files, languages de and en",
    ),
    "excel": (
        "x.xlsx",
        workbook(table("id,Source,Target", IDS, EN, DE)),
        "Excel, columns Source (en) and Target (de), 8 pairs; left out: id",
    ),
    "po": ("django.po", po_text(PAIRS, Language="de_DE"), "PO, languages en and de, 8 pairs"),
    "po by its name": ("app-de.po", po_text(PAIRS), "PO, languages en and de, 8 pairs"),
    "po.gz": ("x.po.gz", gzip.compress(po_text(PAIRS, Language="de").encode()), "PO, languages en and de, 8 pairs"),
    "xliff": ("x.xlf", xliff_text([both(*pair) for pair in PAIRS]), "XLIFF, languages en and de, 8 pairs"),
    "xliff 2": ("x.xliff", xliff2_text([both(*pair) for pair in PAIRS]), "XLIFF, languages en and de, 8 pairs"),
    "xliff without a target language": (
        "x.xlf",
        xliff_text([both(*pair) for pair in PAIRS], 'source-language="en"'),
        "XLIFF, columns source (en) and target (de), 8 pairs",
    ),
}


def read_all(paths: list[Path], **options: list[str]) -> list[tuple[str, str, str, str]]:
    """Language, text, language, text of each pair, the first language by its name first."""
    found = []
    for corpus in look_at_pairs([str(path) for path in paths], **options):
        for texts in read_pairs(corpus):
            (a, x), (b, y) = sorted(zip(corpus.languages, texts, strict=True))
            found.append((a, x, b, y))
    return found


EXPECTED = [("de", de, "en", en) for en, de in PAIRS]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_and_its_form_is_logged(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    file, content, said = FILES[name]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert read_all([path]) == EXPECTED * (20 if name == "duplicate rows" else 1)
    assert capfd.readouterr().err == f"{path}: {said}\n"


def saved(folder: Path) -> list[Path]:
    datasets.Dataset.from_dict({"anchor": EN, "positive": DE}).save_to_disk(str(folder / "x"), num_shards=2)
    return [folder / "x"]


def test_a_data_set_in_the_cache_of_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.csv").write_text(csv_text(table("en,de", EN, DE)))
    (tmp_path / "pairs" / "test.csv").write_text(csv_text(table("en,de", EN[:2], DE[:2])))
    for split, count in (("train", 8), ("test", 2)):
        (file,) = fetch_dataset(str(tmp_path / "pairs"), None, split)
        assert file.startswith(str(tmp_path / "cache"))
        assert read_all([Path(file)]) == EXPECTED[:count]
    with pytest.raises(XalignError, match=r"has the splits train, test, none of which is 'dev'\."):
        fetch_dataset(str(tmp_path / "pairs"), None, "dev")


def test_a_data_set_that_is_not_on_the_hub_or_cannot_be_reached(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(XalignError) as caught:
        look_at_pairs(["no-such-owner-9f2c/no-such-data"])
    words = "no-such-owner-9f2c/no-such-data is no file or folder here, and cannot be loaded as a data set of the"
    assert str(caught.value).startswith(words)
    assert "Retrying" not in capfd.readouterr().err


def saved_splits(folder: Path) -> list[Path]:
    rows = [{"translation": {"en": en, "de": de}} for en, de in PAIRS]
    splits = {"train": datasets.Dataset.from_list(rows), "test": datasets.Dataset.from_list(rows[:3])}
    datasets.DatasetDict(splits).save_to_disk(str(folder / "x"))
    return [folder / "x"]


def texts(**files: list[str]) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        write_texts(folder / "x", **files)
        return [folder / "x"]

    return write


def two(**files: list[str]) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        write_texts(folder / "x", **files)
        return [folder / "x" / name.replace("__", "-").replace("_", ".") for name in files]

    return write


def parquet_of(**columns: list) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        write_parquet(folder / "x.parquet", columns)
        return [folder / "x.parquet"]

    return write


def shards(folder: Path) -> list[Path]:
    (folder / "x" / "data").mkdir(parents=True)
    (folder / "x" / "README.md").write_text("# pairs")
    (folder / "x" / ".gitattributes").write_text("*.parquet lfs")
    for number, half in enumerate((slice(0, 4), slice(4, 8))):
        name = f"train-{number:05d}-of-00002.parquet"
        write_parquet(folder / "x" / "data" / name, {"en": EN[half], "de": DE[half]})
    write_parquet(folder / "x" / "data" / "test-00000-of-00001.parquet", {"en": EN[:2], "de": DE[:2]})
    return [folder / "x"]


def locales(folder: Path) -> list[Path]:
    for name, text in {
        "de/LC_MESSAGES/a.po": po_text(PAIRS[:3]),
        "de/LC_MESSAGES/b.po": po_text(PAIRS[3:]),
        "de/LC_MESSAGES/b.mo": "\xde\x12\x04\x95",
        "en/LC_MESSAGES/a.po": po_text([(en, "") for en in EN], Language="en"),
    }.items():
        (folder / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "x" / name).write_text(text, encoding="utf-8")
    return [folder / "x"]


def folder_of(**files: str | bytes) -> Callable[[Path], list[Path]]:
    """Writes files below a folder; __ in a name is a slash, _ a dot."""

    def write(folder: Path) -> list[Path]:
        for name, content in files.items():
            path = folder / "x" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [folder / "x"]

    return write


HALVES = [csv_text(table("en,de", EN[half], DE[half])) for half in (slice(0, 4), slice(4, 8))]
PYC = b"\xa7\r\r\n\0\0\0\0\x96\xe3\xfa\x68\xff\0\0\0\xe3\n\x80\xff"

PLACES: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "en.txt de.txt": (
        two(en_txt=EN, de_txt=DE),
        "en.txt and 1 more: 2 line-aligned files, languages en and de, 8 pairs",
    ),
    "train.en train.de": (
        two(train_en=EN, train_de=DE),
        "train.en and 1 more: 2 line-aligned files, languages en and de",
    ),
    "source.txt target.txt": (
        two(source_txt=EN, target_txt=DE),
        "source.txt and 1 more: 2 line-aligned files, languages source.txt (en) and target.txt (de), 8 pairs",
    ),
    "Moses folder": (
        texts(LICENSE=["free"], News_de__en_de=DE, News_de__en_en=EN),
        "News.de-en.de and 1 more: 2 line-aligned files, languages de and en, 8 pairs",
    ),
    "Moses folder with splits": (
        texts(train_en=EN, train_de=DE, test_en=EN[:3], test_de=DE[:3], dev_en=EN[:2], dev_de=DE[:2]),
        "languages de and en",
    ),
    "Tatoeba folder": (texts(tatoeba_deu__eng_deu=DE, tatoeba_deu__eng_eng=EN), "languages de and en, 8 pairs"),
    "parquet": (parquet_of(id=[*range(8)], de=DE, en=EN), "Parquet, columns de and en, 8 pairs"),
    "parquet of scores": (
        parquet_of(en=EN, de=DE, score=[1.0] * 8, tags=[["a"]] * 8),
        "Parquet, columns en and de, 8 pairs; left out: score, tags",
    ),
    "parquet struct": (
        parquet_of(translation=[{"en": en, "de": de} for en, de in PAIRS]),
        "Parquet, columns translation.en (en) and translation.de (de), 8 pairs",
    ),
    "parquet anchor": (parquet_of(anchor=EN, positive=DE), "columns anchor (en) and positive (de), 8 pairs"),
    "folder of locales": (locales, "a.po and 1 more: PO, languages en and de, 8 pairs"),
    "a file of another split": (
        folder_of(a_csv=HALVES[0], b_csv=HALVES[1], latest_test_export_csv=csv_text(table("en,de", EN[:2], DE[:2]))),
        "Left out of the folder: 1 (latest.test.export.csv): of the split test\n",
    ),
    "conf/locale of Django": (
        folder_of(
            de__LC_MESSAGES__django_po=po_text(PAIRS, Language="de"),
            de__formats_py="DATE_FORMAT = 'j. F Y'\n",
            de__pycache__formats_cpython_pyc=PYC,
        ),
        "Left out of the folder: 1 (formats.cpython.pyc): is ",
    ),
    "with files of other things": (
        folder_of(
            train_csv=HALVES[0],
            more_csv=HALVES[1],
            vocab_txt="the\nhouse\n",
            counts_csv=csv_text(table("n,m", IDS, IDS)),
            image_png=b"\x89PNG\r\n",
        ),
        "Left out of the folder: 1 (counts.csv): it has no two columns of text; 1 (image.png): is no plain text, but "
        "binary, XML or JSON; 1 (vocab.txt): plain text without a translation\n",
    ),
    "clone of the hub": (shards, "train-00000-of-00002.parquet and 1 more: Parquet, columns en and de"),
    "saved data set": (saved, "saved data set, columns anchor (en) and positive (de)"),
    "saved splits": (saved_splits, "saved data set, columns translation.en (en) and translation.de (de), 8 pairs"),
}


@pytest.mark.parametrize("name", PLACES)
def test_files_and_folders_are_read(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    write, said = PLACES[name]
    assert sorted(read_all(write(tmp_path))) == sorted(EXPECTED)
    assert said in capfd.readouterr().err


def test_a_split_of_a_folder(tmp_path: Path) -> None:
    write_texts(tmp_path, train_en=EN, train_de=DE, test_en=EN[:3], test_de=DE[:3])
    (test,) = look_at_pairs([str(tmp_path)], split="test")
    assert len(list(read_pairs(test))) == 3
    (only,) = look_at_pairs([str(path) for path in saved(tmp_path / "other")], split="test")
    assert len(only.paths) == 2


THREE = list(zip(EN, DE, FR, strict=True))
SEVERAL = {
    "csv": lambda folder: (folder / "x.csv").write_text(csv_text(table("fr,id,en,de", FR, IDS, EN, ["", *DE[1:]]))),
    "tmx": lambda folder: (folder / "x.tmx").write_text(
        tmx_text(
            [
                {"en": EN[0], "fr": FR[0]},
                *({"fr": c, "en": a, "de": b} for a, b, c in THREE[1:]),
            ]
        )
    ),
    "texts": lambda folder: write_texts(folder, x_fr=FR, x_en=EN, x_de=["", *DE[1:]]),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_languages_are_paired_with_the_commonest(tmp_path: Path, name: str) -> None:
    SEVERAL[name](tmp_path)
    corpora = look_at_pairs([str(tmp_path)])
    assert sorted(corpus.languages for corpus in corpora) == [("en", "de"), ("en", "fr")]
    assert {corpus.languages[1]: len(list(read_pairs(corpus))) for corpus in corpora} == {"de": 7, "fr": 8}
    (wanted,) = look_at_pairs([str(tmp_path)], languages=["de", "fr"])
    assert wanted.languages == ("de", "fr")


def test_a_row_with_several_answers_is_a_pair_each_with_all_its_negatives(tmp_path: Path) -> None:
    answers = [[de, de.upper()] for de in DE]
    wrong = [[de, "", "NULL"] for de in DE[1:] + DE[:1]]
    columns = {"query": EN, "pos": answers, "neg": wrong, "negative_2": EN[::-1]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    expected = [
        ((en, answer), (other, some[0]))
        for en, both, some, other in zip(EN, answers, wrong, EN[::-1], strict=True)
        for answer in both
    ]
    for file in ("x.jsonl", "x.parquet"):
        (corpus,) = look_at_pairs([str(tmp_path / file)], ["en", "de"])
        assert corpus.negatives == ("negative_2", "neg")  # lists behind texts
        reader, paths = find_source(corpus, tmp_path)
        records = read(reader, paths, corpus.languages, columns=corpus.read_columns)
        pairs = [record for record in records if isinstance(record, Pair)]
        assert [(pair.texts, pair.negatives) for pair in pairs] == expected
    (corpus,) = look_at_pairs([str(tmp_path / "x.jsonl")], columns=["query", "negative_2"])
    assert corpus.negatives == ("neg",)  # a side is no rival of itself
