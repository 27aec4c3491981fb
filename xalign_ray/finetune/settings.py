"""Settings of a fine-tuning, under the names of transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from xalign_ray.config.explain import suggest
from xalign_ray.config.fields import Float, Frozen, Int, Positive
from xalign_ray.config.yaml_text import parse_yaml

Schedule = Literal["linear", "cosine", "polynomial", "constant", "constant_with_warmup"]


class FineTuning(Frozen):
    """Hyperparameters of a grid; the defaults are XTREME's for tagging, but for warm-up and weight decay."""

    learning_rate: Annotated[Float, Field(gt=0, description="its peak")] = 2e-5
    num_train_epochs: Annotated[Positive, Field(description="passes over the training examples")] = 10
    train_batch_size: Annotated[Positive, Field(description="inputs an optimizer step")] = 32
    per_device_train_batch_size: Annotated[
        Positive | None,
        Field(description="inputs a forward pass, of which the rest of a step accumulates; null: the step at once"),
    ] = None
    seed: Annotated[Int, Field(description="of the head's first weights, the order of examples, and dropout")] = 0
    warmup_steps: Annotated[Float, Field(ge=0, description="below 1 a share of all steps, else their number")] = 0.1
    weight_decay: Annotated[Float, Field(ge=0, description="of matrices")] = 0.01
    lr_scheduler_type: Annotated[Schedule, Field(description="the rate after warm-up; `constant` has none")] = "linear"
    max_seq_length: Annotated[
        Annotated[Int, Field(ge=8, le=512)] | None,
        Field(description="longest input in pieces, at most 512; null: the task's own"),
    ] = None
    load_best_model_at_end: Annotated[
        bool, Field(description="keep the best epoch by development score; if false, the last")
    ] = True
    dev_language: Annotated[
        Literal["source", "target"],
        Field(
            description="whose development file says which epoch is best: `source`, that of the language trained on; "
            "`target`, that of each tested language, which gets an epoch of its own"
        ),
    ] = "source"
    metric_for_best_model: Annotated[
        str | None, Field(description="metric of the development score; null: the first of the task's")
    ] = None
    hidden_dropout_prob: Annotated[
        Annotated[Float, Field(ge=0, lt=1)] | None,
        Field(description="dropout of hidden states, attention and head; null: as the encoder's config says"),
    ] = None
    max_train_samples: Annotated[
        Positive | None, Field(description="of the training file's examples, from the first; null: all")
    ] = None
    max_grad_norm: Annotated[Float, Field(ge=0, description="L2 norm that gradients are clipped to; 0: not")] = 1.0
    bf16: Annotated[
        bool | None,
        Field(description="bfloat16 in training; null: where the device is a GPU that has it. Scores are fp32"),
    ] = None
    torch_compile: Annotated[
        bool, Field(description="run the encoder through torch.compile, in training and scoring; a minute at the start")
    ] = False

    @model_validator(mode="after")
    def _has_a_best_epoch_of_each_language(self) -> FineTuning:
        if self.dev_language == "target" and not self.load_best_model_at_end:
            raise ValueError("dev_language target needs load_best_model_at_end; the last epoch is the same for all")
        return self

    @model_validator(mode="after")
    def _accumulates_whole_batches(self) -> FineTuning:
        if self.train_batch_size % (self.per_device_train_batch_size or 1):
            raise ValueError(
                f"train_batch_size is {self.train_batch_size}, no multiple of per_device_train_batch_size, which is "
                f"{self.per_device_train_batch_size}; give one that is"
            )
        return self


@dataclass(frozen=True, slots=True)
class Choice:
    """Which epoch was kept for a development file, and why."""

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
