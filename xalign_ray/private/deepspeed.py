"""Private and undocumented parts of DeepSpeed: its import, flat weights, saved files, converters."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

MODULE_STATE = "mp_rank_00_model_states.pt"  # of a saved state: at stages 0-2 the whole module
# Types in its checkpoints beyond those that torch allows. If they change: a checkpoint of ours is refused by name.
ALLOWED = (
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
)
LINEAR = nn.functional.linear  # as torch has it
# Its modules that nothing here uses, and their class: the first imports MLflow, the second torch's compiler, together
# three CPU seconds of each worker's start. If they change: a worker starts later (test_train_imports.py).
UNUSED = {
    "deepspeed.autotuning.autotuner": "Autotuner",
    "deepspeed.runtime.zero.muon.muon_optimizer": "MuonWithAuxAdam",
}


def load_deepspeed(on_gpu: bool) -> Any:
    """Imports DeepSpeed for the device, its notices kept from the terminal.

    If it changes: the first run on a machine compiles an operator for inference, for half a minute
    (`deepspeed_shm_comm`).
    """
    os.environ["DS_ACCELERATOR"] = "cuda" if on_gpu else "cpu"
    for name, kind in UNUSED.items():
        module = ModuleType(name)
        setattr(module, kind, type(kind, (), {}))
        sys.modules.setdefault(name, module)
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", r"`torch.distributed.\w+` is deprecated", FutureWarning)
    # DeepSpeed would run compilers to learn which operators can be built, and lead this process's stderr into a file
    # meanwhile: two threads that did so left it there.
    deepspeed.ops.__compatible_ops__ = {}
    return deepspeed


def take_device(on_gpu: bool) -> None:
    """Lets DeepSpeed train on the device, whichever this process has loaded it for: exports are made on the CPU.

    If it changes: an ImportError, or a training after an export fails on a GPU (test_train_execution.py).
    """
    from deepspeed.accelerator import get_accelerator, set_accelerator
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    now: Any = get_accelerator()
    if (now.device_name() == "cuda") != on_gpu:
        set_accelerator(CUDA_Accelerator() if on_gpu else CPU_Accelerator())


def restore_linear() -> None:
    """Restores torch's linear layer, which stage 3 replaces and leaves replaced.

    That sums a bias's gradient in another order: the bits of a later run in the same process would depend on what ran
    before. If it changes: such runs differ in the last bits.
    """
    nn.functional.linear = LINEAR


def skip_allreduce(engine: Any) -> None:
    """Keeps stage 0 from copying each gradient to a buffer, and back: they are averaged in one piece, or not at all.

    If it changes: the step is slower.
    """
    engine.enable_backward_allreduce = False


def flat_weights(engine: Any) -> Iterator[tuple[Tensor, int, list[tuple[int, slice]]]]:
    """Of each group at stages 1 and 2: this rank's flat fp32 weights, the number of tensors that all ranks' stretches
    hold, and of each tensor held here its number and place.

    If it changes: an AttributeError when LAMB is set up (tests/parity/test_lamb.py).
    """
    zero = engine.optimizer
    for flat, tensors in zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True):
        held = [(i, tensor._hp_mapping.hp_fragment_address) for i, tensor in enumerate(tensors) if tensor._hp_mapping]
        yield flat, len(tensors), [(number, slice(at.start, at.start + at.numel)) for number, at in held]


@dataclass(frozen=True)
class FlatGroup:
    """Weights of stages 1 and 2, concatenated in a flat tensor; each rank updates a slice of it.

    Attributes:
        weights: of the model, views into `flat`.
        flat: in the model's precision, with padding at its end that makes the ranks' stretches equally long.
        part: this rank's stretch of it. master: the same in fp32, which the optimizer moves.
    """

    weights: list[nn.Parameter]
    flat: Tensor
    part: Tensor
    master: Tensor


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """The fp32 weights of a module by name, which DeepSpeed may have cast to bf16 or split; called by all ranks.

    Frozen ones keep what bf16 leaves of them: DeepSpeed has no fp32 copy.

    If it changes: a training in bf16 has other scores than its export (tests/parity/train/test_train_precision.py).
    """
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param

    def whole(weight: nn.Parameter) -> Tensor:
        if weight.dtype == torch.float32 and not hasattr(weight, "ds_id"):
            return weight
        if not weight.requires_grad:
            with GatheredParameters([weight]):
                return weight.detach().to(torch.float32, copy=True)
        master = safe_get_full_fp32_param(weight)
        assert master is not None, "all weights are trained"
        return master

    return {name: whole(weight) for name, weight in module.named_parameters()}


def take_gradients(engine: Any, step: Callable[[], None]) -> list[FlatGroup]:
    """Leaves all gradients where autograd puts them, for `step` to take; returns the weights that it moves.

    If it changes: an AttributeError at the start, or weights that do not move (tests/parity/train/test_train_steps.py).
    """
    zero = engine.optimizer
    for hook in zero._grad_acc_hooks:
        hook.remove()
    zero._grad_acc_hooks.clear()
    engine.enable_backward_allreduce = False
    assert not any(map(any, zero.round_robin_bit16_padding)), "weights lie side by side"

    def stepped(closure: None = None) -> None:  # noqa: ARG001
        zero.overflow = False
        step()
        zero._lazy_init_hp_params_optimizer_state()

    zero.step = stepped
    rank = engine.global_rank
    groups = zip(
        zero.round_robin_bit16_groups,
        zero.bit16_groups_flat,
        zero.parallel_partitioned_bit16_groups,
        zero.single_partition_of_fp32_groups,
        strict=True,
    )
    return [FlatGroup(list(weights), flat, parts[rank], master) for weights, flat, parts, master in groups]


def keep_parts(engine: Any, copy: Callable[[Any], Any]) -> list[tuple[Path, Any]]:
    """Makes `save_checkpoint` append the files that it would write to the list, each with a copy of its value.

    Nothing can fail then while the other ranks wait for this one. If it changes: a save writes files itself, which
    no manifest lists (tests/parity/train/test_train_async_save.py).
    """
    from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

    parts: list[tuple[Path, Any]] = []

    class Keeper(TorchCheckpointEngine):
        def save(self, state_dict: Any, path: str) -> None:
            parts.append((Path(path), copy(state_dict)))

    engine.checkpoint_engine = Keeper(engine._config)
    engine._copy_recovery_script = lambda _: None  # not part of the state, and would raise on a full disk
    return parts


def read_settings(settings: dict[str, Any]) -> None:
    """Reads settings as `deepspeed.initialize` will, and raises whatever that raises.

    If it changes: an ImportError in `xalign plan` and `pretrain` with `parallel.deepspeed_overrides`.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    DeepSpeedConfig(settings)


def join_weights(folder: Path, tag: str) -> dict[str, Tensor]:
    """The whole fp32 weights of a state saved at stages 1 to 3.

    If it changes: progress bars on stdout, to which other threads write.
    """
    from deepspeed.utils import zero_to_fp32

    zero_to_fp32.__dict__.update(print=lambda *_, **__: None, tqdm=lambda files, **_: files)
    state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=tag)
    assert state is not None
    return state


def convert_to_universal(source: Path, target: Path) -> None:
    """Converts a saved state to the universal format, which any number of workers can load; in several processes.

    If it changes: an error about an option, and a run keeps its number of workers (test_train_resize.py).
    """
    from deepspeed.checkpoint.ds_to_universal import main

    workers = {"num_extract_workers": 4, "num_merge_workers": 2}  # its own defaults
    options = workers | {"keep_temp_folder": False, "strict": True, "inject_missing_state": True}
    main(SimpleNamespace(input_folder=str(source), output_folder=str(target), **options))
