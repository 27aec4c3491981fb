"""Released encoders as cells of a study: transformers' own BERT and XLM-R, in folders as the hub has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import constants
from tokenizers import SentencePieceUnigramTokenizer
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaTokenizerFast,
)

from tests.parity.cells_here import run_cells_here
from xalign_ray.errors import DataError
from xalign_ray.studies.study import run_study
from xalign_ray.tasks.scores import SCORES, read_scores

SENTENCES = {
    "en": ["The cat sees Rome .", "A dog hears the old cat .", "Dogs see .", "The old dog hears Rome ."],
    "de": ["Die Katze sieht Rom .", "Ein Hund hört die alte Katze .", "Hunde sehen .", "Der alte Hund hört Rom ."],
}
WORDS = {word for texts in SENTENCES.values() for text in texts for word in text.split()}
TAGS = {".": "PUNCT", "Rome": "PROPN", "Rom": "PROPN", "sees": "VERB", "sieht": "VERB", "see": "VERB"}
SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 16}
LABELS = ("entailment", "neutral", "contradiction")


def write_bert(folder: Path) -> Path:
    """As bert-base-multilingual-cased: a cased WordPiece vocabulary, the heads of both of BERT's objectives."""
    folder.mkdir()
    pieces = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(WORDS), *"aefhnostu", "##e", "##n"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=False, model_max_length=512)
    tokenizer.save_pretrained(folder)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SIZES)
    BertForPreTraining(config).save_pretrained(folder)
    return folder


def write_xlm_r(folder: Path) -> Path:
    """As xlm-roberta-base: a unigram SentencePiece vocabulary, one token type, positions from behind the padding id."""
    trained = SentencePieceUnigramTokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    lines = [text for texts in SENTENCES.values() for text in texts] * 20
    trained.train_from_iterator(lines, vocab_size=80, show_progress=False, special_tokens=specials, unk_token="<unk>")
    vocabulary = [tuple(one) for one in json.loads(trained.to_str())["model"]["vocab"]]
    tokenizer = XLMRobertaTokenizerFast(vocab=vocabulary, model_max_length=512)
    tokenizer.save_pretrained(folder)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, **SIZES
    )
    XLMRobertaForMaskedLM(config).save_pretrained(folder)
    return folder


def write_data(root: Path) -> Path:
    for folder in ("pos", "xnli", "tatoeba", "muse"):
        (root / folder).mkdir(parents=True)
    files = {("train", "en"): 3, ("dev", "en"): 1, ("test", "en"): 1, ("test", "de"): 1}
    for (split, language), times in files.items():
        texts = SENTENCES[language] * times
        tagged = ("".join(f"{word}\t{TAGS.get(word, 'NOUN')}\n" for word in text.split()) for text in texts)
        (root / "pos" / f"{split}-{language}.tsv").write_text("\n".join(tagged))
        pairs = (f"{text}\t{texts[0]}\t{LABELS[number % 3]}\n" for number, text in enumerate(texts))
        (root / "xnli" / f"{split}-{language}.tsv").write_text("".join(pairs))
    for language, texts in SENTENCES.items():
        (root / "tatoeba" / f"tatoeba.de-en.{language}").write_text("\n".join(texts) + "\n")
    (root / "muse" / "en-de.txt").write_text("cat Katze\ndog Hund\nold alte\n")
    return root


def test_released_encoders_are_evaluated_and_fine_tuned_as_our_own_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        folders = {"mBERT": write_bert(tmp_path / "mbert"), "XLM-R": write_xlm_r(tmp_path / "xlm-r")}
    short = {"num_train_epochs": 1, "max_seq_length": 16, "warmup_steps": 0}
    study: dict[str, Any] = {
        "root": str(write_data(tmp_path / "data")),
        "encoders": [{"model": str(folder), "label": label} for label, folder in folders.items()],
        "evaluations": [
            {"task": "tatoeba", "data": "tatoeba"},
            {"task": "cloze", "data": "tatoeba"},
            {"task": "alignment", "data": "muse"},
        ],
        "finetunings": [
            {"task": "pos", "data": "pos", "settings": {"from": "xtreme"} | short},
            {"task": "xnli", "data": "xnli", "settings": {"from": "ppa"} | short},
        ],
        "mlflow": "off",
    }
    (tmp_path / "released.yaml").write_text(yaml.safe_dump(study))
    ran: list[str] = []
    run_cells_here(monkeypatch, ran, [])
    page = run_study(str(tmp_path / "released.yaml"), tmp_path / "runs")
    assert len(ran) == 2 * 5
    cells = json.loads((page.parents[1] / "study.json").read_text())["cells"]
    assert {cell["state"] for cell in cells} == {"finished"}
    for label, folder in folders.items():
        scores = [
            score
            for cell in cells
            if cell["label"] == label
            for score in read_scores(page.parents[1] / cell["folder"] / SCORES)
        ]
        assert {score.encoder for score in scores} == {str(folder)}
        assert {(score.metric, score.language) for score in scores} >= {
            ("pos_accuracy", "de"),
            ("xnli_accuracy", "de"),
            ("tatoeba_accuracy", "de"),
        }
        assert {score.task for score in scores} == {"pos", "xnli", "tatoeba", "cloze", "alignment"}
        assert label in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "mbert", "released.yaml", "runs", "xlm-r"]


def test_a_hub_model_that_cannot_be_had_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []
    connected: list[str] = []
    run_cells_here(monkeypatch, ran, connected)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    study = {
        "root": str(write_data(tmp_path / "data")),
        "encoders": [{"model": "no-such/encoder"}],
        "evaluations": [{"task": "tatoeba", "data": "tatoeba"}],
        "mlflow": "off",
    }
    (tmp_path / "hub.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(
        DataError, match=r"no-such/encoder is no folder and not in the hub.s cache, and HF_HUB_OFFLINE is set"
    ):
        run_study(str(tmp_path / "hub.yaml"), tmp_path / "runs")
    assert (ran, connected) == ([], [])
