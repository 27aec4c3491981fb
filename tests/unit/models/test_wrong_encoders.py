"""Encoders that cannot be continued are refused in one sentence that says what to do, within 2 s, by their files."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertForMaskedLM

from tests.whole_words import write_encoder

SECONDS = 2.0
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 470045872\n"
WEIGHTS = "model.safetensors"


def write_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(
        json.dumps({key: value for key, value in (json.loads(path.read_text()) | changes).items() if value})
    )


def rename_weights(folder: Path, prefix: str) -> None:
    save_file({f"{prefix}{name}": value for name, value in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)


def quantise(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file({name: value.to(torch.int8) for name, value in weights.items()}, folder / WEIGHTS)


def pickle_code(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": os.getcwd}, protocol=2))


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


def without_mask(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["mask_token"]
    path.write_text(json.dumps(settings))


def cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "mDeBERTa's masked LM": (
        lambda folder: write_config(folder, model_type="deberta-v2"),
        "is of the family deberta-v2, which was trained to find replaced words; the masked-LM head that transformers "
        "gives it is a new one: objective masked_lm cannot be trained. Take losses that predict no words, such as",
    ),
    "BERT as a decoder": (lambda folder: write_config(folder, is_decoder=True), "is a decoder; only encoders can be"),
    "an empty folder": (empty, "holds no config.json; name a Hugging Face model folder."),
    "no config": (lambda folder: (folder / "config.json").unlink(), "holds no config.json; name a Hugging Face model"),
    "a config without model_type": (lambda folder: write_config(folder, model_type=None), "it lacks model_type. It is"),
    "weights that are an LFS pointer": (lambda folder: (folder / WEIGHTS).write_text(LFS), "Run `git lfs pull`"),
    "weights cut short": (cut, "it is not whole. Fetch the file again"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "Save the model with save_pretrained."),
    "a pickle of code": (pickle_code, "could run any code. Save it as safetensors first"),
    "weights of DataParallel": (lambda folder: rename_weights(folder, "module."), "save `model.module` instead."),
    "weights of torch.compile": (
        lambda folder: rename_weights(folder, "_orig_mod."),
        "save `model._orig_mod` instead.",
    ),
    "an adapter": (only_an_adapter, "an adapter of intfloat/multilingual-e5-base, no model; merge it"),
    "quantised weights": (quantise, "Save the model in fp32, fp16 or bf16, not quantised."),
    "no tokenizer": (without_tokenizer, "put the model's own tokenizer next to it."),
    "a tokenizer of another vocabulary": (
        lambda folder: write_config(folder, vocab_size=7),
        "its tokenizer has 10 ids, its config.json 7 embeddings; they do not belong together.",
    ),
    "no mask token": (without_mask, "has no mask token, and stream masked_text masks text. Name one of its tokens in"),
    "an encoder in a folder below": (into_a_subfolder, "its encoder lies in a folder below; name "),
    "a Dense module": (
        lambda folder: write_modules(folder, Transformer="", Pooling="1_Pooling", Dense="2_Dense"),
        "has a module Dense, whose weights would not be trained with the encoder, nor fit it then. Continue a copy of",
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "encoder"
    write_encoder(folder, [f"w{number}" for number in range(5)], **SIZES)
    return folder


def asked(folder: Path | str, *settings: str) -> list[str]:
    given = [f"model.init_from={folder}", "data.tokenizer={kind: start}", *settings]
    return ["config", "check", "tiny/mlm", *(word for setting in given for word in ("--set", setting))]


@pytest.mark.parametrize("name", CASES)
def test_wrong_encoder_is_refused_within_two_seconds(whole: Path, tmp_path: Path, name: str) -> None:
    spoil, said = CASES[name]
    folder = tmp_path / "encoder"
    shutil.copytree(whole, folder)
    spoil(folder)
    message, seconds = refused(*asked(folder))
    assert message.startswith(f"xalign: model.init_from: {folder}")
    assert said in message
    assert message.endswith((".", "?"))
    assert seconds < SECONDS


def test_hub_id_without_a_network_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    name = "intfloat/multilingual-e5-smal"
    words = ["pretrain", *asked(name)[2:], "--set", f"output={tmp_path}/runs", "--set", 'track.mlflow="off"']
    message, seconds = refused(*words)
    assert message == (
        f"xalign: model.init_from: {name} is no folder, and http://127.0.0.1:9 cannot be reached. Without a network, "
        "copy its files into a folder and name that."
    )
    assert seconds < SECONDS


def test_a_whole_encoder_and_a_pickle_of_tensors_pass(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(whole, folder)
    pickle_code(folder)  # as the training_args.bin of a Trainer's checkpoint, which is not read
    (folder / "pytorch_model.bin").rename(folder / "training_args.bin")
    shutil.copy(whole / WEIGHTS, folder)
    torch.save(BertForMaskedLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "xalign_ray", *asked(folder)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (folder / WEIGHTS).unlink(missing_ok=True)
