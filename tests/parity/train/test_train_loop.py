"""What the loop refuses, says and does between steps."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import train_until
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.track.events import EVENT_LOG, last_event, read_events
from xalign_ray.train import loop
from xalign_ray.train.distributed import combine_hash, setup_workers, split_hash
from xalign_ray.train.progress import Progress
from xalign_ray.train.step import Stepper

LEFT_OUT = "The held-out loss leaves out ru (2 lines): no line of so few was drawn to be held out."


def train(workers, folder, settings, change=None):
    config = synthetic.config(parallel__workers=workers.size, **settings)

    def open_batches(first_step, rank, count):
        for step, share in enumerate(synthetic.stream(config, first_step, rank, count), first_step):
            yield change(workers, step, share) if change else share

    synthetic.run(config, folder, workers, open_batches=open_batches)


def events(folder: Path, kind: str):
    return [event for event in read_events(folder / "events.jsonl", surviving=False) if event["event"] == kind]


def shift_one_row(workers, step, share):
    return share | {"position": share["position"] + 1} if (workers.rank, step) == (1, 2) else share


def test_other_rows_than_the_step_owns_stop_all_ranks_before_they_are_trained_on(two: Pool, tmp_path: Path):
    with pytest.raises(TrainingError) as refused:
        two.call(train, tmp_path, {}, shift_one_row)
    assert str(refused.value) == (
        "The feed gave worker 1 other rows than step 3 owns: positions [21, 22, 23]... instead of [20, 21, 22]... "
        "They were not trained on."
    )
    assert len(synthetic.steps(tmp_path)) == 2


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(two: Pool, tmp_path: Path):
    settings = {
        "train__optimizer": {"learning_rate": 1e37},
        "train__max_grad_norm": 0.0,
        "train__schedule": {"warmup_steps": 0},
    }
    with pytest.raises(TrainingError) as stopped:
        two.call(train, tmp_path, settings)
    assert str(stopped.value).startswith("The loss of step 2 is not finite: masked_lm is nan")
    assert "(batch_hash " in str(stopped.value)
    assert "Lower train.optimizer.learning_rate or raise train.schedule.warmup_steps" in str(stopped.value)
    assert len(synthetic.steps(tmp_path)) == 1
    last = last_event(tmp_path / EVENT_LOG)
    assert (last["event"], last["step"], last["text"]) == ("not_finite", 2, str(stopped.value))


def train_with_a_gradient_that_is_not_finite(workers, folder, settings):
    scaled = Stepper._scaled

    def broken(self, step, *given):
        loss = scaled(self, step, *given)
        return loss + (loss * 0).sqrt() if step == 2 else loss  # the value stays; the slope of a root at 0 has no end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "_scaled", broken)
        train(workers, folder, settings)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_gradient_that_is_not_finite_stops_the_run_before_it_is_saved(two: Pool, tmp_path: Path, stage: int):
    settings = {"parallel__zero_stage": stage, "checkpoint__save_steps": 1}
    with pytest.raises(TrainingError, match=r"The gradient of step 3 is not finite: its norm is (nan|inf) "):
        two.call(train_with_a_gradient_that_is_not_finite, tmp_path, settings)
    assert [path.name for path in sorted((tmp_path / "checkpoints").glob("step_*"))][-1] == "step_000002"


def test_with_fewer_step_events_a_loss_that_is_not_finite_is_named_before_anything_is_saved(two: Pool, tmp_path: Path):
    settings = {
        "train__optimizer": {"learning_rate": 1e37},
        "train__max_grad_norm": 0.0,
        "train__schedule": {"warmup_steps": 0},
        "track__logging_steps": 6,
        "checkpoint__save_steps": 4,
    }
    with pytest.raises(TrainingError, match="The loss of step 2 is not finite"):
        two.call(train, tmp_path, settings)
    assert not [*tmp_path.glob("checkpoints/step_*")]


def test_numbers_fetched_every_third_step_are_those_of_these_steps_and_times_are_means(two: Pool, tmp_path: Path):
    two.call(train, tmp_path / "each", {})
    two.call(train, tmp_path / "third", {"track__logging_steps": 3})
    each, third = (events(tmp_path / name, "step") for name in ("each", "third"))
    assert [event["step"] for event in third] == [3, 6]
    timed = {"train/step_ms", "train/data_wait_ms", "train/tokens_per_s", "train/tflops", "train/peak_memory_mb"}
    for event in third:
        same = each[event["step"] - 1]
        assert event["batch_hash"] == same["batch_hash"]
        assert {key: event["metrics"][key] for key in event["metrics"].keys() - timed} == {
            key: same["metrics"][key] for key in same["metrics"].keys() - timed
        }
        seconds = 3 * event["metrics"]["train/step_ms"] / 1e3
        tokens = sum(
            sum((synthetic.rows(np.arange(8 * step, 8 * step + 8))["example_ids"] > 0).sum(axis=1))
            for step in range(event["step"] - 3, event["step"])
        )
        assert event["metrics"]["train/tokens_per_s"] * seconds == pytest.approx(tokens)


def terminate_in_step_three(workers, step, share):
    if (workers.rank, step) == (1, 2):
        os.kill(os.getpid(), signal.SIGTERM)
    return share


def test_sigterm_to_one_worker_saves_at_the_step_boundary_and_stops_all(two: Pool, tmp_path: Path):
    two.call(train, tmp_path / "straight", {})
    with pytest.raises(TrainingError) as stopped:
        two.call(train, tmp_path / "stopped", {}, terminate_in_step_three)
    assert str(stopped.value) == ("Stopped (SIGTERM): step 3 of 6 is saved. Rerun the same command to resume.")
    two.call(train, tmp_path / "stopped", {})
    assert [event["step"] for event in events(tmp_path / "stopped", "start")] == [0, 3]
    assert synthetic.losses(tmp_path / "stopped") == synthetic.losses(tmp_path / "straight")


def test_the_log_tells_of_start_steps_held_out_losses_checkpoint_and_end(two: Pool, tmp_path: Path):
    two.call(train, tmp_path, {"train__eval_steps": 4})
    (start,) = events(tmp_path, "start")
    assert (start["recipe"], start["workers"], start["zero_stage"], start["steps"]) == ("synthetic", 2, 2, 6)
    first = events(tmp_path, "step")[0]
    shown = synthetic.rows(np.arange(8))
    assert first["batch_hash"] == int(shown["row_hash"].sum(dtype=np.uint64))
    assert first["metrics"]["train/labels"] == (shown["labels"] != -100).sum()
    assert first["metrics"]["train/padding_share"] == pytest.approx((shown["example_ids"] == 0).mean())
    parts = first["metrics"]["train/loss_masked_lm"] + first["metrics"]["train/loss_dictionary_alignment"]
    assert first["metrics"]["train/loss"] == pytest.approx(parts)
    scores = events(tmp_path, "held_out")
    assert [score["step"] for score in scores] == [4, 6]
    assert list(scores[1]["languages"]) == ["en", "de"]
    assert [score["missing"] for score in scores] == [["ru"], ["ru"]]
    assert start["notes"] == [LEFT_OUT]
    assert scores[1]["metrics"]["held_out/loss"] == pytest.approx(sum(scores[1]["languages"].values()) / 2)
    (saved,) = events(tmp_path, "checkpoint")
    assert saved["path"] == str(tmp_path / "checkpoints" / "step_000006")
    (end,) = events(tmp_path, "end")
    tokens = sum((synthetic.rows(np.arange(48))["example_ids"] > 0).sum(axis=1))
    assert end["metrics"]["run/tokens"] == tokens


def test_a_recipe_whose_held_out_rows_cannot_be_scored_is_told_so_at_the_start(one: Pool, tmp_path: Path):
    settings = {"train__eval_steps": 1, "train__max_steps": 1}
    one.call(train, tmp_path, settings | {"objectives": [{"kind": "dictionary_alignment"}]})
    (start,) = events(tmp_path, "start")
    without = "There is no held-out loss: it is that of the objective masked_lm, which the recipe lacks."
    assert start["notes"] == [LEFT_OUT, without]
    assert events(tmp_path, "held_out") == []


def test_pairs_alone_have_no_held_out_loss(one: Pool, tmp_path: Path):
    pairs = [{"format": "tsv", "languages": ["en", "de"], "paths": ["x.tsv"]}]
    settings = {"train__eval_steps": 1, "train__max_steps": 1, "streams": [{"kind": "masked_pairs"}]}
    one.call(train, tmp_path, settings | {"data__corpora": [], "data__parallel": pairs})
    (start,) = events(tmp_path, "start")
    without = "There is no held-out loss: it is of text in one language, and data.corpora names none."
    assert start["notes"][-1] == without


def test_the_tokens_of_a_run_are_those_of_its_surviving_steps_over_all_attempts(one: Pool, tmp_path: Path):
    settings = {"checkpoint__save_steps": 2}
    with pytest.raises(synthetic.Interrupted):
        one.call(train_until, tmp_path, settings, 3)  # step 3 is done twice: it was not saved
    one.call(train, tmp_path, settings)
    (end,) = events(tmp_path, "end")
    of_step = [int((synthetic.rows(np.arange(at * 8, at * 8 + 8))["example_ids"] > 0).sum()) for at in range(6)]
    assert end["metrics"]["run/tokens"] == sum(of_step)
    of_last_attempt = end["metrics"]["run/tokens_per_s"] * end["metrics"]["run/seconds"]
    assert of_last_attempt == pytest.approx(sum(of_step[2:]))


def test_held_out_losses_do_not_depend_on_the_number_of_workers(one: Pool, two: Pool, tmp_path: Path):
    settings = {"model__hidden_dropout_prob": 0.0, "train__eval_steps": 3}
    two.call(train, tmp_path / "two", settings)
    one.call(train, tmp_path / "one", settings)
    alone, together = ([e["languages"] for e in events(tmp_path / name, "held_out")] for name in ("one", "two"))
    assert [list(languages) for languages in alone] == [["en", "de"]] * 2
    for one_alone, one_together in zip(alone, together, strict=True):
        assert one_alone == pytest.approx(one_together, abs=1e-5)


def test_a_finished_run_is_not_trained_again(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {})
    once = synthetic.losses(tmp_path)
    one.call(train, tmp_path, {})
    assert synthetic.losses(tmp_path) == once
    assert [event["step"] for event in events(tmp_path, "start")] == [0, 6]
    assert [event["attempt"] for event in events(tmp_path, "step")] == [1] * 6


def join_with(_, parallel):
    setup_workers(ParallelConfig.model_validate(parallel))


def test_another_number_of_workers_than_started_is_refused(two: Pool):
    with pytest.raises(ConfigError, match=r"parallel.workers is 3, but 2 were started; set parallel.workers=2 or sta"):
        two.call(join_with, {"workers": 3})


def test_a_gpu_that_is_not_there_is_refused(one: Pool):
    with pytest.raises(ConfigError, match=r"gpus_per_worker is 1, but this process sees no GPU; set it to 0 to train"):
        one.call(join_with, {"workers": 1, "gpus_per_worker": 1})


@pytest.mark.parametrize(("limit", "waits"), [(60.0, 1800), (7200.5, 7201)])
def test_ranks_wait_for_each_other_as_long_as_a_step_may_take(limit: float, waits: int):
    """Torch's own limit, 30 minutes by Gloo and 10 by NCCL, would end a run whose step_timeout_s is longer."""
    said = (
        "import torch, torch.distributed as dist\n"
        "from xalign_ray.config.schema import ParallelConfig\n"
        "from xalign_ray.train.distributed import setup_workers\n"
        f"setup_workers(ParallelConfig(workers=1, step_timeout_s={limit}))\n"
        "print(dist.group.WORLD._get_backend(torch.device('cpu')).options._timeout.total_seconds())"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert float(done.stdout) == waits


def test_hashes_add_up_modulo_two_to_the_64():
    hashes = [2**64 - 1, 2**63 + 12345, 987654321987654321]
    low, high = (sum(half) for half in zip(*map(split_hash, hashes), strict=True))
    assert combine_hash(low, high) == sum(hashes) % 2**64


def step_event(step: int, seconds: float):
    metrics = {"train/loss": 5.5, "train/loss_masked_lm": 6.0, "train/loss_dictionary_alignment": -0.5}
    return {"event": "step", "step": step, "time": seconds, "metrics": metrics | {"train/tokens_per_s": 1234.4}}


def test_progress_shows_step_losses_speed_and_time_left_in_plain_lines():
    out = io.StringIO()
    progress = Progress(100, out)
    start = {"event": "start", "step": 0, "attempt": 1, "recipe": "tiny/mlm", "workers": 2, "zero_stage": 2}
    start |= {"execution": "varlen attention, bf16"}
    progress.show(start | {"notes": ["A note."]})
    progress.show(step_event(1, 10.0))
    progress.show(step_event(2, 20.0))
    progress.show(step_event(100, 1000.0))
    line, losses = "loss 5.500  1,234 tokens/s", "(masked_lm 6.000, dictionary_alignment -0.500)"
    assert out.getvalue().splitlines() == [
        "A note.",
        "training tiny/mlm for 100 steps (2 workers, ZeRO 2, varlen attention, bf16)",
        f"step 1/100  {line}  {losses}",
        f"step 100/100  {line}  done  {losses}",
    ]


def test_progress_shows_the_ends_of_the_held_out_losses_of_many_languages():
    out = io.StringIO()
    progress = Progress(100, out)
    for count in (16, 17):
        losses = {f"q{number:02}": 9.0 - number / 10 for number in range(count)}
        progress.show({"event": "held_out", "step": 1, "metrics": {"held_out/loss": 8.0}, "languages": losses})
    few, many = out.getvalue().splitlines()
    assert few.endswith("(" + ", ".join(f"q{number:02} {9.0 - number / 10:.3f}" for number in range(16)) + ")")
    assert many == (
        "step 1/100  held-out loss 8.000 "
        "(of 17 languages the lowest q16 7.400, q15 7.500, q14 7.600, the highest q02 8.800, q01 8.900, q00 9.000)"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_updates_one_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch):
    out = Terminal()
    progress = Progress(100, out)
    now = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr("xalign_ray.train.progress.time.monotonic", lambda: next(now))
    progress.show(step_event(1, 10.0))
    progress.show(step_event(2, 20.0))
    progress.show({"event": "start", "step": 2, "attempt": 2, "workers": 1, "zero_stage": 0, "execution": "x"})
    assert "\n" not in out.getvalue().partition("attempt 2 continues after step 2 (1 worker, ZeRO 0, x)")[0]
    assert "\r\x1b[2Kstep 2/100" in out.getvalue()
    assert "16m 20s left" in out.getvalue()


def open_and_fail(workers, folder):
    """What happens in which order where a model cannot be made."""
    happened = []

    class Batches:
        def __iter__(self):
            return iter(())

        def close(self):
            happened.append("batches closed")

    def open_batches(*_):
        happened.append("batches opened")
        return Batches()

    def build(*_):
        happened.append("model made")
        raise TrainingError

    made, loop.build_model = loop.build_model, build
    try:
        synthetic.run(synthetic.config(parallel__workers=workers.size), folder, workers, open_batches=open_batches)
    except TrainingError:
        return happened
    finally:
        loop.build_model = made


def test_batches_are_on_their_way_while_the_model_is_made_and_end_with_it(two: Pool, tmp_path: Path):
    wanted = ["batches opened", "model made", "batches closed"]
    assert two.call(open_and_fail, tmp_path) == [wanted] * 2
