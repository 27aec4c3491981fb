"""`xalign continue` from pairs to the table, in this process: a tiny encoder, trained, compared, reported, tracked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from mlflow import MlflowClient
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tests.unit.conftest import prepare_here
from xalign_ray import exports
from xalign_ray.cli import main
from xalign_ray.config.derive import settle, with_absolute_paths
from xalign_ray.config.load import load_recipe
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.continuing.story import continue_lines, resolve
from xalign_ray.tasks.retrieval import RETRIEVAL
from xalign_ray.tasks.scores import read_scores
from xalign_ray.tokens.find import find_prepared
from xalign_ray.track.events import read_events
from xalign_ray.train.scoring import Scoring
from xalign_ray.work.run_folder import RunFolder

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STEPS = 4


def write_encoder(folder: Path) -> None:
    """An encoder without a head over twice a hundred words."""
    words = [word(language, number) for language in ("en", "de") for number in range(100)]
    vocabulary = {piece: index for index, piece in enumerate([*SPECIALS, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **names).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")


def word(language: str, number: int) -> str:
    """A word of letters for a number below 100."""
    return language + chr(97 + number // 10) + chr(97 + number % 10)


def write_pairs(path: Path, first: int, last: int) -> None:
    """Sentences of three words and their translations, word by word."""
    places = [(number % 97, number * 7 % 89, number * 13 % 83) for number in range(first, last)]
    rows = ["\t".join(" ".join(word(code, n) for n in place) for code in ("en", "de")) for place in places]
    header = "\t".join(path.stem.partition(".")[2].split("-"))
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("continue")
    write_encoder(folder / "encoder")
    write_pairs(folder / "pairs.en-de.tsv", 0, 400)
    write_pairs(folder / "kept.en-fr.tsv", 1000, 1040)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        lines = read_five_lines("encoder", OPTIONS)
        recipe = with_absolute_paths(resolve(lines).recipe)
        prepare_here(settle(recipe, recipe.config.model.init_from).config)
        return continue_lines(lines, local=True)


OPTIONS = {"pairs": ["pairs.en-de.tsv"], "keep": ["kept.en-fr.tsv"], "steps": STEPS, "output": "runs/mine"}


def test_comparison_has_the_test_and_what_was_kept(run: Path) -> None:
    found = json.loads(RunFolder(run).comparison.read_text())
    assert (found["base"], found["run"]) == (str(run.parents[1] / "encoder"), "mine")
    assert (found["steps"], found["methods"]) == (STEPS, ["contrast"])
    rows = {(row["measure"], row["language"], row["trained"]): row["count"] for row in found["rows"]}
    assert rows[("retrieval", "de", True)] == 40
    assert rows[("retrieval", "fr", False)] == 40
    assert found["during"]["de"]
    assert found["seconds"] > 0


def test_page_leads_with_base_against_yours(run: Path) -> None:
    page = (RunFolder(run).report / "index.html").read_text(encoding="utf-8")
    assert "Continued from encoder by contrast: 4 steps" in page
    assert page.index("Translations found in de: ") < page.index("Base against yours</h2>") < page.index("Losses</h2>")
    assert '<a href="../export">the encoder</a>' in page
    assert "Translations found: points above encoder" in page


def test_card_says_what_was_continued(run: Path) -> None:
    _, front, text = (RunFolder(run).export / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    known = yaml.safe_load(front)
    assert (known["pipeline_tag"], known["license"]) == ("sentence-similarity", "mit")
    assert "continued from `encoder` for 4 steps" in text
    assert "Translations found in de: " in text
    assert "| de | " in text
    assert "vector = (outputs.last_hidden_state * tokens).sum(1) / tokens.sum(1)" in text


def test_mlflow_has_the_numbers_of_the_table(run: Path) -> None:
    client = MlflowClient(f"sqlite:///{run.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("continue")
    assert experiment is not None
    (tracked,) = client.search_runs([experiment.experiment_id])
    rows = json.loads(RunFolder(run).comparison.read_text())["rows"]
    (trained,) = [row for row in rows if row["measure"] == "retrieval" and row["trained"]]
    metrics = tracked.data.metrics
    assert metrics["retrieval_accuracy"] == metrics["retrieval_accuracy_de"] == pytest.approx(trained["yours"])
    assert metrics["before/retrieval_accuracy"] == pytest.approx(trained["base"])
    assert [point.step for point in client.get_metric_history(tracked.info.run_id, "retrieval_accuracy")] == [0]


def test_scores_are_those_of_evaluate_and_stand_in_card_and_report(run: Path) -> None:
    (score,) = [
        one
        for one in read_scores(RunFolder(run).evaluation("test") / "scores.json")
        if (one.metric, one.language) == ("retrieval_accuracy", "de")
    ]
    (line,) = (RunFolder(run).evaluation("test") / "predictions" / "de.jsonl").read_text().splitlines()[:1]
    again = RETRIEVAL.measure_again(score, {(row := json.loads(line))["key"]: row["prediction"]})
    assert again is not None
    assert (again.value, again.n, score.n) == (pytest.approx(score.value), 40, 40)
    _, front, _ = (RunFolder(run).export / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    (index,) = yaml.safe_load(front)["model-index"]
    assert index["results"][0]["metrics"][0]["value"] == pytest.approx(score.value, abs=1e-4)
    page = (RunFolder(run).report / "index.html").read_text(encoding="utf-8")
    assert page.index("Of what must not get worse: ") < page.index("<figure") < page.index("How to read this page")
    assert "Made by xalign continue " in page


def test_same_command_of_a_finished_run_only_prints_its_table(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parent.parent)
    before = len(list(read_events(RunFolder(run).events)))
    words = ["--pairs", "pairs.en-de.tsv", "--keep", "kept.en-fr.tsv", "--steps", str(STEPS), "--out", "runs/mine"]
    monkeypatch.setattr("sys.argv", ["xalign", "continue", "encoder", *words, "--no-ray"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    assert "Translations found: trained languages" in said.out
    assert "Comparing" not in said.err
    assert said.err.splitlines()[-1].startswith("Next: xalign evaluate runs/mine/export --task retrieval")
    assert len(list(read_events(RunFolder(run).events))) == before


def test_a_bound_that_few_kept_pairs_cannot_show_exports_the_least_harmful_and_ends_with_3(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    monkeypatch.chdir(run.parent.parent)
    whole, before = load_file(folder.export / "model.safetensors"), json.loads(folder.comparison.read_text())
    options = ["--pairs", "pairs.en-de.tsv", "--keep", "kept.en-fr.tsv", "--steps", str(STEPS), "--out", "runs/mine"]
    words = ["continue", "encoder", *options, "--no-ray"]
    (run / ".mixture-of-a-killed-command").mkdir()
    monkeypatch.setattr("sys.argv", ["xalign", *words, "--lose-at-most", "0.5"])
    with pytest.raises(SystemExit) as ended:
        main()
    said, found = capsys.readouterr(), json.loads(folder.comparison.read_text())
    assert ended.value.code == 3, said.err
    assert "The bound is not shown to hold: " in said.out
    shares = [mixture["share"] for mixture in found["bound"]["mixtures"]]
    assert (shares, found["bound"]["holds"]) == ([0.125, 0.25, 0.5, 0.75, 1.0], False)
    share, first = found["bound"]["share"], load_file(run.parent.parent / "encoder" / "model.safetensors")
    for name, tensor in load_file(folder.export / "model.safetensors").items():
        torch.testing.assert_close(tensor, (1 - share) * first[name] + share * whole[name], rtol=0, atol=1e-7)
    assert {row["count"] for row in found["rows"]} == {20}  # the half that did not choose
    assert not [*run.glob(".mixture-*")]
    page = (folder.report / "index.html").read_text(encoding="utf-8")
    assert "mixtures: gain, and change of what is kept" in page
    assert "The bound is not shown to hold: " in page
    mixture = load_file(folder.export / "model.safetensors")
    shutil.rmtree(folder.export)
    assert exports.export(run) == folder.export  # as `pretrain` does where it is damaged
    assert all(torch.equal(mixture[name], one) for name, one in load_file(folder.export / "model.safetensors").items())

    monkeypatch.setattr("sys.argv", ["xalign", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    after = load_file(folder.export / "model.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in whole.items())
    assert json.loads(folder.comparison.read_text())["rows"] == before["rows"]


def test_shown_recipe_has_the_fingerprint_of_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent.parent)
    Path("shown.yaml").write_text(resolve(read_five_lines("encoder", OPTIONS)).as_yaml)
    recipe = with_absolute_paths(load_recipe("shown.yaml"))
    prepared = find_prepared(settle(recipe, recipe.config.model.init_from).config)
    assert prepared is not None
    start = next(iter(read_events(RunFolder(run).events)))
    assert start["data_fingerprint"] == prepared.fingerprint


@pytest.mark.parametrize(("options", "killed_at", "best"), [({}, 5, 3), ({"keep_best": False}, None, 6)])
def test_checkpoint_with_the_best_dev_score_is_exported(
    run: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], killed_at: int | None, best: int
) -> None:
    """Of equal scores the newest; where the run was killed behind it too, and with the weights of that step."""
    monkeypatch.chdir(run.parent.parent)
    scores, weights, state = [0.9, 0.1, 0.8, 0.8, 0.3, 0.7, 0.2], dict[int, Any](), {"killed": False}

    def scripted(self: Scoring, step: int, log: Any) -> float:
        if step == killed_at and not state["killed"]:
            state["killed"] = True
            raise KeyboardInterrupt
        encoder = self._engine._engine.module.encoder.state_dict()
        weights[step] = [one.clone() for one in encoder.values() if one.dim() == 2]
        log("retrieval", step, {"retrieval/accuracy": scores[step]}, languages={"de": scores[step]}, part=self.part)
        return scores[step]

    monkeypatch.setattr(Scoring, "score", scripted)
    common = {"pairs": ["pairs.en-de.tsv"], "steps": 6, "set": ("train.retrieval_steps=1",)}
    lines = read_five_lines("encoder", common | {"output": f"runs/best-{killed_at}-{best}"} | options)
    recipe = with_absolute_paths(resolve(lines).recipe)
    prepare_here(settle(recipe, recipe.config.model.init_from).config)
    if killed_at:
        with pytest.raises(KeyboardInterrupt):
            continue_lines(lines, local=True)
    folder = RunFolder(continue_lines(lines, local=True))
    assert json.loads((folder.export / "config.json").read_text())["xalign_step"] == best
    exported = load_file(folder.export / "model.safetensors")["embeddings.word_embeddings.weight"]
    same = [step for step, ones in weights.items() if any(torch.equal(one[: len(exported)], exported) for one in ones)]
    assert same == [best]
