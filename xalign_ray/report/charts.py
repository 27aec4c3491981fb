"""Decides which charts a report has: training losses, held-out losses by language, scores by layer."""

from __future__ import annotations

from collections.abc import Sequence

from xalign_ray.report.columns import Column
from xalign_ray.report.curves import (
    HELD_OUT,
    MASKED_LM,
    TOTAL,
    layer_chances,
    layer_curves,
    loss_curves,
)
from xalign_ray.report.figures import Chart, Panel
from xalign_ray.tasks.scores import ALL_LANGUAGES

_MAX_PANELS = 12
_LAYERED = "tatoeba_accuracy"


def training_chart(columns: Sequence[Column]) -> Chart | None:
    """Masked-LM loss, every other loss on its own axis, and the total where it is more than the masked-LM loss."""
    curves = loss_curves(columns)
    names = sorted(name for name, language in curves if not language and name.startswith("train/"))
    others = [name for name in names if name not in (TOTAL, MASKED_LM)]
    shown = [MASKED_LM, *others, *([TOTAL] if others else [])]
    panels = [Panel(_name_loss(name), curves[name, ""], "") for name in shown if (name, "") in curves]
    alt = "Training losses over steps"
    return Chart("training", alt, "step", panels, _labels(columns), shared=False) if panels else None


def held_out_chart(columns: Sequence[Column]) -> Chart | None:
    """Held-out masked-LM loss: the mean over languages, then language by language."""
    curves = loss_curves(columns)
    order = {language: None for column in columns for run in column.runs for language in _data_languages(run.data)}
    found = [language for name, language in curves if name == HELD_OUT and language]
    languages = [*(code for code in order if code in found), *sorted(set(found) - set(order))]
    panels = [Panel(language, curves[HELD_OUT, language], "") for language in languages]
    if (HELD_OUT, "") in curves and len(panels) != 1:
        panels.insert(0, Panel("mean over languages", curves[HELD_OUT, ""], ""))
    alt = "Held-out masked-LM loss over steps, by language"
    return Chart("heldout", alt, "step", panels[:_MAX_PANELS], _labels(columns)) if panels else None


def layer_chart(columns: Sequence[Column]) -> Chart | None:
    """Tatoeba accuracy at every layer: the mean over languages, then language by language."""
    chances = layer_chances(columns, _LAYERED)
    panels = [
        Panel("mean over languages" if language == ALL_LANGUAGES else language, curves, "%", chances.get(language))
        for language, curves in layer_curves(columns, _LAYERED).items()
    ]
    if not panels:
        return None
    alt = "Tatoeba accuracy by layer"
    shown = panels[:_MAX_PANELS]
    return Chart("layers", alt, "layer", shown, _labels(columns), whole_numbers=True, scale=100.0)


def _name_loss(name: str) -> str:
    words = name.removeprefix("train/loss").removeprefix("_").replace("_", " ").replace("masked lm", "masked LM")
    return f"{words} loss" if words else "total loss (weighted sum)"


def _labels(columns: Sequence[Column]) -> list[str]:
    return [column.label for column in columns]


def _data_languages(manifest: object) -> list[str]:
    return list(manifest.get("languages", [])) if isinstance(manifest, dict) else []
