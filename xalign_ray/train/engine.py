"""Training under DeepSpeed at every ZeRO stage: set-up, forward, backward, step, save and load."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from xalign_ray.config.derive import choose_attention, deepspeed_config
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.training import TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models import attention
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.train.checkpoint_files import Part, copy_to_host, only_data, plain_path
from xalign_ray.train.distributed import Workers
from xalign_ray.train.optimizers import Lamb, Parts, build_optimizer


def set_up(encoder: AlignedEncoder, train: TrainConfig, device: torch.device) -> None:
    """Makes the encoder run as a recipe asks; what it computes stays the same up to rounding."""
    encoder.attend(attention.implementation(choose_attention(train, device.type != "cpu", encoder.family.dense_only)))
    if train.gradient_checkpointing:
        # Not reentrant: ZeRO sees the gradient of each weight once.
        encoder.hf.gradient_checkpointing_enable({"use_reentrant": False})
    if train.torch_compile:
        # Layer by layer: one graph for all in 4 s where the whole takes 44, and the step is as fast.
        from transformers.modeling_layers import GradientCheckpointingLayer

        for module in encoder.hf.base_model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.compile(dynamic=True)


def describe(train: TrainConfig, device: torch.device, dense_only: bool = False) -> str:
    """How it is run, for people to read; `dense_only` as the encoder's family says."""
    kind = choose_attention(train, device.type != "cpu", dense_only)
    said = {
        f"{kind} attention": True,
        "gradient checkpointing": train.gradient_checkpointing,
        "compiled": train.torch_compile,
        "bf16": train.bf16,
    }
    return ", ".join(text for text, holds in said.items() if holds)


STATE = "state"  # the folder of DeepSpeed's files inside a checkpoint
BUCKET = 500_000_000  # gradients that DeepSpeed reduces at once, as it has it
LINEAR = nn.functional.linear  # as torch has it
# Modules of DeepSpeed that training only imports, each with the names that DeepSpeed takes from it. They cost a worker
# two seconds of CPU: the tuner of settings brings MLflow with its web server, Muon torch's compiler.
UNUSED = {
    "deepspeed.autotuning.autotuner": ["Autotuner"],
    "deepspeed.runtime.zero.muon.original_muon": ["MuonWithAuxAdam", "adam_update", "muon_update"],
}


class Engine:
    """A module under DeepSpeed: sums come out of `forward`, the loop scales them, `backward` and `step` do the rest."""

    def __init__(self, module: nn.Module, config: RunConfig, workers: Workers, universal: bool = False) -> None:
        """Puts the module under DeepSpeed.

        Args:
            universal: whether `load` will be given a checkpoint in DeepSpeed's universal format.
        """
        deepspeed = load_deepspeed(workers.on_gpu)
        # Stage 3 puts one of its own in its place and leaves it there, with a bias's gradient summed in another order:
        # the bits of a later run in the same process would depend on what ran before it.
        nn.functional.linear = LINEAR
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.train.tf32
        self._workers = workers
        self._stage = config.parallel.zero_stage
        self._clipping = config.train.max_grad_norm
        self._universal = universal
        self._optimizer = build_optimizer(module, config.train.optimizer)
        self._trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        settings: dict[str, Any] = deepspeed_config(config, workers.on_gpu)
        settings["checkpoint"] = {"load_universal": universal}
        # DeepSpeed asks for a buffer of this size anew in every step: no more than all gradients fill, in one piece.
        size = min(BUCKET, sum(parameter.numel() for parameter in module.parameters()))
        settings["zero_optimization"].setdefault("reduce_bucket_size", size)
        if self._stage == 0:
            settings["gradient_clipping"] = 0.0  # done in `step`, which looks for the norm anyway: one pass, not two
        # DeepSpeed's own bf16 at stage 0 calls the optimizer once with zero gradients at set-up. Autocast begins
        # inside the module: DeepSpeed's forward turns off one that surrounds it, on GPUs alone and with a warning only.
        if config.train.bf16 and self._stage == 0:
            module.forward = torch.autocast(workers.device.type, torch.bfloat16)(module.forward)
        module.train()  # transformers opens an encoder that is continued for evaluation: without dropout
        self._engine, *_ = deepspeed.initialize(model=module, optimizer=self._optimizer, config=settings)
        if self._stage == 0 and workers.size == 1:
            self._engine.enable_backward_allreduce = False  # it would copy all gradients to a buffer, and back
        self._keeper = _keep_parts(self._engine)
        if isinstance(self._optimizer, Lamb) and self._stage:
            zero = self._engine.optimizer
            held = zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
            self._optimizer.share({flat: _parts(tensors) for flat, tensors in held}, dist.all_reduce)

    def forward(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The module's output for one micro-batch."""
        return self._engine(*arguments, **options)

    def backward(self, loss: torch.Tensor) -> None:
        """Adds a micro-batch's gradients; DeepSpeed divides them by micro-steps and averages over ranks."""
        self._engine.backward(loss)

    def next_micro_step(self) -> None:
        """Ends a micro-step that is not the last of its step."""
        assert not self._engine.is_gradient_accumulation_boundary()
        self._engine.step()

    def step(self, learning_rate: float) -> torch.Tensor:
        """Ends the last micro-step: clips, moves the weights.

        Returns:
            The global gradient norm before clipping, on the device.
        """
        assert self._engine.is_gradient_accumulation_boundary()
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        own_norm = self._clip() if self._stage == 0 else None
        self._engine.step()
        norm = own_norm if own_norm is not None else self._engine.get_global_grad_norm()
        return torch.as_tensor(norm, device=self._workers.device)

    def _clip(self) -> torch.Tensor:
        """Clips at stage 0, where every rank holds the whole averaged gradient; gives the norm before."""
        parameters = [p for p in self._engine.module.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        if self._clipping and (self._workers.on_gpu or norm > self._clipping):  # a GPU is not waited for
            nn.utils.clip_grads_with_norm_(parameters, self._clipping, norm)
        return norm

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Inside, `forward` has no dropout and keeps no gradients."""
        self._engine.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self._engine.train()

    def snapshot(self, folder: Path) -> list[Part]:
        """Copies this rank's part of the state to the host's memory, to be written under `folder`; called by all."""
        self._engine.save_checkpoint(str(folder), tag=STATE, save_latest=False)
        if self._workers.on_gpu:
            torch.cuda.synchronize(self._workers.device)
        parts, self._keeper.parts = self._keeper.parts, []
        return parts

    def load(self, folder: Path, trusted: bool = False) -> None:
        """Restores weights and optimizer from `folder`, of as many ranks at the same stage, or universal; by all.

        Args:
            trusted: whether the files may run code.

        Raises:
            CheckpointError: one would, and is not trusted.
        """
        with only_data(trusted), plain_path(folder) as readable:
            self._load(readable)

    def _load(self, folder: Path) -> None:
        groups = self._optimizer.param_groups
        options = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        path, _ = self._engine.load_checkpoint(str(folder), tag=STATE)
        assert path is not None, f"{folder} has a manifest, but DeepSpeed finds no checkpoint in it"
        if self._universal:
            # At stage 3 DeepSpeed gives every group the options of the first and one step counter for all to advance.
            for group, own in zip(groups, options, strict=True):
                group.update(own)
            for state in self._optimizer.state.values():
                state["step"] = state["step"].clone()
            self._load_buffers(folder)

    def _load_buffers(self, folder: Path) -> None:
        """What losses remember between steps: the universal format brings back weights only, all ranks held the same.

        At stage 3, where DeepSpeed keeps the module's state in parts, no loss has such a memory.
        """
        kept = [name for name in self._engine.module.state_dict() if name not in self._trained]
        if kept:
            file = folder / STATE / "mp_rank_00_model_states.pt"
            state = torch.load(file, map_location=self._workers.device)["module"]
            self._engine.module.load_state_dict({name: state[name] for name in kept}, strict=False)


def check_overrides(config: RunConfig) -> None:
    """Whether DeepSpeed itself can read what `parallel.deepspeed_overrides` makes of its dict.

    Raises:
        ConfigError: it cannot; says what DeepSpeed says.
    """
    on_gpu = config.parallel.gpus_per_worker > 0
    load_deepspeed(on_gpu)
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        DeepSpeedConfig(deepspeed_config(config, on_gpu))
    except Exception as error:  # asserts, pydantic's and Python's own, whatever reads the value first
        said = " ".join(str(error).partition("\n    For further")[0].split())
        raise ConfigError(f"parallel.deepspeed_overrides: DeepSpeed cannot read it: {said}") from None


def load_deepspeed(on_gpu: bool) -> Any:
    """Imports DeepSpeed for the device, with its notices kept from the terminal."""
    os.environ["DS_ACCELERATOR"] = "cuda" if on_gpu else "cpu"
    for module, names in UNUSED.items():
        sys.modules.setdefault(module, _empty(module, names))
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", r"`torch.distributed.\w+` is deprecated", FutureWarning)
    # An operator for inference only (TorchBackend.inference_all_reduce), which training never calls: compiling it costs
    # the first run on a machine half a minute and a C++ compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _parts(tensors: Sequence[Any]) -> Parts:
    """What this rank holds of the tensors of a group, which DeepSpeed has laid one after the other and cut by rank."""
    held = [(number, one._hp_mapping.hp_fragment_address) for number, one in enumerate(tensors) if one._hp_mapping]
    numbers, places = [number for number, _ in held], [place for _, place in held]
    return Parts(len(tensors), numbers, [slice(place.start, place.start + place.numel) for place in places])


def _empty(module: str, names: list[str]) -> ModuleType:
    """A module with empty classes, of which nothing is an instance."""
    empty = ModuleType(module)
    for name in names:
        setattr(empty, name, type(name, (), {}))
    return empty


def _keep_parts(engine: Any) -> Any:
    """Makes the engine hand over what it would write: nothing can fail then while the other ranks wait for this one."""
    from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

    class Keeper(TorchCheckpointEngine):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.parts: list[Part] = []

        def save(self, state_dict: Any, path: str) -> None:
            self.parts.append((Path(path), copy_to_host(state_dict)))

    keeper = engine.checkpoint_engine = Keeper(engine._config)
    engine._copy_recovery_script = lambda _: None  # not part of the state, and would raise on a full disk
    return keeper
