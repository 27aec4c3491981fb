"""Tokenizer files of exported and fine-tuned folders: what any transformers needs of them, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from xalign_ray.models.own_tokenizer import identify, make_portable

IDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
SPECIAL = [("[CLS]", 2), ("[SEP]", 3)]
TEMPLATES: dict[str, Callable[[], Any]] = {
    "types of ones": lambda: processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=SPECIAL
    ),
    "types of noughts, two separators, as XLM-R's": lambda: processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=SPECIAL
    ),
    "one of several": lambda: processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=SPECIAL
            ),
        ]
    ),
    "BERT's own": lambda: processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
}


def save(folder: Path, template: Any, **settings: Any) -> None:
    backend = Tokenizer(models.WordLevel(IDS, "[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Fuse()
    backend.post_processor = template
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    saved = PreTrainedTokenizerFast(tokenizer_object=backend, **names, **settings)
    saved.save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)  # as of a folder that was opened before


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("segments", [1, 2])
def test_second_text_has_the_last_segment_of_the_model(tmp_path: Path, name: str, segments: int) -> None:
    if name == "BERT's own" and segments == 1:
        return  # its types are in the library; a model of one segment is not given any
    save(tmp_path, TEMPLATES[name]())
    make_portable(tmp_path, 32, segments)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    ids, types = (opened("a b", "b", return_token_type_ids=True)[key] for key in ("input_ids", "token_type_ids"))
    first = len(ids) - ids[::-1].index(6) - 1  # of the second text
    assert types == [0] * first + [segments - 1] * (len(ids) - first)
    assert ("token_type_ids" in opened("a")) == (segments == 2)


def test_settings_are_those_that_both_versions_read(tmp_path: Path) -> None:
    save(tmp_path, TEMPLATES["BERT's own"](), padding_side="left", additional_special_tokens=["b"])
    before = identify(tmp_path)
    saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "TokenizersBackend"
    assert saved["model_max_length"] > 1e29
    assert {"is_local", "local_files_only", "extra_special_tokens"} <= saved.keys()
    make_portable(tmp_path, 32, 2)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "additional_special_tokens": ["b"],
        "clean_up_tokenization_spaces": False,
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": 32,
        "pad_token": "[PAD]",
        "padding_side": "left",
        "sep_token": "[SEP]",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
    }
    assert identify(tmp_path) == before
    assert len(AutoTokenizer.from_pretrained(tmp_path)("a " * 99, truncation=True)["input_ids"]) == 32


def test_a_slow_tokenizer_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a")
    make_portable(tmp_path, 32, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]
