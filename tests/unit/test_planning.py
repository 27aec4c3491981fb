"""What `xalign plan` says that a worker holds, against bytes a parameter worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.config.schema import ModelConfig
from xalign_ray.models import backbone
from xalign_ray.models.backbone import encoder_values, vocabulary_size
from xalign_ray.models.families import BY_MODEL_TYPE
from xalign_ray.models.sizes import count_in
from xalign_ray.planning.describe import describe
from xalign_ray.planning.memory import host_memory_of, memory_of, state_of
from xalign_ray.planning.subject import Subject, subject_of
from xalign_ray.work.artifacts import read_json


@pytest.mark.parametrize(
    ("stage", "bf16", "expected"),
    [
        (0, False, 4 + 8),
        (1, False, 4 + (4 + 8) / 4),  # DeepSpeed keeps an fp32 copy of what it splits, of fp32 weights too
        (2, False, 4 + (4 + 8) / 4),
        (3, False, (4 + 4 + 8) / 4),
        (0, True, 4 + 8),  # autocast: weights stay in fp32
        (1, True, 2 + (4 + 8) / 4),
        (2, True, 2 + (4 + 8) / 4),
        (3, True, (2 + 4 + 8) / 4),
    ],
)
def test_bytes_of_a_parameter_on_four_workers(stage: int, bf16: bool, expected: float) -> None:
    settings = ["parallel.workers=4", f"parallel.zero_stage={stage}", f"train.bf16={str(bf16).lower()}"]
    assert sum(state_of(load_recipe("tiny/mlm", settings).config, 100).values()) == 100 * expected


@pytest.mark.parametrize(
    ("name", "parameters"),  # as released, with the prediction head
    [
        ("bert-base-uncased", 109_514_298),
        ("google-bert/bert-base-multilingual-cased", 177_974_523),
        ("FacebookAI/xlm-roberta-base", 278_295_186),
        ("xlm-roberta-large", 560_142_482),
        ("roberta-base", 124_697_433),
        ("answerdotai/ModernBERT-base", 149_655_232),
    ],
)
def test_known_encoders_are_as_large_as_they_were_released(name: str, parameters: int) -> None:
    values = encoder_values(name)
    assert values is not None
    assert count_in(BY_MODEL_TYPE[values["model_type"]], values, ModelConfig(), 1).total == parameters
    assert vocabulary_size(name) == values["vocab_size"]


def test_ids_of_a_tokenizer_are_counted_once_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read = []
    monkeypatch.setattr(backbone, "read_json", lambda *given: read.append(given) or read_json(*given))
    for ids in (3, 4):
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", 0.0]] * ids}}))
        assert [vocabulary_size(str(tmp_path)) for _ in range(3)] == [ids] * 3
    assert len(read) == 2


def test_the_parameters_of_every_recipe_are_known_without_a_download() -> None:
    for name in list_recipes():
        lines = dict(line.split(maxsplit=1) for line in describe(load_recipe(name)).splitlines())
        assert "(vocabulary " in lines["parameters"], name
        assert "iB a worker: weights " in lines["memory"], name


# Megabytes of driver and workers at their peak, as they were measured with a checkpoint: see figures.yaml.
CONTINUED = ["train.global_batch_size=14", "parallel.workers=1"]  # rows of 64 short pairs
MEASURED = {
    ("tiny/mlm", ()): 2085,
    ("continue/e5-contrast", ("model.init_from=intfloat/multilingual-e5-small", *CONTINUED)): 7757,
}


@pytest.mark.parametrize(("name", "settings"), MEASURED)
def test_host_memory_of_a_run_on_cpus_is_within_15_percent_of_the_measured(name: str, settings: Sequence[str]) -> None:
    recipe = load_recipe(name, settings)
    subject = subject_of(recipe)
    assert isinstance(subject, Subject)
    assert sum(host_memory_of(recipe.config, subject).values()) / 1e6 == pytest.approx(
        MEASURED[name, settings], rel=0.15
    )
    assert " of the machine's memory: tensors " in describe(recipe)
    assert "of the machine's memory" not in describe(load_recipe(name, [*settings, "parallel.gpus_per_worker=1"]))


def test_a_model_that_is_not_known_is_asked_for() -> None:
    lines = describe(load_recipe("papers/weam-de", ["model.init_from=someone/bert"]))
    assert "known with the config.json of someone/bert: download it, and set model.init_from to its folder" in lines
    own = describe(load_recipe("papers/align-mlm", ["data.tokenizer.path=own"]))
    assert "known with the tokenizer.json of own: make or download it, and set data.tokenizer.path to it" in own


def test_memory_is_said_in_a_unit_that_shows_it() -> None:
    small, large = (describe(load_recipe(name)) for name in ("tiny/mlm", "papers/mbert-mlm"))
    assert " MiB a worker: weights 2." in small
    assert " GiB a worker: weights " in large


MODERNBERT = [
    "model.family=modernbert", "model.num_hidden_layers=22", "model.intermediate_size=1152",
    "model.hidden_dropout_prob=0", "data.tokenizer.path=answerdotai/ModernBERT-base",
]  # fmt: skip


@pytest.mark.parametrize(
    (
        "stage",
        "compiled",
        "more",
        "gigabytes",
    ),  # as an H200 said it, the most that tensors held: benchmarks, On one GPU
    [
        (1, False, [], 16.7),
        (1, True, [], 14.8),
        (0, False, [], 19.1),
        (0, True, [], 20.9),
        (1, True, MODERNBERT, 21.6),
    ],
)
def test_the_memory_that_was_measured_on_a_gpu_was_planned(
    stage: int, compiled: bool, more: list[str], gigabytes: float
) -> None:
    settings = ["parallel.workers=1", "train.global_batch_size=64", "train.per_device_batch_size=64", *more]
    settings += [f"parallel.zero_stage={stage}", f"train.torch_compile={str(compiled).lower()}"]
    recipe = load_recipe("papers/mbert-mlm", settings)
    subject = subject_of(recipe)
    assert isinstance(subject, Subject)
    planned = sum(memory_of(recipe.config, subject, on_gpu=True).values()) / 1e9
    assert 0.99 * gigabytes < planned < 1.16 * gigabytes
