"""The catalogue itself: what it lists is what recipes name, and its files are read by a source or a task."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parity.file_server import Site, tarred, zipped
from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.sources import fetch as catalogue_module
from xalign_ray.sources.fetch import catalogue, describe, downloads_of, fetch, needs_of
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import Pair
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.task import TunedTask

MLQA, XQUAD = (TUNED_TASKS[name] for name in ("mlqa", "xquad"))

REAL = catalogue_module.FILE
ASKED = {"id": "1", "question": "Who barks?", "answers": [{"text": "A dog", "answer_start": 0}]}
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": "A dog barks.", "qas": [ASKED]}]}]}).encode()
OF_MLQA = [f"{code}_squad-translate-train-{split}-v1.1.json" for code in ("ar", "de", "es", "hi", "vi", "zh")
           for split in ("train", "dev")]  # fmt: skip
NEWS = {"README": b"", "GlobalVoices.en-sw.en": b"News.\n", "GlobalVoices.en-sw.sw": b"Habari.\n"}
TOLD = '{"english": "Dogs bark.", "chinese": "狗叫。"}\n'.encode()
WIKITEXT = {f"wikitext-103-raw__wiki.{split}.raw": b" \n = Dog = \n \n Dogs bark . \n" for split in
            ("train", "valid", "test")}  # fmt: skip


def questions(*folders: Path, task: TunedTask[Any] = MLQA) -> dict[str, int]:
    """How many questions the task finds, by split and language."""
    found = task.find(folders)
    return {f"{split} {code}": len(task.read(path, code)) for split in found for code, path in found[split].items()}


def texts(format_: str, *paths: Path, languages: str) -> list[tuple[str, ...]]:
    records = read(format_, [str(path) for path in paths], languages.split())
    return [one.texts if isinstance(one, Pair) else one.paragraphs for one in records]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "languages", "served", "get", "expected"),
    [
        ("squad", [], {f"/SQuAD-explorer/dataset/{split}-v1.1.json": SQUAD for split in ("train", "dev")},
         lambda out: questions(out / "squad"), {"train en": 1, "dev en": 1}),
        ("xquad", ["en", "zh"], {f"/google-deepmind/xquad/master/xquad.{code}.json": SQUAD for code in ("en", "zh")},
         lambda out: questions(out / "xquad", task=XQUAD), {"test en": 1, "test zh": 1}),
        ("squad-translate-train", ["de"],
         {"/xtreme_translations/SQuAD/translate-train/squad.translate.train.en-de.json": SQUAD},
         lambda out: questions(out / "squad-translate-train"), {"train de": 1}),
        ("mlqa-translate-train", [],
         {"/MLQA/mlqa-translate-train.tar.gz": tarred(**{f"mlqa-translate-train__{one}": SQUAD for one in OF_MLQA})},
         lambda out: questions(out / "mlqa-translate-train"),
         {f"train {code}": 1 for code in ("ar", "de", "es", "hi", "vi", "zh")}),
        ("globalvoices", [], {"/OPUS-GlobalVoices/v2018q4/moses/en-sw.txt.zip": zipped(**NEWS)},
         lambda out: texts("moses", *(out / f"opus/GlobalVoices.en-sw.{code}" for code in ("en", "sw")),
                           languages="en sw"), [("News.", "Habari.")]),
        ("translation2019zh", [], {"/nlp_chinese_corpus/translation2019zh.zip":
                                   zipped(**{f"translation2019zh_{split}.json": TOLD for split in ("train", "valid")})},
         lambda out: texts("jsonl", out / "translation2019zh/translation2019zh_train.json", languages="en zh"),
         [("Dogs bark.", "狗叫。")]),
        ("wikitext-103", [], {"/wikitext-103-raw-v1.zip": zipped(**WIKITEXT)},
         lambda out: texts("text", out / "wikitext-103/wiki.train.raw", languages="en"),
         [("= Dog =",), ("Dogs bark .",)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_fetched_is_read_by_a_source_or_a_task(
    tmp_path: Path, site: Site, listed: dict, name: str, languages: list[str], served: dict[str, bytes],
    get: Callable[[Path], object], expected: object,
) -> None:  # fmt: skip
    """The catalogue's own entries, but for the host and the sums; the files are of their publishers' shapes."""
    site.files |= served
    entries = yaml.safe_load(re.sub(r"https?://[^/]+", site.address, REAL.read_text(encoding="utf-8")))
    listed[name] = entries[name] | {"sums": {}}
    fetch(name, tmp_path, languages, lambda _: None)
    assert get(tmp_path) == expected


def test_each_sum_is_of_an_address_of_its_entry() -> None:
    for name, entry in catalogue().items():
        assert set(entry.sums) <= {download.url.rpartition("/")[2] for download in downloads_of(name)}
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for _, sha256 in entry.sums.values())


def test_every_path_of_every_paper_recipe_is_fetched_or_made_by_a_verb() -> None:
    papers = [name for name in list_recipes() if name.startswith("papers/")]
    assert papers
    for recipe in papers:
        _, others = needs_of(recipe)
        is_derived = load_recipe(recipe).config.data.root.split("/")[0] == "derived"
        assert [path for path in others if not path.endswith(".align") and not is_derived] == []


def test_a_recipe_is_fetched_as_what_it_names() -> None:
    needs, _ = needs_of("papers/ppa-2m")
    assert list(needs) == ["wikipedia", "europarl", "multiun", "eubookshop", "iitb"]
    assert [download.files for download in needs["multiun"]] == [
        ("opus/MultiUN.ar-en.ar", "opus/MultiUN.ar-en.en"),
        ("opus/MultiUN.en-zh.en", "opus/MultiUN.en-zh.zh"),
    ]
    assert [one.url.rpartition("/")[2] for one in needs["wikipedia"]] == [
        "enwiki-latest-pages-articles-multistream.xml.bz2"
    ]


def test_the_list_names_every_entry_with_its_licence_and_every_paper_recipe() -> None:
    text = describe()
    for name, entry in catalogue().items():
        assert f"  {name} " in text
        assert f"licence: {entry.licence}" in text
    assert "papers/xlm" in text
    assert "wikipedia (15 of 103)" in text
