"""Another vocabulary for a trained encoder: what each row starts as, and a run that trains and exports it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.parity.english_base import FACTS, SMALL, write_english_base
from tests.unit.conftest import make_config, prepare_here
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.feed.batches import open_local
from xalign_ray.models.export import export
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tokens.stats import measure
from xalign_ray.train.distributed import setup_workers
from xalign_ray.train.loop import build_model, train
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer
from xalign_ray.work.job import Job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of English pieces in `base`, and a vocabulary of both languages in `both`."""
    folder = tmp_path_factory.mktemp("exchange")
    write_english_base(folder)
    lines = [line for name in ("de.txt", "en.txt") for line in (folder / name).read_text().splitlines()]
    save_tokenizer(wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=300), lambda: lines)), folder / "both")
    return folder


def exchanged(folder: Path, init: str, *settings: str) -> tuple[RunConfig, Prepared]:
    tokenizer = f"data.tokenizer={{kind: exchange, path: {folder / 'both'}, init: {init}}}"
    config = make_config(folder, tokenizer, f"model.init_from={folder / 'base'}", *SMALL, *settings)
    return config, prepare_here(config)


@pytest.mark.parametrize("init", ["mean", "dictionary", "random"])
def test_rows_of_shared_pieces_are_copied_and_others_made_as_asked(folder: Path, init: str) -> None:
    config, prepared = exchanged(folder, init)
    old = AutoModelForMaskedLM.from_pretrained(folder / "base")
    rows, biases = old.get_input_embeddings().weight.detach(), old.get_output_embeddings().bias.detach()
    before, after = (AutoTokenizer.from_pretrained(folder / name) for name in ("base", "both"))
    hf = build_model(config, prepared).encoder.hf
    table, bias = hf.get_input_embeddings().weight.detach(), hf.get_output_embeddings().bias.detach()
    assert table.shape[0] == len(after) == hf.config.vocab_size
    known = before.get_vocab()
    trained = {right: left for _, left, _, right in prepared.pair_words("trained")}
    counts = dict.fromkeys(("copied", "from_translations", "from_pieces", "random"), 0)
    for piece, number in after.get_vocab().items():
        word = piece.removeprefix("\u2581")
        one = before(trained.get(word, ""), add_special_tokens=False)["input_ids"] if piece != word else []
        if piece in known:
            olds, how = [known[piece]], "copied"
        elif init == "dictionary" and len(one) == 1 and one != [before.unk_token_id]:
            olds, how = one, "from_translations"
        else:
            olds = [n for n in before(word, add_special_tokens=False)["input_ids"] if n != before.unk_token_id]
            how = "from_pieces" if olds and init != "random" else "random"
        counts[how] += 1
        if how == "random":
            assert not torch.isin(table[number], rows).all()
            assert bias[number] == pytest.approx(biases.mean().item())
        else:
            torch.testing.assert_close(table[number], rows[olds].mean(dim=0), rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(bias[number], biases[olds].mean(), rtol=1e-6, atol=1e-7)
        if how == "copied":
            assert torch.equal(table[number], rows[olds[0]])
    said = prepared.exchange["pieces"]
    assert {way: said[way] for way in counts} == counts
    assert counts["copied"] > 20
    assert sum(said.values()) == len(after)
    if init == "dictionary":
        assert counts["from_translations"] > 10
    if init == "random":
        drawn = table[[n for p, n in after.get_vocab().items() if p not in known]]
        torch.testing.assert_close(drawn.std(dim=0), rows.std(dim=0), rtol=0.3, atol=0.0)
        again = build_model(config, prepared).encoder.hf.get_input_embeddings().weight
        assert torch.equal(table, again), "every rank draws the same"


def test_exchanged_encoder_trains_and_its_export_opens_in_transformers(folder: Path, tmp_path: Path) -> None:
    config, prepared = exchanged(folder, "mean")
    share = next(open_local(prepared, config, 0, 0))
    assert np.asarray(share["input_ids"]).max() > len(AutoTokenizer.from_pretrained(folder / "base")) // 2
    job, workers = Job(tmp_path / "run", FACTS), setup_workers(config.parallel)
    train(job, config, prepared, lambda first, rank, _: open_local(prepared, config, first, rank), workers)
    state = build_model(config, prepared).state_dict()
    export(state, config, prepared, tmp_path / "export", FACTS | {"step": 0})  # type: ignore[arg-type]
    model, tokenizer = (kind.from_pretrained(tmp_path / "export") for kind in (AutoModelForMaskedLM, AutoTokenizer))
    assert model.config.vocab_size == len(tokenizer) == model.get_output_embeddings().weight.shape[0]
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert torch.equal(model.get_input_embeddings().weight, state["encoder.hf.bert.embeddings.word_embeddings.weight"])


def test_recipe_that_continues_the_export_keeps_its_rows(folder: Path) -> None:
    config, prepared = exchanged(folder, "random")
    state = build_model(config, prepared).state_dict()
    export(state, config, prepared, folder / "export", FACTS | {"step": 0})  # type: ignore[arg-type]
    start = f"{folder / 'export'}"
    after = make_config(folder, f"data.tokenizer={{kind: folder, path: {start}}}", f"model.init_from={start}", *SMALL)
    table = build_model(after, prepare_here(after)).encoder.hf.get_input_embeddings().weight
    assert torch.equal(table, state["encoder.hf.bert.embeddings.word_embeddings.weight"])


def test_data_stats_has_pieces_for_a_word_before_and_after(folder: Path, tmp_path: Path) -> None:
    _, prepared = exchanged(folder, "mean")
    stats, _ = measure(str(prepared.folder), out=tmp_path)
    assert stats.exchange["before"].keys() == stats.exchange["after"].keys() == {"en", "de"}
    assert stats.exchange["after"]["de"] < stats.exchange["before"]["de"]


def test_trimmed_encoder_gives_text_of_kept_pieces_the_same_vectors(folder: Path, tmp_path: Path) -> None:
    config = make_config(
        folder,
        "data.tokenizer={kind: trim, min_count: 60}",
        f"model.init_from={folder / 'base'}",
        "data.corpora=[{format: text, language: en, paths: [en.txt]}]",
        *SMALL,
    )
    prepared = prepare_here(config)
    state = build_model(config, prepared).state_dict()
    export(state, config, prepared, tmp_path / "export", FACTS | {"step": 0})  # type: ignore[arg-type]
    said = prepared.exchange["pieces"]
    model, tokenizer = (kind.from_pretrained(tmp_path / "export") for kind in (AutoModelForMaskedLM, AutoTokenizer))
    old, before = (kind.from_pretrained(folder / "base") for kind in (AutoModelForMaskedLM, AutoTokenizer))
    assert said == {"copied": len(tokenizer), "dropped": len(before) - len(tokenizer)}
    assert len(tokenizer) < len(before)
    same = 0
    for line in (folder / "en.txt").read_text().splitlines()[:50]:
        whole, trimmed = before(line, return_tensors="pt"), tokenizer(line, return_tensors="pt")
        if set(before.convert_ids_to_tokens(whole["input_ids"][0])) <= tokenizer.get_vocab().keys():
            same += 1
            assert torch.equal(old.base_model(**whole)[0], model.base_model(**trimmed)[0])
    assert same > 10


def test_exchange_without_an_encoder_or_a_dictionary_is_refused(tmp_path: Path) -> None:
    there = "data.tokenizer={kind: exchange, path: there, init: dictionary}"
    with pytest.raises(ConfigError, match=r"data.tokenizer exchange needs model.init_from"):
        make_config(tmp_path, there)
    with pytest.raises(ConfigError, match=r"init dictionary needs data.dictionaries; or set init to mean"):
        make_config(tmp_path, there, "model.init_from=here", "data.dictionaries=[]", *SMALL)


def test_focus_rows_are_sums_of_shared_rows(folder: Path) -> None:
    config, prepared = exchanged(folder, "focus")
    assert prepared.exchange["pieces"]["from_similar"] > 10
    old = AutoModelForMaskedLM.from_pretrained(folder / "base").get_input_embeddings().weight.detach()
    table = build_model(config, prepared).encoder.hf.get_input_embeddings().weight.detach()
    rows = prepared.start_rows
    assert rows is not None
    begin = 0
    for number, count in enumerate(rows.counts.tolist()):
        if count:
            olds, weights = rows.olds[begin : begin + count], rows.weights[begin : begin + count]
            wanted = sum(float(weight) * old[int(one)] for one, weight in zip(olds, weights, strict=True))
            torch.testing.assert_close(table[number], wanted, rtol=1e-5, atol=1e-6)
            assert weights.sum() == pytest.approx(1, abs=1e-5)
        begin += count
