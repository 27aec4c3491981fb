"""The task sts: Spearman's correlation of cosine and score, by language, with the encoder's own vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.tasks.conftest import make_bert_in
from tests.unit.tasks.test_retrieval import ENGLISH, GERMAN, WORDS
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.verbs.scores import evaluate

SCORES = [3.5, 1.0, 4.0, 1.0, 5.0, 0.0, 2.0, 2.5, 0.5]  # two are equal


def write_scored(path: Path, texts: list[str], header: str = "") -> None:
    rows = zip(texts, texts[::-1], SCORES, strict=True)
    path.write_text(header + "".join(f"{first},{second},{score}\n" for first, second, score in rows), encoding="utf-8")


def ranks(values: np.ndarray) -> np.ndarray:
    return np.array([(values < value).sum() + (values == value).sum() / 2 for value in values])


def test_each_language_is_scored_by_the_ranks_of_its_cosines(tmp_path: Path) -> None:
    encoder, data = make_bert_in(tmp_path / "bert", WORDS), tmp_path / "sts"
    data.mkdir()
    write_scored(data / "sts-de-dev.csv", GERMAN)
    write_scored(data / "en.csv", ENGLISH, "sentence1,sentence2,score\n")
    (data / "README.md").write_text("Where these are from.\n")
    frame = evaluate(str(encoder), "sts", str(data), out=str(tmp_path / "out"))
    found = {row.language: row for row in frame.itertuples()}
    vectors = SentenceVectors(open_encoder(encoder))
    for code, texts in (("de", GERMAN), ("en", ENGLISH)):
        first, second = (np.float64(vectors.encode(side)) for side in (texts, texts[::-1]))
        cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        expected = np.corrcoef(ranks(cosines.round(9)), ranks(np.array(SCORES)))[0, 1]
        assert found[code].value == pytest.approx(expected, abs=1e-9)
        assert (found[code].metric, found[code].n, found[code].chance) == ("sts_spearman", 9, None)
    assert found["all"].value == pytest.approx((found["de"].value + found["en"].value) / 2)


@pytest.mark.parametrize(
    ("file", "content", "languages", "fault"),
    [
        ("de.csv", "a b,b c,1\nb c,d e,2\n", ["fr"], DataError("has no scored pairs in fr; it has de.")),
        ("de.csv", "a b,b c,1\nb c,d e,1\n", None, DataError("has no table with two columns of text and one of")),
        ("xx.csv", "Qq zz,Qq yy,1\nQq yy,Qq zz,2\n", None, ConfigError("in a language that is not clear. Call it by")),
    ],
)
def test_data_that_cannot_be_scored_is_refused(
    tmp_path: Path, file: str, content: str, languages: list[str] | None, fault: Exception
) -> None:
    encoder = make_bert_in(tmp_path / "bert", WORDS)
    (tmp_path / file).write_text(content)
    with pytest.raises(type(fault), match=str(fault)):
        evaluate(str(encoder), "sts", str(tmp_path / file), out=str(tmp_path / "out"), languages=languages)


def test_two_files_of_a_language_are_not_one_scale(tmp_path: Path) -> None:
    encoder = make_bert_in(tmp_path / "bert", WORDS)
    (tmp_path / "data").mkdir()
    for name in ("sts-de.csv", "sts22-de.csv"):
        (tmp_path / "data" / name).write_text("a b,b c,1\nb c,d e,2\n")
    with pytest.raises(DataError, match=r"sts22-de\.csv: a second file in de, whose scores may have another scale"):
        evaluate(str(encoder), "sts", str(tmp_path / "data"), out=str(tmp_path / "out"))
