"""A folder whose tokenizer is gone, altered or another model's is not scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify
from xalign_ray.tasks.cloze import Predictor
from xalign_ray.tasks.hf_encoder import Encoder
from xalign_ray.verbs.scores import evaluate

PIECES = [f"w{number}" for number in range(20)]


@pytest.fixture
def exported(make_bert: Callable[..., Path]) -> Path:
    """A folder that says which tokenizer it was exported with."""
    folder = make_bert(PIECES)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {TOKENIZER_KEY: identify(folder)}))
    return folder


def test_a_folder_without_its_tokenizer_is_not_scored(make_bert: Callable[..., Path], tmp_path: Path) -> None:
    folder, data = make_bert(PIECES), tmp_path / "tatoeba"
    data.mkdir()
    for side in ("deu", "eng"):
        (data / f"tatoeba.deu-eng.{side}").write_text("".join(f"w{n} w{n + 1}\n" for n in range(10)))
    assert len(evaluate(folder, "tatoeba", data, tmp_path / "scores"))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(DataError) as told:
        evaluate(str(folder), "tatoeba", data, tmp_path / "scores")
    assert str(told.value) == (
        f"{folder} holds no tokenizer: none of tokenizer.json, vocab.txt, vocab.json, *.model is there. "
        "Export the run again, or put the model's own tokenizer next to it."
    )


@pytest.mark.parametrize("open_folder", [Encoder.open, lambda folder: Predictor.open(folder, "cpu")])
def test_an_altered_tokenizer_of_an_export_is_refused(exported: Path, open_folder: Callable[[str], Any]) -> None:
    open_folder(str(exported))
    path = exported / "tokenizer.json"
    whole = path.read_text()
    path.write_text(whole.replace('"w3"', '"w_"').replace('"w4"', '"w3"').replace('"w_"', '"w4"'))
    with pytest.raises(DataError, match="its tokenizer is not the one that the model was exported with"):
        open_folder(str(exported))
    path.write_text(whole[:200])
    with pytest.raises(DataError, match="its tokenizer is damaged"):
        open_folder(str(exported))


def test_special_tokens_that_changed_places_are_refused(exported: Path) -> None:
    path = exported / "tokenizer_config.json"
    named = json.loads(path.read_text())
    path.write_text(json.dumps(named | {"cls_token": named["sep_token"], "sep_token": named["cls_token"]}))
    with pytest.raises(DataError, match="its tokenizer is not the one that the model was exported with"):
        Encoder.open(exported)


def test_a_tokenizer_that_was_used_and_saved_again_is_still_the_models(exported: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(exported)
    tokenizer(["w1 w2", "w3"], padding=True, truncation=True, max_length=3)
    tokenizer.save_pretrained(exported)
    Encoder.open(exported)


def test_ids_beyond_the_embeddings_are_refused(
    make_bert: Callable[..., Path], make_tokenizer: Callable[..., Any]
) -> None:
    folder = make_bert(PIECES)
    make_tokenizer([*PIECES, "more"]).save_pretrained(folder)
    with pytest.raises(DataError, match=r"its tokenizer gives ids up to 25, but the model has 25 embeddings"):
        Encoder.open(folder)
