"""New rows for new pieces: hand-worked means, every tie kept, nothing else moved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.extension import add_rows, exchange_rows
from xalign_ray.vocabulary.exchange import StartRows

SHAPE = {"num_hidden_layers": 1, "hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 8}
LANGUAGES = ["en", "de"]


@pytest.fixture(params=["bert", "xlm-r", "modernbert"])
def encoder(request):
    torch.manual_seed(0)
    made = build_encoder(
        ModelConfig(family=request.param, hidden_dropout_prob=0.0, **SHAPE), 6, LANGUAGES, 8, pad_id=0
    ).eval()
    with torch.no_grad():
        made.hf.get_input_embeddings().weight.copy_(torch.arange(24.0).view(6, 4))
        made.hf.get_output_embeddings().bias.copy_(torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    return made


def test_a_new_row_is_the_mean_of_its_old_rows_in_table_and_bias(encoder):
    add_rows(encoder.hf, {6: [1], 7: [2, 5], 8: [3, 4, 5]})
    words, decoder = encoder.hf.get_input_embeddings(), encoder.hf.get_output_embeddings()
    assert words.weight[6:].tolist() == [[4, 5, 6, 7], [14, 15, 16, 17], [16, 17, 18, 19]]
    assert decoder.bias.tolist() == [0, 1, 2, 3, 4, 5, 1, 3.5, 4]
    assert words.weight[:6].flatten().tolist() == list(range(24))


def test_the_tie_stays_and_the_names_of_all_weights(encoder):
    before = encoder.state_dict().keys()
    add_rows(encoder.hf, {6: [1]})
    assert encoder.hf.get_output_embeddings().weight is encoder.hf.get_input_embeddings().weight
    assert encoder.state_dict().keys() == before
    shared = [p for n, p in encoder.named_parameters(remove_duplicate=False) if p.shape[0] == 7 and p.ndim == 1]
    assert len({id(p) for p in shared}) == 1, "one bias, whatever it is called"
    encoder.hf.tie_weights()
    assert (encoder.hf.config.vocab_size, len(encoder.hf.get_output_embeddings().bias)) == (7, 7)


def test_the_encoder_knows_the_new_piece_and_predicts_the_old_ones_as_before(encoder):
    batch = {key: torch.zeros(1, 3, dtype=torch.long) for key in ("segment_ids", "language_ids")}
    batch |= {"position_ids": torch.arange(3)[None], "example_ids": torch.ones(1, 3, dtype=torch.long)}
    old = encoder.encode(batch | {"input_ids": torch.tensor([[1, 2, 5]])})
    logits = encoder.predict(old[0], batch["language_ids"][0])
    add_rows(encoder.hf, {6: [2]})
    new = encoder.encode(batch | {"input_ids": torch.tensor([[1, 6, 5]])})
    assert torch.equal(new, old), "the new piece starts as its translation"
    grown = encoder.predict(new[0], batch["language_ids"][0])
    torch.testing.assert_close(grown[:, :6], logits)
    torch.testing.assert_close(grown[:, 6], logits[:, 2])


def test_an_unused_row_of_the_table_is_written_over(encoder):
    add_rows(encoder.hf, {5: [1], 6: [2]})
    assert encoder.hf.get_input_embeddings().weight[5:].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]


def save_bert(path):
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertForMaskedLM(BertConfig(vocab_size=6, max_position_embeddings=8, **sizes)).save_pretrained(path)
    return str(path)


def test_a_run_continues_a_folder_with_more_pieces_equally_on_every_rank(tmp_path):
    model = ModelConfig(init_from=save_bert(tmp_path))
    ranks = []
    for seed in (1, 2):  # whatever was drawn before
        torch.manual_seed(seed)
        ranks.append(build_encoder(model, 8, LANGUAGES, 8, pad_id=0, new_rows={6: [1, 2], 7: [3]}).state_dict())
    assert all(torch.equal(value, ranks[1][name]) for name, value in ranks[0].items())
    table = ranks[0]["hf.bert.embeddings.word_embeddings.weight"]
    torch.testing.assert_close(table[6], (table[1] + table[2]) / 2)
    assert torch.equal(table[7], table[3])


def test_more_pieces_than_the_folder_has_rows_are_refused_without_rows_for_them(tmp_path):
    with pytest.raises(ConfigError, match=r"has 6 word embeddings, the run's tokenizer 8 ids"):
        build_encoder(ModelConfig(init_from=save_bert(tmp_path)), 8, LANGUAGES, 8, pad_id=0)
    with pytest.raises(ConfigError, match=r"has 6 word embeddings, the run's tokenizer 7 ids"):
        build_encoder(ModelConfig(init_from=save_bert(tmp_path)), 8, LANGUAGES, 8, pad_id=0, new_rows={7: [1]})


def test_exchanged_tables_have_rows_as_asked_one_tie_and_the_new_padding(encoder):
    rows = StartRows(
        np.asarray([1, 2, 0], np.int32), np.asarray([5, 1, 3], np.int32), np.asarray([1, 0.25, 0.75], np.float32)
    )
    before = encoder.state_dict().keys()
    exchange_rows(encoder.hf, rows, pad_id=2, draw=False)
    words, decoder = encoder.hf.get_input_embeddings(), encoder.hf.get_output_embeddings()
    assert words.weight.tolist() == [[20, 21, 22, 23], [10, 11, 12, 13], [10, 11, 12, 13]], "copied, weighted, the mean"
    assert decoder.bias.tolist() == [5, 2.5, 2.5]
    assert decoder.weight is words.weight
    assert encoder.state_dict().keys() == before
    config = encoder.hf.config
    assert (config.vocab_size, config.pad_token_id, words.padding_idx, words.num_embeddings) == (3, 2, 2, 3)
    words(torch.tensor([0, 1, 2])).sum().backward()
    assert words.weight.grad.abs().sum(dim=1).tolist() == [4, 4, 0], "the row of padding alone has no gradient"
