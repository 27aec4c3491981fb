"""A folder whose tokenizer is gone, altered or another model's is not scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from transformers import AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify, read_tokenizer
from xalign_ray.tasks.cloze import Predictor
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


@pytest.mark.parametrize(
    "open_folder",
    [lambda folder: Encoder.open(open_encoder(folder)), lambda folder: Predictor.open(folder, "cpu")],
    ids=["open", "predictor"],
)
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
        Encoder.open(open_encoder(exported))


def test_a_tokenizer_that_was_used_and_saved_again_is_still_the_models(exported: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(exported)
    tokenizer(["w1 w2", "w3"], padding=True, truncation=True, max_length=3)
    tokenizer.save_pretrained(exported)
    Encoder.open(open_encoder(exported))


def test_ids_beyond_the_embeddings_are_refused(
    make_bert: Callable[..., Path], make_tokenizer: Callable[..., Any]
) -> None:
    folder = make_bert(PIECES)
    make_tokenizer([*PIECES, "more"]).save_pretrained(folder)
    with pytest.raises(DataError, match=r"its tokenizer gives ids up to 25, but the model has 25 embeddings"):
        Encoder.open(open_encoder(folder))


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Berlin", "##lin", "ber", "a", "b"]
NAMED = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


def cased(folder: Path) -> None:
    backend = Tokenizer(WordPiece({piece: number for number, piece in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    backend.normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.enable_padding(length=200)  # which is no part of how text is read
    backend.save(str(folder / "tokenizer.json"))


def byte_level(folder: Path) -> None:
    backend = Tokenizer(BPE({piece: number for number, piece in enumerate([*VOCABULARY, "Ġ"])}, []))
    backend.pre_tokenizer = ByteLevel()
    backend.save(str(folder / "tokenizer.json"))


def lines(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")


@pytest.mark.parametrize(
    ("write", "settings", "is_read"),
    [
        (cased, None, False),
        (cased, {}, False),
        (cased, {"tokenizer_class": "BertTokenizer"}, False),
        (cased, {"do_lower_case": False}, True),
        (cased, {"tokenizer_class": "BertTokenizer", "do_lower_case": True}, True),  # which somebody has said
        (cased, NAMED, True),
        (byte_level, None, False),
        (lines, None, False),
        (lines, {"do_lower_case": False}, True),
    ],
)
def test_a_tokenizer_that_is_taken_for_another_kind_is_refused(
    tmp_path: Path, write: Callable[[Path], None], settings: dict[str, Any] | None, is_read: bool
) -> None:
    """transformers puts a vocabulary into the class that config.json suggests where no other file names one."""
    write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    if is_read:
        read_tokenizer(str(tmp_path))
        return
    with pytest.raises(DataError, match=r"does not read text as its (tokenizer\.json|vocab\.txt, which has capitals,) "
                                        r"does \(Berlin CAFÉ: .*put it there, or write one that names"):  # fmt: skip
        read_tokenizer(str(tmp_path))


@pytest.mark.parametrize("file", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_a_text_is_lower_cased_where_sentence_transformers_does_so(tmp_path: Path, file: str) -> None:
    cased(tmp_path)
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(NAMED | {"unk_token": "[UNK]"}))
    read: dict[bool, list[str]] = {}
    for lowers in (False, True):
        (tmp_path / file).write_text(json.dumps({"max_seq_length": 64, "do_lower_case": lowers}))
        read[lowers] = read_tokenizer(str(tmp_path)).tokenize("Berlin A")
    assert read == {False: ["Berlin", "[UNK]"], True: ["ber", "##lin", "a"]}
    saved = tmp_path / "saved"
    read_tokenizer(str(tmp_path)).save_pretrained(saved)
    assert AutoTokenizer.from_pretrained(saved).tokenize("Berlin A") == read[True]
