"""What a fine-tuning does with a folder's own pooling: ModernBERT's heads follow it, others not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import ModernBertConfig, ModernBertForMaskedLM

from tests.unit.tasks.conftest import make_bert_in, make_tokenizer
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import note_pooling
from xalign_ray.finetune.tune import MODEL, tune_task
from xalign_ray.tasks.registry import TUNED_TASKS

SIB = TUNED_TASKS["sib"]

WORDS = ["cats", "dogs", "see"]


def write_modernbert(folder: Path) -> Path:
    tokenizer = make_tokenizer(WORDS)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    ids = {f"{name}_token_id": index for index, name in enumerate(("pad", "unk", "cls", "sep", "mask"))}
    ids |= {"bos_token_id": 2, "eos_token_id": 3}
    config = ModernBertConfig(vocab_size=len(tokenizer), **sizes, **ids, classifier_pooling="cls")
    ModernBertForMaskedLM(config).save_pretrained(folder)
    return folder


def write_pooling(folder: Path, kind: str, prompt: str = "") -> None:
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    listed = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in modules]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{kind}": True}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": prompt}}))


def pooled_by(folder: Path, out: Path) -> str | None:
    """The pooling in the config of a model that is tuned from a folder."""
    data = out / "data" / "eng_Latn"
    data.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = ["index_id\tcategory\ttext", "1\ttravel\tcats see", "2\tsports\tdogs see"]
        (data / f"{split}.tsv").write_text("".join(f"{row}\n" for row in rows))
    settings = FineTuning(num_train_epochs=1, train_batch_size=2)
    tune_task(SIB, str(folder), [out / "data"], out / "tuned", settings=settings, device="cpu", keep_model=True)
    return json.loads((out / "tuned" / MODEL / "config.json").read_text()).get("classifier_pooling")


@pytest.mark.parametrize(("kind", "pooling"), [("mean_tokens", "mean"), ("cls_token", "cls")])
def test_a_head_of_modernbert_pools_as_the_folder_says(tmp_path: Path, kind: str, pooling: str) -> None:
    folder = write_modernbert(tmp_path / "encoder")
    write_pooling(folder, kind, "query: ")
    assert pooled_by(folder, tmp_path / "out") == pooling
    assert note_pooling(str(folder), "mine") == (
        f"mine makes sentence vectors by {pooling} pooling behind the prompt 'query: '. Heads for texts pool in "
        "the same way, without the prompt."
    )


def test_a_folder_without_pooling_keeps_its_own(tmp_path: Path) -> None:
    folder = write_modernbert(tmp_path / "encoder")
    assert pooled_by(folder, tmp_path / "out") == "cls"
    assert note_pooling(str(folder), "mine") == note_pooling("acme/of-the-hub", "of-the-hub") == ""


def test_a_head_of_bert_takes_its_first_token_and_that_is_said(tmp_path: Path) -> None:
    folder = make_bert_in(tmp_path / "encoder", WORDS)
    write_pooling(folder, "mean_tokens")
    assert pooled_by(folder, tmp_path / "out") is None
    assert note_pooling(str(folder), "mine") == (
        "mine makes sentence vectors by mean pooling. Fine-tuning uses neither: a head of transformers is put on the "
        "encoder, as its model class does it."
    )
