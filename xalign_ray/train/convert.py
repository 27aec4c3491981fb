"""DeepSpeed's converter to its universal format, for a process of its own: it reads nothing that could run code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from xalign_ray.errors import CheckpointError
from xalign_ray.train.engine import load_deepspeed
from xalign_ray.train.plain_path import plain_path
from xalign_ray.train.trust import only_data

TRUSTED = "trusted"
_WORKERS = {"num_extract_workers": 4, "num_merge_workers": 2}  # the converter's own defaults


def main() -> int:
    """`python -m xalign_ray.train.convert FROM TO [trusted]`; a refusal is a sentence on stderr."""
    source, target, *trusted = sys.argv[1:]
    load_deepspeed(on_gpu=False)
    from deepspeed.checkpoint.ds_to_universal import main as convert

    options = _WORKERS | {"keep_temp_folder": False, "strict": True, "inject_missing_state": True}
    try:
        with (
            only_data(trusted == [TRUSTED]),
            plain_path(Path(source)) as folder,
            plain_path(Path(target).parent) as parent,  # the target itself is made by the converter
        ):
            output = parent / Path(target).name
            convert(SimpleNamespace(input_folder=str(folder), output_folder=str(output), **options))
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
