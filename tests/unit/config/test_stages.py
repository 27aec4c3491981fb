"""What a recipe with stages refuses, and what its stages resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.config.derive import derive_batch, stages_of
from xalign_ray.config.load import load_recipe
from xalign_ray.config.training import MAY_CHANGE
from xalign_ray.errors import ConfigError

A, B = "{name: a, train: {max_steps: 10}}", "{name: b, train: {max_steps: 20}}"
SAME = "is the same in all stages; a stage may set " + MAY_CHANGE


def load(tmp_path: Path, *stages: str, more: str = "train: {max_steps: 0}"):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"extends: base/tiny\n{more}\nstages:\n" + "".join(f"  - {stage}\n" for stage in stages))
    return load_recipe(str(path)).config


@pytest.mark.parametrize(
    ("stages", "more", "said"),
    [
        ([A, B], "train: {max_steps: 300}",
         "train.max_steps is 300, and the stages take 30 steps; set it to 0, which is their sum, or change "
         "stages.N.train.max_steps."),
        ([A, A], "", "stages are named a, a: each name may stand once."),
        ([A, "{name: b}"], "", "'stages.1.train' is required and not given."),
        ([A, "{name: b, train: {}}"], "", "'stages.1.train.max_steps' is required and not given."),
        ([A, "{name: b, model: {hidden_size: 8}, train: {max_steps: 5}}"], "", f"'stages.1.model': model {SAME}."),
        ([A, "{name: b, output: x, train: {max_steps: 5}}"], "", f"'stages.1.output': output {SAME}."),
        ([A, "{name: b, parallel: {zero_stage: 1}, train: {max_steps: 5}}"], "",
         f"'stages.1.parallel': parallel {SAME}."),
        ([A, "{name: b, data: {tokenizer: {vocab_size: 9}}, train: {max_steps: 5}}"], "",
         f"'stages.1.data.tokenizer': data.tokenizer {SAME}."),
        ([A, "{name: b, train: {max_steps: 5, optimizer: {kind: lamb}}}"], "",
         f"'stages.1.train.optimizer.kind': train.optimizer.kind {SAME}."),
        ([A, "{name: b, masking: {mlm_probability: 2}, train: {max_steps: 5}}"], "",
         "'stages.1.masking.mlm_probability' is 2; it must be less than 1."),
        ([A, "{name: b, data: {max_seq_length: 64}, train: {max_steps: 5}}"], "",
         "stages.1 (b): data.max_seq_length is 64, more than the recipe's own 48, which the model has positions for; "
         "set data.max_seq_length to 64 and that of shorter stages in these."),
        ([A, "{name: b, sampling: {languages: [en, sw]}, train: {max_steps: 5}}"], "",
         "stages.1 (b): sampling.languages has sw, which no source of data is in."),
        ([A, "{name: b, streams: [{kind: masked_pairs}], train: {max_steps: 5}}"], "",
         "stages.1 (b): stream masked_pairs has nothing to draw: no source of pairs is in languages of "
         "sampling.languages."),
        ([A, "{name: b, streams: [{kind: code_switched_copy}], train: {max_steps: 5}}"], "",
         "stages.1 (b): stream code_switched_copy shows every example twice in its row: set data.reserve_fraction to "
         "0.5 or more (it is 0)."),
        (["{name: a, objectives: [{kind: masked_lm, labels_at_once: 9}], train: {max_steps: 5}}", B], "",
         "objective masked_lm has other settings in another stage; only its weight may differ."),
        (["{name: a, train: {max_steps: 5, schedule: {}}}", B], "",
         "stages a have a train.schedule of their own, and b none; give each stage one, or leave all to "
         "train.schedule of the recipe, which runs over the whole run."),
        ([A, "{name: b, objectives: [{kind: masked_lm}, {kind: dictionary_alignment}], train: {max_steps: 5}}"],
         "train: {max_steps: 0}\nparallel: {zero_stage: 3}",
         "stages with different objectives are refused with parallel.zero_stage 3: there each step must give every "
         "weight a gradient; use zero_stage 2."),
    ],
)  # fmt: skip
def test_what_stages_cannot_mean_is_one_sentence(tmp_path: Path, stages: list[str], more: str, said: str) -> None:
    with pytest.raises(ConfigError) as told:
        load(tmp_path, *stages, more=more or "train: {max_steps: 0}")
    assert str(told.value) == f"{tmp_path / 'recipe.yaml'}: {said}"


PAIRED = (
    "train: {{max_steps: 0}}\nstreams: [{{kind: contrasted_pairs, text: none}}]\ndata: {{teacher: {}, "
    "parallel: [{{format: moses, languages: [en, qgr], paths: [x, y]}}]}}"
)


@pytest.mark.parametrize(
    ("teacher", "kinds"),
    [
        ("{path: t}", ["distillation", "sentence_contrast"]),
        ("{path: t}", ["sentence_contrast", "distillation"]),
        ("{path: t, gives: hard_negatives}", ["dictionary_alignment", "sentence_contrast"]),
    ],
)
def test_a_teacher_may_be_for_one_of_the_stages(tmp_path: Path, teacher: str, kinds: list[str]) -> None:
    stages = [f"{{name: {kind}, objectives: [{{kind: {kind}}}], train: {{max_steps: 5}}}}" for kind in kinds]
    more = PAIRED.format(teacher).replace("}]}", "}], dictionaries: [{languages: [en, qgr], paths: [z]}]}")
    assert [loss.kind for loss in load(tmp_path, *stages, more=more).all_objectives] == kinds
    unread = stages[kinds.index("sentence_contrast")] if "gives" not in teacher else stages[0]
    with pytest.raises(ConfigError, match=r"data\.teacher (makes|gives) .* that no objective reads; add objective"):
        load(tmp_path, unread, more=more)


def test_a_stage_stands_over_the_recipe_and_not_over_the_stage_before(tmp_path: Path) -> None:
    first = "{name: a, masking: {mlm_probability: 0.4}, sampling: {temperature: 4}, train: {max_steps: 10}}"
    config = load(tmp_path, first, B, more="train: {max_steps: 0}\nmasking: {whole_word_mask: false}")
    assert config.train.max_steps == 30
    one, two = (stage.config for stage in stages_of(config))
    assert (one.masking.mlm_probability, one.masking.whole_word_mask, one.sampling.exponent) == (0.4, False, 0.25)
    assert (two.masking.mlm_probability, two.masking.whole_word_mask, two.sampling.exponent) == (0.15, False, 0.7)
    assert [one.train.max_steps, two.train.max_steps] == [10, 20]


def test_a_saved_recipe_with_stages_reads_back_as_itself() -> None:
    config = load_recipe("tiny/stages").config
    assert type(config).model_validate(config.model_dump(mode="json")) == config


def test_all_stages_have_as_many_micro_steps(tmp_path: Path) -> None:
    wide = "{name: b, train: {max_steps: 5, global_batch_size: 96}}"
    with pytest.raises(ConfigError) as told:
        derive_batch(load(tmp_path, A, wide))
    assert str(told.value) == (
        "Over 2 workers a step has 1 in stage a, 2 in stage b micro-steps, and DeepSpeed takes one number for a run; "
        "set stages.N.train.per_device_batch_size so that they agree."
    )
    wide = "{name: b, train: {max_steps: 5, global_batch_size: 96, per_device_batch_size: 48}}"
    assert derive_batch(load(tmp_path, A, wide)).accumulation == 1
