"""mDeBERTa: a packed row is its sentences one by one in the stock model, and contrast trains it to an open export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer, DebertaV2Config, DebertaV2ForMaskedLM, DebertaV2Model

from tests.parity.test_continue import write_encoder, write_pairs
from tests.unit.conftest import prepare_here
from xalign_ray.config.derive import settle, with_absolute_paths
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import ModelConfig
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.continuing.story import continue_lines, resolve
from xalign_ray.models.encoder import build_encoder
from xalign_ray.track.events import read_events
from xalign_ray.work.run_folder import RunFolder

LENGTH, VOCABULARY = 24, 60
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "pad_token_id": 0}
RELEASED: dict[str, Any] = {  # as mDeBERTa v3 is, with fewer buckets so that distances beyond them occur
    "relative_attention": True,
    "position_buckets": 4,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "as released": RELEASED,
    "keys of its own, no buckets": RELEASED | {"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"},
    "content to position alone": RELEASED | {"share_att_key": False, "pos_att_type": ["c2p"]},
    "positions and token types, no distances": {"type_vocab_size": 2},
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    made = DebertaV2Model(DebertaV2Config(**SIZES, **KINDS[request.param]))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("deberta")
    made.save_pretrained(path)
    return path


def continued(folder: Path) -> Any:
    return build_encoder(ModelConfig(init_from=str(folder)), VOCABULARY, ["en"], LENGTH, pad_id=0, with_head=False)


def packed(lengths: list[list[int]]) -> dict[str, torch.Tensor]:
    """Rows of examples of such lengths, of random ids."""
    draw = torch.Generator().manual_seed(5)
    rows: dict[str, list[torch.Tensor]] = {"input_ids": [], "position_ids": [], "example_ids": []}
    for row in lengths:
        rest = [torch.zeros(LENGTH - sum(row), dtype=torch.long)]
        rows["input_ids"].append(torch.cat([torch.randint(1, VOCABULARY, (n,), generator=draw) for n in row] + rest))
        rows["position_ids"].append(torch.cat([torch.arange(n) for n in row] + rest))
        rows["example_ids"].append(torch.cat([torch.full((n,), i) for i, n in enumerate(row, 1)] + rest))
    given = {name: torch.stack(parts) for name, parts in rows.items()}
    return given | dict.fromkeys(("segment_ids", "language_ids"), given["input_ids"] * 0)


def test_packed_sentences_have_the_states_of_each_alone_in_the_stock_model(folder: Path) -> None:
    encoder, stock = continued(folder).eval(), AutoModel.from_pretrained(folder).eval()
    batch = packed([[5, 7, 12], [24], [1, 3], []])
    with torch.no_grad():
        last, second = encoder.encode(batch), encoder.encode(batch, 2)
        for row in range(len(last)):
            for example in range(1, int(batch["example_ids"][row].max()) + 1):
                here = batch["example_ids"][row] == example
                alone = stock(input_ids=batch["input_ids"][row][here][None], output_hidden_states=True)
                torch.testing.assert_close(last[row][here], alone.last_hidden_state[0], atol=1e-5, rtol=0)
                torch.testing.assert_close(second[row][here], alone.hidden_states[2][0], atol=1e-5, rtol=0)


def test_padded_batch_of_the_stock_model_has_the_same_gradients(folder: Path) -> None:
    """The stock model is given a sentence a row, and a mask of tokens; ours all of them in one row."""
    encoder, stock = continued(folder).eval(), AutoModel.from_pretrained(folder).eval()
    batch = packed([[5, 7, 12]])
    ids, mask = (torch.zeros(3, 12, dtype=torch.long) for _ in range(2))
    for number in range(3):
        own = batch["input_ids"][0][batch["example_ids"][0] == number + 1]
        ids[number, : len(own)], mask[number, : len(own)] = own, 1
    for states in (encoder.encode(batch)[0], stock(input_ids=ids, attention_mask=mask).last_hidden_state[mask > 0]):
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    expected = dict(stock.named_parameters())
    for name, parameter in encoder.hf.named_parameters():
        wanted = expected[name].grad
        if wanted is None:
            assert parameter.grad is None
            continue
        torch.testing.assert_close(parameter.grad, wanted, atol=1e-5, rtol=1e-4, msg=lambda said, n=name: f"{n} {said}")


def test_rows_of_padding_and_none_at_all_are_finite_and_call_the_same_modules(folder: Path) -> None:
    encoder, called = continued(folder), set()
    for name, module in encoder.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    encoder.encode(packed([[5, 7]]))
    expected = set(called)
    for batch in (packed([[]]), {name: values[:0] for name, values in packed([[5]]).items()}):
        called.clear()
        encoder.zero_grad()
        hidden = encoder.encode(batch)
        hidden.sum().backward()
        assert called == expected
        assert torch.isfinite(hidden).all()
        assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_first_scored_then_trained_in_rows_of_one_length(folder: Path) -> None:
    """Distances that were made while nothing was to be trained are good for a backward pass."""
    encoder, batch = continued(folder), packed([[2, 9]])
    batch = {name: values[:, :11] for name, values in batch.items()}
    with torch.inference_mode():
        encoder.encode(batch)
    encoder.encode(batch).sum().backward()


# --- the whole way --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of `xalign continue` on a tiny mDeBERTa as it is released: with a head of another kind."""
    folder = tmp_path_factory.mktemp("continue")
    write_encoder(folder / "encoder")
    sizes = SIZES | {"vocab_size": 205, "max_position_embeddings": 64}
    torch.manual_seed(0)
    DebertaV2ForMaskedLM(DebertaV2Config(**sizes, **RELEASED, legacy=False)).save_pretrained(folder / "encoder")
    config = json.loads((folder / "encoder" / "config.json").read_text())
    del config["legacy"]  # not in released folders, so that their head has no place in the model
    (folder / "encoder" / "config.json").write_text(json.dumps(config))
    write_pairs(folder / "pairs.en-de.tsv", 0, 400)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        faster = ("train.optimizer.learning_rate=3e-3", "model.hidden_dropout_prob=0.0", "train.retrieval_steps=0")
        given = {"pairs": ["pairs.en-de.tsv"], "steps": 6, "output": "runs/mine", "set": faster}
        lines = read_five_lines("encoder", given)
        found = resolve(lines)
        assert "Method contrast: pairs, and an encoder without a masked-LM head." in found.notes
        recipe = with_absolute_paths(found.recipe)
        prepare_here(settle(recipe, recipe.config.model.init_from).config)
        return continue_lines(lines, local=True)


def test_continue_trains_contrast(run: Path) -> None:
    found = json.loads(RunFolder(run).comparison.read_text())
    assert (found["methods"], found["steps"]) == (["contrast"], 6)
    steps = [event for event in read_events(RunFolder(run).events) if event["event"] == "step"]
    losses = [event["metrics"]["train/loss_sentence_contrast"] for event in steps]
    assert len(losses) == 6
    assert losses[-1] < losses[0] - 0.5


def test_export_opens_in_transformers_with_the_vectors_that_were_trained(run: Path) -> None:
    export = RunFolder(run).export
    model, loading = AutoModel.from_pretrained(export, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(export)
    assert type(model) is DebertaV2Model
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    texts = ["enaa enab", "deaa deac dead deae"]
    encoder = build_encoder(ModelConfig(init_from=str(export)), 205, ["en"], 64, pad_id=0, with_head=False).eval()
    ids = [tokenizer(text)["input_ids"] for text in texts]
    row = torch.tensor([ids[0] + ids[1]])
    examples = torch.tensor([[1] * len(ids[0]) + [2] * len(ids[1])])
    given = {"input_ids": row, "example_ids": examples, "position_ids": row * 0}
    ours = encoder.encode(given | dict.fromkeys(("segment_ids", "language_ids"), row * 0))[0]
    padded = model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state
    for number, states in enumerate(ours.split([len(one) for one in ids])):
        torch.testing.assert_close(padded[number, : len(states)], states, atol=1e-5, rtol=0)
    base = AutoModel.from_pretrained(run.parent.parent / "encoder").embeddings.word_embeddings.weight
    assert (model.embeddings.word_embeddings.weight - base).abs().max() > 1e-6


def test_family_recipe_takes_a_local_folder(run: Path) -> None:
    base = run.parent.parent
    recipe = load_recipe("continue/mdeberta-contrast", [f"model.init_from={base}/encoder"])
    assert [loss.kind for loss in recipe.config.objectives] == ["sentence_contrast"]
