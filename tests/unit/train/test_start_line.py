"""The start line of a run shows the values that decide what it learns."""

from __future__ import annotations

import io

from xalign_ray.config.derive import deciding_values
from xalign_ray.config.load import load_recipe
from xalign_ray.train.progress import Progress


def test_the_start_line_shows_rate_batch_dropout_and_losses() -> None:
    config = load_recipe("tiny/align-mlm", ["train.schedule.warmup_steps=0.1"]).config
    event = {"event": "start", "step": 0, "attempt": 1, "workers": 1, "zero_stage": 2, "execution": "dense attention"}
    stream = io.StringIO()
    Progress(3, stream).show(event | {"recipe": "tiny/align-mlm", "values": deciding_values(config, "0")})
    assert stream.getvalue().splitlines() == [
        "training tiny/align-mlm for 3 steps (1 worker, ZeRO 2, dense attention)",
        "start: from scratch (bert); learning rate: 0.003 at most (adamw), 10% of all steps of warm-up, then linear to "
        "0; batch: 48 rows of 48 tokens = 2,304 token positions a step; dropout: 0; losses: 1 masked_lm, "
        "10 dictionary_alignment",
    ]


def test_rows_that_are_counted_later_are_said_so() -> None:
    config = load_recipe("papers/ppa-250k").config
    assert deciding_values(config, "0.1")["batch"] == "rows of 128 tokens, as many as hold 128 pairs"
