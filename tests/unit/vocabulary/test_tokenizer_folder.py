"""A tokenizer as a Hugging Face folder: opened, or refused with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.config.load import load_recipe
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.vocabulary.tokenizer import put_frame, train_bpe
from xalign_ray.vocabulary.tokenizer_folder import (
    check_mask,
    framed,
    open_tokenizer,
    save_tokenizer,
    vocabulary,
    wrap_tokenizer,
)


def test_a_trained_tokenizer_comes_back_from_its_folder(tmp_path: Path) -> None:
    trained = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=100), lambda: ["the cat", "the mat"] * 5))
    save_tokenizer(trained, tmp_path)
    opened = open_tokenizer(str(tmp_path))
    assert opened("the cat")["input_ids"] == trained("the cat")["input_ids"]
    assert opened.get_vocab() == trained.get_vocab()
    assert (opened.pad_token_id, opened.unk_token_id, opened.cls_token_id) == (0, 1, 2)
    assert (opened.sep_token_id, opened.mask_token_id) == (3, 4)


def test_special_and_unused_pieces_are_never_drawn() -> None:
    words = [
        "[PAD]",
        "[unused1]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "cat",
        "[unused2]",
        "mat",
        "<unused3>",
        "<turn>",
    ]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.add_special_tokens(["<turn>"])  # which tokenizer_config.json does not name
    found = vocabulary(wrap_tokenizer(backend))
    assert found.regular.tolist() == [6, 8]
    assert (found.pad, found.cls, found.sep, found.mask, found.unknown) == (0, 3, 4, 5, 2)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^data.tokenizer.path: {re.escape(str(tmp_path))} holds no tokenizer: "):
        open_tokenizer(str(tmp_path))


def given(path: Path, processor: processors.PostProcessor | None, byte_level: bool = False) -> Path:
    """A folder whose tokenizer puts around a text what the processor says."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "ka", "lo", "a", "\u0120ka", "\u0120lo"]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Whitespace()
    )
    if processor is not None:
        backend.post_processor = processor
    special = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    names = {f"{name}_token": token for name, token in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(path)
    return path


def template(single: str, pair: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)])


FRAMES = {
    "none": (None, True),
    "the first token alone": (template("<s> $A", "<s> $A <s> $B"), True),
    "two separators": (template("<s> $A </s> </s>", "<s> $A </s> $B </s>"), True),
    "BERT's": (processors.BertProcessing(("</s>", 2), ("<s>", 0)), False),
    "XLM-R's, whose pairs are left": (template("<s> $A </s>", "<s> $A </s> </s> $B </s>"), False),
    "RoBERTa's": (processors.RobertaProcessing(("</s>", 2), ("<s>", 0)), False),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_given_tokenizer_is_saved_with_the_frame_of_training(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    processor, is_changed = FRAMES[kind]
    folder = given(tmp_path / "given", processor)
    save_tokenizer(framed(open_tokenizer(str(folder))), tmp_path / "saved")
    for saved in (open_tokenizer(str(tmp_path / "saved")), AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert saved("ka lo")["input_ids"] == [0, 5, 6, 2]
    separators = [2] if is_changed or kind == "BERT's" else [2, 2]
    assert saved("ka", "lo")["input_ids"] == [0, 5, *separators, 6, 2]
    assert ("rows of training are `<s> text </s>`" in capsys.readouterr().err) == is_changed


def test_the_frame_of_a_byte_level_tokenizer_still_trims_offsets(tmp_path: Path) -> None:
    folder = given(tmp_path / "given", processors.ByteLevel(trim_offsets=True), byte_level=True)
    encoding = framed(open_tokenizer(str(folder))).backend_tokenizer.encode("ka lo")
    assert encoding.ids == [0, 5, 9, 2]
    assert encoding.offsets[2] == (3, 5)


def test_saved_padding_is_no_part_of_the_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = given(tmp_path, FRAMES["XLM-R's, whose pairs are left"][0])
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_padding(length=16)
    backend.enable_truncation(4)
    backend.save(str(folder / "tokenizer.json"))
    assert framed(open_tokenizer(str(folder)))("ka lo")["input_ids"] == [0, 5, 6, 2]
    assert capsys.readouterr().err == ""


def test_pairs_are_framed_as_a_stream_trains_them(tmp_path: Path) -> None:
    backend = open_tokenizer(str(given(tmp_path, FRAMES["XLM-R's, whose pairs are left"][0]))).backend_tokenizer
    assert put_frame(backend, "<s>", "</s>", between=1)
    assert backend.encode("ka", "lo").ids == [0, 5, 2, 6, 2]
    assert put_frame(backend, "<s>", "</s>", between=2)
    assert backend.encode("ka", "lo").ids == [0, 5, 2, 2, 6, 2]
    assert not put_frame(backend, "<s>", "</s>", between=2)


def test_a_sentencepiece_model_alone_says_what_reads_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    with pytest.raises(ConfigError) as told:
        open_tokenizer(str(tmp_path))
    assert str(told.value) == (
        f"data.tokenizer.path: {tmp_path} holds its vocabulary as sentencepiece.bpe.model alone, which needs `pip "
        "install sentencepiece`; or put the model's tokenizer.json next to it."
    )


def small(folder: Path, **tokens: str) -> str:
    """A byte-level kind of folder: no unknown piece, and only the special tokens that are named."""
    backend = Tokenizer(models.WordLevel({"cat": 0, "<a>": 1, "<b>": 2, "<m>": 3}, unk_token="cat"))
    PreTrainedTokenizerFast(tokenizer_object=backend, **tokens).save_pretrained(folder)
    return str(folder)


def test_cls_sep_and_pad_fall_back_to_bos_and_eos(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(small(tmp_path / "given", bos_token="<a>", eos_token="<b>"))
    assert (tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token) == ("<a>", "<b>", "<b>")
    special = vocabulary(tokenizer)
    assert (special.pad, special.cls, special.sep, special.mask, special.unknown) == (2, 1, 2, -1, -1)
    assert special.regular.tolist() == [0, 3]
    save_tokenizer(framed(tokenizer), tmp_path / "saved")
    again = open_tokenizer(str(tmp_path / "saved"))
    assert (again("cat")["input_ids"], again.cls_token, again.unk_token) == ([1, 0, 2], "<a>", None)


def test_a_token_behind_a_text_alone_is_the_frame_of_its_rows(tmp_path: Path) -> None:
    backend = Tokenizer.from_file(small(tmp_path, eos_token="<b>", pad_token="<m>") + "/tokenizer.json")
    backend.post_processor = processors.TemplateProcessing(single="$A <m>", special_tokens=[("<m>", 3)])
    backend.save(str(tmp_path / "tokenizer.json"))
    opened = framed(open_tokenizer(str(tmp_path)))
    save_tokenizer(opened, tmp_path / "saved")
    for tokenizer in (opened, open_tokenizer(str(tmp_path / "saved"))):
        special = vocabulary(tokenizer)
        assert (tokenizer("cat")["input_ids"], special.cls, special.sep) == ([0, 3], -1, 3)
    with pytest.raises(ConfigError, match="has no mask token, and stream masked_text masks text"):
        check_mask(opened, load_recipe("tiny/mlm").config)
    opened.mask_token = "<a>"
    with pytest.raises(ConfigError, match=r'has no cls token, and .*"cls_token": "<cls>"'):
        check_mask(opened, load_recipe("tiny/mlm").config)


def test_a_tokenizer_without_the_tokens_of_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        open_tokenizer(small(tmp_path, eos_token="<b>"))
    assert str(refusal.value) == (
        f"data.tokenizer.path '{tmp_path}' has no cls (nor bos) token; every row needs them. Name them in "
        "tokenizer_config.json."
    )


@pytest.mark.parametrize(
    "model", [models.WordPiece({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}), models.Unigram([("a", -1.0)])]
)
def test_a_tokenizer_that_fails_at_unknown_characters_is_refused(tmp_path: Path, model: models.Model) -> None:
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), pad_token="[PAD]", cls_token="[CLS]",
                                   sep_token="[SEP]")  # fmt: skip
    save_tokenizer(made, tmp_path)
    with pytest.raises(ConfigError, match="has no piece for characters that it does not know"):
        open_tokenizer(str(tmp_path))


def test_a_mask_may_be_absent_where_nothing_is_masked(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(small(tmp_path, bos_token="<a>", eos_token="<b>"))
    config = load_recipe("tiny/mlm").config
    with pytest.raises(ConfigError) as refusal:
        check_mask(tokenizer, config)
    assert str(refusal.value) == (
        f"data.tokenizer.path '{tmp_path}' has no mask token, and stream masked_text masks text. Name one of its "
        'tokens in tokenizer_config.json ("mask_token": "<mask>"), or take a stream that masks nothing '
        "(contrasted_pairs with text: none)."
    )
    check_mask(tokenizer, config.model_copy(update={"streams": (ContrastedPairs(text="none"),)}))
    check_mask(open_tokenizer(small(tmp_path, bos_token="<a>", eos_token="<b>", mask_token="<m>")), config)
