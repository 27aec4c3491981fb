"""An untrained encoder whose tokenizer has whole words, for tests and benches of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast


def write_encoder(folder: Path, words: Iterable[str], **sizes: int) -> None:
    """A Hugging Face folder; `sizes` are BERT's."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    backend = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), pieces[:5], strict=True))
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)
    BertForMaskedLM(BertConfig(vocab_size=len(pieces), **sizes)).save_pretrained(folder)
