"""Evaluations of an encoder, files by kind. One is registered by its line here, which help reads without torch."""

from pathlib import Path

from xalign_ray.config.yaml_text import parse_yaml

PROBES = {
    "tatoeba": "retrieval:TATOEBA",
    "retrieval": "retrieval:RETRIEVAL",
    "flores": "sentence_benchmarks:FLORES",
    "ntrex": "sentence_benchmarks:NTREX",
    "sts": "scored_pairs:SCORED_PAIRS",
    "alignment": "probes:ALIGNMENT",
    "cloze": "cloze:CLOZE",
}
BENCHMARKS = parse_yaml(Path(__file__).with_name("benchmarks.yaml").read_text(encoding="utf-8"))
TUNED_TASK_NAMES = tuple(BENCHMARKS)
TASK_NAMES = (*PROBES, *TUNED_TASK_NAMES)
"""The tasks by name: what `xalign evaluate --task` and `xalign tune` may be given; for mteb's, see `mteb_task`."""
