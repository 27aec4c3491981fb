"""ModernBERT with language embeddings: its export needs our registered class, and is right with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer

from tests.parity.test_export_elsewhere import FACTS, LANGUAGES, LENGTH, SENTENCES, SHAPE, Prepared, random_batch
from tests.parity.test_export_elsewhere import run_config as config_of
from tests.unit.tasks.conftest import pool
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import export, load_conditioned_head
from xalign_ray.models.inference import Encoder
from xalign_ray.tasks.cloze import Predictor, Question
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer

MODEL = SHAPE | {"family": "modernbert", "language_embeddings": True}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=100), lambda: SENTENCES))
    save_tokenizer(tokenizer, folder)
    special = SimpleNamespace(pad=tokenizer.pad_token_id)
    return Prepared(languages=LANGUAGES, vocab_size=len(tokenizer), special=special, tokenizer_folder=folder)


@pytest.fixture(scope="module", params=["plain", "conditioned"])
def live(request, prepared, tmp_path_factory):
    """A ModernBERT away from its first weights, what it answers, and its exported folder."""
    torch.manual_seed(1)
    conditioned = request.param == "conditioned"
    config = config_of(MODEL | {"conditioned_head": conditioned})
    encoder = build_encoder(config.model, prepared.vocab_size, LANGUAGES, LENGTH, prepared.special.pad).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp(request.param) / "export"
    export({f"encoder.{name}": value for name, value in encoder.state_dict().items()}, config, prepared, folder, FACTS)
    batch = {key: torch.from_numpy(value).long() for key, value in random_batch(prepared.vocab_size).items()}
    with torch.no_grad():
        hidden = encoder.encode(batch)
        logits = encoder.predict(hidden.flatten(0, 1), batch["language_ids"].flatten())
    logits = logits.view(*hidden.shape[:2], -1)
    return SimpleNamespace(
        folder=folder, batch=batch, hidden=hidden, logits=logits, conditioned=conditioned, encoder=encoder
    )


def asked(batch):
    """What a user gives: ids, what is no padding, and the language as the token type."""
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["example_ids"],
        "token_type_ids": batch["language_ids"],
    }


@torch.no_grad()
def test_the_registered_class_computes_what_the_trained_encoder_did(live):
    real = live.batch["example_ids"] > 0
    model = AutoModel.from_pretrained(live.folder).eval()
    hidden = model(**asked(live.batch)).last_hidden_state
    assert (hidden - live.hidden)[real].abs().max() < 1e-5
    if live.conditioned:
        logits = load_conditioned_head(live.folder, model)(hidden[real], live.batch["language_ids"][real])
    else:
        logits = AutoModelForMaskedLM.from_pretrained(live.folder).eval()(**asked(live.batch)).logits[real]
    assert (logits - live.logits[real]).abs().max() < 1e-5
    assert live.logits[real].abs().max() > 0.5


def test_the_config_names_our_class_and_a_token_type_for_each_language(live):
    config = json.loads((live.folder / "config.json").read_text())
    assert config["model_type"] == "xalign-modernbert"
    assert (config["type_vocab_size"], config["xalign_segments"], config["xalign_languages"]) == (3, 1, LANGUAGES)


def test_tasks_open_it_and_read_the_language_vectors(live):
    opened = Encoder.open(live.folder)
    assert opened.inputs.languages == tuple(LANGUAGES)
    expected = live.encoder.languages.weight[2].detach()
    torch.testing.assert_close(torch.from_numpy(opened.language_vector("hi")), expected)
    german, english = (pool(opened, ["the cat sees"], language) for language in ("de", "en"))
    assert abs(german - english).max() > 1e-3
    question = Question(english=[6, 7], other=[8, 9, 10], begin=1, end=2, language="de")
    predictor = Predictor.open(str(live.folder), "cpu")
    assert predictor._row(question, with_translation=True)["token_type_ids"] == [0] * 4 + [1] * 4
    assert len(predictor.answers([question], with_translation=True)) == 1


def test_a_fine_tuned_one_keeps_its_languages_and_opens_again(live, tmp_path):
    torch.manual_seed(0)
    tagger = AutoModelForTokenClassification.from_pretrained(live.folder, num_labels=4).eval()
    tagger.save_pretrained(tmp_path)
    again = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    given = asked(live.batch)
    with torch.no_grad():
        first, second = tagger(**given).logits, again(**given).logits
        other = again(**given | {"token_type_ids": torch.zeros_like(given["input_ids"])}).logits
    torch.testing.assert_close(first, second)
    assert (second - other).abs().max() > 1e-3


def test_without_language_embeddings_the_stock_class_is_used(prepared, tmp_path):
    config = config_of(SHAPE | {"family": "modernbert"})
    encoder = build_encoder(config.model, prepared.vocab_size, LANGUAGES, LENGTH, prepared.special.pad)
    state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    export(state, config, prepared, tmp_path / "export", FACTS)
    found = json.loads((tmp_path / "export" / "config.json").read_text())
    assert (found["model_type"], found["architectures"]) == ("modernbert", ["ModernBertForMaskedLM"])
    assert "type_vocab_size" not in found
    assert len(AutoTokenizer.from_pretrained(tmp_path / "export")) == prepared.vocab_size


def test_a_process_without_our_class_is_told_that_it_lacks_one(live):
    code = f"from transformers import AutoModel; AutoModel.from_pretrained({str(live.folder)!r})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parent)
    assert done.returncode != 0
    assert "xalign-modernbert" in done.stderr
