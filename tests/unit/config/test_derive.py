"""Batch sizes, fingerprints and the DeepSpeed dict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xalign_ray.config.derive import deepspeed_config, derive_batch
from xalign_ray.config.identity import data_settings, run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError


def tiny(*settings: str, name: str = "tiny/align-mlm") -> RunConfig:
    return load_recipe(name, settings).config


def batch(rows: int, workers: int, micro: int):
    return derive_batch(
        tiny(f"train.global_batch_size={rows}", f"parallel.workers={workers}", f"train.per_device_batch_size={micro}")
    )


@pytest.mark.parametrize(
    ("rows", "workers", "micro", "accumulation"),
    [(96, 2, 48, 1), (96, 1, 48, 2), (96, 2, 47, 2), (96, 3, 8, 4), (10, 3, 2, 2), (5, 5, 1, 1), (7, 2, 2, 2)],
)
def test_accumulation_is_the_least_that_fits(rows: int, workers: int, micro: int, accumulation: int) -> None:
    found = batch(rows, workers, micro)
    assert (found.global_rows, found.workers, found.accumulation) == (rows, workers, accumulation)
    for rank in range(workers):
        low, high = found.rows_of(rank)
        assert accumulation <= high - low <= micro * accumulation, "no micro-step is empty or too large"


def test_more_workers_than_rows_are_refused() -> None:
    with pytest.raises(ConfigError) as told:
        batch(3, 4, 8)
    assert str(told.value) == "A step has 3 rows, fewer than parallel.workers 4: some would idle."


def test_a_worker_with_an_empty_micro_step_is_refused() -> None:
    with pytest.raises(ConfigError) as told:
        batch(7, 2, 1)
    assert str(told.value) == (
        "train.global_batch_size 7 over 2 workers leaves 3 rows for 4 micro-steps; raise train.per_device_batch_size "
        "or make the global batch a multiple of 2."
    )


def test_a_number_of_workers_that_a_run_may_come_to_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match=r"train\.global_batch_size 7 over 2 workers leaves 3 rows for 4 micro-steps"):
        derive_batch(
            tiny(*["train.global_batch_size=7", "train.per_device_batch_size=1", "parallel.workers=7"], FEWEST)
        )
    assert derive_batch(tiny("train.global_batch_size=96", "parallel.workers=4", FEWEST)).workers == 4
    with pytest.raises(ConfigError, match=r"min_workers 2 is more than workers 1; lower it"):
        tiny("parallel.workers=1", FEWEST)


FEWEST = "parallel.min_workers=2"
SAME_RESULT = [
    "parallel.workers=3", "parallel.zero_stage=3", "parallel.max_failures=9", "parallel.min_workers=1",
    "train.per_device_batch_size=7", "data.root=/elsewhere", "data.max_bad_fraction=0.5", "output=/elsewhere",
    "notes=other", "data.corpora.0.paths=[moved.jsonl]", "track.mlflow=off", "checkpoint.save_steps=7",
    "checkpoint.save_total_limit=9", "train.num_train_epochs=3", "train.pairs_per_step=7",
]  # fmt: skip
OTHER_RESULT = [
    "seed=1", "train.max_steps=12345", "train.global_batch_size=123", "train.optimizer.learning_rate=1.23e-4",
    "train.max_grad_norm=0", "train.bf16=true", "train.schedule.warmup_steps=123", "sampling.alpha=0.123",
    "sampling.unit=rows", "masking.mlm_probability=0.3", "masking.whole_word_mask=false", "model.num_hidden_layers=17",
    "model.hidden_dropout_prob=0.123", "model.attention_probs_dropout_prob=0.123", "model.init_from=x",
    "model.language_embeddings=true",
    "objectives.1.weight=5", "objectives.1.pairs_per_step=5",
    "streams=[{kind: masked_text}, {kind: code_switched_labels}]",
    "parallel.deepspeed_overrides.prescale_gradients=true",
]  # fmt: skip
OTHER_DATA = [
    "data.max_seq_length=123", "data.example=document", "data.reserve_fraction=0.123", "data.held_out_fraction=0.123",
    "data.dictionary_held_out_fraction=0.5", "data.tokenizer.vocab_size=567", "data.tokenizer.lowercase=false",
    "data.corpora.0.language=fi", "data.dictionaries.0.split=held_out", "data.dictionaries=[]",
    "data.filters.min_pieces=3",
]  # fmt: skip


def test_training_is_in_bf16_on_gpus_unless_the_recipe_says_otherwise() -> None:
    for asked, on_cpu, on_gpu in (("null", False, True), ("true", True, True), ("false", False, False)):
        cpu, gpu = (tiny(f"train.bf16={asked}", f"parallel.gpus_per_worker={gpus}") for gpus in (0, 1))
        assert (cpu.in_bf16, gpu.in_bf16) == (on_cpu, on_gpu)
        assert (run_fingerprint(cpu, "d") == run_fingerprint(gpu, "d")) == (on_cpu == on_gpu)
        assert deepspeed_config(gpu, on_gpu=True)["bf16"] == {"enabled": on_gpu}


@pytest.mark.parametrize("setting", SAME_RESULT)
def test_what_does_not_change_the_result_is_not_in_the_fingerprints(setting: str) -> None:
    assert run_fingerprint(tiny(setting), "d") == run_fingerprint(tiny(), "d")
    assert data_settings(tiny(setting)) == data_settings(tiny())


@pytest.mark.parametrize("setting", OTHER_RESULT)
def test_what_changes_the_result_changes_the_run_and_not_the_data(setting: str) -> None:
    assert run_fingerprint(tiny(setting), "d") != run_fingerprint(tiny(), "d")
    assert data_settings(tiny(setting)) == data_settings(tiny())


@pytest.mark.parametrize("setting", OTHER_DATA)
def test_what_changes_shards_changes_the_data_settings(setting: str) -> None:
    recipe = "tiny/mlm" if setting == "data.dictionaries=[]" else "tiny/align-mlm"
    assert data_settings(tiny(setting, name=recipe)) != data_settings(tiny(name=recipe))


def write_encoder(folder: Path, weights: bytes = b"weights", **config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4, "_name_or_path": "here"} | config))
    return f"model.init_from={folder}"


def test_an_encoder_to_continue_is_known_by_its_weights_and_config(tmp_path: Path) -> None:
    before = run_fingerprint(tiny(write_encoder(tmp_path / "one")), "d")
    moved = write_encoder(tmp_path / "two", _name_or_path="elsewhere", transformers_version="5.0")
    assert run_fingerprint(tiny(moved), "d") == before
    assert run_fingerprint(tiny(write_encoder(tmp_path / "one", b"others")), "d") != before
    assert run_fingerprint(tiny(write_encoder(tmp_path / "one", num_attention_heads=2)), "d") != before
    assert run_fingerprint(tiny(write_encoder(tmp_path / "one")), "d") == before


def test_other_data_is_another_run() -> None:
    assert run_fingerprint(tiny(), "a") != run_fingerprint(tiny(), "b")


def test_recipes_over_the_same_data_share_their_shards() -> None:
    assert data_settings(tiny(name="tiny/mlm")) == data_settings(tiny(name="tiny/align-mlm"))
    assert run_fingerprint(tiny(name="tiny/mlm"), "d") != run_fingerprint(tiny(name="tiny/align-mlm"), "d")


def test_where_a_given_tokenizer_lies_is_not_part_of_the_data() -> None:
    one, other = (tiny(f"data.tokenizer={{kind: folder, path: {path}}}") for path in ("a", "b"))
    assert data_settings(one) == data_settings(other)


CUT = ("train.global_batch_size=96", "train.per_device_batch_size=20", "parallel.workers=2", "parallel.zero_stage=2")


def test_deepspeed_dict_follows_the_recipe() -> None:
    derived = deepspeed_config(tiny(*CUT, "train.max_grad_norm=0.5", "train.bf16=true"), on_gpu=False)
    assert derived["train_micro_batch_size_per_gpu"] == 16
    assert derived["gradient_accumulation_steps"] == 3
    assert derived["gradient_clipping"] == 0.5
    assert derived["bf16"] == {"enabled": True}
    assert derived["zero_optimization"]["stage"] == 2


def test_deepspeed_overrides_are_merged_last() -> None:
    settings = "parallel.deepspeed_overrides={zero_optimization: {reduce_bucket_size: 9}, steps_per_print: 1}"
    derived = deepspeed_config(tiny(*CUT, settings), on_gpu=True)
    assert derived["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 9}
    assert derived["steps_per_print"] == 1
    assert derived["gradient_accumulation_steps"] == 3


def test_a_run_without_a_prompt_is_the_run_of_before_there_was_one() -> None:
    plain, empty, prompted = (
        run_fingerprint(
            tiny(
                f"streams=[{{kind: contrasted_pairs{prompt}}}]",
                "data.parallel=[{format: tsv, languages: [en, qgr], paths: [x]}]",
            ),
            "d",
        )
        for prompt in ("", ", prompt: ''", ", prompt: 'query: '")
    )
    assert plain == empty != prompted
