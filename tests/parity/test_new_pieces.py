"""A vocabulary that grows: a run that continues an encoder on another language, with new pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.parity.english_base import FACTS, SMALL, write_english_base
from tests.unit.conftest import make_config, prepare_here
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.exports import mix_weights
from xalign_ray.feed.batches import open_local
from xalign_ray.models.export import export
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.distributed import setup_workers
from xalign_ray.train.loop import build_model, train
from xalign_ray.work.job import Job

NEW = 12


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Prepared, Path]:
    """An encoder of English pieces, and data of both languages whose tokenizer has new pieces on top of them."""
    folder = tmp_path_factory.mktemp("grown")
    write_english_base(folder)
    tokenizer = f"data.tokenizer={{kind: folder, path: {folder / 'base'}, new_pieces: {NEW}}}"
    config = make_config(folder, tokenizer, f"model.init_from={folder / 'base'}", *SMALL)
    return config, prepare_here(config), folder / "base"


def test_rows_of_new_pieces_are_the_means_of_their_parts(continued: tuple[RunConfig, Prepared, Path]) -> None:
    config, prepared, base = continued
    old = AutoModelForMaskedLM.from_pretrained(base).get_input_embeddings().weight.detach()
    tokenizer, before = (AutoTokenizer.from_pretrained(folder) for folder in (prepared.tokenizer_folder, base))
    table = build_model(config, prepared).encoder.embed(torch.arange(len(tokenizer)))  # type: ignore[union-attr]
    assert len(prepared.new_rows) == NEW
    assert torch.equal(table[: len(before)], old[: len(before)])
    for number, olds in prepared.new_rows.items():
        assert torch.equal(table[number], old[olds].mean(dim=0))
        assert tokenizer.convert_ids_to_tokens(number) == "".join(before.convert_ids_to_tokens(olds))
    line = (base.parent / "de.txt").read_text().splitlines()[0]
    parts = [old for one in tokenizer(line)["input_ids"] for old in prepared.new_rows.get(one, [one])]
    assert parts == before(line)["input_ids"]


def test_the_grown_encoder_trains_on_its_new_pieces_and_is_exported_whole(
    continued: tuple[RunConfig, Prepared, Path], tmp_path: Path
) -> None:
    config, prepared, _ = continued
    share = next(open_local(prepared, config, 0, 0))
    assert np.isin(share["input_ids"], list(prepared.new_rows)).any()
    job, workers = Job(tmp_path / "run", FACTS), setup_workers(config.parallel)
    train(job, config, prepared, lambda first, rank, _: open_local(prepared, config, first, rank), workers)
    export(build_model(config, prepared).state_dict(), config, prepared, tmp_path / "export", FACTS | {"step": 0})  # type: ignore[arg-type]
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "export")
    assert model.get_input_embeddings().weight.shape[0] > max(prepared.new_rows)
    assert model.config.vocab_size == model.get_output_embeddings().weight.shape[0]


def test_a_mixture_with_the_start_takes_new_rows_whole(continued: tuple[RunConfig, Prepared, Path]) -> None:
    config, prepared, _ = continued
    start, name = build_model(config, prepared), "encoder.hf.bert.embeddings.word_embeddings.weight"
    reached = {name: tensor + 1.0 for name, tensor in start.state_dict().items()}
    mixed, before = mix_weights(config, prepared, reached, 0.25), start.state_dict()
    new = [*prepared.new_rows]
    for table in (name, "encoder.hf.cls.predictions.decoder.weight", "encoder.hf.cls.predictions.bias"):
        moved = mixed[table] - before[table]
        torch.testing.assert_close(moved[new], torch.ones_like(moved[new]))
        torch.testing.assert_close(moved[: min(new)], torch.full_like(moved[: min(new)], 0.25))


def test_new_pieces_without_an_encoder_to_start_from_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"new_pieces extends the vocabulary of model.init_from, which names none"):
        make_config(tmp_path, "data.tokenizer={kind: folder, path: there, new_pieces: 3}")
