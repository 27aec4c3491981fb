"""The tasks by name: what `xalign evaluate --task` and `xalign tune` may be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xalign_ray.tasks.cloze import evaluate_cloze
from xalign_ray.tasks.evaluate import Task, as_evaluation
from xalign_ray.tasks.mldoc import MLDOC, MLDOC_H
from xalign_ray.tasks.mlqa import MLQA
from xalign_ray.tasks.ner import NER
from xalign_ray.tasks.pawsx import PAWSX
from xalign_ray.tasks.pos import POS
from xalign_ray.tasks.probes import evaluate_alignment
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.sib import SIB
from xalign_ray.tasks.tatoeba import evaluate_tatoeba
from xalign_ray.tasks.xnli import XNLI

TUNED_TASKS: Mapping[str, Task] = {task.name: task for task in (POS, NER, XNLI, PAWSX, MLDOC, MLDOC_H, SIB, MLQA)}

WITHOUT_DATA = frozenset({"alignment"})  # an encoder of ours brings its own

# (encoder_folder, data, languages=None, batch_size=64, device="cpu"); data is None for those WITHOUT_DATA alone.
TASKS: Mapping[str, Callable[..., list[Score]]] = {
    "alignment": evaluate_alignment,
    "cloze": evaluate_cloze,
    "tatoeba": evaluate_tatoeba,
} | {name: as_evaluation(task) for name, task in TUNED_TASKS.items()}
