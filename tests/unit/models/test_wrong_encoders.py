"""Encoders that cannot be continued are refused in one sentence that says what to do, by their files alone."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM

from tests.whole_words import write_encoder
from xalign_ray.checks import check_named_files, check_recipe
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.errors import ConfigError

SECONDS = 2.0
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 470045872\n"
WEIGHTS = "model.safetensors"


def write_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(
        json.dumps({key: value for key, value in (json.loads(path.read_text()) | changes).items() if value})
    )


def only_an_adapter(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "intfloat/multilingual-e5-base"})
    )
    (folder / "adapter_model.safetensors").write_bytes(b"")


def write_modules(folder: Path, **modules: str) -> None:
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in modules.items()]
    (folder / "modules.json").write_text(json.dumps(listed))


def into_a_subfolder(folder: Path) -> None:
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(inner / path.name)
    write_modules(folder, Transformer="0_Transformer", Pooling="1_Pooling")


def without_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()


def check(recipe: Recipe) -> None:
    check_recipe(recipe)
    check_named_files(recipe)


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "BERT as a decoder": (lambda folder: write_config(folder, is_decoder=True), "is a decoder; only encoders can be"),
    "GPT": (lambda folder: write_config(folder, model_type="gpt2"), "is of the family 'gpt2'; only those of bert, "),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "is damaged: it is not JSON"),
    "an empty folder": (empty, "holds no config.json; name a Hugging Face model folder."),
    "no config": (lambda folder: (folder / "config.json").unlink(), "holds no config.json; name a Hugging Face model"),
    "a config without model_type": (lambda folder: write_config(folder, model_type=None), "it lacks model_type. It is"),
    "an adapter": (only_an_adapter, "an adapter of intfloat/multilingual-e5-base, no model; merge it"),
    "no tokenizer": (without_tokenizer, "put the model's own tokenizer next to it."),
    "a tokenizer of another vocabulary": (
        lambda folder: write_config(folder, vocab_size=7),
        "its tokenizer has 10 ids, its config.json 7 embeddings; they do not belong together.",
    ),
    "an encoder in a folder below": (into_a_subfolder, "its encoder lies in a folder below; name "),
    "a module that is not known": (
        lambda folder: write_modules(folder, Transformer="", Pooling="1_Pooling", WeightedLayerPooling="2_Weighted"),
        "has a module WeightedLayerPooling, whose weights would not be trained",
    ),
    "positions for fewer tokens": (
        lambda folder: write_config(folder, max_position_embeddings=16),
        "has 16 positions, data.max_seq_length is 48; lower data.max_seq_length.",
    ),
}
IN_PROCESS = """
import sys
from xalign_ray.cli import main
try:
    main()
finally:
    assert not {'torch', 'transformers', 'ray'} & set(sys.modules), 'seconds of imports'
"""


def refused(*words: str) -> tuple[str, float]:
    """What a command says, and the processor's seconds that it took: a test beside others must not wait for them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS, *words], capture_output=True, text=True, check=False, timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr.splitlines()[-1], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_encoder(tmp_path / "encoder", [f"w{number}" for number in range(5)], **SIZES)
    return tmp_path / "encoder"


def asked(folder: Path | str) -> list[str]:
    return [f"model.init_from={folder}", "data.tokenizer={kind: start}"]


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_encoder_is_refused(folder: Path, name: str) -> None:
    spoil, said = CASES[name]
    spoil(folder)
    with pytest.raises(ConfigError) as refusal:
        check(load_recipe("tiny/mlm", asked(folder)))
    assert str(refusal.value).startswith(f"model.init_from: {folder}")
    assert said in str(refusal.value)
    assert str(refusal.value).endswith((".", "?"))


@pytest.mark.parametrize("name", ["an empty folder", "a tokenizer of another vocabulary", "positions for fewer tokens"])
def test_it_is_refused_within_two_seconds_before_any_import(folder: Path, name: str) -> None:
    CASES[name][0](folder)
    message, seconds = refused(
        "config", "check", "tiny/mlm", *(word for key in asked(folder) for word in ("--set", key))
    )
    assert CASES[name][1] in message
    assert seconds < SECONDS


def test_hub_id_without_a_network_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    name = "intfloat/multilingual-e5-smal"
    settings = [*asked(name), f"output={tmp_path}/runs", 'track.mlflow="off"']
    message, seconds = refused("pretrain", "tiny/mlm", *(word for key in settings for word in ("--set", key)))
    assert message == (
        f"xalign: model.init_from: {name} is no folder, and http://127.0.0.1:9 cannot be reached. Without a network, "
        "copy its files into a folder and name that."
    )
    assert seconds < SECONDS


def test_a_whole_encoder_and_a_pickle_of_tensors_pass(folder: Path) -> None:
    recipe = load_recipe("tiny/mlm", asked(folder))
    check(recipe)
    torch.save(BertForMaskedLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    check(recipe)
