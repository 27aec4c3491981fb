"""Each paper's fine-tuning settings: every number against a table of what is printed, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForTokenClassification

from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FineTuning, read_papers
from xalign_ray.finetune.tune import tune_task
from xalign_ray.studies.declared import FineTuningConfig, load_study
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import TaggingTask

SCRIPTS, ALIGN = "google-research/xtreme, scripts", "princeton-nlp/align-mlm, scripts/alignedmlm_paper_experiments"
TEXT, SILENT = "its text", "not printed"  # a place that we do not give by number
DICT = "pos ner xnli pawsx mldoc_h"

# paper, tasks, key, value, where it is printed
TABLE: list[tuple[str, str, str, Any, str]] = [
    ("xtreme", "xnli pawsx pos ner", "learning_rate", 2e-5, f"{SCRIPTS}/train_xnli, _pawsx, _udpos, _panx: LR"),
    ("xtreme", "mlqa xquad tydiqa", "learning_rate", 3e-5, f"{SCRIPTS}/train_qa: LR"),
    ("xtreme", "xnli pawsx", "num_train_epochs", 5, f"{SCRIPTS}/train_xnli, train_pawsx: EPOCH"),
    ("xtreme", "pos ner", "num_train_epochs", 10, f"{SCRIPTS}/train_udpos, train_panx: NUM_EPOCHS"),
    ("xtreme", "mlqa xquad tydiqa", "num_train_epochs", 3, f"{SCRIPTS}/train_qa: NUM_EPOCHS"),
    (
        "xtreme",
        "xnli pawsx pos ner mlqa xquad tydiqa",
        "train_batch_size",
        32,
        f"{SCRIPTS}: BATCH_SIZE times GRAD_ACC, 8 x 4, 4 x 8",
    ),
    ("xtreme", "xnli pawsx pos ner", "max_seq_length", 128, f"{SCRIPTS}: MAXL, MAX_LENGTH"),
    ("xtreme", "mlqa xquad tydiqa", "max_seq_length", 384, f"{SCRIPTS}/train_qa: MAXL"),
    ("xtreme", "xnli pawsx pos ner", "warmup_steps", 0, "third_party/run_classify, run_tag: defaults"),
    ("xtreme", "mlqa xquad tydiqa", "warmup_steps", 500, f"{SCRIPTS}/train_qa"),
    ("xtreme", "xnli pawsx pos ner", "weight_decay", 0.0, "third_party/run_classify, run_tag: defaults"),
    ("xtreme", "mlqa xquad tydiqa", "weight_decay", 1e-4, f"{SCRIPTS}/train_qa"),
    ("xtreme", "xnli pawsx pos ner mlqa xquad tydiqa", "max_grad_norm", 1.0, "third_party/run_*: defaults"),
    ("xtreme", "xnli pawsx pos ner mlqa xquad tydiqa", "lr_scheduler_type", "linear", "third_party/run_*"),
    ("xtreme", "xnli pawsx pos ner", "load_best_model_at_end", True, f"{SCRIPTS}: save_only_best_checkpoint"),
    ("xtreme", "mlqa xquad tydiqa", "load_best_model_at_end", False, f"{SCRIPTS}/train_qa: save_steps -1"),
    ("xtreme", "pos", "metric_for_best_model", "pos_f1_seqeval0", "third_party/run_tag: seqeval's F1"),
    ("xtreme", "ner", "metric_for_best_model", "ner_f1", "third_party/run_tag: seqeval's F1"),
    ("dict-mlm", DICT, "learning_rate", 3e-5, TEXT),
    ("dict-mlm", DICT, "num_train_epochs", 8, TEXT),
    ("dict-mlm", DICT, "train_batch_size", 32, SILENT),
    ("dict-mlm", DICT, "max_seq_length", 128, SILENT),
    ("dict-mlm", DICT, "warmup_steps", 0, SILENT),
    ("dict-mlm", DICT, "weight_decay", 0.0, SILENT),
    ("dict-mlm", DICT, "max_grad_norm", 1.0, SILENT),
    ("dict-mlm", DICT, "lr_scheduler_type", "linear", SILENT),
    ("dict-mlm", DICT, "load_best_model_at_end", True, SILENT),
    ("align-mlm", "xnli ner pos", "learning_rate", 2e-5, f"{ALIGN}: learning_rate"),
    ("align-mlm", "xnli", "num_train_epochs", 5, f"{ALIGN}: num_train_epochs of run_glue_synthetic"),
    ("align-mlm", "ner pos", "num_train_epochs", 10, f"{ALIGN}: num_train_epochs of run_ner_synthetic"),
    ("align-mlm", "xnli ner pos", "train_batch_size", 32, f"{ALIGN}: per_device_train_batch_size on one core"),
    ("align-mlm", "xnli", "max_seq_length", 128, f"{ALIGN}: max_seq_length"),
    ("align-mlm", "ner pos", "max_seq_length", 128, SILENT),
    ("align-mlm", "xnli ner pos", "warmup_steps", 0, f"{ALIGN}: none, the default of transformers"),
    ("align-mlm", "xnli ner pos", "weight_decay", 0.0, f"{ALIGN}: none, the default of transformers"),
    ("align-mlm", "xnli ner pos", "max_grad_norm", 1.0, f"{ALIGN}: none, the default of transformers"),
    ("align-mlm", "xnli ner pos", "lr_scheduler_type", "linear", f"{ALIGN}: none, the default of transformers"),
    ("align-mlm", "xnli ner pos", "load_best_model_at_end", False, f"{ALIGN}: save_steps -1"),
    ("weam", "xnli mlqa", "train_batch_size", 32, SILENT),
    ("weam", "xnli", "learning_rate", 2e-5, SILENT),
    ("weam", "xnli", "num_train_epochs", 5, SILENT),
    ("weam", "xnli", "max_seq_length", 128, SILENT),
    ("weam", "xnli", "warmup_steps", 0, SILENT),
    ("weam", "xnli", "weight_decay", 0.0, SILENT),
    ("weam", "xnli", "load_best_model_at_end", True, SILENT),
    ("weam", "mlqa", "learning_rate", 3e-5, SILENT),
    ("weam", "mlqa", "num_train_epochs", 3, SILENT),
    ("weam", "mlqa", "max_seq_length", 384, SILENT),
    ("weam", "mlqa", "warmup_steps", 500, SILENT),
    ("weam", "mlqa", "weight_decay", 1e-4, SILENT),
    ("weam", "mlqa", "load_best_model_at_end", False, SILENT),
    ("weam", "xnli mlqa", "max_grad_norm", 1.0, SILENT),
    ("weam", "xnli mlqa", "lr_scheduler_type", "linear", SILENT),
    ("ppa", "xnli", "learning_rate", 5e-5, TEXT),
    ("ppa", "mlqa", "learning_rate", 3e-5, TEXT),
    ("ppa", "xnli mlqa", "num_train_epochs", 2, TEXT),
    ("ppa", "xnli mlqa", "train_batch_size", 32, TEXT),
    ("ppa", "xnli", "max_seq_length", 128, TEXT),
    ("ppa", "mlqa", "max_seq_length", 386, TEXT),
    ("ppa", "xnli mlqa", "warmup_steps", 1000, TEXT),
    ("ppa", "xnli mlqa", "weight_decay", 0.01, SILENT),
    ("ppa", "xnli mlqa", "lr_scheduler_type", "linear", SILENT),
    ("ppa", "xnli mlqa", "max_grad_norm", 1.0, SILENT),
    ("ppa", "xnli mlqa", "load_best_model_at_end", False, SILENT),
]
POS = {"task": "pos", "data": "pos"}


def test_every_setting_is_in_the_table_with_its_printed_value():
    printed = {(paper, task, key): value for paper, tasks, key, value, _ in TABLE for task in tasks.split()}
    ours = {
        (paper, task, key): value
        for paper, tasks in read_papers().items()
        for task, settings in tasks.items()
        for key, value in settings.items()
    }
    assert ours == printed
    assert len(printed) == sum(len(row[1].split()) for row in TABLE)


@pytest.mark.parametrize(("paper", "task"), [(paper, task) for paper, tasks in read_papers().items() for task in tasks])
def test_a_study_takes_the_settings_of_a_paper_by_its_name(paper: str, task: str):
    one = FineTuningConfig.model_validate({"task": task, "data": "x", "settings": paper})
    given = {name: values[0] for name, values in one.settings if values is not None}
    assert given == read_papers()[paper][task]
    FineTuning(**given)


def test_what_is_given_beside_the_paper_counts():
    given = {"from": "ppa", "num_train_epochs": 1, "learning_rate": [1e-5, 2e-5], "warmup_steps": None}
    settings = FineTuningConfig.model_validate({"task": "mlqa", "data": "x", "settings": given}).settings
    assert (settings.num_train_epochs, settings.learning_rate) == ((1,), (1e-5, 2e-5))
    assert (settings.warmup_steps, settings.max_seq_length) == (None, (386,))
    assert read_papers()["ppa"]["mlqa"]["num_train_epochs"] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"settings": "pppa"},
            "settings are from 'pppa', which is no paper. Did you mean 'ppa'? Known: xtreme, dict-mlm, align-mlm, "
            "weam, ppa.",
        ),
        (
            {"settings": {"from": "ppa", "num_train_epochs": 1}},
            "ppa has no settings for pos, only for xnli, mlqa; write them out, or take those of another paper.",
        ),
        (
            {"settings": {"metric_for_best_model": "pos_f1"}},
            "metric_for_best_model 'pos_f1' is none of pos. Did you mean 'pos_f1_seqeval1'? Known: pos_accuracy, "
            "pos_f1_seqeval0, pos_f1_seqeval1.",
        ),
        (
            {"settings": {"metric_for_best_model": ["pos_accuracy", "pos_f1_seqeval0"]}},
            "metric_for_best_model takes one value: development scores of two cannot be compared.",
        ),
    ],
)
def test_what_no_paper_has_is_said_with_file_key_and_fix(tmp_path: Path, changes: dict[str, Any], said: str):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"encoders": [{"model": "a"}], "finetunings": [POS | changes]}))
    with pytest.raises(ConfigError) as caught:
        load_study(str(file))
    assert str(caught.value) == f"{file}: 'finetunings.0': {said}"


def tagged(folder: Path) -> Path:
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"{split}-en.tsv").write_text("cats\tNOUN\nsee\tVERB\ndogs\tNOUN\n\n" * 4)
    return folder


def test_dropout_is_that_of_hidden_states_attention_and_head(tmp_path: Path, make_bert: Callable[..., Path]):
    opened: list[Any] = []

    class Recorded:
        @staticmethod
        def from_pretrained(*arguments: Any, **settings: Any) -> Any:
            opened.append(AutoModelForTokenClassification.from_pretrained(*arguments, **settings))
            return opened[-1]

    task = type("RecordedPos", (TaggingTask,), {"model_class": Recorded})(**vars(TUNED_TASKS["pos"]))
    settings = FineTuning(num_train_epochs=1, train_batch_size=4, max_train_samples=2)
    encoder, data = str(make_bert(["cats", "see", "dogs"])), tagged(tmp_path / "pos")
    for rate in (None, 0.3):
        changed = settings.model_copy(update={"hidden_dropout_prob": rate})
        tune_task(task, encoder, [data], tmp_path / "out", settings=changed)
    rates = [{module.p for module in model.modules() if type(module).__name__ == "Dropout"} for model, _ in opened]
    assert rates == [{0.1}, {0.3}]
    assert [model.config.attention_probs_dropout_prob for model, _ in opened] == [0.1, 0.3]


def test_the_metric_that_is_named_decides_between_epochs(
    tmp_path: Path, make_bert: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    measure, seen = TaggingTask.measure, []

    def recorded(self: TaggingTask, examples: Any, predicted: Any) -> Any:
        found = measure(self, examples, predicted)
        seen.append(found)
        return found

    monkeypatch.setattr(TaggingTask, "measure", recorded)
    encoder, data = str(make_bert(["cats", "see", "dogs"])), tagged(tmp_path / "pos")
    told: list[float] = []
    for metric in (None, "pos_f1_seqeval0"):
        settings = FineTuning(learning_rate=1e-3, num_train_epochs=1, train_batch_size=4, metric_for_best_model=metric)
        tune_task(
            TUNED_TASKS["pos"],
            encoder,
            [data],
            tmp_path / "out",
            settings=settings,
            on_epoch=lambda _, score: told.append(score),
        )
    assert told == [seen[0]["pos_accuracy"].value, seen[2]["pos_f1_seqeval0"].value]
    assert told[0] != told[1]
