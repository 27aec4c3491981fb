"""What a typo gets: the file, the key, the nearest valid key."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.config.explain import ALIASES, differences, flatten, suggest
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import DataConfig
from xalign_ray.config.training import ParallelConfig, TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FineTuning

TRAIN = (
    "attention, bf16, eval_steps, global_batch_size, gradient_checkpointing, max_grad_norm, max_steps, "
    "num_train_epochs, optimizer, pairs_per_step, per_device_batch_size, retrieval_steps, schedule, tf32, "
    "torch_compile, trainable"
)
STREAMS = (
    "masked_text, masked_pairs, masked_translations, code_switched_labels, code_switched_copy, aligned_pairs, "
    "contrasted_pairs"
)

CASES = {
    "train: {stepz: 3}": f"unknown key 'train.stepz'. Did you mean 'train.max_steps'? Known here: {TRAIN}.",
    "streams: [{kind: masked_text, t: 0.4}]": "unknown key 'streams.0.t'. Known here: kind, weight.",
    "streams: [{kind: masked_text}, {kind: code_switched_labels, tt: 0.4}]": (
        "unknown key 'streams.1.tt'. Did you mean 'streams.1.t'? "
        "Known here: kind, mix_unit, refill, t, variant, weight."
    ),
    "streams: [{kind: masked_txt}]": (
        f"'streams.0': kind 'masked_txt' is not one of {STREAMS}. Did you mean 'masked_text'?"
    ),
    "streams: [{weight: 1}]": (f"'streams.0' has no kind; it must be one of {STREAMS}."),
    "objectives: [{kind: alignment}]": (
        "'objectives.0': kind 'alignment' is not one of masked_lm, dictionary_alignment, word_exchange, "
        "denoising_alignment, momentum_contrast, sentence_contrast, distillation. "
        "Did you mean 'denoising_alignment'?"
    ),
    "data: {tokenizer: {kind: wordpiece}}": (
        "'data.tokenizer': kind 'wordpiece' is not one of bpe, folder, start, exchange, trim."
    ),
    "data: {tokenizer: {kind: folder}}": "'data.tokenizer.path' is required and not given.",
    "data: {corpora: [{format: txt, language: en, paths: [x]}]}": (
        "'data.corpora.0.format' is 'txt'; it must be one of wikipedia, text, conllu, csv, tsv, xlsx, jsonl, "
        "json, parquet, arrow, hf. Did you mean 'text'?"
    ),
    "data: {corpora: []}": "stream masked_text needs data.corpora; the recipe names none.",
    "data: {parallel: [{format: tmx, languages: [en, de], paths: [x.tmx], columns: [a, b]}]}": (
        "'data.parallel.0': format tmx has no columns; leave out columns."
    ),
    "data: {parallel: [{format: tsv, languages: [en, de], paths: [x.tsv], columns: [en, en]}]}": (
        "'data.parallel.0': columns name 'en' twice; name two different ones."
    ),
    'data: {dictionaries: [{format: tsv, languages: [en, de], paths: [x.tsv], columns: ["1", "1"]}]}': (
        "'data.dictionaries.0': columns name '1' twice; name two different ones."
    ),
    "data: {parallel: [{format: tsv, languages: [en, de], paths: [x.tsv], where: label=1}]}": (
        "'data.parallel.0': where needs columns: name the two texts' columns."
    ),
    "model: {hidden_size: 97}": "'model': hidden_size 97 is not a multiple of num_attention_heads 4.",
    "train: {max_steps: 0}": "'train': its length is not given; set max_steps, or num_train_epochs.",
    "train: {global_batch_size: 0}": (
        "'train': the size of a step is not given; set global_batch_size, or pairs_per_step."
    ),
    "train: {max_steps: -1}": "'train.max_steps' is -1; it must be at least 0.",
    "train: {max_steps: many}": ("'train.max_steps' is 'many'; it must be a whole number."),
    "parallel: {placement_strategy: SPREAD}": (
        "unknown key 'parallel.placement_strategy'. Did you mean 'parallel.ray'? Known here: "
        f"{', '.join(sorted(ParallelConfig.model_fields))}."
    ),
    "parallel: {ray: {num_workers: 2}}": (
        "'parallel.ray': num_workers follows from the recipe: set parallel.workers instead."
    ),
    "train: 5": "'train' is 5; it must be a block of keys.",
    "train: {learning_rate: 1}": (
        f"unknown key 'train.learning_rate'. Did you mean 'train.optimizer.learning_rate'? Known here: {TRAIN}."
    ),
    "train: {lr: 1}": f"unknown key 'train.lr'. Did you mean 'train.optimizer.learning_rate'? Known here: {TRAIN}.",
    "train: {epochs: 1}": f"unknown key 'train.epochs'. Did you mean 'train.num_train_epochs'? Known here: {TRAIN}.",
    "train: {batch_size: 1}": (
        f"unknown key 'train.batch_size'. Did you mean 'train.global_batch_size'? Known here: {TRAIN}."
    ),
    "train: {warmup: 1}": (
        f"unknown key 'train.warmup'. Did you mean 'train.schedule.warmup_steps'? Known here: {TRAIN}."
    ),
    "train: {wd: 1}": f"unknown key 'train.wd'. Did you mean 'train.optimizer.weight_decay'? Known here: {TRAIN}.",
    "train: {optimizer: {lr: 1}}": (
        "unknown key 'train.optimizer.lr'. Did you mean 'train.optimizer.learning_rate'? "
        "Known here: beta1, beta2, epsilon, kind, learning_rate, rates, weight_decay."
    ),
    "seed: []": "'seed' is []; it must be a whole number.",
    "output: [a]": "'output' is ['a']; it must be text; put quotes around it.",
    "train: {bf16: maybe}": "'train.bf16' is 'maybe'; it must be true or false.",
    "data: {corpora: x}": "'data.corpora' is 'x'; it must be a list, as in [a, b].",
    "train: {optimizer: {learning_rate: .inf}}": "'train.optimizer.learning_rate' is '.inf'; it must be a number.",
    "data: {max_seq_length: 1.5}": "'data.max_seq_length' is 1.5; it must be a whole number.",
    "trian: {max_steps: 5}": (
        "unknown key 'trian'. Did you mean 'train'? Known here: allow, checkpoint, data, masking, model, notes, "
        "objectives, output, parallel, plugins, sampling, seed, streams, track, train."
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_a_mistake_in_a_recipe_is_one_sentence(tmp_path: Path, text: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"extends: tiny/mlm\n{text}\n")
    with pytest.raises(ConfigError) as told:
        load_recipe(str(mine))
    assert str(told.value) == f"{mine}: {CASES[text]}"


def test_a_mistake_on_the_command_line_says_so() -> None:
    with pytest.raises(ConfigError) as told:
        load_recipe("tiny/mlm", ["train.stepz=3"])
    assert str(told.value) == f"--set: unknown key 'train.stepz'. Did you mean 'train.max_steps'? Known here: {TRAIN}."


def test_a_mistake_in_an_extended_file_names_that_file(tmp_path: Path) -> None:
    base, mine = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text("extends: tiny/mlm\nmodel: {hidden_sise: 3}\n")
    mine.write_text("extends: base\nmodel: {num_hidden_layers: 3}\n")
    with pytest.raises(
        ConfigError, match=f"^{base}: unknown key 'model.hidden_sise'. Did you mean 'model.hidden_size'"
    ):
        load_recipe(str(mine))


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: tiny/mlm\nmodel: {num_layers: 1}\ntrain: {step: 1}\n")
    with pytest.raises(ConfigError) as told:
        load_recipe(str(mine), ["seed=x"])
    assert [line.split(" Did")[0] for line in str(told.value).splitlines()] == [
        "--set: 'seed' is 'x'; it must be a whole number.",
        f"{mine}: unknown key 'model.num_layers'.",
        f"{mine}: unknown key 'train.step'.",
    ]


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggest("zzz", ["steps"]) == ""
    assert suggest("step", ["steps", "seed"]) == " Did you mean 'steps'?"


def test_differences_are_dotted_keys_with_both_values() -> None:
    left = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": []}
    right = {"a": {"b": 1, "c": [1, {"d": 3}, 4]}, "e": [5]}
    assert flatten(left) == {"a.b": 1, "a.c.0": 1, "a.c.1.d": 2, "e": []}
    assert differences(left, right) == [("a.c.1.d", 2, 3), ("a.c.2", None, 4), ("e", [], None), ("e.0", None, 5)]
    assert differences(left, left) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lr", "train.optimizer.learning_rate"),
        ("LR", "train.optimizer.learning_rate"),
        ("learning_rate", "train.optimizer.learning_rate"),
        ("batch-size", "train.global_batch_size"),
        ("epochs", "train.num_train_epochs"),
        ("dropout", "model.hidden_dropout_prob"),
        ("max_seq_length", "data.max_seq_length"),
        ("output_dir", "output"),
        ("model_name_or_path", "model.init_from"),
        ("vocab_size", "data.tokenizer.vocab_size"),
    ],
)
def test_a_key_as_other_tools_call_it_leads_to_ours(written: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"^--set: unknown key '{written}'. Did you mean '{meant}'\\? Known here: "):
        load_recipe("tiny/mlm", [f"{written}=3"])


def test_every_alias_leads_to_a_key() -> None:
    keys = {key.rpartition(".")[2] for key in flatten(load_recipe("tiny/mlm").config.model_dump())}
    known = keys | set(FineTuning.model_fields) | set(TrainConfig.model_fields) | set(DataConfig.model_fields)
    assert ALIASES.keys() <= known
    assert not {name for names in ALIASES.values() for name in names.split()} & set(TrainConfig.model_fields)
