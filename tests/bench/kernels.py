"""Counts what a step asks of a GPU, without one: kernels by phase, reads, copies, bytes on the wire, compiled graphs.

Real steps under DeepSpeed run on the CPU, at the depth and vocabulary of a real encoder, but so narrow that nothing is
computed: the number of operations does not depend on the width. They take the paths of a GPU; the flash operation has a
stand-in of the same shapes. The other ranks are those of torch's fake process group, which sends nothing.

`python tests/bench/kernels.py CASE...` prints a line of JSON for each case: the fields of `Case` as JSON, or with
`model` the arguments of `count_graphs`, with `vocab` those of `count_bytes`. tests/unit/train/test_kernels.py asserts.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
import torch._dynamo as dynamo
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from method_rows import METHODS, columns
from step_arms import Arm, MadeRows, examples, packed, recipe
from torch import Tensor
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xalign_ray.models import attention, heads
from xalign_ray.objectives import dictionary_alignment
from xalign_ray.train import step as steps
from xalign_ray.train.distributed import Workers, setup_workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.loop import build_model
from xalign_ray.train.optimizers import Lamb

LAYER = {"kind": "dictionary_alignment", "layer": 6, "pairs_per_step": 64}
METHODS |= {
    "align-layer": {"objectives": [{"kind": "masked_lm"}, LAYER], "streams": [{"kind": "masked_text"}]},
    "contrast": {"objectives": [{"kind": "sentence_contrast"}], "streams": [{"kind": "contrasted_pairs"}]},
}
# Tensors without numbers cannot say which labels have a partner. Of the rows that are made here all have.
OF_ALL_LABELS = METHODS["weam"] | {
    "objectives": [{"kind": "masked_lm"}, {"kind": "word_exchange", "unaligned": "literal"}]
}
RANKS, ROWS = 4, 4  # rows of a micro-step
SETTLED = 2  # steps before the one that is counted
HOST = "host"  # the phase of what is done with the host's own tensors, on purpose
# Operations that start no kernel beside views: memory that is asked for but not written, the profiler's marks. Dropout
# is one kernel on a GPU, and three operations on a CPU.
FREE = {
    *("_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "detach", "alias", "lift_fresh", "set_"),
    *("_record_function_enter_new", "_record_function_exit"),
    *("bernoulli_", "div_"),
}
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_consecutive"}
READ_AT_ONCE = {Tensor.tolist, Tensor.numpy, Tensor.cpu}  # a CPU's tensors are read so without any operation


@dataclass(frozen=True)
class Case:
    """What is counted: a method, where and how.

    Attributes:
        pieces: of the vocabulary.
    """

    method: str = "mlm"
    stage: int = 1
    accumulation: int = 1
    bf16: bool = True
    pieces: int = 119_547
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """Of one step.

    Attributes:
        kernels: by phase. reads: by phase and line. wire: bytes by operation. names: kernels by phase and operation.
        copies: tensors of the host that go to the device. parameters: trained ones.
    """

    kernels: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    wire: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    parameters: int = 0
    phase: str = "other"

    @property
    def learned(self) -> int:
        """Kernels of the forward and the backward pass."""
        return self.kernels["forward"] + self.kernels["backward"]

    @property
    def sent(self) -> float:
        """Bytes of gradients that are reduced, for each parameter."""
        return sum(size for name, size in self.wire.items() if "gather" not in name) / self.parameters


def count(case: Case) -> Counts:
    """One settled optimizer step as rank 0 takes it."""
    counts = Counts()
    with _started(case) as (engine, parameters, take), _phases(engine, counts):
        counts.parameters = parameters
        for number in range(SETTLED):
            take(number)
        counts.copies.clear()
        with _Operations(counts), _Methods(counts):
            take(SETTLED)
    return counts


@contextmanager
def _started(case: Case) -> Iterator[tuple[Engine, int, Callable[[int], None]]]:
    """The engine of a run on a GPU's paths, its parameters, and what takes the step of a number."""
    gc.collect()  # DeepSpeed waits for the device when an engine goes, which is that of the case before
    if not dist.is_initialized():  # once a process: DeepSpeed remembers the group
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    arm = _arm(case)
    config = recipe(arm, arm.rows * RANKS)
    config = config.model_copy(update={"parallel": config.parallel.model_copy(update={"workers": RANKS})})
    rows = packed(examples(arm), arm.row)
    rows |= columns("ppa" if case.method == "contrast" else case.method, rows)
    with _as_on_a_gpu():
        workers = setup_workers(config.parallel)
        objectives = build_model(config, MadeRows(arm.vocab), workers.device)  # type: ignore[arg-type]
        parameters = sum(one.numel() for one in objectives.parameters())
        engine = Engine(objectives, config, workers)
        stepper = steps.Stepper(engine, objectives, config, workers)

        def take(number: int) -> None:
            places = number * arm.rows * RANKS + np.arange(arm.rows)
            stepper.take(number, rows | {"position": places, "row_hash": places.astype(np.uint64)})

        yield engine, parameters, take


def _arm(case: Case) -> Arm:
    settings = {"per_device_batch_size": ROWS, "attention": "varlen"} | dict(case.train)
    return Arm("ours", case.pieces, ROWS * case.accumulation, stage=case.stage, bf16=case.bf16, row=16, width=24,
               depth=12, heads=3, method=case.method, train=settings)  # fmt: skip


class _Operations(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counts, name = self.counts, func._schema.name.split("::")[1]
        if counts.phase != HOST:
            if func.namespace == "c10d":
                counts.wire[name] += max(
                    (one.nbytes for one in tree_leaves(args) if isinstance(one, Tensor)), default=0
                )
            elif name == "lift_fresh":  # a tensor made of the host's numbers
                counts.copies[f"{counts.phase}: {_who()}"] += 1
            elif name in READS or _asks_by_mask(name, args):
                counts.reads[f"{counts.phase}: {_who()}"] += 1
            is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
            if not is_view and name not in FREE and func.namespace != "prim":
                counts.kernels[counts.phase] += 1
                counts.names[f"{counts.phase}: {name}"] += 1
        return func(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READ_AT_ONCE and self.counts.phase != HOST:
            self.counts.reads[f"{self.counts.phase}: {_who()}"] += 1
        return func(*args, **(kwargs or {}))


def _asks_by_mask(name: str, arguments: Any) -> bool:
    """Whether it is indexing by a mask, of which a GPU must say first how much it picks."""
    return name in {"index", "index_put", "index_put_", "_index_put_impl_"} and any(
        isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in tree_leaves(arguments[1])
    )


def _who() -> str:
    """The line outside torch that is running."""
    frames = [one for one in traceback.extract_stack() if "/torch/" not in one.filename and one.filename != __file__]
    last = frames[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}: {(last.line or '')[:80]}"


@contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """The CPU takes the paths of a GPU."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", _flash, "CPU")
    library.impl("_flash_attention_backward", _flash_backward, "CPU")
    with patch.object(attention, "FLASH_ON", {"cpu"}), patch.dict(heads.PADDED_TO, {"cpu": 64}):
        yield
    library._destroy()


def _flash(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    nothing = q.new_zeros(0)
    return q * k * v, torch.zeros(q.shape[1], q.shape[0]), torch.zeros(2, dtype=torch.uint64), nothing, nothing


def _flash_backward(gradient: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    return gradient.clone(), gradient.clone(), gradient.clone()


@contextmanager
def _phases(engine: Engine, counts: Counts) -> Iterator[None]:
    """Says in which part of a step an operation stands."""

    def inside(function: Any, phase: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            before, counts.phase = counts.phase, phase
            try:
                return function(*args, **kwargs)
            finally:
                counts.phase = before

        return called

    def waited(*_: Any) -> None:
        if counts.phase != HOST:
            counts.reads[f"{counts.phase}: {_who()}"] += 1

    on_host = inside(steps.tensors, HOST)

    def moved(*args: Any, **kwargs: Any) -> Any:
        given = on_host(*args, **kwargs)
        counts.copies.update([*given])
        return given

    of_engine = {"forward": "forward", "backward": "backward", "next_micro_step": "backward", "step": "optimizer"}
    for name, phase in of_engine.items():
        setattr(engine, name, inside(getattr(engine, name), phase))
    with (
        patch.object(steps, "tensors", moved),
        patch.object(Workers, "sum", inside(Workers.sum, HOST)),
        patch.object(dictionary_alignment, "layout", inside(dictionary_alignment.layout, HOST)),
        patch.object(Lamb, "_count", inside(Lamb._count, HOST)),
        patch.object(Workers, "on_gpu", True),
        patch.object(type(get_accelerator()), "synchronize", waited),  # by which DeepSpeed waits for a device
    ):
        yield


class _Bytes(TorchDispatchMode):
    """Bytes that tensors hold from now on: those of this moment, and the most there have been."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for storage in {one.untyped_storage() for one in tree_leaves(made) if isinstance(one, Tensor)}:
            if storage._cdata not in self.held:
                self.held[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata)
        self.most = max(self.most, self.now)
        return made

    def _free(self, address: int) -> None:
        self.now -= self.held.pop(address)


def _in_fp32(module: torch.nn.Module) -> torch.nn.Module:
    """As torch's `float`, with new weights in place of the old ones; tied ones stay tied."""
    made: dict[Tensor, torch.nn.Parameter] = {}
    for one in module.modules():
        for name, weight in list(one.named_parameters(recurse=False, remove_duplicate=False)):
            setattr(one, name, made.setdefault(weight, torch.nn.Parameter(weight.float())))
    return module


TOKENS = 32_768


def count_bytes(method: str, vocab: int, row: int, tokens: int = TOKENS) -> dict[str, float]:
    """Bytes that the tensors of a forward and backward pass hold beside weights, at BERT-base's sizes, in bf16.

    Nothing is computed: the tensors have shapes alone.

    Returns:
        `kept` for the backward pass, and `most` at any moment, gradients included; both of one token.
    """
    arm = Arm("ours", vocab, tokens // row, row=row, width=768, depth=12, heads=12, bf16=True, method=method,
              train={"attention": "varlen"})  # fmt: skip
    rows = packed(examples(arm), row)
    further = columns(method, rows)
    device = torch.device("cpu")
    batch = steps.tensors(rows | further, device, [*further])
    # A copy of a weight would copy the mode, and Python crashes; `float` cannot exchange the weights of such a copy.
    itself = patch.object(FakeTensorMode, "__deepcopy__", lambda mode, _: mode, create=True)
    in_fp32 = patch.object(torch.nn.Module, "float", _in_fp32)
    with _as_on_a_gpu(), itself, in_fp32, FakeTensorMode(allow_non_fake_inputs=True) as shapes:
        torch.set_default_dtype(torch.bfloat16)
        with patch.dict(METHODS, {"weam": OF_ALL_LABELS}):
            config = recipe(arm, arm.rows)
        objectives = build_model(config, MadeRows(vocab), device)  # type: ignore[arg-type]
        torch.set_default_dtype(torch.float32)
        objectives.train()
        batch = {name: shapes.from_tensor(one) if isinstance(one, Tensor) else one for name, one in batch.items()}
        with _Bytes() as held:
            loss = torch.stack([*objectives(batch, (0, 1), 0).values()]).sum()
            kept = held.now
            loss.backward()
    return {"kept": kept / tokens, "most": held.most / tokens}


def count_graphs(model: Mapping[str, Any], layer: int | None) -> dict[str, int]:
    """Graphs and breaks of an encoder that is compiled by layer, over batches of every size, as a GPU runs it.

    Args:
        layer: whose states are asked for; None is the last.
    """
    dynamo.reset()
    counters.clear()
    arm = Arm("ours", 997, 1, row=64, width=48, depth=4, heads=3, bf16=True, fill=0.4,
              train={"torch_compile": True, "attention": "varlen"})  # fmt: skip
    config = recipe(arm, 1)
    config = config.model_copy(update={"model": config.model.model_copy(update=dict(model))})
    with _as_on_a_gpu(), patch.object(torch, "compile", partial(torch.compile, backend="eager")):
        objectives = build_model(config, MadeRows(arm.vocab), torch.device("cpu"))  # type: ignore[arg-type]
        encoder = objectives.to(torch.bfloat16).train().encoder
        for rows in (3, 4, 6, 7, 9):
            batch = steps.tensors(packed(examples(replace(arm, rows=rows)), arm.row), torch.device("cpu"))
            encoder.encode(batch, layer).sum().backward()
    return {"graphs": counters["stats"]["unique_graphs"], "breaks": counters["graph_break"].total()}


def _show(case: Case, counts: Counts) -> str:
    shown = {"case": asdict(case), "learned": counts.learned, "sent": counts.sent}
    found = {"kernels": counts.kernels, "reads": counts.reads, "names": counts.names, "copies": counts.copies}
    return json.dumps(shown | found)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        asked = json.loads(given)
        if "model" in asked:
            sys.stdout.write(json.dumps({"case": asked} | count_graphs(**asked)) + "\n")
        elif "vocab" in asked:
            sys.stdout.write(json.dumps({"case": asked} | count_bytes(**asked)) + "\n")
        else:
            case = Case(**asked)
            sys.stdout.write(_show(case, count(case)) + "\n")
