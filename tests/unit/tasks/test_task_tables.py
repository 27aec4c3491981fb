"""Tasks read Hugging Face data sets as they are published and saved: tags, labels and their names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from xalign_ray.errors import DataError
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.task_files import plain_language

NER, POS = (TUNED_TASKS[name] for name in ("ner", "pos"))

WORDS = [["Ade", "lọ", "sí", "Èkó"], ["Ó", "dára"]]
NER_NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def tagged(column: str, tags: list[Any], names: list[str] | None) -> Dataset:
    features = {"tokens": datasets.List(Value("string"))}
    features[column] = datasets.List(ClassLabel(names=names) if names else Value("string"))
    return Dataset.from_dict({"tokens": WORDS, column: tags}, Features(features))


def texts(names: list[str] | None, label: str, labels: list[Any], **columns: list[str]) -> Dataset:
    features: dict[str, Any] = {name: Value("string") for name in columns}
    features[label] = ClassLabel(names=names) if names else Value("string")
    return Dataset.from_dict({**columns, label: labels}, Features(features))


NAMES = tagged("ner_tags", [[1, 0, 0, 3], [0, 0]], NER_NAMES)
PARTS = tagged("upos", [["PROPN", "VERB", "ADP", "PROPN"], ["PRON", "ADJ"]], None)
XNLI = ["entailment", "neutral", "contradiction"]
SETS = {  # as they are called on the hub: task, configuration, data set, what is read of it
    "masakhane/masakhaner2": ("ner", "yor", NAMES, [("B-PER", "O", "O", "B-LOC"), ("O", "O")]),
    "xtreme PAN-X": ("ner", "PAN-X.yo", NAMES, [("B-PER", "O", "O", "B-LOC"), ("O", "O")]),
    "masakhane/masakhapos": ("pos", "yor", PARTS, [("PROPN", "VERB", "ADP", "PROPN"), ("PRON", "ADJ")]),
    "Davlan/sib200": (
        "sib", "yor_Latn", texts(None, "category", ["sports", "health"], index_id=["7", "8"], text=["a", "b"]),
        ["sports", "health"],
    ),
    "masakhane/masakhanews": (
        "masakhanews", "yor",
        texts(["business", "entertainment", "health"], "label", [0, 2], headline=["a", "b"], text=["c", "d"]),
        ["business", "health"],
    ),
    "shmuhammad/AfriSenti-twitter-sentiment": (
        "afrisenti", "yor", texts(["positive", "neutral", "negative"], "label", [2, 0], tweet=["a", "b"]),
        ["negative", "positive"],
    ),
    "facebook/xnli": (
        "xnli", "yo", texts(XNLI, "label", [0, 2], premise=["a", "b"], hypothesis=["c", "d"]),
        ["entailment", "contradiction"],
    ),
    "google-research-datasets/paws-x": (
        "pawsx", "yo", texts(["0", "1"], "label", [1, 0], sentence1=["a", "b"], sentence2=["c", "d"]), ["1", "0"],
    ),
}  # fmt: skip


def write_copy(folder: Path, config: str, data: Dataset) -> None:
    """A copy of a data set of the hub: a configuration in the README, a Parquet file a split."""
    (folder / config).mkdir(parents=True)
    lines = ["---", "configs:", f"- config_name: {config}", "  data_files:"]
    for split in ("train", "validation", "test"):
        data.to_parquet(folder / config / f"{split}-00000-of-00001.parquet")
        lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def write_saved(folder: Path, config: str, data: Dataset) -> None:
    name = plain_language(config.rsplit(".", 1)[-1])
    DatasetDict({"train": data, "validation": data, "test": data}).save_to_disk(str(folder / name))


@pytest.mark.parametrize(
    ("name", "code"),
    [("yor_Latn", "yo"), ("cat", "ca"), ("bak", "ba"), ("min", "min"), ("sh", "sh"), ("new", ""), ("dev", "")],
)
def test_names_of_configurations_that_are_languages(name: str, code: str) -> None:
    assert plain_language(name) == code


@pytest.mark.parametrize("write", [write_copy, write_saved])
@pytest.mark.parametrize("name", SETS)
def test_data_set_as_the_hub_has_it(tmp_path: Path, name: str, write: Any) -> None:
    task_name, config, data, gold = SETS[name]
    write(tmp_path, config, data)
    task = TUNED_TASKS[task_name]
    found = task.find([tmp_path])
    assert {split: list(files) for split, files in found.items()} == {
        split: ["yo"] for split in ("train", "dev", "test")
    }
    for split in found:
        examples = task.read(found[split]["yo"], "yo")
        assert [example.gold for example in examples] == gold
    if task_name in ("ner", "pos"):
        assert [list(example.words) for example in examples] == WORDS
    if task_name == "xnli":
        assert [example.texts for example in examples] == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize("ending", [".tsv", ".jsonl", ".jsonl.gz"])
def test_lines_of_a_copy_are_read_where_its_readme_says_that_they_are(tmp_path: Path, ending: str) -> None:
    rows = [("7", "sports", "a"), ("8", "health", "b")]
    names = ("index_id", "category", "text")
    tsv = "".join("\t".join(cells) + "\n" for cells in (names, *rows))
    jsonl = "".join(json.dumps(dict(zip(names, cells, strict=True))) + "\n" for cells in rows)
    content = (tsv if ending == ".tsv" else jsonl).encode()
    (folder := tmp_path / "data" / "yor_Latn").mkdir(parents=True)
    (folder / f"test{ending}").write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    config = (
        f"configs:\n- config_name: yor_Latn\n  data_files:\n  - split: test\n    path: data/yor_Latn/test{ending}\n"
    )
    (tmp_path / "README.md").write_text(f"---\n{config}---\n")
    task = TUNED_TASKS["sib"]
    found = task.find([tmp_path])
    assert [example.gold for example in task.read(found["test"]["yo"], "yo")] == ["sports", "health"]


def test_what_a_data_set_lacks_is_said(tmp_path: Path) -> None:
    def refusal(data: Dataset, task: Any = NER) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        data.to_parquet(path)
        with pytest.raises(DataError) as caught:
            task.read(path, "yo")
        return str(caught.value).removeprefix(str(path))

    numbers = Dataset.from_dict({"tokens": WORDS, "ner_tags": [[1, 0, 0, 3], [0, 0]]})
    assert refusal(numbers) == ", row 1: the tag 1 is a number, and the file does not name its tags."
    assert refusal(Dataset.from_dict({"text": ["a"]})) == ": there is no column tokens or words, only text."
    short = Dataset.from_dict({"tokens": WORDS, "ner_tags": [["O"], ["O", "O"]]})
    assert refusal(short) == ", row 1: 4 words and 1 tags."
    assert refusal(NAMES, POS) == (
        ", row 1: 'B-PER' is not one of the tags ADJ, ADP, ADV, AUX, CCONJ, DET, INTJ, NOUN, NUM, PART, "
        "PRON, PROPN, PUNCT, SCONJ, SYM, VERB, X."
    )
    pairs = Dataset.from_dict({"premise": ["a"], "label": ["neutral"]})
    assert refusal(pairs, TUNED_TASKS["xnli"]).endswith(
        "there is no column sentence2 or hypo or hypothesis, only premise, label."
    )


def test_configurations_of_a_copy_that_were_not_fetched_are_passed_over(tmp_path: Path) -> None:
    write_copy(tmp_path, "PAN-X.yo", NAMES)
    readme = (tmp_path / "README.md").read_text().removesuffix("---\n")
    other = "- config_name: PAN-X.de\n  data_files:\n  - split: test\n    path: PAN-X.de/test-*\n---\n"
    (tmp_path / "README.md").write_text(readme + other)
    assert {split: list(files) for split, files in NER.find([tmp_path]).items()} == {
        split: ["yo"] for split in ("train", "dev", "test")
    }


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['{"tokens": ["a"], "upos": ["NOUN"]}', "{"], ", line 2 is not JSON"),
        (
            ['{"tokens": ["a"], "upos": ["NOUN"]}', '{"tokens": ["a"]}'],
            ", line 2 is no object with the columns of the f",
        ),
        (['{"tokens": ["a"], "upos": ["NOUN"]}', '["a"]'], ", line 2 is no object with the columns of the first row"),
        (
            ['{"tokens": ["a"], "upos": ["NOUN"]}', '{"tokens": ["b"], "upos": null}'],
            ", row 2: upos is null",
        ),
    ],
)
def test_lines_that_are_no_rows_are_named(tmp_path: Path, lines: list[str], problem: str) -> None:
    path = tmp_path / "yo.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    with pytest.raises(DataError) as caught:
        POS.read(path, "yo")
    assert str(caught.value).startswith(f"{path}{problem}")


def test_several_files_of_a_split_and_a_hub_id_are_refused(tmp_path: Path) -> None:
    saved = DatasetDict({"train": NAMES})
    saved.save_to_disk(str(tmp_path / "yo"), num_shards={"train": 2})
    with pytest.raises(
        DataError, match=r"yo: the split train lies in 2 files\. Save it again as one \(num_shards=1\)\."
    ):
        NER.find([tmp_path])
    with pytest.raises(DataError, match="Download one of the hub first: hf download ORG/NAME --repo-type dataset"):
        NER.find([tmp_path / "masakhane" / "masakhaner2"])


def test_json_lines_of_a_copy(tmp_path: Path) -> None:
    rows = [{"words": words, "ner_tags": ["O"] * len(words)} for words in WORDS]
    (tmp_path / "yor.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    readme = "---\nconfigs:\n- config_name: yor\n  data_files:\n  - split: test\n    path: yor.jsonl\n---\n"
    (tmp_path / "README.md").write_text(readme)
    found = NER.find([tmp_path])
    assert [one.words for one in NER.read(found["test"]["yo"], "yo")] == list(map(tuple, WORDS))
