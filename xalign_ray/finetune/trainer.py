"""Fine-tuning by transformers' Trainer: alone in its process, silent, the best epoch kept in memory."""

from __future__ import annotations

import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from xalign_ray.errors import TrainingError
from xalign_ray.finetune.features import LengthPools, SwitchedWords
from xalign_ray.finetune.settings import Choice, FineTuning
from xalign_ray.models.export import name_accelerator
from xalign_ray.models.open_folder import quiet_transformers
from xalign_ray.private.transformers import forget_processes, keep_to_one_gpu
from xalign_ray.streams.collate import IGNORED
from xalign_ray.work import process

_LAUNCHERS = ("RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "ACCELERATE_", "FSDP_", "OMPI_COMM_", "PMI_", "MV2_COMM_")
_AS_GIVEN = (
    "num_train_epochs", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "seed",
)  # fmt: skip

log = logging.getLogger(__name__)


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Everything random inside follows from the seed, on one thread; outside nothing changes."""
    threads, states = torch.get_num_threads(), (random.getstate(), np.random.get_state())
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(states[0])
        np.random.set_state(states[1])


def train(
    model: Any,
    rows: Any,
    collate: Callable[[Any], dict[str, Any]],
    batches: LengthPools,
    development: Callable[[], float],
    settings: FineTuning,
    device: torch.device,
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
) -> Choice:
    """Trains the model in place and leaves it at the epoch that is kept, in evaluation mode. Call it in `repeatable`.

    Args:
        model: with a head, of transformers.
        rows: a data set of features.
        collate: makes a batch of rows.
        batches: which rows share one.
        development: score of the present weights, higher is better; called after every epoch.
        settings: of the optimizer and the schedule.
        device: "cpu" or "cuda".
        on_epoch: as for `tune_task`; called with the score.
    """
    epochs, on_gpu = _Epochs(development, settings, on_epoch), device.type != "cpu"
    with _alone(), quiet_transformers(), tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            **{name: getattr(settings, name) for name in _AS_GIVEN},
            gradient_accumulation_steps=batches.passes,
            optim="adamw_torch_fused",
            use_cpu=not on_gpu,
            dataloader_pin_memory=on_gpu,
            save_strategy="no",
            logging_strategy="no",
            logging_nan_inf_filter=False,
            report_to="none",
            disable_tqdm=True,
            log_level="error",
        )
        keep_to_one_gpu(arguments)
        trainer = _Trainer(model, arguments, collate, rows, callbacks=[epochs])
        trainer.batches = batches
        trainer.in_bf16 = torch.cuda.is_bf16_supported() if settings.bf16 is None and on_gpu else bool(settings.bf16)
        trainer.remove_callback(PrinterCallback)
        process.collect_as_usual()
        trainer.train()
    model.eval()
    if not settings.load_best_model_at_end:
        return Choice(len(epochs.scores), tuple(epochs.scores))
    model.load_state_dict(epochs.weights)
    return Choice(epochs.best, tuple(epochs.scores))


class _Trainer(Trainer):
    """With batches of ours, and the mean loss over all labels of a step however many passes it takes."""

    loss_is_scaled_for_ga = True
    batches: LengthPools
    in_bf16: bool  # not an argument of the Trainer, which would leave the model so when it is scored

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def get_batch_samples(self, *arguments: Any) -> tuple[list[Any], Any]:
        batches, _ = super().get_batch_samples(*arguments)
        return batches, sum(map(_count_labels, batches))

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.in_bf16):
            outputs = model(**inputs)
        if not torch.isfinite(outputs.loss):
            raise TrainingError(f"The fine-tuning loss became {outputs.loss.item()}; lower the learning rate.")
        loss = outputs.loss * (_count_labels(inputs) / num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


@dataclass
class _Epochs(TrainerCallback):
    """Scores each epoch and keeps the weights of the best one."""

    development: Callable[[], float]
    settings: FineTuning
    on_epoch: Callable[[int, float], None]
    scores: list[float] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def best(self) -> int:
        """The best epoch, from 1; the first of equals."""
        return self.scores.index(max(self.scores)) + 1

    def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any, **_: Any) -> None:  # noqa: ARG002
        if isinstance(train_dataloader.dataset, SwitchedWords):
            train_dataloader.dataset.epoch = len(self.scores) + 1

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:  # noqa: ARG002
        model.eval()
        self.scores.append(self.development())
        epoch, settings = len(self.scores), self.settings
        log.info("epoch %d of %d: development score %.4f", epoch, settings.num_train_epochs, self.scores[-1])
        self.on_epoch(epoch, self.scores[-1])
        if settings.load_best_model_at_end and epoch == self.best:
            self.weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def _count_labels(batch: Any) -> int:
    """Number of terms of a mean loss: labels, or questions where a batch has places of answers instead."""
    return int((batch["labels"] != IGNORED).sum()) if "labels" in batch else len(batch["input_ids"])


@contextmanager
def _alone() -> Iterator[None]:
    """Hides other processes from accelerate: a worker of Ray Train or torchrun fine-tunes alone.

    What accelerate notes in the environment and in its own global state is undone.
    """
    hidden = {name: value for name, value in os.environ.items() if name.startswith(_LAUNCHERS)}
    for name in hidden:
        del os.environ[name]
    name_accelerator()
    try:
        yield
    finally:
        forget_processes()
        for name in [name for name in os.environ if name.startswith(_LAUNCHERS)]:
            del os.environ[name]
        os.environ.update(hidden)
