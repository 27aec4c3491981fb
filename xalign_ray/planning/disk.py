"""What a run writes to disk: checkpoints, the export, and prepared data by their number of tokens."""

from __future__ import annotations

from xalign_ray.config.choices import PAIRS
from xalign_ray.config.schema import RunConfig
from xalign_ray.planning.figures import read_figures
from xalign_ray.planning.memory import FP32, checkpoint_bytes
from xalign_ray.planning.subject import Subject


def run_bytes(config: RunConfig, subject: Subject) -> float:
    """Of the kept checkpoints, one more that is being written, and the export in fp32."""
    return checkpoint_bytes(config, subject) * (config.checkpoint.save_total_limit + 1) + FP32 * subject.sizes.total


def shard_bytes_per_token(config: RunConfig) -> dict[str, float]:
    """Of prepared text, and of prepared pairs, as far as the recipe reads them: measured, see figures.yaml."""
    measured = read_figures().disk_bytes_per_token
    text = any(stream.pools != PAIRS for stream in config.streams)
    pairs = any(stream.pools == PAIRS for stream in config.streams)
    linked = any(stream.needs_alignment for stream in config.streams)
    kinds = {"text": text, "pairs": pairs and not linked, "aligned pairs": linked}
    return {kind: measured[kind] for kind, is_read in kinds.items() if is_read}
