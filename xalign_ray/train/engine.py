"""Training under DeepSpeed at every ZeRO stage: set-up, forward, backward, step, save and load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from xalign_ray.config.derive import choose_attention, deepspeed_config, has_flat_gradients
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.training import TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models import attention
from xalign_ray.models.encoder import AlignedEncoder
from xalign_ray.models.precision import in_fp32
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.private.deepspeed import (
    MODULE_STATE,
    flat_weights,
    keep_parts,
    load_deepspeed,
    read_settings,
    restore_linear,
    skip_allreduce,
    take_device,
    take_gradients,
    whole_weights,
)
from xalign_ray.private.transformers import layer_class
from xalign_ray.train.checkpoint_files import Part, copy_to_host, only_data, plain_path
from xalign_ray.train.distributed import Workers
from xalign_ray.train.flat_gradients import FlatGradients, average_gradients
from xalign_ray.train.optimizers import Lamb, Parts, build_optimizer
from xalign_ray.train.trainable import Trainable


def set_up(encoder: AlignedEncoder, train: TrainConfig, device: torch.device) -> None:
    """Sets attention, gradient checkpointing and compilation; results stay the same up to rounding."""
    encoder.attend(attention.implementation(choose_attention(train, device.type != "cpu", encoder.family.dense_only)))
    if train.gradient_checkpointing:
        # Not reentrant: ZeRO sees the gradient of each weight once.
        encoder.hf.gradient_checkpointing_enable({"use_reentrant": False})
    if train.torch_compile:
        encoder.compiled = True
        # Layer by layer: one graph for all in 4 s where the whole takes 44, and the step is as fast.
        for module in encoder.hf.base_model.modules():
            if isinstance(module, layer_class()):
                encoder.family.compile(module)


def describe(train: TrainConfig, device: torch.device, dense_only: bool) -> str:
    """These settings and the precision in words; `dense_only` is the family's."""
    kind = choose_attention(train, device.type != "cpu", dense_only)
    settings = {
        f"{kind} attention": True,
        "gradient checkpointing": train.gradient_checkpointing,
        "compiled": train.torch_compile,
        "bf16": train.in_bf16(device.type != "cpu"),
    }
    return ", ".join(text for text, holds in settings.items() if holds)


def check_precision(train: TrainConfig, device: torch.device) -> None:
    """Whether the device has bf16, if the recipe asks for it.

    Raises:
        ConfigError: a GPU from before 2020 would compute it by fp32, and slower.
    """
    on_gpu = device.type != "cpu"
    if on_gpu and train.in_bf16(on_gpu) and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise ConfigError(f"{name} has no bf16, which training on GPUs is in; set train.bf16=false for fp32.")


STATE = "state"  # the folder of DeepSpeed's files inside a checkpoint
BUCKET = 500_000_000  # gradients that DeepSpeed reduces at once, as it has it


class Engine:
    """A module under DeepSpeed: sums come out of `forward`, the loop scales them, `backward` and `step` do the rest."""

    def __init__(self, module: EncoderWithLosses, config: RunConfig, workers: Workers, universal: bool = False) -> None:
        """Puts the module under DeepSpeed.

        Args:
            universal: whether `load` will be given a checkpoint in DeepSpeed's universal format.
        """
        check_precision(config.train, workers.device)
        deepspeed = load_deepspeed(workers.on_gpu)
        take_device(workers.on_gpu)
        restore_linear()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.train.tf32
        # For scores: a module of the same tensors, which DeepSpeed neither casts nor hooks.
        module.to(workers.device)
        self._plain: Any = deepcopy(
            module, {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
        )
        plain = {"bf16": False, "attention": "auto", "gradient_checkpointing": False, "torch_compile": False}
        set_up(self._plain.encoder, config.train.model_copy(update=plain), workers.device)
        self._plain.eval()
        self._workers = workers
        self._stage = config.parallel.zero_stage
        self._sent_as = torch.bfloat16 if config.in_bf16 else torch.float32
        self._clipping = config.train.max_grad_norm
        self._universal = universal
        self._trainable = Trainable(module.encoder, config.train)
        self._optimizer = build_optimizer(module, config.train.optimizer, self._trainable.moves)
        if self._trainable.moves:
            self._optimizer.register_step_pre_hook(self._trainable.skip)
        self._trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        # Frozen weights, as of an encoder with adapters, are in no checkpoint: a run builds them again.
        self._has_frozen = not all(parameter.requires_grad for parameter in module.parameters())
        settings: dict[str, Any] = deepspeed_config(config, workers.on_gpu)
        settings["checkpoint"] = {"load_universal": universal}
        # DeepSpeed asks for a buffer of this size anew in every step: no more than all gradients fill, in one piece.
        size = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        settings["zero_optimization"].setdefault("reduce_bucket_size", min(BUCKET, size))
        is_flat = has_flat_gradients(config, size)
        if is_flat:
            settings["zero_optimization"] |= {"contiguous_gradients": False, "overlap_comm": False}
        if self._stage == 0:
            settings["gradient_clipping"] = 0.0  # done in `step`, which looks for the norm anyway: one pass, not two
        # DeepSpeed's own bf16 at stage 0 calls the optimizer once with zero gradients at set-up. Autocast begins
        # inside the module: DeepSpeed's forward turns off one that surrounds it, on GPUs alone and with a warning only.
        if config.in_bf16 and self._stage == 0:
            module.forward = torch.autocast(workers.device.type, torch.bfloat16)(module.forward)
        module.train()  # transformers opens an encoder that is continued for evaluation: without dropout
        self._engine, *_ = deepspeed.initialize(model=module, optimizer=self._optimizer, config=settings)
        self.forward: Callable[..., dict[str, Any]] = self._engine  # the module's output for one micro-batch
        if self._stage == 0:
            skip_allreduce(self._engine)
        self._flat: FlatGradients | None = None
        if is_flat:
            micro_steps = settings["gradient_accumulation_steps"]
            self._flat = FlatGradients(self._optimizer, workers, micro_steps, self._clipping)
            self._flat.groups = take_gradients(self._engine, self._flat.step)
        self._parts = keep_parts(self._engine, copy_to_host)
        if isinstance(self._optimizer, Lamb) and self._stage:
            held = {flat: Parts(tensors, here) for flat, tensors, here in flat_weights(self._engine)}
            self._optimizer.set_shards(held, dist.all_reduce)

    @property
    def not_resharded(self) -> str:
        """Why another number of workers cannot go on with its checkpoints; empty if it can."""
        if self._stage < 3 or not self._trainable.in_phases:
            return ""
        return "at ZeRO stage 3 DeepSpeed keeps one count of steps, and parts of train.trainable have their own."

    def begin(self, step: int) -> None:
        """Before step number `step`, from 0: the parts of its phase move from now on."""
        self._trainable.begin(step, self._engine.optimizer.param_groups)

    def backward(self, loss: torch.Tensor) -> None:
        """Adds a micro-batch's gradients; they are divided by micro-steps and averaged over ranks."""
        self._engine.backward(loss)
        if self._flat:
            self._flat.add()
        elif self._stage == 0 and self._workers.size > 1 and self._engine.is_gradient_accumulation_boundary():
            average_gradients(self._engine.module.parameters(), self._workers, self._sent_as)

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
            group["lr"] = learning_rate * self._trainable.rate(group)
        own_norm = self._clip() if self._stage == 0 else None
        self._engine.step()
        if self._flat:
            return self._flat.norm
        norm = own_norm if own_norm is not None else self._engine.get_global_grad_norm()
        return torch.as_tensor(norm, device=self._workers.device)

    def _clip(self) -> torch.Tensor:
        """Clips at stage 0, where every rank holds the whole averaged gradient; gives the norm before."""
        parameters = [p for p in self._engine.module.parameters() if p.requires_grad]
        for weight in parameters:
            if weight.grad is None:  # no loss reads it: it is decayed, as at the other stages
                weight.grad = torch.zeros_like(weight)
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        if self._clipping and (self._workers.on_gpu or norm > self._clipping):  # a GPU is not waited for
            nn.utils.clip_grads_with_norm_(parameters, self._clipping, norm)
        return norm

    @contextmanager
    def scoring(self) -> Iterator[Callable[..., dict[str, Any]]]:
        """Gives a `forward` in fp32 with the weights that an export would have, without dropout; called by all ranks.

        Its states equal the export's, in any precision of training.
        """
        with torch.no_grad(), in_fp32():
            weights = whole_weights(self._engine.module)
            yield lambda *arguments, **options: functional_call(self._plain, weights, arguments, options)

    def snapshot(self, folder: Path) -> list[Part]:
        """Copies this rank's part of the state to the host's memory, to be written under `folder`; called by all."""
        self._engine.save_checkpoint(
            str(folder), tag=STATE, save_latest=False, exclude_frozen_parameters=self._has_frozen
        )
        if self._workers.on_gpu:
            torch.cuda.synchronize(self._workers.device)
        parts = self._parts.copy()
        self._parts.clear()
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
        path, _ = self._engine.load_checkpoint(str(folder), tag=STATE, load_module_strict=not self._has_frozen)
        assert path is not None, f"{folder} has a manifest, but DeepSpeed finds no checkpoint in it"
        if self._universal:
            # At stage 3 DeepSpeed gives every group the options of the first and one step counter for all to advance.
            for group, before in zip(groups, options, strict=True):
                group.update(before)
            for state in self._optimizer.state.values():
                state["step"] = state["step"].clone()
            self._load_buffers(folder)

    def _load_buffers(self, folder: Path) -> None:
        """What losses remember between steps: the universal format brings back weights only, all ranks held the same.

        At stage 3, where DeepSpeed keeps the module's state in parts, no loss has such a memory.
        """
        buffers = [name for name in self._engine.module.state_dict() if name not in self._trained]
        if buffers:
            state = torch.load(folder / STATE / MODULE_STATE, map_location=self._workers.device)["module"]
            self._engine.module.load_state_dict({name: state[name] for name in buffers}, strict=False)


def check_overrides(config: RunConfig) -> None:
    """Whether DeepSpeed itself can read what `parallel.deepspeed_overrides` makes of its dict.

    Raises:
        ConfigError: it cannot; with DeepSpeed's message.
    """
    on_gpu = config.parallel.gpus_per_worker > 0
    load_deepspeed(on_gpu)
    try:
        read_settings(deepspeed_config(config, on_gpu))
    except Exception as error:  # asserts, pydantic's and Python's own, whatever reads the value first
        message = " ".join(str(error).partition("\n    For further")[0].split())
        raise ConfigError(f"parallel.deepspeed_overrides: DeepSpeed cannot read it: {message}") from None
