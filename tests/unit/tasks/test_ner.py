"""NER: every form that names are published in, traps and malformed rows, and scores from tuning to test."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.token_classification import Sentence

NER = TUNED_TASKS["ner"]

ROWS = [(("Karl", "B-PER"), ("Ove", "I-PER"), ("#", "O")), (("Oslo", "B-LOC"),)]
EXPECTED = [
    Sentence("0", ("Karl", "Ove", "#"), ("B-PER", "I-PER", "O"), "de"),
    Sentence("1", ("Oslo",), ("B-LOC",), "de"),
]
FORMS = {
    "de/val.conllu": lambda place, word, tag: f"{place}\t{word}\t{tag}",
    "de/dev": lambda _, word, tag: f"de:{word}\t{tag}",
    "de-dev": lambda _, word, tag: f"de:{word}\t{tag}",
    "dev-de.tsv": lambda _, word, tag: f"{word}\t{tag}",
    "deu/dev.txt": lambda _, word, tag: f"{word} {tag}",
    "masakhaner2_deu/dev.txt": lambda _, word, tag: f"{word} {tag}",
    "de_pud-ud-dev.iob2": lambda place, word, tag: f"{place + 1}\t{word}\t{tag}\t-\tstefan",
}


def write(folder: Path, name: str, end: str = "\n", head: str = "") -> Path:
    row = FORMS[name]
    blocks = ["\n".join(row(place, *pair) for place, pair in enumerate(rows)) for rows in ROWS]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((head + "\n\n".join(blocks) + "\n").replace("\n", end), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_published_form_is_found_and_read(tmp_path: Path, name: str, end: str):
    path = write(tmp_path, name, end, "\ufeff")
    assert NER.find([tmp_path]) == {"train": {}, "dev": {"de": path}, "test": {}}
    assert NER.read(path, "de") == EXPECTED


def test_comments_are_left_out_of_universal_ner_and_a_hash_is_a_word_elsewhere(tmp_path: Path):
    path = write(tmp_path, "de_pud-ud-dev.iob2", head="# newdoc id = n01\n# text = Karl Ove #\n")
    assert NER.read(path, "de") == EXPECTED
    (tmp_path / "dev-de.tsv").write_text("# 1\tO\n")
    assert NER.read(tmp_path / "dev-de.tsv", "de")[0].words == ("# 1",)


def test_iob1_is_read_as_iob2(tmp_path: Path):
    path = tmp_path / "train-en.tsv"
    path.write_text("U.N.\tI-ORG\nsees\tO\nPeru\tI-LOC\nChile\tB-LOC\n\nBaghdad\tI-LOC\nNews\tI-ORG\n")
    tags = [("B-ORG", "O", "B-LOC", "B-LOC"), ("B-LOC", "B-ORG")]
    assert [sentence.tags for sentence in NER.read(path, "en")] == tags
    measures = NER.measure(NER.read(path, "en"), tags)
    assert {name: (one.value, one.n) for name, one in measures.items()} == {"ner_f1": (1, 5), "ner_f1_strict": (1, 5)}


def test_columns_of_conll_2003_are_a_word_and_its_tag(tmp_path: Path):
    path = tmp_path / "en" / "train.txt"
    path.parent.mkdir()
    four = "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nsees VBZ I-VP O\n\n"
    path.write_text(f"{four}New York B-LOC\n10 000 km O\nin O\nOslo B-LOC\n, O\n. O\n")
    read = [(sentence.words, sentence.tags) for sentence in NER.read(path, "en")]
    assert read[0] == (("U.N.", "sees"), ("I-ORG", "O"))
    assert read[1] == (("New York", "10 000 km", "in", "Oslo", ",", "."), ("B-LOC", "O", "O", "B-LOC", "O", "O"))


def test_a_prefix_is_stripped_only_if_all_words_have_it(tmp_path: Path):
    path = tmp_path / "dev-en.tsv"
    path.write_text("en:12:30\tO\nen:\tO\n\nen:Oslo\tB-LOC\n")
    assert [sentence.words for sentence in NER.read(path, "en")] == [("12:30", ""), ("Oslo",)]
    path.write_text("en:12\tO\nOslo\tB-LOC\n")
    assert NER.read(path, "en")[0].words == ("en:12", "Oslo")


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "dev-de.tsv",
            "Oslo",
            r"line 2: not a word, a tab and its tag: 'Oslo'\. XTREME's own test files lack the tag: take",
        ),
        ("dev-de.tsv", "Oslo B-LOC", "line 2: not a word, a tab and its tag"),
        ("dev-de.tsv", "Oslo\tNOUN", "line 2: 'NOUN' is no tag of IOB, BIOES or BILOU, such as O, B-PER or I-PER."),
        ("dev-de.tsv", "Oslo\tM-LOC", "line 2: 'M-LOC' is no tag of IOB"),
        ("de/val.conllu", "Oslo\tB-LOC", "line 2: not an index, a word and its tag, parted by tabs: 'Oslo"),
        ("deu/dev.txt", "Oslo", "line 2: not a word, a space and its tag: 'Oslo'"),
        ("deu/dev.txt", "# newdoc", "line 2: 'newdoc' is no tag of IOB"),
        ("de_pud-ud-dev.iob2", "1\tOslo\tB-LOC", "line 2: not an index, a word and its tag in the five columns of"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(tmp_path: Path, name: str, row: str, message: str):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{FORMS[name](0, 'in', 'O')}\n{row}\n")
    with pytest.raises(DataError, match=re.escape(str(path)) + ", " + message):
        NER.read(path, "de")


def test_an_empty_file_and_a_folder_without_files_are_refused(tmp_path: Path):
    with pytest.raises(
        DataError, match=rf"{tmp_path}: no ner files; they are called train-en.tsv, en/train.conllu, en/train, en_"
    ):
        NER.find([tmp_path])
    (tmp_path / "dev-de.tsv").write_text("\n\n")
    with pytest.raises(DataError, match=re.escape("dev-de.tsv holds no sentence.")):
        NER.read(tmp_path / "dev-de.tsv", "de")


def test_two_files_of_one_split_are_ambiguous(tmp_path: Path):
    write(tmp_path, "dev-de.tsv")
    write(tmp_path, "de/val.conllu")
    with pytest.raises(DataError, match=r"are both dev of de; keep one"):
        NER.find([tmp_path])


def test_a_head_has_both_tags_of_a_kind_that_occurs_with_one():
    assert NER.classes_of(EXPECTED) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=8, train_batch_size=4, seed=1)
PIECES = ["the", "anna", "bo", "cy", "oslo", "sees", ".", "monday"]


def names(sentences: int) -> str:
    """`anna`, `bo cy` and `oslo` are names wherever they stand."""
    tagged = {"anna": ["anna\tB-PER"], "bo": ["bo\tB-PER", "cy\tI-PER"], "oslo": ["oslo\tB-LOC"]}
    known = list(tagged)
    blocks = []
    for number in range(sentences):
        left, right = known[number % 3], known[(number // 3 + 1) % 3]
        blocks.append("\n".join(["the\tO", *tagged[left], "sees\tO", *tagged[right], ".\tO"]))
    return "\n\n".join(blocks) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "ner"
    folder.mkdir()
    for split, sentences in {"train": 24, "dev": 6}.items():
        (folder / f"{split}-en.tsv").write_text(names(sentences))
    return folder


def scores_of(scores: list[Score], metric: str) -> dict[str, Score]:
    return {score.language: score for score in scores if score.metric == metric}


def test_names_are_learnt_and_scored_leniently_and_strictly(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    (data / "test-en.tsv").write_text(names(6))
    (data / "test-de.tsv").write_text(names(3))
    scores = tune_task(NER, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    for metric in ("ner_f1", "ner_f1_strict"):
        found = scores_of(scores, metric)
        assert [(code, found[code].value, found[code].n) for code in ("de", "en", "all")] == [
            ("de", 1.0, 6), ("en", 1.0, 12), ("all", 1.0, 18)
        ]  # fmt: skip
        assert 0 < (found["en"].chance or 0) < 0.7
    assert NER.evaluate(str(tmp_path / "out" / "model"), data) == scores


def test_a_kind_of_name_that_the_head_lacks_is_refused_with_the_fix(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    tune_task(NER, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    (data / "sw").mkdir()
    (data / "sw/test.txt").write_text("monday B-DATE\nsees O\n")
    with pytest.raises(
        DataError,
        match=r"sw/test.txt has the tag B-DATE, which the head does not know; its classes are O, B-LOC, I-LOC, B-PER, "
        "I-PER. Leave that language out, or give a copy of the file with O for that tag.",
    ):
        NER.evaluate(str(tmp_path / "out" / "model"), data)


def test_a_file_without_names_is_not_scored(tmp_path: Path, data: Path, make_bert: Callable[..., Path]):
    tune_task(NER, str(make_bert(PIECES)), [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    (data / "test-de.tsv").write_text("the\tO\nsees\tO\n")
    with pytest.raises(DataError, match=r"test-de\.tsv has no name at all: there is nothing to score"):
        NER.evaluate(str(tmp_path / "out" / "model"), data)


def test_words_are_replaced_under_their_tags():
    assert NER.replace_words(EXPECTED[0], str.upper) == Sentence("0", ("KARL", "OVE", "#"), EXPECTED[0].tags, "de")
