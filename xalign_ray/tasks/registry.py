"""The tasks by name: what `xalign evaluate --task` and `xalign tune` may be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xalign_ray.tasks.cloze import evaluate_cloze
from xalign_ray.tasks.pos import evaluate_pos, tune_pos
from xalign_ray.tasks.probes import evaluate_alignment
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.tatoeba import evaluate_tatoeba

# (encoder_folder, data, languages=None, batch_size=64, device="cpu"); only `alignment` takes None for data.
TASKS: Mapping[str, Callable[..., list[Score]]] = {
    "alignment": evaluate_alignment,
    "cloze": evaluate_cloze,
    "pos": evaluate_pos,
    "tatoeba": evaluate_tatoeba,
}

# (encoder_folder, data_folders, out_folder, languages, settings, train_language, device)
TUNED_TASKS: Mapping[str, Callable[..., list[Score]]] = {"pos": tune_pos}
