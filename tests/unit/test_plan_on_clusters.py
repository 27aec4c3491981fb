"""What `xalign plan --on` says of clusters, against numbers worked out by hand, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.errors import ConfigError
from xalign_ray.planning.describe import describe, duration
from xalign_ray.planning.estimate import (
    Estimate,
    Rate,
    Shape,
    assumed_rate,
    estimate,
    find_rate,
    mean_over_steps,
    operations_of_row,
    read_prices,
    read_shape,
    started_passes,
    tokens_of_row,
)
from xalign_ray.planning.memory import run_bytes
from xalign_ray.planning.subject import Subject, at_most, feed_rate, read_figures, subject_of
from xalign_ray.verbs.recipes import plan

PEAK = Rate(100.0, "as given")


def of(name: str, *settings: str) -> tuple:
    recipe = load_recipe(name, settings)
    subject = subject_of(recipe)
    assert isinstance(subject, Subject)
    return at_most(recipe.config), subject


def test_operations_of_a_row_by_hand() -> None:
    """mBERT: 12 layers of 12 d^2 weights and 13 d biases and norms, attention over 512 tokens, 76.8 labels."""
    config, subject = of("papers/mbert-mlm")
    d, tokens, vocabulary = 768, 512, 119_547
    layers = 12 * (12 * d * d + 9 * d + 4 * d)
    head = d * d + d + 2 * d + vocabulary + d * vocabulary
    expected = 3 * (2 * layers * tokens + 12 * 4 * d * tokens**2) + 3 * 2 * head * 0.15 * tokens
    assert operations_of_row(config, subject) == pytest.approx(expected, rel=1e-12)


def test_sides_of_pairs_are_half_of_a_row_and_the_keys_pass_has_no_gradient() -> None:
    pairs, subject = of("papers/ppa-250k-no-moco")
    contrast, _ = of("papers/ppa-250k-no-tlm")
    d, half = 768, 64
    layers = 12 * (12 * d * d + 13 * d)
    forward = 2 * layers * half + 12 * 4 * d * half**2
    assert operations_of_row(contrast, subject) == pytest.approx((3 + 1) * forward, rel=1e-12)
    both, _ = of("papers/ppa-250k")
    together = operations_of_row(both, subject)
    assert together == pytest.approx(operations_of_row(pairs, subject) + (3 + 1) * forward, rel=1e-12)
    assert (started_passes(pairs), started_passes(contrast), started_passes(both)) == (1, 4 / 3, 7 / 3)


def test_a_loss_over_the_step_embeds_twice_where_micro_steps_share_it() -> None:
    contrast = "objectives=[{kind: sentence_contrast}]"
    passes = []
    for rows in (32, 16):
        cut = [contrast, "train.global_batch_size=32", f"train.per_device_batch_size={rows}", "parallel.workers=1"]
        config, subject = of("papers/ppa-250k-no-tlm", *cut)
        passes.append((operations_of_row(config, subject), started_passes(config)))
    (whole, started), (cut_up, started_again) = passes
    assert cut_up == pytest.approx(whole * 8 / 6, rel=1e-12)
    assert (started, started_again) == (2, 8 / 3)


def test_reserved_tokens_are_empty_but_where_a_copy_fills_them() -> None:
    assert tokens_of_row(of("papers/xlm")[0]) == 256  # of 309
    assert tokens_of_row(of("papers/dict-tlm")[0]) == 512
    assert tokens_of_row(of("papers/dict-mlm-50")[0]) == 460


def test_the_mean_of_a_number_that_moves() -> None:
    assert mean_over_steps(0.15, 0) == 0.15
    assert mean_over_steps(((0, 0.3), (10_000, 0.1)), 20_000) == pytest.approx(0.15, abs=2e-4)


def test_time_by_hand() -> None:
    config, subject = of("papers/mbert-mlm", "train.max_steps=1000")
    found = estimate(config, subject, Shape(8, "H100"), PEAK)
    assert isinstance(found, Estimate)
    seconds = 1024 * operations_of_row(config, subject) / 100e12
    assert found.step_s == pytest.approx(seconds)
    assert found.hours == pytest.approx(1000 * seconds / 3600)
    assert found.device_hours == pytest.approx(8 * 1000 * seconds / 3600)
    assert found.data_cores == 1


def test_a_gpu_is_not_faster_than_its_host_starts_operations() -> None:
    """Of 128 rows 2 on each of 64: 8 layers of 2 ms in one micro-step."""
    config, subject = of("papers/align-mlm")
    found = estimate(config, subject, Shape(64, "H100"), PEAK)
    assert isinstance(found, Estimate)
    assert subject.values["num_hidden_layers"] == 8
    assert found.step_s == pytest.approx(8 * 0.002)


def test_the_slowest_worker_counts() -> None:
    config, subject = of("tiny/mlm", "train.global_batch_size=10")
    two, three = (estimate(config, subject, Shape(n, "CPU"), PEAK) for n in (2, 3))
    assert isinstance(two, Estimate)
    assert isinstance(three, Estimate)
    assert three.step_s / two.step_s == pytest.approx(4 / 5)


def test_cores_for_the_feed_keep_up_with_the_tokens() -> None:
    config, subject = of("papers/ppa-250k-no-tlm")
    found = estimate(config, subject, Shape(8, "H100"), Rate(1e6, "given"))
    assert isinstance(found, Estimate)
    needed = 128 * 128 / found.step_s
    rate = read_figures().feed_tokens_per_core_s["contrasted_pairs"][9] * read_figures().feed_share_under_ray
    assert feed_rate(config) == pytest.approx(rate)
    assert found.data_cores - 1 < needed / rate <= found.data_cores
    mixed = load_recipe("papers/xlm").config
    of_each = [read_figures().feed_tokens_per_core_s[one.kind][104] for one in mixed.streams]
    parts = [one.weight / sum(s.weight for s in mixed.streams) for one in mixed.streams]
    assert 1 / feed_rate(mixed) == pytest.approx(
        sum(part / one for part, one in zip(parts, of_each, strict=True)) / read_figures().feed_share_under_ray
    )


def test_every_kind_of_stream_was_measured() -> None:
    for name in list_recipes():
        assert feed_rate(load_recipe(name).config) > 1e6


def test_disk_by_hand() -> None:
    """bf16 weights, fp32 masters and two averages of 3 kept checkpoints and a new one; the export in fp32."""
    config, subject = of("papers/mbert-mlm")
    assert run_bytes(config, subject) == (3 + 1) * 14 * 177_974_523 + 4 * 177_974_523


def test_shapes_and_prices_as_they_are_written() -> None:
    shapes = {"8xH100": Shape(8, "H100"), "64 x h100-nvl": Shape(64, "H100 NVL"), "4xcpu": Shape(4, "CPU")}
    assert {written: read_shape(written) for written in shapes} == shapes
    assert read_prices(["H100=3", "h100=2.5", "a100=1.5"]) == {"H100": 2.5, "A100": 1.5}


@pytest.mark.parametrize(
    ("read", "written", "said"),
    [
        (read_shape, "H100", "--on H100: a number of devices and their name is expected, as in --on 8xH100."),
        (read_shape, "0xH100", "--on 0xH100: a number of devices"),
        (read_shape, "8xH1000", "--on 8xH1000: nothing is known of a H1000. Did you mean 'H100'? Known: H100, "),
        (read_prices, ["H100=two"], "--price H100=two: write a device and a number, as in H100=2.5."),
        (read_prices, ["H100=-1"], "--price H100=-1: write a device and a number"),
        (read_prices, ["H1OO=2"], "--price H1OO=2: nothing is known of a H1OO. Did you mean 'H100'?"),
        (read_prices, ["prices.yaml"], "--price prices.yaml: write a device and a number"),
    ],
)
def test_a_shape_or_price_that_is_none_is_refused(read: Any, written: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(written)
    assert str(refused.value).startswith(said)


def test_the_assumed_rate_says_that_it_is_assumed() -> None:
    bf16, tf32, fp32 = (
        load_recipe("papers/xlm", [f"train.bf16={bf16}", f"train.tf32={tf32}"]).config
        for bf16, tf32 in (("true", "true"), ("false", "true"), ("false", "false"))
    )
    rates = [assumed_rate(one, Shape(1, "H100")) for one in (bf16, tf32, fp32)]
    assert [rate.tflops for rate in rates] == pytest.approx([0.28 * peak for peak in (989, 494, 67)])
    assert rates[0].words == "assumed, not measured: 0.28 of the peak in bf16, 989 TFLOP/s"
    with pytest.raises(ConfigError, match="--on 1 x CPU: how fast a CPU computes is known by measuring only"):
        assumed_rate(bf16, Shape(1, "CPU"))


def write_run(folder: Path, gpus: int, bf16: bool, *tflops: float) -> str:
    folder.mkdir()
    recipe = load_recipe("tiny/mlm", [f"parallel.gpus_per_worker={gpus}", f"train.bf16={str(bf16).lower()}"])
    write_saved(folder, describe_saved(recipe, {"data": "d", "code": {}}))
    events = [{"event": "start", "attempt": 1, "time": 0.0, "step": 0, "steps": len(tflops)}]
    events += [
        {"event": "step", "attempt": 1, "time": 0.0, "step": n, "metrics": {"train/tflops": one}}
        for n, one in enumerate(tflops, 1)
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(folder)


def test_a_rate_is_read_from_a_run_of_the_same_kind(tmp_path: Path) -> None:
    config, h100 = load_recipe("papers/xlm").config, Shape(8, "H100")
    run = write_run(tmp_path / "fast", 1, True, 2.0, 200.0, 210.0)
    assert find_rate(run, config, h100) == Rate(200.0, "median of 3 step events of fast")
    assert find_rate("120", config, h100) == Rate(120.0, "as given by --rate")
    assert find_rate("", config, h100) is None
    for given, shape, said in (
        (run, Shape(8, "CPU"), "the run was on GPUs, and --on is 8 x CPU"),
        (write_run(tmp_path / "tf32", 1, False, 1.0), h100, "the run was in TF32, and the recipe is in bf16"),
        (write_run(tmp_path / "cpu", 0, True, 1.0), h100, "the run was on CPUs, and --on is 8 x H100"),
        (write_run(tmp_path / "new", 1, True), h100, "has no step with train/tflops"),
        (str(tmp_path), h100, "neither a number of TFLOP/s nor the folder of a run"),
        ("-3", h100, "TFLOP/s of a worker are more than 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            find_rate(given, config, shape)


def test_what_does_not_fit_is_refused_with_what_would_help() -> None:
    def fits(rows: int) -> bool:
        config, subject = of("papers/mbert-mlm", f"train.per_device_batch_size={rows}")
        return isinstance(estimate(config, subject, Shape(8, "L4"), PEAK), Estimate)

    assert fits(8)
    assert not fits(128)
    recipe = load_recipe("papers/mbert-mlm", ["train.per_device_batch_size=128"])
    with pytest.raises(ConfigError) as refused:
        describe(recipe, on="8xL4")
    said = str(refused.value)
    assert said.startswith("papers/mbert-mlm cannot run on 8 x L4: a worker needs ")
    assert " GiB, more than 19.1 (85% of its memory); lower train.per_device_batch_size, set " in said
    with pytest.raises(ConfigError, match=r"on 64 x H100: a step has no more than 32 rows.*take at most 32 x H100"):
        describe(load_recipe("papers/weam-de"), on="64xH100")


def test_plan_of_a_cluster_has_its_time_and_price() -> None:
    recipe = load_recipe("papers/mbert-mlm")
    said = describe(recipe, on="8xH100", prices=["H100=2.5"]).splitlines()
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in said[:-1])
    assert lines["on"] == "8 x H100, 277 TFLOP/s a worker, assumed, not measured: 0.28 of the peak in bf16, 989 TFLOP/s"
    hours = float(lines["device hours"].replace(",", ""))
    assert float(lines["price"].replace(",", "")) == pytest.approx(2.5 * hours, rel=0.01)
    assert "price" not in describe(recipe, on="8xH100")


def test_options_of_a_cluster_need_one() -> None:
    with pytest.raises(ConfigError, match="name it, as in --on 8xH100"):
        plan(load_recipe("tiny/mlm"), rate="3")


@pytest.mark.parametrize(
    ("hours", "said"),
    [(72, "3.0 days"), (3.25, "3.2 h"), (0.5, "30.0 min"), (5 / 3600, "5.0 s"), (0.25 / 3600, "250 ms")],
)
def test_times_in_units_that_show_them(hours: float, said: str) -> None:
    assert duration(hours) == said
