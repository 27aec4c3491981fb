"""What the tree refuses because two of its values do not go together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError

DICT = "[{languages: [en, de], paths: [x]}]"


NEGATIVES = "data.parallel=[{format: tsv, languages: [en, de], paths: [x], columns: [en, de], negatives: [neg]}]"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["streams=[{kind: masked_pairs}]"], "stream masked_pairs needs data.parallel; the recipe names none."),
        (["train.trainable=new_rows"], "train.trainable new_rows needs data.tokenizer.new_pieces."),
        (["model.lora={rank: 4}"],
         "'model': lora trains adapters of an encoder that init_from names, without language_embeddings."),
        (
            ["model={init_from: m, lora: {rank: 4}}", "train.trainable=head"],
            "model.lora trains adapters alone: train.trainable is for weights without them.",
        ),
        (["streams=[{kind: code_switched_labels}]", "data.dictionaries=[]"],
         "stream code_switched_labels needs data.dictionaries; the recipe names none."),
        (["objectives=[{kind: masked_lm}, {kind: dictionary_alignment}]", "data.dictionaries=[]"],
         "objective dictionary_alignment needs data.dictionaries; the recipe names none."),
        (["streams=[{kind: masked_pairs}, {kind: code_switched_labels}]", "data.dictionaries=[]"],
         "stream masked_pairs needs data.parallel; stream code_switched_labels needs data.dictionaries; "
         "the recipe names none."),
        (["streams=[{kind: aligned_pairs}]"], "stream aligned_pairs needs data.parallel; the recipe names none."),
        (["streams=[{kind: aligned_pairs}]", "data.parallel=[{format: tsv, languages: [en, de], paths: [x]}]"],
         "stream aligned_pairs needs word alignments, which data.parallel 0 lacks; set its align to hmm, or give a "
         "moses corpus its alignment as third path."),
        (["data.parallel=[{format: moses, languages: [en, de], paths: [x, y, z], align: hmm}]"],
         "'data.parallel.0': align, and a third path that holds an alignment: keep one."),
        (["data.parallel=[{format: tsv, languages: [en, de], paths: [x], align: hmm}]",
          "data.word_alignment.extraction=argmax"],
         "'data': word_alignment.extraction and layer are those of align: encoder:FOLDER, which no corpus has."),
        (["streams=[{kind: contrasted_pairs}]"], "stream contrasted_pairs needs data.parallel; the recipe names none."),
        (["streams=[{kind: code_switched_copy}]", "data.dictionaries=[]", "data.reserve_fraction=0.5"],
         "stream code_switched_copy needs data.dictionaries; the recipe names none."),
        (["streams=[{kind: code_switched_copy}]", "data.reserve_fraction=0.49"],
         "stream code_switched_copy shows every example twice in its row: set data.reserve_fraction to 0.5 or more "
         "(it is 0.49)."),
        (["streams=[{kind: contrasted_pairs, text: apart}]",
          "data.parallel=[{format: moses, languages: [en, de], paths: [x, y]}]"],
         "stream contrasted_pairs with text: apart gives every pair one more special token: set data.reserve_fraction "
         "to 0.17 or more (it is 0)."),
        (["streams=[{kind: masked_pairs, double_separator: true}]",
          "data.parallel=[{format: moses, languages: [en, de], paths: [x, y]}]"],
         "stream masked_pairs with double_separator gives every pair one more special token: set "
         "data.reserve_fraction to 0.17 or more (it is 0)."),
        (["streams=[{kind: code_switched_labels, refill: true}]"],
         "'streams.0': refill is for mix_unit: instance; by word every word may be masked anyway."),
        (["streams=[{kind: contrasted_pairs}]", NEGATIVES, "objectives=[{kind: sentence_contrast}]"],
         "negatives of data.parallel are of the first side: set random_order of each stream to false."),
        (["streams=[{kind: contrasted_pairs, random_order: false}]", NEGATIVES],
         "data.parallel brings negatives that no objective reads; add objective sentence_contrast."),
        ([NEGATIVES, "data.teacher={path: teacher}"],
         "'data': shards hold a teacher's answers or the negatives of parallel: leave one of them out."),
        (["data.parallel=[{format: tsv, languages: [en, de], paths: [x], negatives: [neg]}]"],
         "'data.parallel.0': negatives needs columns: name the two texts' columns."),
        (["masking.mlm_probability=[[0, 0.15], [0, 0.3]]"],
         "'masking.mlm_probability' is [[0, 0.15], [0, 0.3]]; it must have increasing steps."),
        (["objectives=[{kind: masked_lm}, {kind: masked_lm}]"],
         "objectives name masked_lm, masked_lm: each kind may stand once."),
        (["sampling.temperature=5"],
         "'sampling': alpha and temperature are the same setting twice; keep one (alpha = 1/temperature)."),
        (["masking.mask_replace_prob=0.9", "masking.random_replace_prob=0.2"],
         "'masking': mask_replace_prob + random_replace_prob is 1.1; it must be at most 1."),
        (["sampling.alpha=[[0, 0.7], [100, 1.3]]", "sampling.temperature=null"],
         "'sampling.alpha' is [[0, 0.7], [100, 1.3]]; it must be at most 1."),
        (["objectives=[{kind: word_exchange}]"],
         "objective word_exchange needs a stream aligned_pairs; the recipe names none."),
        (["objectives=[{kind: momentum_contrast}, {kind: sentence_contrast}]"],
         "objective momentum_contrast needs a stream contrasted_pairs; objective sentence_contrast needs a stream "
         "contrasted_pairs; the recipe names none."),
        (["objectives=[{kind: momentum_contrast}]", "streams=[{kind: contrasted_pairs}]", "parallel.zero_stage=3",
          "data.parallel=[{format: moses, languages: [en, de], paths: [x, y]}]"],
         "objective momentum_contrast with parallel.zero_stage 3 is refused: its key encoder averages whole weights "
         "after each step, which stage 3 keeps in parts; use zero_stage 2."),
        (["objectives=[{kind: masked_lm, labels_at_once: 64}]", "parallel.zero_stage=3"],
         "objective masked_lm with labels_at_once with parallel.zero_stage 3 is refused: how often it calls the head "
         "follows a worker's labels, and at stage 3 every worker must make the same calls; use zero_stage 2."),
        (["parallel.gpus_per_worker=0.5"],
         "'parallel.gpus_per_worker': a training process has one GPU or none, not 0.5: NCCL refuses two "
         "processes on one GPU, and one process trains on one; raise parallel.workers for more."),
        (["parallel.gpus_per_worker=2"],
         "'parallel.gpus_per_worker': a training process has one GPU or none, not 2: NCCL refuses two "
         "processes on one GPU, and one process trains on one; raise parallel.workers for more."),
        (["train.optimizer={kind: lamb}", "parallel.zero_stage=3"],
         "train.optimizer.kind lamb with parallel.zero_stage 3 is refused: LAMB needs the norm of each whole tensor, "
         "and at stage 3 DeepSpeed does not say which part of it a worker's optimizer sees; use zero_stage 2."),
        (["train.optimizer.beta2=1"], "'train.optimizer.beta2' is 1; it must be less than 1."),
        (["train.optimizer={kind: lam}"],
         "'train.optimizer': kind 'lam' is not one of adamw, lamb. Did you mean 'lamb'?"),
        (["train.optimizer={learn_rate: 1}"],
         "unknown key 'train.optimizer.learn_rate'. Did you mean 'train.optimizer.learning_rate'? Known here: beta1, "
         "beta2, epsilon, kind, learning_rate, rates, weight_decay."),
        (["objectives=[{kind: masked_lm, weight: heavy}]"],
         "'objectives.0.weight' is 'heavy'; it must be a number, or a list of [step, value] with whole steps from "
         "0."),
        (["objectives=[{kind: masked_lm}, {kind: dictionary_alignment, layer: 3}]"],
         "objective dictionary_alignment reads layer 3, but model.num_hidden_layers is 2."),
        (["train.global_batch_size=0", "train.pairs_per_step=32"],
         "train.pairs_per_step counts pairs, and no stream of the recipe reads any; set train.global_batch_size."),
        (["train.max_steps=0", "train.num_train_epochs=2", "sampling={alpha: [[0, 1], [9, 0]]}"],
         "train.num_train_epochs and train.pairs_per_step need a sampling.alpha that does not change; set "
         "train.max_steps and train.global_batch_size."),
        (["model.hidden_size=97"], "'model': hidden_size 97 is not a multiple of num_attention_heads 4."),
        (["model.conditioned_head=true"],
         "'model': conditioned_head needs language_embeddings: true (the two share one table)."),
        (["model.language_embeddings=true",
          "data.tests=[{format: tsv, languages: [en, yo], paths: [test.tsv]}]"],
         "data.tests.0 has sentences in yo, and the model gets no language embedding of it: no corpus or dictionary is "
         "in yo. Leave this test out, or set train.retrieval_steps to 0."),
        (["model.language_embeddings=true", "data.dev=[{format: tsv, languages: [en, yo], paths: [dev.tsv]}]"],
         "data.dev.0 has sentences in yo, and the model gets no language embedding of it: no corpus or dictionary is "
         "in yo. Leave this test out, or set train.retrieval_steps to 0."),
        (["model.language_embeddings=true", "model.conditioned_head=true",
          "streams=[{kind: code_switched_labels, variant: input_swap}]"],
         "model.conditioned_head with a stream code_switched_labels of variant input_swap is refused: it shows a "
         "translation and asks for the word itself, so the head would be given another language than its label's; use "
         "variant label_swap, or conditioned_head: false."),
        (["streams=[{kind: contrasted_pairs, text: none}]", "objectives=[{kind: masked_lm}, {kind: sentence_contrast}]",
          "data.parallel=[{format: moses, languages: [en, de], paths: [x, y]}]"],
         "objective masked_lm has nothing to predict: the only stream is contrasted_pairs with text: none, which masks "
         "no word; set its text to joined, add a stream that masks, or leave the objective out."),
        (["data.max_seq_length=16", "data.reserve_fraction=0.6"],
         "'data': reserve_fraction 0.6 of max_seq_length 16 leaves 6 tokens for text; leave at least 8."),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_recipe("tiny/mlm", settings)
    assert str(told.value).partition(": ")[2] == said


@pytest.mark.parametrize(
    "setting", ["seed=-1", "seed=9223372036854775808", "data.max_seq_length=7", "masking.mlm_probability=1"]
)
def test_values_out_of_range_are_refused(setting: str) -> None:
    key = setting.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^--set: '{key}' is .*; it must be (at least|more than|at most|less than)"):
        load_recipe("tiny/mlm", [setting])


def test_widths_of_a_given_model_are_its_own() -> None:
    assert load_recipe("tiny/mlm", ["model.hidden_size=97", "model.init_from=x"]).config.model.init_from == "x"


def test_languages_are_in_the_order_of_first_mention() -> None:
    config = load_recipe("tiny/mlm", ["data.dictionaries=[{languages: [fi, en], paths: [x]}]"]).config
    assert config.languages == ["en", "qgr", "qdv", "qge", "qhy", "fi"]


def test_a_resolved_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_recipe("tiny/mlm").config.train.max_steps = 5  # type: ignore[misc]


def test_a_resolved_recipe_survives_json() -> None:
    config = load_recipe("tiny/xlm").config
    assert type(config).model_validate_json(config.model_dump_json()) == config
