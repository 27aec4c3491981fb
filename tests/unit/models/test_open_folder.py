"""A damaged model folder is refused by every verb that opens one, with what is wrong and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForTokenClassification, BertModel

from tests.whole_words import write_encoder
from xalign_ray.align.encoder_aligner import PretrainedEncoder
from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import OWN_CODE, open_model

WORDS = [f"w{number}" for number in range(55)]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
Weights = dict[str, Tensor]
QUERY = "bert.encoder.layer.0.attention.self.query"
DECODER = "cls.predictions.decoder.weight"
FILE = "model.safetensors"

# Each opens a folder as a verb does: pretrain, evaluate, tune, an encoder that aligns words.
DOORS: dict[str, Callable[[str], Any]] = {
    "pretrain": lambda name: build_encoder(ModelConfig(init_from=name), 60, ["en"], 16, pad_id=0),
    "evaluate": lambda name: open_model(open_encoder(name), AutoModel),
    "cloze": lambda name: open_model(open_encoder(name), AutoModelForMaskedLM),
    "tune": lambda name: open_model(open_encoder(name), AutoModelForTokenClassification, num_labels=3),
    "align": lambda name: PretrainedEncoder(name).open(Path(name)),
}


TWO = ("pretrain", "evaluate")  # which open weights in two ways; all others do as the second


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    write_encoder(tmp_path / "encoder", WORDS, **SIZES)
    return tmp_path / "encoder"


def resaved(change: Callable[[Weights], Weights]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        save_file(change(load_file(folder / FILE)), folder / FILE, metadata={"format": "pt"})

    return damage


def configured(**values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return damage


def pointed(file: str) -> Callable[[Path], None]:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea\nsize 132735\n"
    return lambda folder: (folder / file).write_text(text) and None


def cut(folder: Path, file: str = FILE) -> None:
    (folder / file).write_bytes((folder / file).read_bytes()[:-100])


def both(first: Callable[[Path], None], second: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        first(folder)
        second(folder)

    return damage


def pickled(change: Callable[[Weights], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        torch.save(change(load_file(folder / FILE)), folder / "pytorch_model.bin")
        (folder / FILE).unlink()

    return damage


def renamed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / FILE).rename(folder / name) and None


def of_an_index(folder: Path) -> None:
    (folder / FILE).unlink()
    index = {"weight_map": {DECODER: "model-00001-of-00001.safetensors"}}
    (folder / f"{FILE}.index.json").write_text(json.dumps(index))


def without_layer_one(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if ".layer.1." not in name}


def with_nan(weights: Weights) -> Weights:
    weights[f"{QUERY}.bias"][3] = float("nan")
    return weights


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "names of a wrapper": (
        resaved(lambda weights: {f"module.{name}": value for name, value in weights.items()}),
        r"lacks \d+ of .*; its file of weights holds module\.bert\..* instead: save the model alone, with ",
    ),
    "weights below the key of a trainer": (
        pickled(lambda weights: {"state_dict": weights, "epoch": 3}),
        r"lacks \d+ of its weights, such as .*; its file of weights holds epoch instead: save the model alone",
    ),
    "a pickle cut short": (both(pickled(dict), lambda folder: cut(folder, "pytorch_model.bin")), "cannot be opened"),
    "code of its own": (
        both(resaved(without_layer_one), configured(auto_map={"AutoModel": "x--y.Z"})),
        r"lacks 16 of its weights, .*; it comes with code of its own \(auto_map in its config\.json\), which is not ",
    ),
    "an adapter beside it": (
        lambda folder: (folder / "adapter_config.json").symlink_to("config.json"),
        r"holds a model and an adapter of one\. Remove adapter_config\.json if the adapter is merged; else merge it",
    ),
    "a layer left out": (
        resaved(without_layer_one),
        r"lacks 16 of its weights, such as .*encoder\.layer\.1\.attention\.output\.LayerNorm\.bias; its config\.json "
        r"and its weights do not belong together: export it again\.$",
    ),
    "one weight left out": (
        resaved(lambda weights: {name: value for name, value in weights.items() if name != f"{QUERY}.bias"}),
        r"lacks 1 of its weights, such as .*layer\.0\.attention\.self\.query\.bias;",
    ),
    "more layers than config.json says": (
        configured(num_hidden_layers=1),
        r"holds 16 weights that its config\.json has no place for, such as .*layer\.1\.",
    ),
    "an adapter that is not merged": (
        resaved(lambda weights: weights | {f"{QUERY}.lora_A.weight": torch.zeros(2, 16)}),
        r"holds 1 weights that its config\.json has no place for, such as .*lora_A\.weight; without them it is another "
        r"encoder: export it again, or merge its adapters first\.$",
    ),
    "another size": (
        resaved(lambda weights: weights | {f"{QUERY}.weight": torch.zeros(8, 16)}),
        r"layer\.0\.attention\.self\.query\.weight is of size 8 x 16, its config\.json asks for 16 x 16;",
    ),
    "not finite": (resaved(with_nan), r"query\.bias holds values that are not finite;"),
    "8 bits": (
        resaved(lambda weights: {name: value.to(torch.int8) for name, value in weights.items()}),
        r"is of type I8\. Save the model in fp32, fp16 or bf16, not quantised\.$",
    ),
    "cut short": (cut, r"has [\d,]+ bytes, its header says [\d,]+: it is not whole\. "),
    "no safetensors": (
        lambda folder: (folder / FILE).write_text("weights") and None,
        r"is no safetensors file, or its header is cut short",
    ),
    "a pointer for weights": (
        pointed(FILE),
        r"model\.safetensors is a pointer to the file, a web page or a server",
    ),
    "a pointer for config.json": (pointed("config.json"), r"config\.json is a pointer to the file"),
    "no weights": (renamed("tf_model.h5"), r"holds no weights: none of .* is there, only tf_model\.h5\."),
    "half a download": (renamed(f"{FILE}.incomplete"), r"is there, only model\.safetensors\.incomplete\."),
    "a shard without its index": (
        renamed("model-00001-of-00002.safetensors"), r"is there, only model-00001-of-00002\.safetensors\.",
    ),
    "a part of the weights missing": (of_an_index, r"model-00001-of-00001\.safetensors is missing"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("door", "damage"), [*((door, "not finite") for door in DOORS), *((door, name) for door in TWO for name in DAMAGES)]
)
def test_every_door_refuses_a_damaged_folder(folder: Path, damage: str, door: str) -> None:
    make, said = DAMAGES[damage]
    make(folder)
    with pytest.raises((ConfigError, DataError), match=re.escape(str(folder)) + ".*" + said):
        DOORS[door](str(folder))


@pytest.mark.parametrize("door", ["evaluate", "cloze", "tune", "align"])
def test_a_tokenizer_that_is_a_pointer_is_refused(folder: Path, door: str) -> None:
    pointed("tokenizer.json")(folder)
    with pytest.raises(DataError, match=r"tokenizer\.json is a pointer to the file"):
        DOORS[door](str(folder))


@pytest.mark.parametrize("door", DOORS)
def test_heads_that_are_not_asked_for_are_left(folder: Path, door: str) -> None:
    heads = {
        "cls.seq_relationship.weight": (2, 16),
        "bert.pooler.dense.weight": (16, 16),
        "bert.pooler.dense.bias": (16,),
    }
    resaved(lambda weights: weights | {name: torch.zeros(size) for name, size in heads.items()})(folder)
    DOORS[door](str(folder))


def test_half_a_prediction_head_is_refused(folder: Path) -> None:
    resaved(lambda weights: {name: value for name, value in weights.items() if "transform.dense" not in name})(folder)
    for door in ("pretrain", "cloze"):
        with pytest.raises(
            (ConfigError, DataError), match=r"lacks 2 of its weights, such as cls\.predictions\.transform"
        ):
            DOORS[door](str(folder))
    DOORS["evaluate"](str(folder))


def test_an_output_table_that_differs_from_the_words_is_refused(folder: Path) -> None:
    resaved(lambda weights: weights | {DECODER: torch.randn(60, 16)})(folder)
    with pytest.raises(ConfigError, match="has an output table that differs from its word embeddings"):
        DOORS["pretrain"](str(folder))


def test_a_head_that_was_never_trained_is_not_scored(folder: Path) -> None:
    BertModel.from_pretrained(folder).save_pretrained(folder)
    for model_class in (AutoModelForMaskedLM, AutoModelForTokenClassification):
        with pytest.raises(DataError, match="has no head of its own"):
            open_model(open_encoder(folder), model_class, new_head=False)
        open_model(open_encoder(folder), model_class)


def test_threads_that_open_an_encoder_at_once_each_get_all_of_its_weights(folder: Path) -> None:
    """As the trainings of a study begin: without turns, most of such opens leave weights that were never made."""
    weights = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("bert."): value for name, value in weights.items() if name.startswith("bert.")}
    save_file(bare, folder / "model.safetensors", {"format": "pt"})  # its head is drawn anew
    with ThreadPoolExecutor(4) as threads:
        opened = threads.map(lambda _: open_model(open_encoder(folder), AutoModelForMaskedLM)[0], range(12))
    for model in opened:
        found = model.state_dict()
        assert not any(value.is_meta for value in found.values())
        assert all(torch.equal(found[f"bert.{name}"], value) for name, value in bare.items())
        drawn = model.cls.predictions.transform.dense.weight
        assert 0 < drawn.std() < 2 * model.config.initializer_range


@pytest.mark.parametrize("door", ["evaluate", "cloze", "tune"])
def test_a_model_of_a_kind_that_only_its_own_code_knows_is_refused_in_a_sentence(folder: Path, door: str) -> None:
    """As gte-multilingual-base: transformers would ask, or name a folder to look into."""
    configured(model_type="new", auto_map={"AutoConfig": "configuration.NewConfig"})(folder)
    with pytest.raises(DataError, match=re.escape(OWN_CODE)):
        DOORS[door](str(folder))
