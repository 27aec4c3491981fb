"""The whole weights of a checkpoint, in fp32 on the CPU, from any ZeRO stage; no engine and no other ranks needed."""

from __future__ import annotations

import torch

from xalign_ray.train.checkpoint import Checkpoint
from xalign_ray.train.engine import STATE, load_deepspeed
from xalign_ray.train.plain_path import plain_path
from xalign_ray.train.trust import only_data


def consolidate(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The state dict of the module that was trained, parameters and buffers by name.

    Stage 0 keeps the module whole in one file, which DeepSpeed's converter does not read; stages 1-3 keep the fp32
    weights as flat parts in the optimizer's files.
    """
    if checkpoint.zero_stage == 0:
        file = checkpoint.folder / STATE / "mp_rank_00_model_states.pt"
        with only_data(checkpoint.trusted, allowed=()):
            state = torch.load(file, map_location="cpu", weights_only=not checkpoint.trusted)["module"]
    else:
        load_deepspeed(on_gpu=False)
        from deepspeed.utils import zero_to_fp32

        # It shows its progress. The process's stdout stays as it is: other threads write to it.
        zero_to_fp32.__dict__.update(print=lambda *_, **__: None, tqdm=lambda files, **_: files)
        with only_data(checkpoint.trusted), plain_path(checkpoint.folder) as folder:
            state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=STATE)
        assert state is not None
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
