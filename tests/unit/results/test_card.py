"""The model card: front matter that Hugging Face reads, the run's own numbers, how to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from tests.unit.results.run_folders import score, write_run
from xalign_ray.errors import DataError
from xalign_ray.results.card import write_model_card
from xalign_ray.work.artifacts import write_json


def write_card(folder: Path, *settings: str, **model: Any) -> tuple[dict[str, Any], str]:
    """Front matter and text of the card of a run whose export says this of itself."""
    scores = {"tatoeba": [score(value=0.0021)]}
    run = write_run(folder / "run", "tiny/align-mlm", settings=settings, seed=3, scores=scores)
    known = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "num_hidden_layers": 2,
        "hidden_size": 96,
        "xalign_languages": [],
        "xalign_segments": 2,
        "xalign_objective": "align-mlm",
        "xalign_step": 4,
    }
    write_json(run / "export" / "config.json", known | model)
    write_model_card(run)
    _, front, text = (run / "export" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), text


def test_the_front_matter_names_languages_method_and_library(tmp_path: Path) -> None:
    front, _ = write_card(tmp_path)
    del front["model-index"]
    assert front == {
        "language": ["en", "qgr", "qdv"],
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["xalign-ray", "multilingual", "cross-lingual", "bert", "align-mlm"],
    }


def test_the_hub_reads_its_scores(tmp_path: Path) -> None:
    write_card(tmp_path)
    data = ModelCard.load(tmp_path / "run/export/README.md").data
    (result,) = data.eval_results or []
    assert (data.model_name, result.metric_type, result.metric_value) == ("run", "tatoeba_accuracy", 0.0021)
    assert (result.task_type, result.dataset_name) == ("Sentence retrieval (Tatoeba)", "test: all")


def test_the_card_has_scores_data_run_and_recipe(tmp_path: Path) -> None:
    _, text = write_card(tmp_path)
    assert "2 layers of width 96 for en, qgr, qdv, pretrained for 4 steps" in text
    assert "| Sentence retrieval (Tatoeba) (tatoeba_accuracy) | 0.2 (at chance) | 0.2 | 1,000 " in text
    assert "| encoder | start | learning rate | dropout |\n" in text
    assert "| tiny/align-mlm | from scratch (bert) | 0.003 | 0 |\n" in text
    assert "| qgr | 931 | 5,894 | 52,402 | 40 % |" in text
    assert "Vocabulary 3,698. Bad input lines: 3. Dictionary pairs: 966 trained, 289 held out." in text
    assert "never a source of claims" in text
    recipe = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert (recipe["recipe"], recipe["seed"]) == ("tiny/align-mlm", 3)


@pytest.mark.parametrize(
    ("start", "base", "said"),
    [
        ("google-bert/bert-base-multilingual-cased", "google-bert/bert-base-multilingual-cased", None),
        ("run:tiny/mlm", None, "tiny/mlm"),
        ("{folder}/my encoder", None, "my encoder"),
        ("/gone/my-encoder", None, "my-encoder"),
    ],
)
def test_a_continued_encoder_says_what_it_was_continued_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, base: str | None, said: str | None
) -> None:
    """A folder of this machine is named, not where it lies."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my encoder").mkdir()
    front, text = write_card(tmp_path, f"model.init_from={start.format(folder=tmp_path)}")
    assert front.get("base_model") == base
    assert f"for en, qgr, qdv, continued from `{said or base}` for 4 steps" in text
    assert "pretrained" not in text.split("## ")[0]
    assert str(tmp_path) not in text


TOLD = {"architectures": ["BertModel"], "xalign_languages": ["en", "qgr"]}


@pytest.mark.parametrize(
    ("settings", "model", "tag", "loads", "with_language"),
    [
        ([], {}, "fill-mask", "AutoModelForMaskedLM", False),
        ([], TOLD, "feature-extraction", "AutoModel", True),
        # no trained head
        (["objectives=[{kind: dictionary_alignment}]"], {}, "feature-extraction", "AutoModel", False),
    ],
)
def test_the_card_says_how_the_encoder_is_loaded(
    settings: list[str], model: dict[str, Any], tag: str, loads: str, with_language: bool, tmp_path: Path
) -> None:
    front, text = write_card(tmp_path, *settings, **model)
    assert front["pipeline_tag"] == tag
    assert f"model = {loads}.from_pretrained(folder)" in text
    assert ('kind = 2 * languages.index("en")' in text) is with_language
    assert ('inputs["token_type_ids"] = torch.full_like(inputs["input_ids"], kind)' in text) is with_language


def test_text_of_users_is_no_markup_of_the_card(tmp_path: Path) -> None:
    _, text = write_card(tmp_path, "notes=a ``` b", "model.init_from=/gone/my`one`")
    assert "continued from `` my`one` `` for 4 steps" in text
    assert yaml.safe_load(text.split("````yaml\n")[1].split("````")[0])["notes"] == "a ``` b"


def test_a_run_that_was_not_exported_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with pytest.raises(DataError, match=f"{run} has no exported encoder .*; run `xalign export {run}`"):
        write_model_card(run)
