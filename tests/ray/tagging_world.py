"""The smallest tagging task and the smallest encoders for it: what tests of fine-tuning on Ray begin with."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

TAGS = {"the": "DET", "cat": "NOUN", "dog": "NOUN", "sees": "VERB", ".": "PUNCT"}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_encoder(folder: Path, **facts: str) -> str:
    """An encoder of one layer with random weights; `facts` go into its config, as `xalign_objective`."""
    vocabulary = {piece: index for index, piece in enumerate([*SPECIALS, *TAGS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    for name, value in facts.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForMaskedLM(config).save_pretrained(folder)
    return str(folder)


def write_tags(folder: Path, *test_languages: str) -> str:
    """Tagged files: `train` and `dev` in English, `test` in each of these languages."""
    row = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    words = ["the", "cat", "sees", "the", "dog", "."]
    sentence = "".join(row.format(place, word, TAGS[word]) for place, word in enumerate(words, 1))
    folder.mkdir(parents=True)
    sizes = {"en.train": 40, "en.dev": 4} | {f"{language}.test": 6 for language in test_languages}
    for name, sentences in sizes.items():
        (folder / f"{name}.conllu").write_text("\n".join([sentence] * sentences))
    return str(folder)
