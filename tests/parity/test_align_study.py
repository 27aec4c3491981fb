"""The study `align` on a tiny encoder: arms of each kind, rates chosen in a development language, the report."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from tests.parity.cells_here import pretrain_here, run_cells_here
from tests.ray.small import write_world
from xalign_ray.errors import ConfigError
from xalign_ray.results.bundle import verify_bundle
from xalign_ray.results.report import report
from xalign_ray.studies.declared import StudyConfig, load_study
from xalign_ray.studies.rates import read_rates, trial_study, with_rates
from xalign_ray.studies.study import run_study, show_plan
from xalign_ray.tasks.scores import SCORES, read_scores

SPECIALS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
POS = {
    "task": "pos",
    "data": "pos",
    "languages": ["en", "qhy"],
    "settings": {"num_train_epochs": 1, "max_train_samples": 16},
}
ARMS = ("base", "mlm", "align-mlm", "contrast")  # nothing trained, one loss, a dictionary's, a loss without a head
SETTINGS = (
    "seeds=[0]", "rates.learning_rate=[1.0e-4, 3.0e-4]",
    f"finetunings=[{json.dumps(POS)}]", "mlflow=off",
    "train.max_steps=2", "train.schedule.warmup_steps=0", "checkpoint.save_steps=2", "train.global_batch_size=8",
    "train.per_device_batch_size=8",
)  # fmt: skip
SCALES = ("tiny", "two-cores", "one-h100", "paper")


def settings(encoder: Path) -> list[str]:
    """The study cut to ARMS that begin from an encoder."""
    tree = load_study("align/tiny", (), str(encoder)).model_dump(mode="json", exclude_defaults=True)
    return [*SETTINGS, f"encoders={json.dumps([one for one in tree['encoders'] if one['label'] in ARMS])}"]


def write_encoder(folder: Path, world: Path) -> None:
    """A BERT of two layers with a masked-LM head, over the commonest words of the embedded world."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((world / "parallel").glob("train.*")))
    words = [word for word, _ in Counter(re.findall(r"\w+|[^\w\s]", text)).most_common(1500)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys([*SPECIALS.values(), *words]))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(tokenizer_object=made, **SPECIALS).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, **sizes)).save_pretrained(
        folder
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report of the finished study."""
    folder = tmp_path_factory.mktemp("align")
    write_world(folder / "runs", sentences=300, parallel=260)
    write_encoder(folder / "small-bert", folder / "runs/demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_cells_here(patch, [], [])
        pretrain_here(patch)
        encoder = folder / "small-bert"
        yield run_study("align/tiny", Path("runs"), settings(encoder), encoder=str(encoder))


def test_each_kind_of_arm_runs_to_the_report_from_the_encoder_that_is_named(page: Path) -> None:
    folder = page.parents[1]
    study = json.loads((folder / "study.json").read_text())
    assert study["name"] == folder.name == "align-tiny-small-bert"
    assert {cell["state"] for cell in study["cells"]} == {"finished"}
    scored = {
        (cell["label"], score.metric, score.language)
        for cell in study["cells"]
        if cell["kind"] != "pretraining"
        for score in read_scores(folder / cell["folder"] / SCORES)
    }
    expected = {(arm, metric, "qhy") for arm in ARMS for metric in ("tatoeba_accuracy", "pos_accuracy")}
    assert expected <= scored
    runs = [Path(cell["folder"]) for cell in study["cells"] if cell["kind"] == "pretraining"]
    starts = {re.findall(r"init_from: (\S+)", (run / "config.yaml").read_text())[0] for run in runs}
    assert len(runs) == 3
    assert {Path(start).name for start in starts} == {"small-bert"}


def test_rates_are_chosen_in_the_development_language_alone_and_their_runs_are_kept(page: Path) -> None:
    study, trials = page.parents[1], page.parents[2] / "align-tiny-small-bert-rates"
    tried = json.loads((trials / "rates.json").read_text())
    assert tried["languages"] == ["qgr"]
    assert len(tried["tried"]) == 6
    for encoder, rate in tried["chosen"].items():
        own = {one["learning_rate"]: one["score"] for one in tried["tried"] if one["encoder"] == encoder}
        assert own[rate] == max(own.values())
    named = {path: json.loads((path / "study.json").read_text())["cells"] for path in (study, trials)}
    runs = {path: {cell["folder"] for cell in cells if cell["kind"] == "pretraining"} for path, cells in named.items()}
    assert len(runs[study] & runs[trials]) == 3  # seed 0 at the chosen rate is not trained again
    languages = {
        score.language
        for cell in named[study]
        if cell["kind"] == "evaluation"
        for score in read_scores(study / cell["folder"] / SCORES)
    }
    assert languages == {"qdv", "qge", "qhy", "all"}


def test_its_bundle_is_verified_elsewhere(page: Path, tmp_path: Path) -> None:
    report([str(page.parents[1])], bundle=tmp_path / "align.zip")
    found = verify_bundle(tmp_path / "align.zip")
    assert found.problems == []
    assert "Learning rates tried by align-tiny-small-bert" in page.read_text()
    assert re.findall("chosen, the (lowest|highest) tried", page.read_text())  # of two rates each is an end


def test_a_seed_that_runs_apart_takes_the_rates_that_were_chosen(page: Path) -> None:
    chosen = page.parents[1] / "rates.json"
    encoder = Path("small-bert").absolute()
    apart = [*settings(encoder), "seeds=[2]", f"rates.chosen={chosen}"]
    said = show_plan("align/tiny", Path("apart"), apart, str(encoder))
    assert "Rates, tried first" not in said
    assert len(re.findall(r"^\S.* \(seed 2\) +pretraining", said, re.MULTILINE)) == 3
    rates = json.loads(chosen.read_text())["chosen"]
    study = load_study("align/tiny", apart)
    assert read_rates(study, chosen) == rates
    chosen.with_name("other.json").write_text(json.dumps({"chosen": {"mlm": 1e-4}, "tried": []}))
    with pytest.raises(ConfigError, match=r"rates\.chosen: \S+other\.json has no rate of align-mlm, contrast"):
        read_rates(study, chosen.with_name("other.json"))


def test_the_plan_shows_the_trials_of_rates_first(page: Path) -> None:
    encoder = Path("small-bert").absolute()
    said = show_plan("align/tiny", Path("runs"), [*settings(encoder), "seeds=[0, 1]"], str(encoder))
    first, then = said.split("Then, with the chosen rates (here the lowest):")
    assert first.startswith("Rates, tried first:")
    assert "contrast 0.0003 (seed 0)" in first
    assert "contrast 0.0003" not in then
    assert "(seed 1)" in then
    assert "(seed 1)" not in first
    assert page.is_file()


@pytest.mark.parametrize("scale", SCALES)
def test_arms_of_a_scale_differ_in_method_alone(scale: str) -> None:
    study = load_study(f"align/{scale}")
    assert study.rates
    assert study.seeds == (0, 1, 2)
    recipes = {one.recipe for one in study.encoders if one.recipe}
    assert recipes == {f"align/{scale}"}
    free = ("streams", "objectives", "masking.", "data.teacher", "data.reserve_fraction")
    assert [key for one in study.encoders for key in one.settings if not key.startswith(free)] == []
    assert {"model.init_from=" + study.encoder} == set(study.settings)
    assert study.encoders[0].model == study.encoder


def change(study: StudyConfig, **changes: object) -> StudyConfig:
    return StudyConfig.model_validate(study.model_dump() | changes)


def test_languages_that_choose_rates_are_not_tested() -> None:
    study = load_study("align/tiny")
    with pytest.raises(ValueError, match=r"rates are chosen in qgr, so tatoeba needs `languages` without them"):
        change(study, evaluations=[{"task": "tatoeba", "data": "tatoeba"}])
    with pytest.raises(ValueError, match=r"evaluation.languages is needed: the languages that rates are chosen by"):
        change(study, rates=study.rates.model_dump() | {"evaluation": {"task": "tatoeba"}})  # type: ignore[union-attr]


def test_every_recipe_has_the_same_budget_of_rates() -> None:
    study = load_study("align/tiny")
    trials = trial_study(study)
    labels = [one.shown for one in trials.encoders]
    assert len(labels) == 10 * 3
    assert labels[:3] == ["mlm 5e-05", "mlm 0.0001", "mlm 0.0003"]
    assert trials.rates is None
    control = study.encoders[1].model_copy(update={"step": 0, "label": "untrained"})  # of the training of mlm
    with_control = study.model_copy(update={"encoders": (*study.encoders, control)})
    assert trial_study(with_control).encoders == trials.encoders
    chosen = with_rates(study, {label: 3e-4 for label in study.labels if label != "base"})
    assert chosen.labels == study.labels
    assert chosen.encoders[1].settings == ("train.optimizer.learning_rate=0.0003",)
    assert trials.encoders[2].settings == chosen.encoders[1].settings  # so it is one run


def test_an_encoder_for_a_study_that_begins_from_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="--encoder: the study quickstart begins from no encoder; `encoder` in its"):
        load_study("quickstart", (), "mine")
