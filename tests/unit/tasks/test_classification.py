"""Texts and pairs as rows: how they are cut, which language each side is said to be, what becomes of their words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from xalign_ray.errors import DataError
from xalign_ray.models.inference import Encoder, open_model
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import Inputs
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.text_classification import LabelledText, longest_first, replace_running_words

PAWSX, SIB, XNLI = (TUNED_TASKS[name] for name in ("pawsx", "sib", "xnli"))

WORDS = [f"w{number}" for number in range(40)]
SMALL = {"vocab_size": 45, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def pair(key: str = "0", label: str = "neutral", language: str = "en", texts: tuple[str, str] = ("w1 w2", "w3")) -> Any:
    return LabelledText(key, texts, (language, language), label)


def open_inputs(folder: Path) -> Inputs:
    model, tokenizer = open_model(open_encoder(folder), AutoModelForSequenceClassification, num_labels=3)
    return Inputs.of_model(tokenizer, model, str(folder))


@pytest.mark.parametrize("sizes", [(3, 4), (30, 4), (4, 30), (30, 30), (16, 30), (30, 14), (15, 14), (14, 15), (0, 40)])
@pytest.mark.parametrize("room", [28, 29])
def test_the_longer_side_is_cut_first_as_the_tokenizer_itself_does_it(
    make_tokenizer: Callable[..., Any], sizes: tuple[int, int], room: int
):
    tokenizer = make_tokenizer(WORDS)
    ends = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    texts = [" ".join(WORDS[:size]) for size in sizes]
    encoding = tokenizer(*texts, truncation="longest_first", max_length=room + 3)
    sides = [sequence for sequence in encoding.sequence_ids() if sequence is not None]
    assert longest_first(*sizes, room) == (sides.count(0), sides.count(1))


def test_a_pair_gets_the_language_of_each_side_and_fits_into_the_model(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, languages=["en", "de"], positions=10))
    example = replace(pair(texts=("w1 w2 w3 w4 w5 w6", "w7 w8 w9")), languages=("de", "en"))
    [[row]] = XNLI.features(inputs, [example], XNLI.classes)
    assert inputs.tokenizer.convert_ids_to_tokens(row["input_ids"]) == [
        "[CLS]", "w1", "w2", "w3", "w4", "[SEP]", "w7", "w8", "w9", "[SEP]",
    ]  # fmt: skip
    assert row["token_type_ids"] == [2] * 6 + [1] * 4  # segment 0 of de, segment 1 of en
    assert row["labels"] == 2


def test_a_text_is_cut_at_its_end(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, positions=6))
    [[row]] = SIB.features(inputs, [LabelledText("0", (" ".join(WORDS),), ("en",), "travel")], SIB.classes)
    assert inputs.tokenizer.convert_ids_to_tokens(row["input_ids"]) == ["[CLS]", "w0", "w1", "w2", "w3", "[SEP]"]


def test_no_row_is_longer_than_128_pieces_where_the_model_has_more_places(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, positions=300))
    long = " ".join(WORDS * 5)
    rows = XNLI.features(inputs, [pair(texts=(long, long)), pair(texts=("w1", long))], XNLI.classes)
    assert [len(row["input_ids"]) for [row] in rows] == [128, 128]
    assert [row["token_type_ids"].count(0) for [row] in rows] == [
        64,
        3,
    ]  # [CLS], 62 of 125 pieces, [SEP]; [CLS] w1 [SEP]


def test_accuracy_and_the_largest_class_are_those_of_the_examples(make_bert: Callable[..., Path]):
    model, tokenizer = open_model(open_encoder(make_bert(WORDS)), AutoModelForSequenceClassification, num_labels=3)
    inputs = Inputs.of_model(tokenizer, model.eval(), "tiny")
    texts = [(f"w{number} w3", f"w{number + 1}") for number in range(9)]
    rows = [row for [row] in XNLI.features(inputs, [pair(texts=text) for text in texts], XNLI.classes)]
    alone = [int(model(**inputs.collate([row])).logits.argmax()) for row in rows]  # one at a time, in order
    labels = [XNLI.classes[best if number < 6 else (best + 1) % 3] for number, best in enumerate(alone)]
    examples = [
        pair(str(number), label, texts=text) for number, (label, text) in enumerate(zip(labels, texts, strict=True))
    ]
    model.config.id2label = dict(enumerate(XNLI.classes))
    found = XNLI.measure(examples, XNLI.predict(Encoder(model, inputs), XNLI.features(inputs, examples, XNLI.classes)))
    most = max(labels.count(label) for label in XNLI.classes)
    assert set(found) == {"xnli_accuracy"}
    measure = found["xnli_accuracy"]
    assert (measure.value, measure.chance, measure.n) == (pytest.approx(6 / 9), pytest.approx(most / 9), 9)


@pytest.mark.parametrize(
    ("config", "model_class"),
    [
        (BertConfig(**SMALL), BertForMaskedLM),
        (XLMRobertaConfig(**SMALL, pad_token_id=0), XLMRobertaForMaskedLM),
        (ModernBertConfig(**SMALL, pad_token_id=0), ModernBertForMaskedLM),
    ],
    ids=["bert", "xlm-r", "modernbert"],
)
def test_each_family_of_exports_opens_with_a_new_head(
    tmp_path: Path, make_tokenizer: Callable[..., Any], config: Any, model_class: Any
):
    model_class(config).save_pretrained(tmp_path)
    make_tokenizer(WORDS).save_pretrained(tmp_path)
    model, tokenizer = open_model(open_encoder(tmp_path), AutoModelForSequenceClassification, num_labels=3)
    inputs = Inputs.of_model(tokenizer, model.eval(), str(tmp_path))
    rows = [row for part in XNLI.features(inputs, [pair()] * 2, XNLI.classes) for row in part]
    output = model(**inputs.collate(rows))
    assert output.logits.shape == (2, 3)
    assert output.loss.isfinite()


def test_switching_makes_both_mixed_pairs_with_the_language_of_each_side():
    english, german = pair(texts=("a", "b")), pair(language="de", texts=("A", "B"))
    assert XNLI.switch(english, german) == [
        LabelledText("0", ("A", "b"), ("de", "en"), "neutral"),
        LabelledText("0", ("a", "B"), ("en", "de"), "neutral"),
    ]


def test_a_translation_with_another_label_is_refused_where_translations_keep_labels():
    with pytest.raises(DataError, match=re.escape(
        "xnli: example 4 is neutral in en and entailment in de; the training files are not translations of each other "
        "row by row."
    )):  # fmt: skip
        XNLI.switch(pair("4"), pair("4", "entailment", "de"))


def test_mixed_paraphrases_have_the_english_label():
    assert [one.label for one in PAWSX.switch(pair(label="1"), pair(label="0", language="de"))] == ["1", "1"]


def test_one_text_has_no_sentences_to_switch():
    english, german = (LabelledText("0", ("a",), (language,), "travel") for language in ("en", "de"))
    with pytest.raises(DataError, match="sib has examples of one text, so no sentence of them can be switched; train"):
        SIB.switch(english, german)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ('He said: "Go home, Mama!"', '<He> <said>: "<Go> <home>, <Mama>!"'),
        ("don't  re-read (it) ...", "<don't>  <re-read> (<it>) ..."),
        ("tokenised , text .", "<tokenised> , <text> ."),
        ("हिन्दी में।", "<हिन्दी> <में>।"),
        ("", ""),
    ],
)
def test_words_of_running_text_are_replaced_and_punctuation_stays(text: str, replaced: str):
    assert replace_running_words(text, lambda word: f"<{word}>") == replaced


def test_words_are_replaced_on_both_sides_and_the_rest_stays():
    example = PAWSX.replace_words(pair(texts=("go home.", "go!")), str.upper)
    assert example == pair(texts=("GO HOME.", "GO!"))
