"""A grid of fine-tunings on a real local Ray cluster: a killed trial is tried again, a bad one is reported."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import ray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from xalign_ray.tasks.fine_tune import FineTuning
from xalign_ray.tasks.grid import TRIALS, GridOutcome, Trial, tune_grid

pytestmark = pytest.mark.ray

TAGS = {"the": "DET", "cat": "NOUN", "dog": "NOUN", "sees": "VERB", ".": "PUNCT"}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    vocabulary = {piece: index for index, piece in enumerate([*SPECIALS, *TAGS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(tmp_path / "encoder")
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    BertForMaskedLM(config).save_pretrained(tmp_path / "encoder")
    return str(tmp_path / "encoder")


@pytest.fixture
def data(tmp_path: Path) -> str:
    row = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    words = ["the", "cat", "sees", "the", "dog", "."]
    sentence = "".join(row.format(place, word, TAGS[word]) for place, word in enumerate(words, 1))
    (tmp_path / "pos").mkdir()
    for split, sentences in (("train", 40), ("dev", 4), ("test", 6)):
        (tmp_path / "pos" / f"en.{split}.conllu").write_text("\n".join([sentence] * sentences))
    return str(tmp_path / "pos")


def settings(seed: int, epochs: int = 3) -> FineTuning:
    return FineTuning(learning_rate=1e-2, epochs=epochs, batch_size=8, seed=seed)


def parent_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def trials_at_work() -> list[int]:
    """Processes in which Tune runs a function now; of this cluster: children of a raylet that is our child."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(b"ray::ImplicitFunc.train"):
                raylet = Path("/proc") / str(parent_of(process))
                found += [int(process.name)] if parent_of(raylet) == os.getpid() else []
    return found


def kill_one_trial(killed: list[int]) -> None:
    """Waits until a trial is at work, then kills it as the kernel would when memory ends."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not killed:
        for process in trials_at_work()[:1]:
            os.kill(process, signal.SIGKILL)
            killed.append(process)
        time.sleep(0.05)


@pytest.mark.usefixtures("cluster")
def test_a_grid_yields_the_scores_of_each_trial_and_repeats_none(tmp_path: Path, encoder: str, data: str):
    trials = [Trial("pos", encoder, (data,), settings(seed)) for seed in (1, 2)]
    outcome = tune_grid(trials, tmp_path / "grid", max_concurrent_trials=2)
    assert list(outcome.scores) == [trial.name for trial in trials]
    assert outcome.failures == {}
    assert [score.seed for trial in trials for score in outcome.scores[trial.name]] == [1, 1, 2, 2]
    assert {score.value for scores in outcome.scores.values() for score in scores} == {1.0}
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "grid" / TRIALS).rglob("manifest.json")}
    assert len(times) == 2
    assert tune_grid(trials, tmp_path / "grid", max_concurrent_trials=2) == outcome
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.usefixtures("cluster")
def test_paths_from_the_current_folder_are_found(
    tmp_path: Path, encoder: str, data: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    near = Trial("pos", str(Path(encoder).relative_to(tmp_path)), (str(Path(data).relative_to(tmp_path)),), settings(1))
    far = Trial("pos", encoder, (data,), settings(1))
    outcome = tune_grid([near, far], Path("grid"), max_concurrent_trials=1)
    assert outcome.scores[near.name] == outcome.scores[far.name]
    assert len(list((tmp_path / "grid" / TRIALS).iterdir())) == 1


@pytest.mark.usefixtures("cluster")
def test_a_trial_killed_at_work_is_tried_again_with_the_same_scores(tmp_path: Path, encoder: str, data: str):
    trial = Trial("pos", encoder, (data,), settings(3, epochs=30))
    calm = tune_grid([trial], tmp_path / "calm", max_concurrent_trials=1)
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_trial, args=(killed,))
    killer.start()
    outcome = tune_grid([trial], tmp_path / "hit", max_concurrent_trials=1)
    killer.join()
    assert len(killed) == 1
    assert outcome == calm
    weights = [tmp_path / name / TRIALS / trial.name / "model.safetensors" for name in ("calm", "hit")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.usefixtures("cluster")
def test_a_trial_that_cannot_run_is_reported_and_the_others_go_on(tmp_path: Path, encoder: str, data: str):
    bad = Trial("pos", encoder, (data,), settings(1), languages=("sw",))
    good = Trial("pos", encoder, (data,), settings(1))
    outcome: GridOutcome = tune_grid([bad, good], tmp_path / "grid", max_concurrent_trials=1)
    assert list(outcome.scores) == [good.name]
    assert list(outcome.failures) == [bad.name]
    assert outcome.failures[bad.name].endswith(f"DataError: {data} has no sw; it has en.")
