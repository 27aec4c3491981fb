"""The features of a training set: tokenised once for all trials, memory-mapped; and which rows share a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from datasets.arrow_writer import ArrowWriter
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.finetune.training_set import TrainingSet
from xalign_ray.models.own_tokenizer import identify_tokenizer
from xalign_ray.models.tokenized import ARGUMENTS, Features, Inputs
from xalign_ray.work.artifacts import hash_file, hash_value, replacing
from xalign_ray.work.job import open_job

FORMAT = 1  # of the file; another one is another name
AT_A_TIME = 1000  # units in memory


def tokenize_once(training_set: TrainingSet, inputs: Inputs, classes: Sequence[str], cache: Path) -> Dataset:
    """A row for each input that is trained on, with its `unit` and `length` beside the arguments of a model.

    Rows of one unit share a batch. Rows of a single example may part, unless its words will be switched. Files are read
    only if nobody has tokenised them yet into the folder `cache`, which other trials use too, now or later.

    Raises:
        DataError: a file is malformed, or no example fits.
    """
    task = training_set.task
    name = {
        "format": FORMAT,
        "files": [hash_file(path) for path in training_set.files],
        "classes": list(classes),
        "tokenizer": identify_tokenizer(inputs.tokenizer.backend_tokenizer.to_str()),
        "inputs": asdict(replace(inputs, tokenizer=None, encoder="")),
        "training": training_set.training.model_dump(),
        "train_language": training_set.english,
        "most": training_set.most,
    }
    folder = cache / f"{task.name}-{hash_value(name)[:16]}"
    path = folder / "features.arrow"
    if not path.is_file():
        with open_job(folder, "tokenising", upload=None):
            if not path.is_file():
                _write(path, _rows(training_set, inputs, classes))
    dataset = Dataset.from_file(str(path))
    if not len(dataset):
        raise DataError(f"{task.name}: no training example fits into {inputs.max_length} pieces.")
    return dataset


def column(rows: Dataset, name: str) -> NDArray[np.int64]:
    """A column of integers."""
    return np.asarray(rows.with_format("numpy")[name][:], dtype=np.int64)


@dataclass
class SwitchedWords(torch.utils.data.Dataset):
    """The same rows, whose features are made anew in every epoch, with words switched."""

    training_set: TrainingSet
    inputs: Inputs
    classes: Sequence[str]
    rows: Dataset
    epoch: int = 1

    def __post_init__(self) -> None:
        self._units, self._unit_of_row = list(self.training_set.units()), column(self.rows, "unit").tolist()

    def __len__(self) -> int:
        return len(self._unit_of_row)

    def __getitems__(self, rows: Sequence[int]) -> list[Features]:
        task = self.training_set.task
        switched = [
            task.replace_words(example, self.training_set.switcher(self.epoch, unit))
            for unit in dict.fromkeys(self._unit_of_row[row] for row in rows)
            for example in self._units[unit]
        ]
        return [features for part in task.features(self.inputs, switched, self.classes) for features in part]


def _rows(training_set: TrainingSet, inputs: Inputs, classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    number, units = 0, iter(training_set.units())
    while chunk := list(islice(units, AT_A_TIME)):
        with_gold = [
            [example for example in unit if example.gold] for unit in chunk
        ]  # a translation may lose its answer
        made = iter(training_set.task.features(inputs, [example for unit in with_gold for example in unit], classes))
        for unit in with_gold:
            rows = [features for _ in unit for features in next(made)]
            may_part = len(unit) == 1 and not training_set.lexicon
            for part in [[row] for row in rows] if may_part else [rows]:
                for row in part:
                    values = {key: row[key] for key in ARGUMENTS if key in row}
                    yield values | {"unit": number, "length": len(row["input_ids"])}
                number += 1


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with replacing(path) as part, ArrowWriter(path=str(part)) as writer:
        for row in rows:
            writer.write(row)
        writer.finalize()


Integers = NDArray[np.int64]

POOL_BATCHES = 32  # shuffled units are sorted by length within that many batches


class LengthPools:
    """A batch sampler: an epoch's forward passes, each a list of rows; a step is `passes` of them.

    Half the padding of a plain shuffle, or less. A last smaller step ends the epoch. `units` has the unit of each
    row (rows of a unit stand together), `lengths` its pieces; `step` and `forward` are units of a step and of a pass.
    """

    def __init__(self, units: Integers, lengths: Integers, step: int, forward: int, seed: int) -> None:
        starts = np.flatnonzero(np.diff(units, prepend=-1))
        self._starts, self._ends = starts, np.append(starts[1:], len(units))
        self._longest = np.maximum.reduceat(lengths, starts)
        self._step, self._forward = step, min(forward, step)
        self._order = torch.Generator().manual_seed(seed)
        self.passes = math.ceil(step / self._forward)

    def __len__(self) -> int:
        full_steps, rest = divmod(len(self._starts), self._step)
        return full_steps * self.passes + math.ceil(rest / self._forward)

    def __iter__(self) -> Iterator[list[int]]:
        steps = []
        for pool in torch.randperm(len(self._starts), generator=self._order).split(POOL_BATCHES * self._step):
            ranked = pool.numpy()[np.argsort(self._longest[pool.numpy()], kind="stable")]
            steps += [ranked[begin : begin + self._step] for begin in range(0, len(ranked), self._step)]
        full_steps = len(self._starts) // self._step
        for number in [*torch.randperm(full_steps, generator=self._order).tolist(), *range(full_steps, len(steps))]:
            passes = self.passes if number < full_steps else math.ceil(len(steps[number]) / self._forward)
            for units in np.array_split(steps[number], passes):
                yield [row for unit in units for row in range(self._starts[unit], self._ends[unit])]
