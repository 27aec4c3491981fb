"""Settings of a fine-tuning, under the names of transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Float, Frozen, Int, NonNegativeFloat, Positive, PositiveFloat
from xalign_ray.config.yaml_text import parse_yaml

Schedule = Literal["linear", "cosine", "polynomial", "constant", "constant_with_warmup"]


class FineTuning(Frozen):
    """Hyperparameters of a grid; the defaults are XTREME's for tagging, but for warm-up and weight decay."""

    learning_rate: PositiveFloat = 2e-5
    """its peak"""
    num_train_epochs: Positive = 10
    """passes over the training examples"""
    train_batch_size: Positive = 32
    """inputs an optimizer step"""
    per_device_train_batch_size: Positive | None = None
    """inputs a forward pass, of which the rest of a step accumulates; null: the step at once"""
    seed: Int = 0
    """of the head's first weights, the order of examples, and dropout"""
    warmup_steps: NonNegativeFloat = 0.1
    """below 1 a share of all steps, else their number"""
    weight_decay: NonNegativeFloat = 0.01
    """of matrices"""
    lr_scheduler_type: Schedule = "linear"
    """the rate after warm-up; `constant` has none"""
    max_seq_length: Annotated[Int, Field(ge=8, le=512)] | None = None
    """longest input in pieces, at most 512; null: the task's own"""
    load_best_model_at_end: bool = True
    """keep the best epoch by development score; if false, the last"""
    metric_for_best_model: str | None = None
    """metric of the development score; null: the first of the task's"""
    hidden_dropout_prob: Annotated[Float, Field(ge=0, lt=1)] | None = None
    """dropout of hidden states, attention and head; null: as in the encoder's config"""
    max_train_samples: Positive | None = None
    """of the training file's examples, from the first; null: all"""
    max_grad_norm: NonNegativeFloat = 1.0
    """L2 norm that gradients are clipped to; 0: not"""
    bf16: bool | None = None
    """bfloat16 in training; null: where the device is a GPU that has it. Scores are fp32"""
    torch_compile: bool = False
    """run the encoder through torch.compile, in training and scoring; a minute at the start"""

    def _faults(self) -> Iterator[str]:
        if self.train_batch_size % (self.per_device_train_batch_size or 1):
            yield (
                f"train_batch_size is {self.train_batch_size}, no multiple of per_device_train_batch_size, which is "
                f"{self.per_device_train_batch_size}; give one that is"
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """Which epoch was kept, and why."""

    epoch: int  # from 1; the first of equals
    development: tuple[float, ...]  # score after each epoch


# Settings of fine-tuning by the name of the paper that has them: what `from` means in a study and in `tune`.

FROM = "from"
_FILE = Path(__file__).with_name("papers.yaml")

Papers = Mapping[str, Mapping[str, Mapping[str, Any]]]


@cache
def read_papers() -> Papers:
    """Settings by paper and task, each with a name and a value as a study may give them."""
    return parse_yaml(_FILE.read_text(encoding="utf-8"))


def resolve_settings(given: Any, task: str) -> Any:
    """The given settings, over the named paper's: `ppa`, or `from: ppa` among others.

    Raises:
        ValueError: there is no such paper, or it does not have the task; names what there is.
    """
    settings = {FROM: given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping) or FROM not in settings:
        return given
    paper, papers = settings[FROM], read_papers()
    if paper not in papers:
        raise ValueError(
            f"settings are from '{paper}', which is no paper.{suggest(str(paper), papers)} Known: {', '.join(papers)}"
        )
    if task not in papers[paper]:
        raise ValueError(
            f"{paper} has no settings for {task}, only for {', '.join(papers[paper])}; write them out, or take those "
            "of another paper"
        )
    return {**papers[paper][task], **{name: value for name, value in settings.items() if name != FROM}}
