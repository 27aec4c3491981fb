"""`python -m xalign_ray.studies.peers LOSS MODEL OUT`: trainers of Sentence Transformers, as arms of a study."""

from __future__ import annotations

import argparse
import csv
import random
import time
from pathlib import Path
from typing import Any

LOSSES = {
    "mnrl": "MultipleNegativesRankingLoss over the pairs of a batch",
    "cached-mnrl": "the same, with gradients cached in small parts",
    "mse": "both sides learn the vectors that the encoder had for the first side (make_multilingual)",
}
PART = 16  # pairs at once of cached-mnrl


def main() -> None:
    """Trains an encoder on CSV files of pairs, and writes it."""
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("loss", choices=LOSSES, help="; ".join(f"{name}: {what}" for name, what in LOSSES.items()))
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--pairs", nargs="+", type=Path, help="CSV files of two columns with a header")
    parser.add_argument("--steps", type=int, default=-1, help="one pass over the pairs if not given")
    parser.add_argument("--batch", type=int, default=64, help="pairs of a step")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu-minutes", type=float, help="stop after so much CPU time of this process")
    asked = parser.parse_args()

    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Stops the training when its time is over."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            control.should_training_stop |= bool(asked.cpu_minutes) and time.process_time() > 60 * asked.cpu_minutes

    torch.manual_seed(asked.seed)
    model = SentenceTransformer(asked.model)
    rows = [row for path in asked.pairs for row in _rows(path)]
    random.Random(asked.seed).shuffle(rows)
    if asked.steps > 0:
        rows = rows[: asked.steps * asked.batch]
    first, second = (list(side) for side in zip(*rows, strict=True))
    if asked.loss == "mse":
        loss: Any = losses.MSELoss(model)
        data = Dataset.from_dict({"first": first, "second": second, "label": model.encode(first).tolist()})
    else:
        data = Dataset.from_dict({"anchor": first, "positive": second})
        loss = losses.MultipleNegativesRankingLoss(model)
        if asked.loss == "cached-mnrl":
            loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=PART)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=asked.out,
        per_device_train_batch_size=asked.batch,
        max_steps=asked.steps,
        num_train_epochs=1,
        learning_rate=asked.learning_rate,
        warmup_steps=0.1,
        seed=asked.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
    )
    SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=[Clock()]).train()
    model.save(asked.out)


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


if __name__ == "__main__":
    main()
